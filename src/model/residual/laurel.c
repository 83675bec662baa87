/* laurel: X' = m_0 f + m_1 (X + U D X) (docs/equations.md, 9), m = 2 softmax(mix), U D of rank r (LAuReL-RW
 * and -LR). Forward computes D X, applies m to f, X and D X in one op, and adds U times the last. Backward:
 * the gradient of U D X first, then df = m_0 dX', dX = m_1 dX' and dmix in one op, then the gradient of D X.
 * The state is saved: it cannot be computed from X' where m_1 is near 0. */
#include "model/params/gradients.h"
#include "model/pass/linear.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"
#include "model/residual/table.h"

#include <math.h>

enum { MIX, DOWN, UP }; /* its parameters; D and U only with a rank */
enum { LOW };           /* (N, r) m_1 D X                          */
enum { DLOW };          /* (N, r) its gradient, then that of D X   */
/* Factors, in bfloat16 alone: LOW; scratch: the state before (N, d), DLOW after that. */
enum { LOW_BF16 };
enum { X_BF16, DLOW_BF16 };

static void params(struct param_plan *plan, int *index)
{
    const struct ddl_config *k = plan->config;
    size_t d = k->d_model, r = k->laurel_rank;
    const struct param_row mix = {
        .name = "mix", .shape = { 2 }, .group = DDL_GROUP_NORM, .init = param_init_constant(0)
    };
    const struct param_row down = { .name = "down.weight",
                                    .shape = { r, d },
                                    .group = DDL_GROUP_MATRIX,
                                    .init = param_init_matrix(k),
                                    .flags = PARAM_PRODUCT };
    const struct param_row up = { .name = "up.weight",
                                  .shape = { d, r },
                                  .group = DDL_GROUP_MATRIX,
                                  .init = param_init_constant(0),
                                  .flags = PARAM_PRODUCT };
    param_plan_add(plan, &mix, &index[MIX]);
    if (!r)
        return;
    param_plan_add(plan, &down, &index[DOWN]);
    param_plan_add(plan, &up, &index[UP]);
}

static unsigned reads(const struct ddl_config *config)
{
    return config->laurel_rank ? RULE_MULTIPLIES_X_IN | RULE_MULTIPLIES_DX : 0;
}

static void layout(const struct layout *l, float **acts)
{
    acts[LOW] = layout_rows(l, l->config->laurel_rank > 0, l->config->laurel_rank);
}

static void scratch(const struct layout *l, float **out)
{
    out[DLOW] = layout_rows(l, l->config->laurel_rank > 0, l->config->laurel_rank);
}

static void layout_factors(const struct layout *l, struct activation *factors)
{
    size_t r = l->config->laurel_rank;
    factors[LOW_BF16].bf16 = layout_bf16(l, l->bf16 && r, l->N, r);
}

static void scratch_factors(const struct layout *l, struct activation *factors)
{
    size_t r = l->config->laurel_rank;
    factors[X_BF16].bf16 = layout_bf16(l, l->bf16 && r, l->N, l->config->d_model);
    factors[DLOW_BF16].bf16 = layout_bf16(l, l->bf16 && r, l->N, r);
}

/* Whether the mixture is forced to be the identity: X' = X + f. */
static bool is_identity(const struct sublayer *s)
{
    return s->force && (s->force->keys & DDL_FORCE_MIX);
}

static void write_fwd(const struct sublayer *s, struct operand x_in, struct operand ctx)
{
    const struct pass *p = s->p;
    bool identity = is_identity(s);
    size_t d = p->config->d_model, r = identity ? 0 : p->config->laurel_rank;
    float *low = s->acts->rule[LOW];
    uint16_t *low16 = s->acts->factor[LOW_BF16].bf16;
    (void)ctx;
    if (r)
        linear_fwd(p, d, r, x_in, param_weight(p, s->params[DOWN]), low, false);
    p->ops->laurel_fwd(p->ctx, &(struct laurel_args){ .N = p->N,
                                                      .d = d,
                                                      .r = r,
                                                      .f = s->acts->f,
                                                      .mix = identity ? NULL : param_value(p, s->params[MIX]),
                                                      .low = low,
                                                      .low16 = r ? low16 : NULL,
                                                      .X = s->stream->X });
    if (!r)
        return;
    probe_tensor(p, "low", low, r);
    linear_fwd(p, r, d, (struct operand){ .value = low, .bf16 = low16 }, param_weight(p, s->params[UP]),
               s->stream->X, true);
}

