/* The keys of our own in the __metadata__ of model.safetensors. */
#ifndef DDL_MODEL_CONFIG_METADATA_H
#define DDL_MODEL_CONFIG_METADATA_H

#include "model/config/config.h"
#include "tensor/safetensors.h"

#include <jansson.h>

/* True if config.json does not say: the key is absent, or null. */
static inline bool ddl_json_lacks(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    return !value || json_is_null(value);
}

extern const char ddl_by_layer_key[];
/* What is DDL_E_USAGE on a command line is DDL_E_FORMAT in a file. */
ddl_status ddl_config_file_status(ddl_status status, struct ddl_error *err);

/* Fills what config.json (`root`) lacks with the keys of our own from the tensors' __metadata__; those found
 * are added to root. `folder` is for messages. */
ddl_status ddl_config_from_metadata(struct ddl_config *config, json_t *root, const ddl_safetensors *st,
                                    const char *folder, struct ddl_error *err);
/* The keys of our own with their values, as metadata of model.safetensors. `list` points into the rest of the
 * struct, which must not be copied or moved. */
enum { DDL_RULE_NAME = 16 }; /* bytes of a rule's name and a comma */
struct ddl_config_metadata {
    struct ddl_safetensors_metadata list[DDL_CONFIG_KEYS];
    size_t n;
    char values[DDL_CONFIG_KEYS][32], by_layer[DDL_MAX_LAYERS * DDL_RULE_NAME];
};
void ddl_config_metadata(const struct ddl_config *config, struct ddl_config_metadata *out);

#endif
