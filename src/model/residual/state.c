#include "model/residual/state.h"

#include "model/pass/cache.h"
#include "model/pass/compress.h"
#include "model/pass/embed.h"
#include "model/params/gradients.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"
#include "model/residual/table.h"
#include "model/pass/workspace.h"

/* ---- value channels ---- */

static size_t channels(const struct ddl_config *config)
{
    return config->channels;
}

/* Repeated over the channels, or spread by a causal convolution over tokens (docs/equations.md, 3). */
static void embed_channels_fwd(const struct pass *p, const struct stream *stream, const float *x)
{
    struct history *history = p->cache ? &p->cache->embed : NULL;
    p->ops->init_state_fwd(p->ctx,
                           &(struct init_state_args){ .B = p->B,
                                                      .T = p->T,
                                                      .d = p->config->d_model,
                                                      .c = stream->channels,
                                                      .K = p->config->embed_kernel,
                                                      .x = x,
                                                      .w = param_value(p, p->m->params.model.embed_conv),
                                                      .X = stream->X,
                                                      .ragged = p->ragged,
                                                      .history = history ? history->rows : NULL });
    if (history)
        history_push(p, history, x);
}

static void embed_channels_bwd(const struct pass *p, const struct stream *stream, float *dx)
{
    int conv = p->m->params.model.embed_conv;
    p->ops->init_state_bwd(p->ctx, &(struct init_state_grad_args){ .B = p->B,
                                                                   .T = p->T,
                                                                   .d = p->config->d_model,
                                                                   .c = stream->channels,
                                                                   .K = p->config->embed_kernel,
                                                                   .x = embed_gather(p, p->ws->ctx),
                                                                   .w = param_value(p, conv),
                                                                   .dX = stream->dX,
                                                                   .dx = dx,
                                                                   .dw = param_grad(p, conv) });
    probe_grad(p, conv);
}

static const float *readout_channels_fwd(const struct pass *p, const struct stream *stream)
{
    return compress_fwd(p, stream, p->config->n_layers, p->cache ? &p->cache->readout : NULL, p->ws->x_in);
}

static void readout_channels_bwd(const struct pass *p, struct stream *stream)
{
    p->ops->zero(p->ctx, stream->dX, p->N * p->config->d_model * stream->channels * sizeof(float));
    compress_bwd(p, stream, p->config->n_layers);
}

const struct state_form state_channels = {
    .channels = channels,
    .embed_fwd = embed_channels_fwd,
    .embed_bwd = embed_channels_bwd,
    .readout_fwd = readout_channels_fwd,
    .readout_bwd = readout_channels_bwd,
};
