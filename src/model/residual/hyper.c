/* hyper: n streams; x_in = sum_j A_j0 X_:j, X'_:k = sum_j A_j,1+k X_:j + b_k f (docs/equations.md, 9), A and
 * b parameters, or with ddl_hyper_dynamic functions of each stream (Zhu et al., 2024). The state is kept by
 * every sublayer: a mixing matrix may be singular. */
#include "model/params/gradients.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"
#include "model/residual/streams.h"
#include "model/residual/table.h"

/* Its parameters; those from NORM on with ddl_hyper_dynamic only. */
enum { ALPHA, BETA, NORM, ALPHA_WEIGHT, ALPHA_SCALE, BETA_WEIGHT, BETA_SCALE, N_PARAMS };
_Static_assert((int)N_PARAMS <= RULE_PARAMS && (int)STREAMS_ACTS <= RULE_ACTS &&
                   (int)STREAMS_SCRATCH <= RULE_SCRATCH,
               "the tables of workspace.h and params.h are too small for this rule");

static struct streams_params declared(const struct ddl_config *k, size_t sublayer)
{
    size_t d = k->d_model, n = k->streams;
    const struct param_init zero = param_init_constant(0), one = param_init_constant(1),
                            small = param_init_constant(0.01),
                            read_one = { INIT_READ_ONE, (double)(sublayer % n) };
    return (struct streams_params){
        .n = k->hyper_dynamic ? N_PARAMS : NORM,
        .norm = NORM,
        .row = { [ALPHA] = { "alpha.static", { n, n + 1 }, DDL_GROUP_NORM, read_one, 0, NULL },
                 [BETA] = { "beta.static", { n }, DDL_GROUP_NORM, one, 0, NULL },
                 [NORM] = { "norm.weight", { d }, DDL_GROUP_NORM, one, 0, NULL },
                 [ALPHA_WEIGHT] = { "alpha.weight", { n + 1, d }, DDL_GROUP_MATRIX, zero, 0, NULL },
                 [ALPHA_SCALE] = { "alpha.scale", { 1 }, DDL_GROUP_NORM, small, 0, NULL },
                 [BETA_WEIGHT] = { "beta.weight", { 1, d }, DDL_GROUP_MATRIX, zero, 0, NULL },
                 [BETA_SCALE] = { "beta.scale", { 1 }, DDL_GROUP_NORM, small, 0, NULL } }
    };
}

static void params(struct param_plan *plan, int *index)
{
    const struct streams_params of = declared(plan->config, plan->sublayer);
    streams_declare(plan, &of, index);
}

static void layout(const struct layout *l, float **acts)
{
    const struct streams_params of = declared(l->config, 0);
    streams_layout(l, &of, acts);
}

static void scratch(const struct layout *l, float **out)
{
    const struct streams_params of = declared(l->config, 0);
    streams_scratch(l, &of, out);
}

static size_t most_sums(const struct ddl_config *config)
{
    const struct streams_params of = declared(config, 0);
    return streams_sums(config, &of);
}

static const float *read_fwd(const struct sublayer *s, struct history *history)
{
    const struct pass *p = s->p;
    const struct streams_params of = declared(p->config, 0);
    float *const *acts = s->acts->rule;
    (void)history;
    streams_fold(s, &of);
    p->ops->hyper_fwd(p->ctx, &(struct hyper_args){ .N = p->N,
                                                    .d = p->config->d_model,
                                                    .n = s->stream->channels,
                                                    .eps = NORM_EPS,
                                                    .identity = streams_identity(s),
                                                    .X = s->stream->X,
                                                    .alpha = param_value(p, s->params[ALPHA]),
                                                    .beta = param_value(p, s->params[BETA]),
                                                    .Wf = acts[STREAMS_WF],
                                                    .a = param_value(p, s->params[ALPHA_SCALE]),
                                                    .e = param_value(p, s->params[BETA_SCALE]),
                                                    .t = acts[STREAMS_T],
                                                    .rstd = acts[STREAMS_RSTD],
                                                    .w = acts[STREAMS_W],
                                                    .x_in = s->acts->x_in });
    streams_probe(s, &of);
    return s->acts->x_in;
}

static void read_bwd(const struct sublayer *s)
{
    const struct pass *p = s->p;
    const struct streams_params of = declared(p->config, 0);
    float *const *acts = s->acts->rule;
    p->ops->hyper_bwd(p->ctx, &(struct hyper_grad_args){ .N = p->N,
                                                         .d = p->config->d_model,
                                                         .n = s->stream->channels,
                                                         .X = s->stream->X,
                                                         .Wf = acts[STREAMS_WF],
                                                         .a = param_value(p, s->params[ALPHA_SCALE]),
                                                         .e = param_value(p, s->params[BETA_SCALE]),
                                                         .t = acts[STREAMS_T],
                                                         .rstd = acts[STREAMS_RSTD],
                                                         .w = acts[STREAMS_W],
                                                         .dw = s->scratch[STREAMS_DW],
                                                         .dx_in = sublayer_dx_in(s),
                                                         .dX = s->stream->dX,
                                                         .dz = s->scratch[STREAMS_DZ],
                                                         .dalpha = param_grad(p, s->params[ALPHA]),
                                                         .dbeta = param_grad(p, s->params[BETA]),
                                                         .da = param_grad(p, s->params[ALPHA_SCALE]),
                                                         .de = param_grad(p, s->params[BETA_SCALE]),
                                                         .dWf = s->scratch[STREAMS_DWF] });
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
    .one_channel = true,
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
