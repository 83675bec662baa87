/* Reading and writing a configuration: config.json, metadata and tensors of a folder. */
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

/* The names of a list such as ddl_config_size_list with commas between them; returns the bytes written. */
size_t ddl_config_list_names(const char *(*list)(size_t, const char **), char *out, size_t size);

extern const char ddl_by_layer_key[];
/* Whether a row of ddl_config_options is a key of our own, which the release does not have (config.c). */
bool ddl_config_row_is_own(const struct ddl_option *row);
/* Whether the metadata of this configuration has the row. */
bool ddl_config_row_is_metadata(const struct ddl_option *row, const struct ddl_config *config);
/* What is DDL_E_USAGE on a command line is DDL_E_FORMAT in a file. */
ddl_status ddl_config_file_status(ddl_status status, struct ddl_error *err);

/* Fills what config.json (`root`) lacks. First the keys of our own from the tensors' __metadata__; those
 * found are added to root. `folder` is for messages. */
ddl_status ddl_config_from_notes(struct ddl_config *config, json_t *root, const ddl_safetensors *st,
                                 const char *folder, struct ddl_error *err);
/* Then what the tensors' names and shapes say. */
ddl_status ddl_config_from_tensors(struct ddl_config *config, const json_t *root, const ddl_safetensors *st,
                                   struct ddl_error *err);

/* The keys of our own with their values, as metadata of model.safetensors. `list` points into the rest of the
 * struct, which must not be copied or moved. */
enum { DDL_CONFIG_NOTES = 128, DDL_RULE_NAME = 16 }; /* keys, at most; bytes of a rule's name and a comma */
struct ddl_config_notes {
    struct ddl_safetensors_metadata list[DDL_CONFIG_NOTES];
    size_t n;
    char values[DDL_CONFIG_NOTES][32], by_layer[DDL_MAX_LAYERS * DDL_RULE_NAME];
};
void ddl_config_notes(const struct ddl_config *config, struct ddl_config_notes *out);

/* config.json: the release's keys. */
struct ddl_config_text {
    char bytes[16384]; /* enough for every row, and for the longest list of rules */
    size_t used;
};
/* Errors as ddl_config_save; `path` is for the message. */
ddl_status ddl_config_text(struct ddl_config_text *t, const struct ddl_config *config, const char *path,
                           struct ddl_error *err);

#endif
