/* Tokens -> X0: the embedding, repeated over the channels or spread by a causal convolution over tokens
 * (docs/equations.md, 3). */
#include "model/embed.h"
#include "model/cache.h"
#include "model/gradients.h"
#include "model/precision.h"
#include "model/probe_calls.h"
#include "model/workspace.h"

/* The embeddings x (N, d): for c = 1 they are the stream itself, otherwise ctx is their buffer. */
static float *gather(const struct pass *p, float *x)
{
    struct weight E = param_weight(p, p->m->params.slots.wte);
    operand_gather(p->m->backend, E.form, p->config->d_model, p->N, p->ws->tokens, x);
    return x;
}

void embed_fwd(const struct pass *p, const struct stream *stream)
{
    size_t d = p->config->d_model, c = stream->channels;
    probe_enter(p, false, DDL_NO_LAYER, "embed");
    if (c == 1) {
        probe_tensor(p, "X", gather(p, stream->X), d);
        return;
    }
    const float *x = gather(p, p->ws->ctx);
    probe_tensor(p, "embedding", x, d);
    struct history *history = p->cache ? &p->cache->embed : NULL;
    p->ops->init_state_fwd(p->ctx,
                           &(struct init_state_args){ .B = p->B,
                                                      .T = p->T,
                                                      .d = d,
                                                      .c = c,
                                                      .K = p->config->embed_kernel,
                                                      .x = x,
                                                      .w = param_value(p, p->m->params.slots.embed_conv),
                                                      .X = stream->X,
                                                      .ragged = p->ragged,
                                                      .history = history ? history->rows : NULL });
    probe_tensor(p, "X", stream->X, d * c);
    if (history)
        history_push(p, history, x);
}

void embed_bwd(const struct pass *p, const struct stream *stream)
{
    const struct ddl_workspace *ws = p->ws;
    size_t d = p->config->d_model, c = stream->channels;
    const float *dx = stream->dX;
    int wte = p->m->params.slots.wte, conv = p->m->params.slots.embed_conv;
    probe_enter(p, true, DDL_NO_LAYER, "embed");
    if (c > 1) {
        p->ops->init_state_bwd(p->ctx, &(struct init_state_grad_args){ .B = p->B,
                                                                       .T = p->T,
                                                                       .d = d,
                                                                       .c = c,
                                                                       .K = p->config->embed_kernel,
                                                                       .x = gather(p, ws->ctx),
                                                                       .w = param_value(p, conv),
                                                                       .dX = stream->dX,
                                                                       .dx = ws->dctx,
                                                                       .dw = param_grad(p, conv) });
        dx = ws->dctx;
        probe_grad(p, conv);
        probe_tensor(p, "dembedding", dx, d);
    }
    p->ops->embed_bwd(p->ctx,
                      &(struct embed_grad_args){
                          .N = p->N, .d = d, .tokens = ws->tokens, .dx = dx, .dE = param_grad(p, wte) });
    probe_grad(p, wte);
}
