/* SwiGLU: silu(W1 x) (*) (W2 x), then W3 (spec 2). c_fc1 and c_fc2 stand side by side: one product makes
 * both. */
#include "model/internal.h"

void mlp_fwd(const struct pass *p, size_t layer, const float *ctx, float *f, bool add)
{
    const struct layer_slots *slots = &p->m->params.layer[layer];
    const struct layer_acts *acts = &p->ws->layer[layer];
    size_t d = p->config->d_model, m = ddl_config_mlp_size(p->config);
    linear_fwd(p, p->N, d, 2 * m, ctx, param_weight(p, slots->fc1), acts->ug, false);
    probe_tensor(p, "ug", acts->ug, 2 * m);
    p->ops->swiglu_fwd(p->ctx, &(struct swiglu_args){ .N = p->N, .m = m, .ug = acts->ug, .s = p->ws->s });
    probe_tensor(p, "s", p->ws->s, m);
    linear_fwd(p, p->N, m, d, p->ws->s, param_weight(p, slots->mlp_proj), f, add);
}

/* s is recomputed, then its room holds ds; dug goes over ug, which nothing needs any more. */
void mlp_bwd(const struct pass *p, size_t layer, const float *ctx, const float *df, float *dctx)
{
    const struct layer_slots *slots = &p->m->params.layer[layer];
    const struct layer_acts *acts = &p->ws->layer[layer];
    float *s = p->ws->s;
    size_t d = p->config->d_model, m = ddl_config_mlp_size(p->config);
    p->ops->swiglu_fwd(p->ctx, &(struct swiglu_args){ .N = p->N, .m = m, .ug = acts->ug, .s = s });
    linear_bwd(p, p->N, m, d, s, df, param_weight(p, slots->mlp_proj), s, false);
    probe_grad(p, slots->mlp_proj);
    probe_tensor(p, "ds", s, m);
    p->ops->swiglu_bwd(
        p->ctx, &(struct swiglu_grad_args){ .N = p->N, .m = m, .ug = acts->ug, .ds = s, .dug = acts->ug });
    probe_tensor(p, "dug", acts->ug, 2 * m);
    linear_bwd(p, p->N, d, 2 * m, ctx, acts->ug, param_weight(p, slots->fc1), dctx, false);
    probe_grad(p, slots->fc1);
    probe_grad(p, slots->fc2);
    probe_tensor(p, "dctx", dctx, d);
}
