/* Causal self-attention: projections, rotary embedding, QK-norm, softmax, output (docs/equations.md, 6). The
 * rows c_q, c_k, c_v are fused in memory, so that one product computes all three. */
#include "model/pass/attention.h"
#include "model/pass/cache.h"
#include "model/observe/force.h"
#include "model/params/gradients.h"
#include "model/pass/linear.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"
#include "model/residual/rule.h"
#include "model/pass/workspace.h"

#include <math.h>

/* Rotates queries (part 0 of the fused projection) or keys (part 1). */
static void rotate(const struct pass *p, struct activation qkv, int part, int param, struct activation y)
{
    const struct ddl_config *k = p->config;
    size_t a = k->n_heads * k->head_dim;
    struct activation x = activation_from(qkv, (size_t)part * a);
    p->ops->rope_fwd(p->ctx, &(struct rope_args){ .B = p->B,
                                                  .T = p->T,
                                                  .H = k->n_heads,
                                                  .h = k->head_dim,
                                                  .R = p->rope->R,
                                                  .ragged = p->ragged,
                                                  .eps = NORM_EPS,
                                                  .cos = p->rope->cos,
                                                  .sin = p->rope->sin,
                                                  .x = x.value,
                                                  .x16 = x.bf16,
                                                  .x_stride = 3 * a,
                                                  .w = param_value(p, param),
                                                  .y = y.value,
                                                  .y16 = y.bf16,
                                                  .y_stride = a });
}

static void rotate_bwd(const struct pass *p, struct activation qkv, int part, int param,
                       struct activation dqkv)
{
    const struct ddl_config *k = p->config;
    size_t a = k->n_heads * k->head_dim;
    struct activation x = activation_from(qkv, (size_t)part * a),
                      dx = activation_from(dqkv, (size_t)part * a);
    p->ops->rope_bwd(p->ctx, &(struct rope_grad_args){ .B = p->B,
                                                       .T = p->T,
                                                       .H = k->n_heads,
                                                       .h = k->head_dim,
                                                       .R = p->rope->R,
                                                       .eps = NORM_EPS,
                                                       .cos = p->rope->cos,
                                                       .sin = p->rope->sin,
                                                       .x = x.value,
                                                       .x16 = x.bf16,
                                                       .x_stride = 3 * a,
                                                       .w = param_value(p, param),
                                                       .dy = dx.value,
                                                       .dy16 = dx.bf16,
                                                       .dy_stride = 3 * a,
                                                       .dx = dx.value,
                                                       .dx16 = dx.bf16,
                                                       .dx_stride = 3 * a,
                                                       .dw = param_grad(p, param) });
}

/* Writes this pass's keys or values, rows src_stride apart, to their slots: `to`, or in bfloat16 to16. */
static void append(const struct pass *p, struct activation src, size_t src_stride, float *to, uint16_t *to16)
{
    p->ops->cache_append(p->ctx,
                         &(struct cache_append_args){ .ragged = p->ragged,
                                                      .width = p->config->n_heads * p->config->head_dim,
                                                      .src = src.value,
                                                      .src16 = src.bf16,
                                                      .src_stride = src_stride,
                                                      .dst = to,
                                                      .dst16 = to16,
                                                      .slot_stride = p->cache->slot_stride });
}

/* Values, rows `stride` apart. */
struct values {
    struct activation x;
    size_t stride;
};

/* The values that attention reads, from those of the fused projection. Layer 0 keeps its values for the
 * others, which mix theirs with them. */
static struct values values_fwd(const struct pass *p, size_t layer)
{
    const struct layer_acts *acts = &p->ws->layer[layer];
    const float *mix = force_value_mix(p, layer);
    size_t a = p->config->n_heads * p->config->head_dim;
    const struct values own = { activation_from(acts->qkv, 2 * a), 3 * a };
    struct activation v0 = p->ws->v0;
    if (layer == 0 && (v0.value || v0.bf16))
        p->ops->copy(p->ctx, &(struct copy_args){ .rows = p->N,
                                                  .width = a,
                                                  .src = own.x.value,
                                                  .src16 = own.x.bf16,
                                                  .src_stride = own.stride,
                                                  .dst = v0.value,
                                                  .dst16 = v0.bf16,
                                                  .dst_stride = a });
    if (!mix)
        return own;
    p->ops->mix_values_fwd(p->ctx, &(struct mix_values_args){ .N = p->N,
                                                              .width = a,
                                                              .v = own.x.value,
                                                              .v16 = own.x.bf16,
                                                              .v_stride = own.stride,
                                                              .first = v0.value,
                                                              .first16 = v0.bf16,
                                                              .mix = mix,
                                                              .y = acts->v.value,
                                                              .y16 = acts->v.bf16,
                                                              .y_stride = a });
    probe_activation(p, "v", acts->v, p->N, a);
    return (struct values){ acts->v, a };
}

