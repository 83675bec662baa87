/* highway: X' = (1 - tau) (*) X + tau (*) f (docs/equations.md, 9), tau = sigmoid(W ctx + b), one number or
 * one per feature (Srivastava et al., 2015, with coupled gates). Backward: df = tau (*) dX', dtau = dX' (*)
 * (f - X), dX = (1 - tau) (*) dX'. The state is saved: where tau is near 1 it could not be computed from X'.
 */
#include "model/params/gradients.h"
#include "model/pass/linear.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"
#include "model/residual/table.h"

#include <math.h>

enum { WEIGHT, BIAS }; /* its parameters                           */
enum { TAU };          /* (N, w) kept for backward                 */
enum { DZ };           /* a factor: (N, w) gradient of the sigmoid's argument */

static void params(struct param_plan *plan, int *index)
{
    const struct ddl_config *k = plan->config;
    size_t w = weights_per_row(k);
    double tau = (double)k->highway_init;
    /* One number per row stays float32 in every precision, like the gate beta. */
    const struct param_row weight = { .name = "gate.weight",
                                      .shape = { w, k->d_model },
                                      .group = DDL_GROUP_MATRIX,
                                      .init = param_init_matrix(k),
                                      .flags = w > 1 ? PARAM_PRODUCT : 0 };
    const struct param_row bias = { .name = "gate.bias",
                                    .shape = { w },
                                    .group = DDL_GROUP_BIAS,
                                    .init = param_init_constant(log(tau / (1 - tau))) };
    param_plan_add(plan, &weight, &index[WEIGHT]);
    param_plan_add(plan, &bias, &index[BIAS]);
}

/* One gate per row is computed in float32. */
static unsigned reads(const struct ddl_config *config)
{
    return weights_per_row(config) > 1 ? 0 : RULE_READS_CTX;
}

static void layout(const struct layout *l, float **acts)
{
    acts[TAU] = layout_rows(l, true, weights_per_row(l->config));
}

static void scratch_factors(const struct layout *l, struct activation *out)
{
    size_t w = weights_per_row(l->config);
    out[DZ] = w > 1 ? layout_factor(l, true, w) : (struct activation){ .value = layout_rows(l, true, 1) };
}

static void write_fwd(const struct sublayer *s, struct operand x_in, struct operand ctx)
{
    const struct pass *p = s->p;
    size_t d = p->config->d_model, w = weights_per_row(p->config);
    float *tau = s->acts->rule[TAU];
    (void)x_in;
    linear_fwd(p, d, w, ctx, param_weight(p, s->params[WEIGHT]), tau, false);
    p->ops->highway_fwd(p->ctx, &(struct highway_args){ .N = p->N,
                                                        .d = d,
                                                        .w = w,
                                                        .f = s->acts->f,
                                                        .b = param_value(p, s->params[BIAS]),
                                                        .tau = tau,
                                                        .X = s->stream->X });
    probe_tensor(p, "tau", tau, w);
}

static struct operand write_bwd(const struct sublayer *s)
{
    const struct pass *p = s->p;
    struct activation df = s->df, dz = s->scratch_factor[DZ];
    size_t d = p->config->d_model, w = weights_per_row(p->config);
    p->ops->highway_bwd(p->ctx, &(struct highway_grad_args){ .N = p->N,
                                                             .d = d,
                                                             .w = w,
                                                             .X = s->stream->X,
                                                             .f = s->acts->f,
                                                             .tau = s->acts->rule[TAU],
                                                             .G = s->stream->dX,
                                                             .dX = s->stream->dX,
                                                             .df = df.value,
                                                             .df16 = df.bf16,
                                                             .dz = dz.value,
                                                             .dz16 = dz.bf16,
                                                             .db = param_grad(p, s->params[BIAS]) });
    probe_activation(p, "dz", dz, p->N, w);
    probe_grad(p, s->params[BIAS]);
    probe_activation(p, "df", df, p->N, d);
    probe_tensor(p, "dX", s->stream->dX, d);
    return operand_of(df);
}

static void context_bwd(const struct sublayer *s, struct operand ctx, float *dctx)
{
    const struct pass *p = s->p;
    size_t d = p->config->d_model, w = weights_per_row(p->config);
    linear_bwd(p, d, w, ctx, operand_of(s->scratch_factor[DZ]), param_weight_bwd(p, s->params[WEIGHT]), dctx,
               true);
    probe_grad(p, s->params[WEIGHT]);
    probe_tensor(p, "dctx", dctx, d);
}

static double flops(const struct ddl_config *config)
{
    return 4 * (double)config->d_model;
}

static size_t tau_width(const struct ddl_config *config, size_t layer, int sub)
{
    (void)layer;
    (void)sub;
    return weights_per_row(config);
}

static const float *tau_data(const struct sublayer *s)
{
    return s->acts->rule[TAU];
}

static double tau_top(const struct ddl_config *config)
{
    (void)config;
    return 1;
}

static const struct ddl_figure tau_figures[] = {
    { "tau_mean", "mean of the gate τ", "τ", NULL, 2, DDL_FIGURE_MEAN },
    { "tau_q05", "5 % quantile of τ", "5%", NULL, 2, DDL_FIGURE_Q05 },
    { "tau_q50", "median of τ", NULL, NULL, 2, DDL_FIGURE_Q50 },
    { "tau_q95", "95 % quantile of τ", "95%", NULL, 2, DDL_FIGURE_Q95 },
    { "tau_min", "lowest τ", NULL, NULL, 2, DDL_FIGURE_MIN },
    { "tau_max", "highest τ", NULL, NULL, 2, DDL_FIGURE_MAX },
    { 0 },
};

static const struct ddl_behavior tau_behaviors[] = {
    { 0, 0.1, "behaves as carry" },
    { 0.9, 1, "behaves as replacement" },
    { 0 },
};

static const struct trace_tensor traced[] = {
    { .name = "tau",
      .about = "gate τ",
      .extent = TRACE_TOKENS,
      .summary = TRACE_HISTOGRAM,
      .width = tau_width,
      .data = tau_data,
      .top = tau_top,
      .figures = tau_figures,
      .behaviors = tau_behaviors,
      .symbol = "τ",
      .range = { 1, 3 } },
    { 0 },
};

const struct residual_rule residual_highway = {
    .prefix = "res",
    .earlier = STREAM_SAVED,
    .normalizes_f = true,
    .one_channel = true,
    .ops_fwd = DDL_OP_LIST(DDL_OP_highway_fwd),
    .ops_bwd = DDL_OP_LIST(DDL_OP_highway_bwd),
    .params = params,
    .layout = layout,
    .scratch_factors = scratch_factors,
    .reads = reads,
    .read_fwd = read_stream_fwd,
    .read_bwd = read_stream_bwd,
    .write_fwd = write_fwd,
    .write_bwd = write_bwd,
    .context_bwd = context_bwd,
    .flops = flops,
    .force_keys = DDL_FORCE_F_SCALE,
    .traced = traced,
};
