/* One sublayer of a block: compress, norm, F, residual rule; and the same backwards. This is the place to
 * start reading: every model is this file plus the rows of its configuration. */
#include "model/block.h"
#include "model/attention.h"
#include "model/cache.h"
#include "model/compress.h"
#include "model/gradients.h"
#include "model/mlp.h"
#include "model/precision.h"
#include "model/probe_calls.h"
#include "model/residual.h"
#include "model/workspace.h"

static const float norm_eps = 1e-5f;

typedef void branch_fwd_fn(const struct pass *p, size_t layer, const float *ctx, float *f, bool add);
typedef void branch_bwd_fn(const struct pass *p, size_t layer, const float *ctx, const float *df,
                           float *dctx);
static branch_fwd_fn *const branch_fwd[] = { [ATTN] = attention_fwd, [MLP] = mlp_fwd };
static branch_bwd_fn *const branch_bwd[] = { [ATTN] = attention_bwd, [MLP] = mlp_bwd };
static const char *const part_names[] = { [ATTN] = "attn", [MLP] = "mlp" };

/* ctx = norm(x_in). */
static const float *norm_fwd(const struct pass *p, size_t layer, int sub, const float *x_in)
{
    const struct sublayer_acts *acts = &p->ws->layer[layer].sub[sub];
    p->ops->rmsnorm_fwd(p->ctx,
                        &(struct rmsnorm_args){ .N = p->N,
                                                .d = p->config->d_model,
                                                .eps = norm_eps,
                                                .x = x_in,
                                                .w = param_value(p, p->m->params.layer[layer].ln[sub]),
                                                .y = acts->ctx,
                                                .rstd = acts->rstd });
    probe_tensor(p, "ctx", acts->ctx, p->config->d_model);
    return acts->ctx;
}

static void norm_bwd(const struct pass *p, size_t layer, int sub, const float *x_in, float *dx_in,
                     bool accumulate)
{
    int slot = p->m->params.layer[layer].ln[sub];
    p->ops->rmsnorm_bwd(p->ctx, &(struct rmsnorm_grad_args){ .N = p->N,
                                                             .d = p->config->d_model,
                                                             .x = x_in,
                                                             .w = param_value(p, slot),
                                                             .rstd = p->ws->layer[layer].sub[sub].rstd,
                                                             .dy = p->ws->dctx,
                                                             .accumulate = accumulate,
                                                             .dx = dx_in,
                                                             .dw = param_grad(p, slot) });
    probe_grad(p, slot);
    probe_tensor(p, dx_in == p->ws->dX ? "dX" : "dx_in", dx_in, p->config->d_model);
}

void sublayer_fwd(const struct pass *p, size_t layer, int sub)
{
    const struct sublayer_acts *acts = &p->ws->layer[layer].sub[sub];
    struct history *history = p->cache ? &p->cache->layer[layer].compress[sub] : NULL;
    probe_enter(p, false, layer, part_names[sub]);
    const float *x_in = compress_fwd(p, &p->m->params.layer[layer].compress, history, acts->x_in);
    const float *ctx = norm_fwd(p, layer, sub, x_in);
    if (ddl_config_residual(p->config, layer) == DDL_RESIDUAL_DELTA) {
        branch_fwd[sub](p, layer, ctx, acts->saved, false);
        probe_tensor(p, "f", acts->saved, p->config->d_model);
        residual_delta_fwd(p, layer, sub, x_in, ctx);
        return;
    }
    size_t n = p->N * p->config->d_model;
    if (p->ws->options.train)
        p->ops->copy(p->ctx,
                     &(struct copy_args){ .rows = 1, .width = n, .src = p->ws->X, .dst = acts->saved });
    branch_fwd[sub](p, layer, ctx, p->ws->X, true);
    probe_tensor(p, "X", p->ws->X, p->config->d_model);
}

/* x_in and ctx as forward had them: kept, or made again (x_in from the state, which is back where it was). */
static const float *stream_again(const struct pass *p, size_t layer, int sub)
{
    const struct sublayer_acts *acts = &p->ws->layer[layer].sub[sub];
    if (acts->x_in && p->ws->options.recompute == DDL_RECOMPUTE_NONE)
        return acts->x_in;
    return compress_fwd(p, &p->m->params.layer[layer].compress, NULL, acts->x_in);
}

static const float *context_again(const struct pass *p, size_t layer, int sub, const float *x_in)
{
    if (p->ws->options.recompute == DDL_RECOMPUTE_NONE)
        return p->ws->layer[layer].sub[sub].ctx;
    return norm_fwd(p, layer, sub, x_in);
}

/* dX' -> dX with an additive step: dX passes on as it is, and once more through F and the norm. */
static void add_bwd(const struct pass *p, size_t layer, int sub)
{
    const float *x = p->ws->layer[layer].sub[sub].saved;
    const float *ctx = context_again(p, layer, sub, x);
    branch_bwd[sub](p, layer, ctx, p->ws->dX, p->ws->dctx);
    norm_bwd(p, layer, sub, x, p->ws->dX, true);
    size_t n = p->N * p->config->d_model;
    p->ops->copy(p->ctx, &(struct copy_args){ .rows = 1,
                                              .width = n,
                                              .src = x,
                                              .dst = p->ws->X }); /* a delta layer below rebuilds from it */
}

void sublayer_bwd(const struct pass *p, size_t layer, int sub)
{
    probe_enter(p, true, layer, part_names[sub]);
    if (ddl_config_residual(p->config, layer) == DDL_RESIDUAL_ADD) {
        add_bwd(p, layer, sub);
        return;
    }
    const struct ddl_workspace *ws = p->ws;
    const struct compressor_slots *compressor = &p->m->params.layer[layer].compress;
    bool expanded = p->config->channels > 1;
    float *dx_in = expanded ? ws->dx_in : ws->dX;

    residual_delta_bwd(p, layer, sub);
    const float *x_in = stream_again(p, layer, sub);
    const float *ctx = context_again(p, layer, sub, x_in);
    if (residual_uses_f(p->config, layer))
        branch_bwd[sub](p, layer, ctx, ws->df, ws->dctx);
    else
        p->ops->zero(p->ctx, ws->dctx, p->N * p->config->d_model * sizeof *ws->dctx);
    residual_context_bwd(p, layer, sub, ctx, ws->dctx);
    norm_bwd(p, layer, sub, x_in, dx_in, !expanded);
    residual_stream_bwd(p, layer, sub, x_in, dx_in);
    compress_bwd(p, compressor);
}
