/* hyper: n streams; x_in = sum_j A_j0 X_:j, X'_:k = sum_j A_j,1+k X_:j + b_k f (docs/equations.md, 9), A and
 * b parameters, or with ddl_hyper_dynamic functions of each stream (Zhu et al., 2024). The state is kept by
 * every sublayer: a mixing matrix may be singular. */
#include "model/params/gradients.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"
#include "model/residual/streams.h"
#include "model/residual/table.h"

/* Its parameters. */
enum { ALPHA, BETA, NORM, ALPHA_WEIGHT, ALPHA_SCALE, BETA_WEIGHT, BETA_SCALE, N_SLOTS };
_Static_assert((int)N_SLOTS <= RULE_SLOTS && (int)STREAMS_ACTS <= RULE_ACTS &&
                   (int)STREAMS_SCRATCH <= RULE_SCRATCH,
               "the tables of workspace.h and params.h are too small for this rule");

static struct streams_projection projection(const struct ddl_config *k)
{
    return (struct streams_projection){ .groups = k->hyper_dynamic ? k->streams : 0,
                                        .n_out = k->streams + 2 };
}

static ddl_status check(const struct ddl_config *config, struct ddl_error *err)
{
    return check_one_channel(config, "hyper", err);
}

static void params(struct param_plan *plan, int *slots)
{
    const struct ddl_config *k = plan->config;
    size_t d = k->d_model, n = k->streams;
    const struct param_init zero = param_init_constant(0), one = param_init_constant(1),
                            small = param_init_constant(0.01),
                            read_one = { INIT_READ_ONE, (double)(plan->sublayer % n) };
    const struct param_row alpha = { "alpha.static", { n, n + 1 }, DDL_GROUP_NORM, read_one, 0, NULL };
    const struct param_row beta = { "beta.static", { n }, DDL_GROUP_NORM, one, 0, NULL };
    const struct param_row norm = { "norm.weight", { d }, DDL_GROUP_NORM, one, 0, NULL };
    const struct param_row alpha_weight = { "alpha.weight", { n + 1, d }, DDL_GROUP_MATRIX, zero, 0, NULL };
    const struct param_row alpha_scale = { "alpha.scale", { 1 }, DDL_GROUP_NORM, small, 0, NULL };
    const struct param_row beta_weight = { "beta.weight", { 1, d }, DDL_GROUP_MATRIX, zero, 0, NULL };
    const struct param_row beta_scale = { "beta.scale", { 1 }, DDL_GROUP_NORM, small, 0, NULL };
    param_plan_add(plan, &alpha, &slots[ALPHA]);
    param_plan_add(plan, &beta, &slots[BETA]);
    if (!k->hyper_dynamic)
        return;
    param_plan_add(plan, &norm, &slots[NORM]);
    param_plan_add(plan, &alpha_weight, &slots[ALPHA_WEIGHT]);
    param_plan_add(plan, &alpha_scale, &slots[ALPHA_SCALE]);
    param_plan_add(plan, &beta_weight, &slots[BETA_WEIGHT]);
    param_plan_add(plan, &beta_scale, &slots[BETA_SCALE]);
}

static void layout(const struct layout *l, float **acts)
{
    streams_layout(l, projection(l->config), acts);
}

static void scratch(const struct layout *l, float **out)
{
    streams_scratch(l, projection(l->config), out);
}

static size_t most_sums(const struct ddl_config *config)
{
    return streams_sums(config, projection(config));
}

static struct streams_matrices matrices(const struct sublayer *s)
{
    return (struct streams_matrices){ .n = 1,
                                      .norm = s->slots[NORM],
                                      .matrix = { s->slots[ALPHA_WEIGHT], s->slots[BETA_WEIGHT], -1 },
                                      .rows = { s->p->config->streams + 1, 1, 0 } };
}

