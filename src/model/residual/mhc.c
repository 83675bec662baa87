/* mhc: n streams as those of hyper, mixed by doubly stochastic matrices (docs/equations.md, 9) that are
 * functions of all streams of the token (Xie et al., 2025): Sinkhorn's iterations of the exponential of a
 * projection. */
#include "model/params/gradients.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"
#include "model/residual/streams.h"
#include "model/residual/table.h"

/* Its parameters: the norm, then those of each part from FIRST + 3 part on. */
enum { NORM, FIRST };
enum { PRE, POST, RES, PARTS };
enum { WEIGHT, BIAS, SCALE, OF_PART };
enum { N_PARAMS = (int)FIRST + (int)OF_PART * (int)PARTS };
_Static_assert((int)N_PARAMS <= RULE_PARAMS && (int)STREAMS_ACTS <= RULE_ACTS &&
                   (int)STREAMS_SCRATCH <= RULE_SCRATCH,
               "the tables of workspace.h and params.h are too small for this rule");

/* The row of one parameter of a part. */
static int slot_of(const struct sublayer *s, int part, int which)
{
    return s->params[FIRST + OF_PART * part + which];
}

static struct streams_params declared(const struct ddl_config *k)
{
    size_t n = k->streams, width = n * k->d_model;
    const struct param_init matrix = param_init_matrix(k), zero = param_init_constant(0),
                            one = param_init_constant(1), small = param_init_constant(0.01),
                            near_identity = { INIT_OFF_DIAGONAL, -4 };
    return (struct streams_params){ .n = N_PARAMS,
                                    .norm = NORM,
                                    .row = {
                                        { "norm.weight", { width }, DDL_GROUP_NORM, one, 0, NULL },
                                        { "pre.weight", { n, width }, DDL_GROUP_MATRIX, matrix, 0, NULL },
                                        { "pre.bias", { n }, DDL_GROUP_BIAS, zero, 0, NULL },
                                        { "pre.scale", { 1 }, DDL_GROUP_NORM, small, 0, NULL },
                                        { "post.weight", { n, width }, DDL_GROUP_MATRIX, matrix, 0, NULL },
                                        { "post.bias", { n }, DDL_GROUP_BIAS, zero, 0, NULL },
                                        { "post.scale", { 1 }, DDL_GROUP_NORM, small, 0, NULL },
                                        { "res.weight", { n * n, width }, DDL_GROUP_MATRIX, matrix, 0, NULL },
                                        { "res.bias", { n * n }, DDL_GROUP_BIAS, near_identity, 0, NULL },
                                        { "res.scale", { 1 }, DDL_GROUP_NORM, small, 0, NULL } } };
}

static void params(struct param_plan *plan, int *index)
{
    const struct streams_params of = declared(plan->config);
    streams_declare(plan, &of, index);
}

static void layout(const struct layout *l, float **acts)
{
    const struct streams_params of = declared(l->config);
    streams_layout(l, &of, acts);
}

static void scratch(const struct layout *l, float **out)
{
    const struct streams_params of = declared(l->config);
    streams_scratch(l, &of, out);
}

static size_t most_sums(const struct ddl_config *config)
{
    const struct streams_params of = declared(config);
    return streams_sums(config, &of);
}

static const float *read_fwd(const struct sublayer *s, struct history *history)
{
    const struct pass *p = s->p;
    const struct streams_params of = declared(p->config);
    float *const *acts = s->acts->rule;
    struct mhc_args args = { .N = p->N,
                             .d = p->config->d_model,
                             .n = s->stream->channels,
                             .iterations = p->config->sinkhorn_iterations,
                             .eps = NORM_EPS,
                             .identity = streams_identity(s),
                             .X = s->stream->X,
                             .Wf = acts[STREAMS_WF],
                             .t = acts[STREAMS_T],
                             .rstd = acts[STREAMS_RSTD],
                             .w = acts[STREAMS_W],
                             .x_in = s->acts->x_in };
    (void)history;
    for (int part = 0; part < PARTS; part++) {
        args.bias[part] = param_value(p, slot_of(s, part, BIAS));
        args.scale[part] = param_value(p, slot_of(s, part, SCALE));
    }
    streams_fold(s, &of);
    p->ops->mhc_fwd(p->ctx, &args);
    streams_probe(s, &of);
    return s->acts->x_in;
}

static void read_bwd(const struct sublayer *s)
{
    const struct pass *p = s->p;
    const struct streams_params of = declared(p->config);
    float *const *acts = s->acts->rule;
    struct mhc_grad_args args = { .N = p->N,
                                  .d = p->config->d_model,
                                  .n = s->stream->channels,
                                  .iterations = p->config->sinkhorn_iterations,
                                  .X = s->stream->X,
                                  .Wf = acts[STREAMS_WF],
                                  .t = acts[STREAMS_T],
                                  .rstd = acts[STREAMS_RSTD],
                                  .w = acts[STREAMS_W],
                                  .dw = s->scratch[STREAMS_DW],
                                  .dx_in = sublayer_dx_in(s),
                                  .dX = s->stream->dX,
                                  .dz = s->scratch[STREAMS_DZ],
                                  .dWf = s->scratch[STREAMS_DWF] };
    for (int part = 0; part < PARTS; part++) {
        args.bias[part] = param_value(p, slot_of(s, part, BIAS));
        args.scale[part] = param_value(p, slot_of(s, part, SCALE));
        args.dbias[part] = param_grad(p, slot_of(s, part, BIAS));
        args.dscale[part] = param_grad(p, slot_of(s, part, SCALE));
    }
    p->ops->mhc_bwd(p->ctx, &args);
    streams_fold_bwd(s, &of);
}

const struct residual_rule residual_mhc = {
    .prefix = "res",
    .state = &streams_form,
    .earlier = STREAM_KEPT,
    .one_channel = true,
    .ops_fwd =
        DDL_OP_LIST(DDL_OP_streams_fold_fwd, DDL_OP_streams_sum, DDL_OP_streams_write_fwd, DDL_OP_mhc_fwd),
    .ops_bwd = DDL_OP_LIST(DDL_OP_streams_fold_bwd, DDL_OP_streams_write_bwd, DDL_OP_mhc_bwd),
    .params = params,
    .layout = layout,
    .scratch = scratch,
    .most_sums = most_sums,
    .read_fwd = read_fwd,
    .read_again = streams_read_again,
    .read_bwd = read_bwd,
    .write_fwd = streams_write_fwd,
    .write_bwd = streams_write_bwd,
    .flops = streams_flops,
    .force_keys = DDL_FORCE_F_SCALE | DDL_FORCE_MIX,
    .traced = streams_traced,
};
