/* The residual rules (docs/equations.md, 9): how a sublayer's output f enters the stream X.
 *
 * add: X' = X + f, done by the output product itself (block.c).
 * delta: a gate beta from ctx, a direction q and a target v, then the Delta operator. k-map: q = f and v
 * from x_in (or ctx); v-map: v from f and q = phi_k of x_in (of ctx for c = 1). Backward rebuilds X from X'
 * in place. */
#include "model/residual.h"
#include "model/gradients.h"
#include "model/linear.h"
#include "model/precision.h"
#include "model/probe_calls.h"
#include "model/workspace.h"

/* f reaches the loss: always as a direction (k-map), as a target (v-map) only where a target is read. */
bool residual_uses_f(const struct ddl_config *config, size_t layer)
{
    return ddl_config_residual(config, layer) == DDL_RESIDUAL_ADD || config->map == DDL_MAP_K ||
           residual_uses_target(config);
}

bool residual_uses_target(const struct ddl_config *config)
{
    return !config->v_constant && config->update != DDL_UPDATE_ERASE;
}

/* The gate's last linear layer: from ctx, or from its hidden layer. */
static struct project_args gate_args(const struct pass *p, size_t layer, int sub, const float *ctx)
{
    const struct delta_slots *slots = &p->m->params.layer[layer].delta[sub];
    const struct sublayer_acts *acts = &p->ws->layer[layer].sub[sub];
    const struct ddl_config *k = p->config;
    return (struct project_args){ .N = p->N,
                                  .d = k->beta_linear ? k->d_model : k->beta_hidden,
                                  .c = 1,
                                  .sigmoid = true,
                                  .scale = 2,
                                  .x = k->beta_linear ? ctx : acts->gate_hidden,
                                  .W = param_value(p, slots->beta_weight),
                                  .b = param_value(p, slots->beta_bias),
                                  .y = acts->beta };
}

static void gate_fwd(const struct pass *p, size_t layer, int sub, const float *ctx)
{
    const struct delta_slots *slots = &p->m->params.layer[layer].delta[sub];
    const struct sublayer_acts *acts = &p->ws->layer[layer].sub[sub];
    size_t hidden = p->config->beta_hidden;
    if (!p->config->beta_linear) {
        linear_fwd(p, p->N, p->config->d_model, hidden, ctx, param_exact(p, slots->beta_in),
                   acts->gate_hidden, false);
        p->ops->tanh_fwd(p->ctx, &(struct tanh_args){ p->N * hidden, acts->gate_hidden, acts->gate_hidden });
        probe_tensor(p, "gate_hidden", acts->gate_hidden, hidden);
    }
    struct project_args args = gate_args(p, layer, sub, ctx);
    p->ops->project_fwd(p->ctx, &args);
    probe_tensor(p, "beta", acts->beta, 1);
}

static struct project_grad_args project_grad(const struct pass *p, const struct project_args *fwd,
                                             const float *dy, float *dx, int weight, int bias)
{
    return (struct project_grad_args){ .N = fwd->N,
                                       .d = fwd->d,
                                       .c = fwd->c,
                                       .sigmoid = fwd->sigmoid,
                                       .scale = fwd->scale,
                                       .x = fwd->x,
                                       .W = fwd->W,
                                       .y = fwd->y,
                                       .dy = dy,
                                       .dx = dx,
                                       .dW = param_grad(p, weight),
                                       .db = param_grad(p, bias) };
}

/* Adds to dctx. */
static void gate_bwd(const struct pass *p, size_t layer, int sub, const float *ctx, float *dctx)
{
    const struct delta_slots *slots = &p->m->params.layer[layer].delta[sub];
    const struct ddl_workspace *ws = p->ws;
    const float *hidden = ws->layer[layer].sub[sub].gate_hidden;
    struct project_args fwd = gate_args(p, layer, sub, ctx);
    float *dx = dctx;
    if (!p->config->beta_linear) {
        dx = ws->dgate;
        p->ops->zero(p->ctx, dx, p->N * fwd.d * sizeof *dx);
    }
    struct project_grad_args args =
        project_grad(p, &fwd, ws->dbeta, dx, slots->beta_weight, slots->beta_bias);
    p->ops->project_bwd(p->ctx, &args);
    probe_grad(p, slots->beta_weight);
    probe_grad(p, slots->beta_bias);
    if (!p->config->beta_linear) {
        p->ops->tanh_bwd(p->ctx, &(struct tanh_grad_args){ p->N * fwd.d, hidden, dx, dx });
        probe_tensor(p, "dgate_hidden", dx, fwd.d);
        linear_bwd(p, p->N, p->config->d_model, fwd.d, ctx, dx, param_exact_bwd(p, slots->beta_in), dctx,
                   true);
        probe_grad(p, slots->beta_in);
    }
}