static const float *read_fwd(const struct sublayer *s, struct history *history)
{
    const struct pass *p = s->p;
    const struct streams_matrices of = matrices(s);
    float *const *acts = s->acts->rule;
    (void)history;
    if (p->config->hyper_dynamic)
        streams_fold(s, &of);
    p->ops->hyper_fwd(p->ctx, &(struct hyper_args){ .N = p->N,
                                                    .d = p->config->d_model,
                                                    .n = s->stream->channels,
                                                    .eps = NORM_EPS,
                                                    .identity = streams_identity(s),
                                                    .X = s->stream->X,
                                                    .alpha = param_value(p, s->slots[ALPHA]),
                                                    .beta = param_value(p, s->slots[BETA]),
                                                    .Wf = acts[STREAMS_WF],
                                                    .a = param_value(p, s->slots[ALPHA_SCALE]),
                                                    .e = param_value(p, s->slots[BETA_SCALE]),
                                                    .t = acts[STREAMS_T],
                                                    .rstd = acts[STREAMS_RSTD],
                                                    .w = acts[STREAMS_W],
                                                    .x_in = s->acts->x_in });
    streams_probe(s, projection(p->config));
    return s->acts->x_in;
}

static void read_bwd(const struct sublayer *s)
{
    const struct pass *p = s->p;
    const struct streams_matrices of = matrices(s);
    float *const *acts = s->acts->rule;
    p->ops->hyper_bwd(p->ctx, &(struct hyper_grad_args){ .N = p->N,
                                                         .d = p->config->d_model,
                                                         .n = s->stream->channels,
                                                         .X = s->stream->X,
                                                         .Wf = acts[STREAMS_WF],
                                                         .a = param_value(p, s->slots[ALPHA_SCALE]),
                                                         .e = param_value(p, s->slots[BETA_SCALE]),
                                                         .t = acts[STREAMS_T],
                                                         .rstd = acts[STREAMS_RSTD],
                                                         .w = acts[STREAMS_W],
                                                         .dw = s->scratch[STREAMS_DW],
                                                         .dx_in = sublayer_dx_in(s),
                                                         .dX = s->stream->dX,
                                                         .dz = s->scratch[STREAMS_DZ],
                                                         .dalpha = param_grad(p, s->slots[ALPHA]),
                                                         .dbeta = param_grad(p, s->slots[BETA]),
                                                         .da = param_grad(p, s->slots[ALPHA_SCALE]),
                                                         .de = param_grad(p, s->slots[BETA_SCALE]),
                                                         .dWf = s->scratch[STREAMS_DWF] });
    streams_probe_bwd(s, projection(p->config));
    probe_grad(p, s->slots[ALPHA]);
    probe_grad(p, s->slots[BETA]);
    probe_grad(p, s->slots[ALPHA_SCALE]);
    probe_grad(p, s->slots[BETA_SCALE]);
    if (p->config->hyper_dynamic)
        streams_fold_bwd(s, &of);
}

/* The projections are applied to each stream. */
static double flops(const struct ddl_config *config)
{
    double n = (double)config->streams, more = (n - 1) * (n + 2) * (double)config->d_model;
    return streams_flops(config) + (config->hyper_dynamic ? 2 * more : 0);
}

const struct residual_rule residual_hyper = {
    .prefix = "res",
    .state = &streams_form,
    .earlier = STREAM_KEPT,
    .check = check,
    .ops_fwd =
        DDL_OP_LIST(DDL_OP_streams_fold_fwd, DDL_OP_streams_sum, DDL_OP_streams_write_fwd, DDL_OP_hyper_fwd),
    .ops_bwd = DDL_OP_LIST(DDL_OP_streams_fold_bwd, DDL_OP_streams_write_bwd, DDL_OP_hyper_bwd),
    .params = params,
    .layout = layout,
    .scratch = scratch,
    .most_sums = most_sums,
    .read_fwd = read_fwd,
    .read_again = streams_read_again,
    .read_bwd = read_bwd,
    .write_fwd = streams_write_fwd,
    .write_bwd = streams_write_bwd,
    .flops = flops,
    .force_keys = DDL_FORCE_F_SCALE | DDL_FORCE_MIX,
    .traced = streams_traced,
};
