/* JSON text to a value, with a reason that jansson does not give: without memory it returns NULL and blames
 * nothing, or the text. */
#ifndef DDL_BASE_JSON_H
#define DDL_BASE_JSON_H

#include "ddl/status.h"

#include <jansson.h>
#include <stddef.h>

/* As json_loadb; *out is NULL after an error. DDL_E_FORMAT or DDL_E_MEMORY, and why->text says it in words.
 */
ddl_status ddl_json_parse(json_t **out, const char *text, size_t size, size_t flags, json_error_t *why);

#endif