static struct project_args target_args(const struct pass *p, size_t layer, int sub, const float *source)
{
    const struct delta_slots *slots = &p->m->params.layer[layer].delta[sub];
    const struct ddl_config *k = p->config;
    return (struct project_args){ .N = p->N,
                                  .d = k->d_model,
                                  .c = k->channels,
                                  .sigmoid = k->v_sigmoid,
                                  .scale = k->v_scale,
                                  .x = source,
                                  .W = param_value(p, slots->v_weight),
                                  .b = param_value(p, slots->v_bias),
                                  .y = p->ws->layer[layer].sub[sub].target };
}

static const float *target_source(const struct pass *p, size_t layer, int sub, const float *x_in,
                                  const float *ctx)
{
    if (p->config->map == DDL_MAP_V)
        return p->ws->layer[layer].sub[sub].saved;
    return p->config->v_input == DDL_V_CONTEXT ? ctx : x_in;
}

/* Adds to dsource, the gradient of what the target was read from. */
static void target_bwd(const struct pass *p, size_t layer, int sub, const float *source, float *dsource)
{
    const struct delta_slots *slots = &p->m->params.layer[layer].delta[sub];
    struct project_args fwd = target_args(p, layer, sub, source);
    struct project_grad_args args = project_grad(p, &fwd, p->ws->dv, dsource, slots->v_weight, slots->v_bias);
    p->ops->project_bwd(p->ctx, &args);
    probe_grad(p, slots->v_weight);
    probe_grad(p, slots->v_bias);
}

/* q = phi_k(source), v-map. */
static void direction_fwd(const struct pass *p, size_t layer, int sub, const float *source)
{
    const struct delta_slots *slots = &p->m->params.layer[layer].delta[sub];
    const struct sublayer_acts *acts = &p->ws->layer[layer].sub[sub];
    size_t d = p->config->d_model, r = p->config->k_rank;
    if (r) {
        linear_fwd(p, p->N, d, r, source, param_weight(p, slots->k_down), acts->low, false);
        probe_tensor(p, "low", acts->low, r);
        linear_fwd(p, p->N, r, d, acts->low, param_weight(p, slots->k_up), acts->q, false);
    } else {
        linear_fwd(p, p->N, d, d, source, param_weight(p, slots->k_proj), acts->q, false);
    }
    probe_tensor(p, "q", acts->q, d);
}

/* Adds to dsource. */
static void direction_bwd(const struct pass *p, size_t layer, int sub, const float *source, float *dsource)
{
    const struct delta_slots *slots = &p->m->params.layer[layer].delta[sub];
    const struct sublayer_acts *acts = &p->ws->layer[layer].sub[sub];
    size_t d = p->config->d_model, r = p->config->k_rank;
    if (r) {
        linear_bwd(p, p->N, r, d, acts->low, p->ws->dq, param_weight_bwd(p, slots->k_up), p->ws->dlow, false);
        probe_grad(p, slots->k_up);
        probe_tensor(p, "dlow", p->ws->dlow, r);
        linear_bwd(p, p->N, d, r, source, p->ws->dlow, param_weight_bwd(p, slots->k_down), dsource, true);
        probe_grad(p, slots->k_down);
    } else {
        linear_bwd(p, p->N, d, d, source, p->ws->dq, param_weight_bwd(p, slots->k_proj), dsource, true);
        probe_grad(p, slots->k_proj);
    }
}