/* The gradient of the values in dqkv, from that of what values_fwd returned to that of the layer's own
 * values. The layers from the last to the second add up that of layer 0's. */
static void values_bwd(const struct pass *p, size_t layer, struct activation dqkv)
{
    const struct ddl_workspace *ws = p->ws;
    int mix = p->m->params.layer[layer].v_mix;
    size_t a = p->config->n_heads * p->config->head_dim;
    struct activation dv = activation_from(dqkv, 2 * a), v = activation_from(ws->layer[layer].qkv, 2 * a);
    if (layer == 0 && ws->dv0)
        p->ops->mix_values_fwd(p->ctx, &(struct mix_values_args){ .N = p->N,
                                                                  .width = a,
                                                                  .v = dv.value,
                                                                  .v16 = dv.bf16,
                                                                  .v_stride = 3 * a,
                                                                  .first = ws->dv0,
                                                                  .y = dv.value,
                                                                  .y16 = dv.bf16,
                                                                  .y_stride = 3 * a });
    if (mix < 0)
        return;
    p->ops->mix_values_bwd(p->ctx,
                           &(struct mix_values_grad_args){ .N = p->N,
                                                           .width = a,
                                                           .v = v.value,
                                                           .v16 = v.bf16,
                                                           .v_stride = 3 * a,
                                                           .first = ws->v0.value,
                                                           .first16 = ws->v0.bf16,
                                                           .mix = param_value(p, mix),
                                                           .dv = dv.value,
                                                           .dv16 = dv.bf16,
                                                           .dv_stride = 3 * a,
                                                           .accumulate = layer + 1 < p->config->n_layers,
                                                           .dfirst = ws->dv0,
                                                           .dmix = param_grad(p, mix) });
    probe_grad(p, mix);
    probe_tensor(p, "dv0", ws->dv0, a);
}

/* Everything before the output product: ctx -> qkv -> qn, kn -> y. */
static void attend(const struct pass *p, size_t layer, struct operand ctx)
{
    const struct ddl_config *k = p->config;
    const struct layer_params *params = &p->m->params.layer[layer];
    const struct layer_acts *acts = &p->ws->layer[layer];
    size_t a = k->n_heads * k->head_dim, dense = p->T * a;
    linear_fwd_rounded(p, k->d_model, 3 * a, ctx, param_weight(p, params->c_q), acts->qkv);
    probe_activation(p, "qkv", acts->qkv, p->N, 3 * a);
    rotate(p, acts->qkv, 0, params->q_rms, acts->qn);
    probe_activation(p, "qn", acts->qn, p->N, a);
    rotate(p, acts->qkv, 1, params->k_rms, acts->kn);
    probe_activation(p, "kn", acts->kn, p->N, a);
    struct values v = values_fwd(p, layer);
    struct attention_args args = { .B = p->B,
                                   .T = p->T,
                                   .H = k->n_heads,
                                   .h = k->head_dim,
                                   .ragged = p->queries,
                                   .scale = (float)(1 / sqrt((double)k->head_dim)),
                                   .q = acts->qn.value,
                                   .q16 = acts->qn.bf16,
                                   .q_stride = a,
                                   .k_stride = a,
                                   .y = acts->y.value,
                                   .y16 = acts->y.bf16,
                                   .lse = acts->lse };
    if (p->cache) {
        const struct cache_layer *cache = &p->cache->layer[layer];
        size_t batch = p->cache->slot_stride;
        append(p, acts->kn, a, cache->k, cache->k16);
        append(p, v.x, v.stride, cache->v, cache->v16);
        args.k = cache->k;
        args.v = cache->v;
        args.k16 = cache->k16;
        args.v16 = cache->v16;
        args.v_stride = a;
        args.k_batch = args.v_batch = batch;
    } else {
        args.k = acts->kn.value;
        args.v = v.x.value;
        args.k16 = acts->kn.bf16;
        args.v16 = v.x.bf16;
        args.v_stride = v.stride;
        args.k_batch = dense;
        args.v_batch = p->T * v.stride;
    }
    p->ops->attention_fwd(p->ctx, &args);
    probe_activation(p, "y", acts->y, p->N, a);
}

