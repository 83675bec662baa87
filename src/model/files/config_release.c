/* The configuration of a folder that the authors' release wrote: settings that its config.json lacks are
 * inferred from the names and shapes of its tensors. */
#include "model/files/config_release.h"

#include "ddl/export.h"
#include "model/files/config_metadata.h"
#include "model/residual/table.h"

#include <stdio.h>
#include <string.h>

struct source {
    struct ddl_config *config;
    const json_t *root;
    const ddl_safetensors *st;
};

static const struct ddl_tensor *find(const struct source *s, size_t layer, const char *name)
{
    char full[128];
    snprintf(full, sizeof full, "transformer.h.%zu.%s", layer, name);
    return ddl_safetensors_find(s->st, full);
}

/* The size of one dimension of a tensor is a setting, or a multiple of one: taken where config.json lacks it,
 * else it must agree. */
static ddl_status take_part(const struct source *s, const char *key, size_t *field, size_t multiple,
                            const struct ddl_tensor *t, size_t dimension, struct ddl_error *err)
{
    if (dimension >= t->ndim)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %.200s has %zu dimensions, too few to tell %s",
                             ddl_safetensors_path(s->st, t), t->name, t->ndim, key);
    if (ddl_json_lacks(s->root, key) || *field == 0)
        *field = t->shape[dimension] / multiple;
    if (*field * multiple == t->shape[dimension])
        return DDL_OK;
    char shape[128];
    ddl_tensor_shape_text(t, shape, sizeof shape);
    return ddl_error_set(err, DDL_E_FORMAT, "%s: %.200s has shape %s, config.json says %s %zu",
                         ddl_safetensors_path(s->st, t), t->name, shape, key, *field);
}

static ddl_status take(const struct source *s, const char *key, size_t *field, const struct ddl_tensor *t,
                       size_t dimension, struct ddl_error *err)
{
    return take_part(s, key, field, 1, t, dimension, err);
}

/* The rule of a layer whose tensors are in the folder: add, which has none, if none is found. */
static int rule_of_layer(const struct source *s, size_t layer)
{
    for (int rule = 0; rule < DDL_RESIDUALS; rule++) {
        const struct residual_rule *row = residual_rule_at(rule);
        char name[64];
        if (!row->release_tensor)
            continue;
        snprintf(name, sizeof name, "%s_attn.%s", row->prefix, row->release_tensor);
        if (find(s, layer, name))
            return rule;
    }
    return 0;
}

/* The rule of each layer; *first is the first layer with delta sublayers, or n_layers. */
static void detect_rule(const struct source *s, size_t *first)
{
    struct ddl_config *config = s->config;
    size_t n = config->n_layers;
    for (*first = 0; *first < n && !find(s, *first, "ddl_attn.v_proj.weight");)
        ++*first;
    if (!ddl_json_lacks(s->root, "ddl_residual") || !ddl_json_lacks(s->root, "ddl_residual_by_layer"))
        return;
    config->residual = rule_of_layer(s, *first < n ? *first : 0);
    for (size_t l = 0; l < n; l++) {
        config->residual_by_layer[l] = (unsigned char)rule_of_layer(s, l);
        config->by_layer |= config->residual_by_layer[l] != config->residual;
    }
    if (!config->by_layer)
        memset(config->residual_by_layer, 0, sizeof config->residual_by_layer);
}

/* The width of the MLP, where neither config.json nor the metadata has it. */
static ddl_status detect_mlp(const struct source *s, struct ddl_error *err)
{
    struct ddl_config *config = s->config;
    const struct ddl_tensor *fc1 = find(s, 0, "mlp.c_fc1.weight");
    ddl_status status = fc1 ? take(s, "mlp_size", &config->mlp_size, fc1, 0, err) : DDL_OK;
    config->mlp_size = ddl_config_resolved(config).mlp_size;
    return status;
}

/* Delta steps per sublayer, from the rows of an output projection. */
static void detect_steps(const struct source *s, size_t layer)
{
    struct ddl_config *config = s->config;
    const struct ddl_tensor *proj = find(s, layer, "attn.c_proj.weight");
    if (ddl_json_lacks(s->root, "ddl_steps") && proj && proj->ndim == 2 && proj->shape[0] >= config->d_model)
        config->steps = proj->shape[0] / config->d_model;
}