static struct operand write_bwd(const struct sublayer *s)
{
    const struct pass *p = s->p;
    struct activation df = s->df;
    uint16_t *X16 = s->scratch_factor[X_BF16].bf16, *dlow16 = s->scratch_factor[DLOW_BF16].bf16;
    size_t d = p->config->d_model, r = p->config->laurel_rank;
    float *low = s->acts->rule[LOW], *dlow = s->scratch[DLOW], *dX = s->stream->dX;
    if (r) {
        const struct operand x = { .value = low, .bf16 = s->acts->factor[LOW_BF16].bf16 };
        const struct operand G = { .value = dX, .bf16 = s->stream->dX16 };
        linear_bwd(p, r, d, x, G, param_weight_bwd(p, s->params[UP]), dlow, false);
        probe_grad(p, s->params[UP]);
    }
    p->ops->laurel_bwd(p->ctx, &(struct laurel_grad_args){ .N = p->N,
                                                           .d = d,
                                                           .r = r,
                                                           .X = s->stream->X,
                                                           .X16 = X16,
                                                           .f = s->acts->f,
                                                           .mix = param_value(p, s->params[MIX]),
                                                           .low = low,
                                                           .G = dX,
                                                           .dlow = dlow,
                                                           .dlow16 = dlow16,
                                                           .dX = dX,
                                                           .df = df.value,
                                                           .df16 = df.bf16,
                                                           .dmix = param_grad(p, s->params[MIX]) });
    probe_grad(p, s->params[MIX]);
    probe_activation(p, "df", df, p->N, d);
    if (r) {
        const struct activation dDX = { .value = dlow16 ? NULL : dlow, .bf16 = dlow16 };
        const struct operand X = { .value = s->stream->X, .bf16 = X16 };
        probe_activation(p, "dlow", dDX, p->N, r);
        linear_bwd(p, d, r, X, operand_of(dDX), param_weight_bwd(p, s->params[DOWN]), dX, true);
        probe_grad(p, s->params[DOWN]);
    }
    probe_tensor(p, "dX", dX, d);
    return operand_of(df);
}

/* m_0 f + m_1 X. */
static double flops(const struct ddl_config *config)
{
    return 3 * (double)config->d_model;
}

static size_t widest(const struct ddl_config *config)
{
    return config->laurel_rank;
}

static size_t two(const struct ddl_config *config, size_t layer, int sub)
{
    (void)config;
    (void)layer;
    (void)sub;
    return 2;
}

static const float *mix_data(const struct sublayer *s)
{
    return is_identity(s) ? NULL : param_value(s->p, s->params[MIX]);
}

/* m = 2 softmax(mix). */
static void mix_derive(size_t width, const float *mix, double *m)
{
    (void)width;
    m[0] = 2 / (1 + exp((double)mix[1] - (double)mix[0]));
    m[1] = 2 / (1 + exp((double)mix[0] - (double)mix[1]));
}

static const struct ddl_figure mix_figures[] = {
    { "mix_f", "laurel: factor m₀ of F(x)", "m_f", "m of F(x)", 3, DDL_FIGURE_FACTOR },
    { "mix_x", "laurel: factor m₁ of the stream", "m_x", "m of x", 3, DDL_FIGURE_FACTOR },
    { 0 },
};

static const struct trace_tensor traced[] = {
    { .name = "mix",
      .about = "logits of the factors m",
      .extent = TRACE_PARAMETER,
      .width = two,
      .data = mix_data,
      .figures = mix_figures,
      .derive = mix_derive },
    { 0 },
};

const struct residual_rule residual_laurel = {
    .prefix = "res",
    .earlier = STREAM_SAVED,
    .normalizes_f = true,
    .one_channel = true,
    .ops_fwd = DDL_OP_LIST(DDL_OP_laurel_fwd),
    .ops_bwd = DDL_OP_LIST(DDL_OP_laurel_bwd),
    .params = params,
    .layout = layout,
    .scratch = scratch,
    .layout_factors = layout_factors,
    .scratch_factors = scratch_factors,
    .reads = reads,
    .read_fwd = read_stream_fwd,
    .read_bwd = read_stream_bwd,
    .write_fwd = write_fwd,
    .write_bwd = write_bwd,
    .flops = flops,
    .force_keys = DDL_FORCE_F_SCALE | DDL_FORCE_MIX,
    .traced = traced,
    .widest = widest,
};
