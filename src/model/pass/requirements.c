#include "model/pass/requirements.h"

#include "model/residual/table.h"

#include <stdio.h>

static bool has_channels(const struct ddl_config *config)
{
    return config->channels > 1;
}

static bool mixes_values(const struct ddl_config *config)
{
    return config->value_residual;
}

static bool averages(const struct ddl_config *config)
{
    return config->dense_average;
}

static bool normalizes_f(const struct ddl_config *config)
{
    return config->f_norm;
}

#define OPS DDL_OP_LIST
#define OP(name) DDL_OP_##name
/* The parts of a model other than the rules, whose ops are in struct residual_rule. `when` NULL: of every
 * model.
 */
static const struct part {
    const char *name;
    bool (*when)(const struct ddl_config *config);
    const enum ddl_op *ops[MODEL_USES];
} parts[] = {
    { "a model",
      NULL,
      { [USE_FORWARD] =
            OPS(OP(gather), OP(rmsnorm_fwd), OP(matmul), OP(rope_fwd), OP(attention_fwd), OP(swiglu_fwd),
                OP(copy), OP(cross_entropy), OP(sum), OP(rank), OP(scale_fwd), OP(fill)),
        [USE_BACKWARD] = OPS(OP(embed_bwd), OP(rmsnorm_bwd), OP(rope_bwd), OP(attention_bwd), OP(swiglu_bwd)),
        [USE_BF16] = OPS(OP(matmul_bf16), OP(cast_bf16), OP(widen_bf16), OP(gather_bf16), OP(loss_tile),
                         OP(loss_grad)),
        [USE_INT8] = OPS(OP(matmul_q8), OP(quantize_q8), OP(dequantize_q8), OP(gather_q8)),
        [USE_CACHE] = OPS(OP(cache_append), OP(likeliest), OP(choose)) } },
    { "ddl_value_channels",
      has_channels,
      { [USE_FORWARD] = OPS(OP(init_state_fwd), OP(fold_fwd), OP(compress_fwd)),
        [USE_BACKWARD] = OPS(OP(init_state_bwd), OP(fold_bwd), OP(compress_bwd)),
        [USE_CACHE] = OPS(OP(history_push)) } },
    { "value_residual",
      mixes_values,
      { [USE_FORWARD] = OPS(OP(mix_values_fwd)), [USE_BACKWARD] = OPS(OP(mix_values_bwd)) } },
    { "dense_average",
      averages,
      { [USE_FORWARD] = OPS(OP(weighted_sum)), [USE_BACKWARD] = OPS(OP(weighted_sum_bwd)) } },
    { "ddl_f_norm",
      normalizes_f,
      { [USE_FORWARD] = OPS(OP(f_norm_fwd)), [USE_BACKWARD] = OPS(OP(f_norm_bwd)) } },
};
#undef OP
#undef OPS

ddl_status requirements_each(const struct ddl_config *config, enum model_use use, requirement_fn *fn,
                             void *user, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = 0; !status && i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].ops[use] && (!parts[i].when || parts[i].when(config)))
            status = fn(user, parts[i].name, parts[i].ops[use], err);
    }
    for (size_t l = 0; !status && l < config->n_layers && use <= USE_BACKWARD; l++) {
        const struct residual_rule *rule = residual_rule_of(config, l);
        char name[48];
        snprintf(name, sizeof name, "ddl_residual %s", ddl_config_residual_name(config, l));
        status = fn(user, name, use == USE_FORWARD ? rule->ops_fwd : rule->ops_bwd, err);
    }
    return status;
}

static ddl_status require(void *user, const char *whose, const enum ddl_op *list, struct ddl_error *err)
{
    const ddl_backend *const *backend = user;
    return ddl_ops_require(*backend, list, whose, err);
}

ddl_status requirements_check(const struct ddl_config *config, enum model_use use, const ddl_backend *backend,
                              struct ddl_error *err)
{
    return requirements_each(config, use, require, &backend, err);
}