static ddl_status detect_branch(const struct source *s, size_t layer, struct ddl_error *err)
{
    struct ddl_config *config = s->config;
    const struct ddl_tensor *k_down = find(s, layer, "ddl_attn.k_down.weight");
    const struct ddl_tensor *beta_in = find(s, layer, "ddl_attn.beta_in.weight");
    detect_steps(s, layer);
    ddl_status status = take_part(s, "ddl_value_channels", &config->channels, config->steps,
                                  find(s, layer, "ddl_attn.v_proj.weight"), 0, err);
    if (ddl_json_lacks(s->root, "ddl_map"))
        config->map = k_down || find(s, layer, "ddl_attn.k_proj.weight") ? DDL_MAP_V : DDL_MAP_K;
    if (!status && k_down)
        status = take(s, "ddl_k_rank", &config->k_rank, k_down, 0, err);
    if (ddl_json_lacks(s->root, "ddl_beta_single_linear"))
        config->beta_linear = !beta_in;
    if (!status && beta_in)
        status = take(s, "ddl_beta_hidden_size", &config->beta_hidden, beta_in, 0, err);
    return status;
}

static ddl_status detect_state(const struct source *s, struct ddl_error *err)
{
    struct ddl_config *config = s->config;
    const struct ddl_tensor *shortconv = find(s, 0, "compress.shortconv.weight");
    const struct ddl_tensor *weight = find(s, 0, "compress.weight");
    const struct ddl_tensor *conv = ddl_safetensors_find(s->st, "input_embed.conv.weight");
    int found = shortconv                     ? DDL_COMPRESS_TOKEN
                : find(s, 0, "compress.read") ? DDL_COMPRESS_CHANNEL
                                              : DDL_COMPRESS_MIX;
    if (!shortconv && !weight)
        return ddl_error_set(
            err, DDL_E_FORMAT,
            "the model has %zu value channels, but the tensors have no "
            "transformer.h.0.compress.weight and no transformer.h.0.compress.shortconv.weight",
            config->channels);
    if (ddl_json_lacks(s->root, "ddl_compress"))
        config->compress = found;
    if (ddl_json_lacks(s->root, "ddl_embed"))
        config->embed = conv ? DDL_EMBED_CONV : DDL_EMBED_REPEAT;
    ddl_status status = DDL_OK;
    if (config->compress == found && found != DDL_COMPRESS_MIX)
        status = take(s, "ddl_state_shortconv_kernel_size", &config->state_kernel,
                      shortconv ? shortconv : weight, 1, err);
    if (!status && conv)
        status = take(s, "input_embed_shortconv_kernel_size", &config->embed_kernel, conv, 2, err);
    return status;
}

ddl_status ddl_config_from_tensors(struct ddl_config *config, const json_t *root, const ddl_safetensors *st,
                                   struct ddl_error *err)
{
    const struct source source = { config, root, st };
    size_t first;
    detect_rule(&source, &first);
    if (ddl_json_lacks(root, "use_qk_rmsnorm"))
        config->qk_norm = find(&source, 0, "attn.q_rms.weight") != NULL;
    ddl_status status = detect_mlp(&source, err);
    if (!status && first < config->n_layers)
        status = detect_branch(&source, first, err);
    if (!status && first < config->n_layers && config->channels > 1)
        status = detect_state(&source, err);
    return status;
}

const char *ddl_config_release_file(const struct ddl_config *config, const char **why)
{
    const char *reason = NULL, *file = NULL;
    const struct residual_rule *rule = residual_rule_of(config, 0);
    for (size_t l = 1; l < config->n_layers && !reason; l++) {
        if (residual_rule_of(config, l) != rule)
            reason = "a residual rule that changes from layer to layer";
    }
    if (!reason && ddl_config_resolved(config).mlp_size)
        reason = "mlp_size";
    if (!reason && config->value_residual)
        reason = "value_residual";
    if (!reason && config->dense_average)
        reason = "dense_average";
    if (!reason && !rule->release_file)
        reason = "a residual rule that the release does not have";
    if (!reason)
        file = rule->release_file(config, &reason);
    if (why)
        *why = reason;
    return file;
}

const char *ddl_config_release_module(const struct ddl_config *config)
{
    static const struct {
        const char *file, *module;
    } modules[] = {
        { "DDL-vdim1", "DDL-vdim1-gpt-mha-rope-TC" }, { "DDL", "DDL-gpt-mha-rope-TC" },
        { "DDL-EC", "DDL-gpt-mha-rope-TC-EC" },       { "DDL-CC", "DDL-gpt-mha-rope-CC" },
        { "DDL-CC-EC", "DDL-gpt-mha-rope-CC-EC" },
    };
    const char *file = ddl_config_release_file(config, NULL);
    for (size_t i = 0; file && i < sizeof modules / sizeof *modules; i++) {
        if (strcmp(modules[i].file, file) == 0)
            return modules[i].module;
    }
    return NULL;
}
