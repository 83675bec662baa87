/* Figures that follow from a configuration. */
#include "ddl/config.h"

#include <math.h>

size_t ddl_config_mlp_size(const struct ddl_config *config)
{
    return config->mlp_size ? config->mlp_size : 8 * config->d_model / 3;
}

size_t ddl_config_rope_dims(const struct ddl_config *config)
{
    /* The factor exceeds the rounding error of a float, at most 6e-8: 0.7f times 20 must not floor to 13. */
    size_t dims = (size_t)floor((double)config->rope_ratio * (double)config->head_dim * (1 + 1e-7));
    return dims - dims % 2;
}

size_t ddl_config_state_kernel(const struct ddl_config *config)
{
    if (config->channels > 1 && config->compress == DDL_COMPRESS_MIX)
        return config->channels;
    if (config->state_kernel)
        return config->state_kernel;
    return config->channels > 1 && config->compress == DDL_COMPRESS_CHANNEL ? config->channels : 4;
}

float ddl_config_read_init(const struct ddl_config *config)
{
    return config->read_init != 0 ? config->read_init : 1 / (float)config->channels;
}

float ddl_config_beta_init(const struct ddl_config *config)
{
    return config->beta_init == 1 && config->beta_max <= 1 ? config->beta_max / 2 : config->beta_init;
}

struct ddl_config ddl_config_resolved(const struct ddl_config *config)
{
    struct ddl_config out = *config;
    out.state_kernel = ddl_config_state_kernel(config);
    out.read_init = ddl_config_read_init(config);
    out.beta_init = ddl_config_beta_init(config);
    out.mlp_size = 0;
    if (config->mlp_size != ddl_config_mlp_size(&out))
        out.mlp_size = config->mlp_size;
    return out;
}

int ddl_config_residual(const struct ddl_config *config, size_t layer)
{
    return config->by_layer ? config->residual_by_layer[layer] : config->residual;
}

bool ddl_config_mixes_values(const struct ddl_config *config, size_t layer)
{
    return config->value_residual && layer > 0 && layer < config->n_layers;
}

bool ddl_config_average_follows(const struct ddl_config *config, size_t layer)
{
    return config->dense_average && (layer + 1) % config->dense_period == 0;
}

float ddl_config_logit_scale(const struct ddl_config *config)
{
    return config->mup ? (float)config->d_base / (float)config->d_model : 1.0f;
}
