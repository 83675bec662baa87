/* What config_json.c and config_release.c share. */
#ifndef DDL_MODEL_CONFIG_JSON_H
#define DDL_MODEL_CONFIG_JSON_H

#include "ddl/config.h"
#include "tensor/safetensors.h"

#include <jansson.h>

/* True if config.json does not say: the key is absent, or null. */
static inline bool ddl_json_lacks(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    return !value || json_is_null(value);
}

/* Fills what config.json (`root`) lacks: keys of ours from the tensors' __metadata__, then what their names
 * and shapes tell. Keys found in __metadata__ are added to root. */
ddl_status ddl_config_from_tensors(struct ddl_config *config, json_t *root, const char *folder,
                                   struct ddl_error *err);
/* The first half of it. */
ddl_status ddl_config_from_notes(struct ddl_config *config, json_t *root, const struct ddl_safetensors *st,
                                 const char *folder, struct ddl_error *err);

/* The keys of our own, which config.json does not hold because the release has none of them: they stand in
 * the
 * __metadata__ of model.safetensors. `list` points into the rest, so the struct must stay where it is. */
enum { DDL_CONFIG_NOTES = 8 };
struct ddl_config_notes {
    struct ddl_safetensors_note list[DDL_CONFIG_NOTES];
    size_t n;
    char values[DDL_CONFIG_NOTES][32], by_layer[DDL_MAX_LAYERS * 6];
};
void ddl_config_notes(const struct ddl_config *config, struct ddl_config_notes *out);

#endif
