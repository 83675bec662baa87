/* SwiGLU: silu(W1 x) (*) (W2 x), then W3 (docs/equations.md, 7). c_fc1 and c_fc2 are fused in
 * memory: one product computes both. */
#include "model/pass/mlp.h"
#include "model/params/gradients.h"
#include "model/pass/linear.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"
#include "model/pass/workspace.h"

static void activate(const struct pass *p, const struct layer_acts *acts)
{
    size_t m = ddl_config_mlp_size(p->config);
    p->ops->swiglu_fwd(p->ctx, &(struct swiglu_args){ .N = p->N,
                                                      .m = m,
                                                      .ug = acts->ug.value,
                                                      .ug16 = acts->ug.bf16,
                                                      .ug_stride = row_stride(acts->ug.stride, 2 * m),
                                                      .s = acts->s.value,
                                                      .s16 = acts->s.bf16,
                                                      .s_stride = row_stride(acts->s.stride, m) });
}

/* Everything before the output product: ctx -> ug -> s. */
static void hidden(const struct pass *p, size_t layer, struct operand ctx)
{
    const struct layer_acts *acts = &p->ws->layer[layer];
    size_t m = ddl_config_mlp_size(p->config);
    linear_fwd_rounded(p, p->config->d_model, 2 * m, ctx, param_weight(p, p->m->params.layer[layer].fc1),
                       acts->ug);
    probe_activation(p, "ug", acts->ug, p->N, 2 * m);
    activate(p, acts);
    probe_activation(p, "s", acts->s, p->N, m);
}

void mlp_fwd(const struct pass *p, size_t layer, struct operand ctx, float *f, bool add)
{
    const struct layer_acts *acts = &p->ws->layer[layer];
    hidden(p, layer, ctx);
    linear_fwd(p, ddl_config_mlp_size(p->config), acts->f_width, operand_of(acts->s),
               param_weight(p, p->m->params.layer[layer].mlp_proj), f, add);
}

/* dug goes over ug, which nothing needs any more, and in float32 ds over s. */
void mlp_bwd(const struct pass *p, size_t layer, struct operand ctx, struct operand df, float *dctx)
{
    const struct layer_params *params = &p->m->params.layer[layer];
    const struct layer_acts *acts = &p->ws->layer[layer];
    float *ds = p->ws->ds ? p->ws->ds : acts->s.value;
    size_t d = p->config->d_model, m = ddl_config_mlp_size(p->config);
    if (p->ws->options.recompute == DDL_RECOMPUTE_BLOCK)
        hidden(p, layer, ctx);
    else if (p->ws->options.recompute == DDL_RECOMPUTE_ELEMENTWISE)
        activate(p, acts);
    linear_bwd(p, m, acts->f_width, operand_of(acts->s), df, param_weight_bwd(p, params->mlp_proj), ds,
               false);
    probe_grad(p, params->mlp_proj);
    probe_tensor(p, "ds", ds, m);
    p->ops->swiglu_bwd(p->ctx, &(struct swiglu_grad_args){ .N = p->N,
                                                           .m = m,
                                                           .ug = acts->ug.value,
                                                           .ug16 = acts->ug.bf16,
                                                           .ug_stride = row_stride(acts->ug.stride, 2 * m),
                                                           .ds = ds,
                                                           .dug = acts->ug.value,
                                                           .dug16 = acts->ug.bf16 });
    probe_activation(p, "dug", acts->ug, p->N, 2 * m);
    linear_bwd(p, d, 2 * m, ctx, operand_of(acts->ug), param_weight_bwd(p, params->fc1), dctx, false);
    probe_grad(p, params->fc1);
    probe_grad(p, params->fc2);
    probe_tensor(p, "dctx", dctx, d);
}
