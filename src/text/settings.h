/* The settings of a tokenizer.json: whether they ask for just what this library does. */
#ifndef DDL_TEXT_SETTINGS_H
#define DDL_TEXT_SETTINGS_H

#include "ddl/status.h"

#include <jansson.h>

/* Refuses what would change a text's ids or an id's bytes. unk_token, fuse_unk and byte_fallback do not:
 * every byte has a token. `path` starts an error's sentence. */
ddl_status ddl_tokenizer_check_settings(const json_t *root, const char *path, struct ddl_error *err);

/* "an object", "a list", ...; "nothing" for NULL. */
const char *ddl_json_type_name(const json_t *value);

#endif
