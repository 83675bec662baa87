/* Tokens -> X0: the embedding, from which the form of the state makes X0 (docs/equations.md, 3). */
#include "model/pass/embed.h"
#include "model/params/gradients.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"
#include "model/residual/state.h"
#include "model/pass/workspace.h"

float *embed_gather(const struct pass *p, float *x)
{
    const struct operand E = param_weight(p, p->m->params.model.wte).form;
    size_t N = p->N, d = p->config->d_model, V = p->config->vocab_size;
    const int32_t *tokens = p->ws->tokens;
    if (E.value)
        p->ops->gather(p->ctx, &(struct gather_args){ N, d, V, tokens, E.value, x });
    else if (E.bf16)
        p->ops->gather_bf16(p->ctx, &(struct gather_bf16_args){ N, d, V, tokens, E.bf16, x });
    else
        p->ops->gather_q8(p->ctx, &(struct gather_q8_args){ N, d, V, E.first, tokens, E.q8, x });
    return x;
}

void embed_fwd(const struct pass *p, const struct stream *stream)
{
    size_t d = p->config->d_model;
    probe_enter(p, false, DDL_NO_LAYER, "embed");
    if (!stream->is_read) {
        probe_tensor(p, "X", embed_gather(p, stream->X), d);
        return;
    }
    const float *x = embed_gather(p, p->ws->ctx);
    probe_tensor(p, "embedding", x, d);
    stream->form->embed_fwd(p, stream, x);
    probe_tensor(p, "X", stream->X, d * stream->channels);
}

void embed_bwd(const struct pass *p, const struct stream *stream)
{
    const struct ddl_workspace *ws = p->ws;
    size_t d = p->config->d_model;
    const float *dx = stream->dX;
    int wte = p->m->params.model.wte;
    probe_enter(p, true, DDL_NO_LAYER, "embed");
    if (stream->is_read) {
        stream->form->embed_bwd(p, stream, ws->dctx);
        dx = ws->dctx;
        probe_tensor(p, "dembedding", dx, d);
    }
    p->ops->embed_bwd(p->ctx, &(struct embed_grad_args){ .N = p->N,
                                                         .d = d,
                                                         .V = p->config->vocab_size,
                                                         .tokens = ws->tokens,
                                                         .dx = dx,
                                                         .dE = param_grad(p, wte) });
    probe_grad(p, wte);
}
