/* JSON from text and from files and back, with reasons that jansson does not give: without memory it returns
 * NULL and blames nothing, or the text. */
#ifndef DDL_BASE_JSON_H
#define DDL_BASE_JSON_H

#include "ddl/status.h"

#include <jansson.h>
#include <stddef.h>

/* As json_loadb; *out is NULL after an error. DDL_E_FORMAT or DDL_E_MEMORY, and why->text says it in words.
 */
ddl_status ddl_json_parse(json_t **out, const char *text, size_t size, size_t flags, json_error_t *why);

/* What stands in the file `path`, where no key may stand twice. "<path>:<line>:<column>: not valid JSON:
 * <why>". */
ddl_status ddl_json_parse_file(json_t **out, const char *path, const char *text, size_t size,
                               struct ddl_error *err);
/* Reads the file, which may have `limit` bytes, and does that. *out is NULL after an error. */
ddl_status ddl_json_read(json_t **out, const char *path, size_t limit, struct ddl_error *err);

/* json_dumps() in the C locale, whatever locale the host program has set; malloc'ed, NULL without memory. */
char *ddl_json_dumps(const json_t *root, size_t flags);

/* The file replaced by `root` (not taken), a line for each value. NULL is what a root is for want of memory,
 * and that is said: DDL_E_MEMORY. */
ddl_status ddl_json_write(const char *path, const json_t *root, struct ddl_error *err);

#endif