void attention_fwd(const struct pass *p, size_t layer, struct operand ctx, float *f, bool add)
{
    const struct layer_acts *acts = &p->ws->layer[layer];
    attend(p, layer, ctx);
    linear_fwd(p, p->config->n_heads * p->config->head_dim, acts->f_width, operand_of(acts->y),
               param_weight(p, p->m->params.layer[layer].attn_proj), f, add);
}

/* What attention's backward reads and forward did not keep. */
static void attend_again(const struct pass *p, size_t layer, struct operand ctx)
{
    const struct layer_params *params = &p->m->params.layer[layer];
    const struct layer_acts *acts = &p->ws->layer[layer];
    if (p->ws->options.recompute == DDL_RECOMPUTE_BLOCK) {
        attend(p, layer, ctx);
    } else if (p->ws->options.recompute == DDL_RECOMPUTE_ELEMENTWISE) {
        rotate(p, acts->qkv, 0, params->q_rms, acts->qn);
        rotate(p, acts->qkv, 1, params->k_rms, acts->kn);
        if (params->v_mix >= 0)
            values_fwd(p, layer);
    }
}

void attention_bwd(const struct pass *p, size_t layer, struct operand ctx, struct operand df, float *dctx)
{
    const struct ddl_config *k = p->config;
    const struct layer_params *params = &p->m->params.layer[layer];
    const struct layer_acts *acts = &p->ws->layer[layer];
    const struct ddl_workspace *ws = p->ws;
    size_t a = k->n_heads * k->head_dim;
    bool mixes = params->v_mix >= 0;
    struct activation v = mixes ? acts->v : activation_from(acts->qkv, 2 * a);
    struct activation dk = activation_from(ws->dqkv, a), dv = activation_from(ws->dqkv, 2 * a);
    attend_again(p, layer, ctx);
    linear_bwd(p, a, acts->f_width, operand_of(acts->y), df, param_weight_bwd(p, params->attn_proj), ws->dy,
               false);
    probe_grad(p, params->attn_proj);
    probe_tensor(p, "dy", ws->dy, a);
    p->ops->attention_bwd(p->ctx,
                          &(struct attention_grad_args){ .B = p->B,
                                                         .T = p->T,
                                                         .H = k->n_heads,
                                                         .h = k->head_dim,
                                                         .scale = (float)(1 / sqrt((double)k->head_dim)),
                                                         .q = acts->qn.value,
                                                         .k = acts->kn.value,
                                                         .v = v.value,
                                                         .q16 = acts->qn.bf16,
                                                         .k16 = acts->kn.bf16,
                                                         .v16 = v.bf16,
                                                         .q_stride = a,
                                                         .k_stride = a,
                                                         .v_stride = mixes ? a : 3 * a,
                                                         .y = acts->y.value,
                                                         .y16 = acts->y.bf16,
                                                         .lse = acts->lse,
                                                         .dy = ws->dy,
                                                         .dq = ws->dqkv.value,
                                                         .dk = dk.value,
                                                         .dv = dv.value,
                                                         .dq16 = ws->dqkv.bf16,
                                                         .dk16 = dk.bf16,
                                                         .dv16 = dv.bf16,
                                                         .dq_stride = 3 * a,
                                                         .dk_stride = 3 * a,
                                                         .dv_stride = 3 * a });
    rotate_bwd(p, acts->qkv, 0, params->q_rms, ws->dqkv);
    rotate_bwd(p, acts->qkv, 1, params->k_rms, ws->dqkv);
    values_bwd(p, layer, ws->dqkv);
    probe_activation(p, "dqkv", ws->dqkv, p->N, 3 * a);
    probe_grad(p, params->q_rms);
    probe_grad(p, params->k_rms);
    linear_bwd(p, k->d_model, 3 * a, ctx, operand_of(ws->dqkv), param_weight_bwd(p, params->c_q), dctx,
               false);
    probe_grad(p, params->c_q);
    probe_grad(p, params->c_k);
    probe_grad(p, params->c_v);
    probe_tensor(p, "dctx", dctx, k->d_model);
}
