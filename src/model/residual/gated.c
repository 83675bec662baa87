/* gated: X' = X + beta f (docs/equations.md, 9), with the gate beta of gate.h from ctx. Backward: df = beta
 * dX', dbeta = sum over features of dX' (*) f, dX = dX'; the state is reversed in place. */
#include "model/observe/probe_calls.h"
#include "model/residual/gate.h"
#include "model/residual/table.h"

static void params(struct param_plan *plan, int *index)
{
    gate_params(plan, 1, index);
}

static unsigned reads(const struct ddl_config *config)
{
    return gate_reads(config);
}

static void layout(const struct layout *l, float **acts)
{
    gate_layout(l, 1, acts);
}

static void scratch(const struct layout *l, float **out)
{
    gate_scratch(l, 1, out);
}

static void context_fwd(const struct sublayer *s, const float *x_in, const float *ctx)
{
    (void)x_in;
    gate_fwd(s, 1, ctx);
}

static void write_fwd(const struct sublayer *s, struct operand x_in, struct operand ctx)
{
    const struct pass *p = s->p;
    (void)x_in;
    (void)ctx;
    p->ops->gated_fwd(p->ctx, &(struct gated_args){ .N = p->N,
                                                    .d = p->config->d_model,
                                                    .f = s->acts->f,
                                                    .beta = s->acts->rule[GATE_BETA],
                                                    .X = s->stream->X });
}

static struct operand write_bwd(const struct sublayer *s)
{
    const struct pass *p = s->p;
    struct activation df = s->df;
    p->ops->gated_bwd(p->ctx, &(struct gated_grad_args){ .N = p->N,
                                                         .d = p->config->d_model,
                                                         .f = s->acts->f,
                                                         .beta = s->acts->rule[GATE_BETA],
                                                         .G = s->stream->dX,
                                                         .X = s->stream->X,
                                                         .df = df.value,
                                                         .df16 = df.bf16,
                                                         .dbeta = s->scratch[GATE_DBETA] });
    probe_tensor(p, "X", s->stream->X, p->config->d_model);
    probe_tensor(p, "dbeta", s->scratch[GATE_DBETA], 1);
    probe_activation(p, "df", df, p->N, p->config->d_model);
    return operand_of(df);
}

static void context_bwd(const struct sublayer *s, struct operand ctx, float *dctx)
{
    gate_bwd(s, 1, ctx.value, dctx);
    probe_tensor(s->p, "dctx", dctx, s->p->config->d_model);
}

static double flops(const struct ddl_config *config)
{
    return 2 * (double)config->d_model;
}

static const struct trace_tensor traced[] = { GATE_TRACED(gate_factor_behaviors), { 0 } };

const struct residual_rule residual_gated = {
    .prefix = "res",
    .earlier = STREAM_REVERSED,
    .normalizes_f = true,
    .one_channel = true,
    .ops_fwd = DDL_OP_LIST(DDL_OP_gated_fwd, DDL_OP_project_fwd, DDL_OP_tanh_fwd, DDL_OP_fill),
    .ops_bwd = DDL_OP_LIST(DDL_OP_gated_bwd, DDL_OP_project_bwd, DDL_OP_tanh_bwd),
    .params = params,
    .layout = layout,
    .scratch = scratch,
    .reads = reads,
    .read_fwd = read_stream_fwd,
    .read_bwd = read_stream_bwd,
    .context_fwd = context_fwd,
    .write_fwd = write_fwd,
    .write_bwd = write_bwd,
    .context_bwd = context_bwd,
    .flops = flops,
    .force_keys = DDL_FORCE_F_SCALE,
    .traced = traced,
};
