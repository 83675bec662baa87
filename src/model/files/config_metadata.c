/* The keys of our own in the __metadata__ of model.safetensors, where config.json cannot hold them because
 * the release has none of them. */
#include "model/files/config_metadata.h"

#include <stdio.h>

const char ddl_by_layer_key[] = "ddl_residual_by_layer";

ddl_status ddl_config_file_status(ddl_status status, struct ddl_error *err)
{
    if (status && err)
        err->status = DDL_E_FORMAT;
    return status ? DDL_E_FORMAT : DDL_OK;
}

void ddl_config_metadata(const struct ddl_config *config, struct ddl_config_metadata *out)
{
    const struct ddl_config resolved = ddl_config_resolved(config);
    out->n = 0;
    for (const struct ddl_option *row = ddl_config_options(); row->name; row++) {
        if (!ddl_config_row_is_metadata(row, &resolved))
            continue;
        char *value = out->values[out->n];
        ddl_option_format(row, &resolved, value, sizeof out->values[0]);
        out->list[out->n++] = (struct ddl_safetensors_metadata){ row->name, value };
    }
    if (!config->by_layer)
        return;
    ddl_config_get_by_layer(config, out->by_layer, sizeof out->by_layer);
    out->list[out->n++] = (struct ddl_safetensors_metadata){ ddl_by_layer_key, out->by_layer };
}

/* One key of ours, where config.json lacks it and the tensors' __metadata__ has it. */
static ddl_status read_key(struct ddl_config *config, json_t *root, const char *key,
                           const struct ddl_option *row, const struct ddl_safetensors *st, const char *folder,
                           struct ddl_error *err)
{
    const char *value = ddl_safetensors_metadata(st, key);
    char where[1200];
    if (!value || !ddl_json_lacks(root, key))
        return DDL_OK;
    snprintf(where, sizeof where, "%.1000s: __metadata__ of the tensors: %s", folder, key);
    ddl_status status = row ? ddl_option_set(row, config, value, where, err)
                            : ddl_config_set_by_layer(config, value, where, err);
    if (status)
        return ddl_config_file_status(status, err);
    return json_object_set_new(root, key, json_string(value)) == 0
               ? DDL_OK
               : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", where);
}

ddl_status ddl_config_from_metadata(struct ddl_config *config, json_t *root, const struct ddl_safetensors *st,
                                    const char *folder, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (const struct ddl_option *row = ddl_config_options(); row->name && !status; row++) {
        if (ddl_config_row_is_own(row))
            status = read_key(config, root, row->name, row, st, folder, err);
    }
    return status ? status : read_key(config, root, ddl_by_layer_key, NULL, st, folder, err);
}
