/* The state X (N, d, c) -> x_in (N, d), what attention and MLP see (docs/equations.md, 2). A compressor's
 * weights and its read vector are folded into one weight per (tap, feature, channel) first, so that all three
 * kinds are one sum over the state. */
#include "model/pass/compress.h"
#include "model/params/gradients.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"
#include "model/pass/workspace.h"

size_t compress_taps(const struct ddl_config *config)
{
    return config->compress == DDL_COMPRESS_TOKEN ? ddl_config_state_kernel(config) : 1;
}

static const struct compressor_params *params_of(const struct pass *p, size_t layer)
{
    return layer < p->config->n_layers ? &p->m->params.layer[layer].compress : &p->m->params.model.readout;
}

/* The folded weights of a layer. Those of the layers next to it are elsewhere, so that a backend can fold
 * them before it has read these. */
static float *fold_weights(const struct pass *p, size_t layer)
{
    const struct compressor_params *params = params_of(p, layer);
    float *e = p->ws->e[layer % 2];
    p->ops->fold_fwd(p->ctx, &(struct fold_args){ .kind = p->config->compress,
                                                  .d = p->config->d_model,
                                                  .c = p->config->channels,
                                                  .K = ddl_config_state_kernel(p->config),
                                                  .w = param_value(p, params->weight),
                                                  .r = param_value(p, params->read),
                                                  .e = e });
    return e;
}

const float *compress_fwd(const struct pass *p, const struct stream *stream, size_t layer,
                          struct history *history, float *x_in)
{
    if (stream->channels == 1)
        return stream->X;
    const float *e = fold_weights(p, layer);
    p->ops->compress_fwd(p->ctx, &(struct compress_args){ .B = p->B,
                                                          .T = p->T,
                                                          .d = p->config->d_model,
                                                          .c = stream->channels,
                                                          .taps = compress_taps(p->config),
                                                          .X = stream->X,
                                                          .e = e,
                                                          .x_in = x_in,
                                                          .ragged = p->ragged,
                                                          .history = history ? history->rows : NULL });
    probe_tensor(p, "x_in", x_in, p->config->d_model);
    if (history)
        history_push(p, history, stream->X);
    return x_in;
}

void compress_bwd(const struct pass *p, const struct stream *stream, size_t layer)
{
    const struct ddl_workspace *ws = p->ws;
    const struct compressor_params *params = params_of(p, layer);
    if (stream->channels == 1)
        return;
    const float *e = fold_weights(p, layer);
    p->ops->compress_bwd(p->ctx, &(struct compress_grad_args){ .B = p->B,
                                                               .T = p->T,
                                                               .d = p->config->d_model,
                                                               .c = stream->channels,
                                                               .taps = compress_taps(p->config),
                                                               .X = stream->X,
                                                               .e = e,
                                                               .dx_in = ws->dx_in,
                                                               .dX = stream->dX,
                                                               .de = ws->de });
    p->ops->fold_bwd(p->ctx, &(struct fold_grad_args){ .kind = p->config->compress,
                                                       .d = p->config->d_model,
                                                       .c = p->config->channels,
                                                       .K = ddl_config_state_kernel(p->config),
                                                       .w = param_value(p, params->weight),
                                                       .r = param_value(p, params->read),
                                                       .de = ws->de,
                                                       .dw = param_grad(p, params->weight),
                                                       .dr = param_grad(p, params->read) });
    probe_tensor(p, "dX", stream->dX, p->config->d_model * stream->channels);
    probe_grad(p, params->weight);
    probe_grad(p, params->read);
}
