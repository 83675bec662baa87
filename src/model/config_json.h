/* What config_json.c and config_release.c share. */
#ifndef DDL_MODEL_CONFIG_JSON_H
#define DDL_MODEL_CONFIG_JSON_H

#include "ddl/config.h"

#include <jansson.h>

/* True if config.json does not say: the key is absent, or null. */
static inline bool ddl_json_lacks(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    return !value || json_is_null(value);
}

/* Fills what config.json (`root`) lacks from the names and shapes of the folder's tensors: the end of spec 5.
 */
ddl_status ddl_config_from_tensors(struct ddl_config *config, const json_t *root, const char *folder,
                                   struct ddl_error *err);

#endif
