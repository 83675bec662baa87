/* Validates the settings of a tokenizer.json. */
#ifndef DDL_TEXT_SETTINGS_H
#define DDL_TEXT_SETTINGS_H

#include "ddl/status.h"

#include <jansson.h>
#include <stdbool.h>

/* Rejects settings that would change the ids of a text or the bytes of an id. unk_token, fuse_unk and
 * byte_fallback are ignored: they have no effect because every byte has a token. Error messages start with
 * `path`. */
ddl_status ddl_tokenizer_check_settings(const json_t *root, const char *path, struct ddl_error *err);

/* Whether it is a vocabulary of characters: no pre-tokenizer, an empty list of merges, no decoder but Fuse.
 */
bool ddl_tokenizer_has_characters(const json_t *root);

/* "an object", "a list", ...; "nothing" for NULL. */
const char *ddl_json_type_name(const json_t *value);

#endif