void residual_delta_fwd(const struct pass *p, size_t layer, int sub, const float *x_in, const float *ctx)
{
    const struct ddl_config *k = p->config;
    const struct sublayer_acts *acts = &p->ws->layer[layer].sub[sub];
    gate_fwd(p, layer, sub, ctx);
    if (k->map == DDL_MAP_V)
        direction_fwd(p, layer, sub, k->channels > 1 ? x_in : ctx);
    if (k->v_constant) {
        p->ops->fill(p->ctx, &(struct fill_args){ p->N * k->channels, k->v_constant_value, acts->target });
    } else {
        struct project_args args = target_args(p, layer, sub, target_source(p, layer, sub, x_in, ctx));
        p->ops->project_fwd(p->ctx, &args);
    }
    probe_tensor(p, "target", acts->target, k->channels);
    p->ops->delta_fwd(p->ctx, &(struct ddl_delta_args){ .N = p->N,
                                                        .d = k->d_model,
                                                        .c = k->channels,
                                                        .eps = k->k_eps,
                                                        .form = DDL_FORM_UNIT,
                                                        .update = k->update,
                                                        .X = p->ws->X,
                                                        .q = acts->q,
                                                        .v = acts->target,
                                                        .beta = acts->beta,
                                                        .X_out = p->ws->X,
                                                        .readout = acts->readout });
    probe_tensor(p, "readout", acts->readout, k->channels);
    probe_tensor(p, "X", p->ws->X, k->d_model * k->channels);
}

/* X' -> X and dX' -> A dX' in place; dbeta and dv into the workspace; df into ws->df, and for v-map dq over
 * q. */
void residual_delta_bwd(const struct pass *p, size_t layer, int sub)
{
    const struct ddl_config *k = p->config;
    const struct sublayer_acts *acts = &p->ws->layer[layer].sub[sub];
    const struct ddl_workspace *ws = p->ws;
    p->ops->delta_bwd(p->ctx, &(struct ddl_delta_grad_args){ .N = p->N,
                                                             .d = k->d_model,
                                                             .c = k->channels,
                                                             .eps = k->k_eps,
                                                             .form = DDL_FORM_UNIT,
                                                             .update = k->update,
                                                             .X_next = ws->X,
                                                             .q = acts->q,
                                                             .v = acts->target,
                                                             .beta = acts->beta,
                                                             .readout = acts->readout,
                                                             .G = ws->dX,
                                                             .dX = ws->dX,
                                                             .dq = ws->dq,
                                                             .dv = ws->dv,
                                                             .dbeta = ws->dbeta });
    probe_tensor(p, "X", ws->X, k->d_model * k->channels);
    probe_tensor(p, "dbeta", ws->dbeta, 1);
    probe_tensor(p, "dtarget", ws->dv, k->channels);
    probe_tensor(p, k->map == DDL_MAP_V ? "dq" : "df", ws->dq, k->d_model);
    probe_tensor(p, "dX", ws->dX, k->d_model * k->channels);
    if (k->map == DDL_MAP_V && residual_uses_target(k)) {
        p->ops->zero(p->ctx, ws->df, p->N * k->d_model * sizeof *ws->df);
        target_bwd(p, layer, sub, acts->saved, ws->df);
        probe_tensor(p, "df", ws->df, k->d_model);
    }
}

/* The shares of gate, target and direction in dctx; after F's own. */
void residual_context_bwd(const struct pass *p, size_t layer, int sub, const float *ctx, float *dctx)
{
    const struct ddl_config *k = p->config;
    gate_bwd(p, layer, sub, ctx, dctx);
    if (k->map == DDL_MAP_K && k->v_input == DDL_V_CONTEXT && residual_uses_target(k))
        target_bwd(p, layer, sub, ctx, dctx);
    if (k->map == DDL_MAP_V && k->channels == 1)
        direction_bwd(p, layer, sub, ctx, dctx);
    probe_tensor(p, "dctx", dctx, k->d_model);
}

/* The shares of target and direction in dx_in; after the norm's own. */
void residual_stream_bwd(const struct pass *p, size_t layer, int sub, const float *x_in, float *dx_in)
{
    const struct ddl_config *k = p->config;
    if (k->map == DDL_MAP_K && k->v_input == DDL_V_STREAM && residual_uses_target(k))
        target_bwd(p, layer, sub, x_in, dx_in);
    if (k->map == DDL_MAP_V && k->channels > 1)
        direction_bwd(p, layer, sub, x_in, dx_in);
    probe_tensor(p, k->channels > 1 ? "dx_in" : "dX", dx_in, k->d_model);
}
