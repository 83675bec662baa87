/* One sublayer of a block: read, norm, F, write; and the same backwards. This is the place to start reading:
 * every model is this file plus its residual rule (residual/) and the rows of its configuration. */
#include "model/pass/block.h"
#include "model/pass/attention.h"
#include "model/pass/cache.h"
#include "model/observe/force.h"
#include "model/params/gradients.h"
#include "model/pass/mlp.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"
#include "model/residual/table.h"

typedef void branch_fwd_fn(const struct pass *p, size_t layer, struct operand ctx, float *f, bool add);
typedef void branch_bwd_fn(const struct pass *p, size_t layer, struct operand ctx, struct operand df,
                           float *dctx);
static branch_fwd_fn *const branch_fwd[] = { [ATTN] = attention_fwd, [MLP] = mlp_fwd };
static branch_bwd_fn *const branch_bwd[] = { [ATTN] = attention_bwd, [MLP] = mlp_bwd };

static struct sublayer sublayer_of(const struct pass *p, struct stream *stream, size_t layer, int sub)
{
    const struct layer_acts *acts = &p->ws->layer[layer];
    return (struct sublayer){ .p = p,
                              .stream = stream,
                              .layer = layer,
                              .sub = sub,
                              .params = p->m->params.layer[layer].residual[sub],
                              .acts = &acts->sub[sub],
                              .scratch = acts->scratch,
                              .scratch_factor = acts->scratch_factor,
                              .force = model_forced(p->m, layer, sub),
                              .df = acts->df };
}

/* ctx = norm(x_in). */
static struct operand norm_fwd(const struct sublayer *s, const float *x_in)
{
    const struct pass *p = s->p;
    p->ops->rmsnorm_fwd(p->ctx,
                        &(struct rmsnorm_args){ .N = p->N,
                                                .d = p->config->d_model,
                                                .eps = NORM_EPS,
                                                .x = x_in,
                                                .w = param_value(p, p->m->params.layer[s->layer].ln[s->sub]),
                                                .y = s->acts->ctx.value,
                                                .y16 = s->acts->ctx.bf16,
                                                .x16 = s->acts->x16,
                                                .rstd = s->acts->rstd });
    probe_activation(p, "ctx", s->acts->ctx, p->N, p->config->d_model);
    return operand_of(s->acts->ctx);
}

/* dctx -> dx_in; for c = 1 that is the stream's gradient, which is added to. */
static void norm_bwd(const struct sublayer *s, const float *x_in)
{
    const struct pass *p = s->p;
    int param = p->m->params.layer[s->layer].ln[s->sub];
    float *dx_in = sublayer_dx_in(s);
    bool in_stream = dx_in == s->stream->dX;
    s->stream->dX16 = in_stream ? p->ws->dX16 : NULL;
    p->ops->rmsnorm_bwd(p->ctx, &(struct rmsnorm_grad_args){ .N = p->N,
                                                             .d = p->config->d_model,
                                                             .x = x_in,
                                                             .w = param_value(p, param),
                                                             .rstd = s->acts->rstd,
                                                             .dy = p->ws->dctx,
                                                             .accumulate = in_stream,
                                                             .dx = dx_in,
                                                             .dx16 = s->stream->dX16,
                                                             .dw = param_grad(p, param) });
    probe_grad(p, param);
    probe_tensor(p, in_stream ? "dX" : "dx_in", dx_in, p->config->d_model);
}

/* The probe's view of the sublayer: before it is computed, or after. */
static void probe_sublayer(const struct sublayer *s, bool after)
{
    const struct ddl_probe *probe = s->p->probe;
    if (!probe || !probe->step)
        return;
    struct ddl_sublayer_trace trace = { .after = after,
                                        .layer = s->layer,
                                        .sub = s->sub,
                                        .rows = s->p->N,
                                        .steps = 1,
                                        .X = s->stream->X,
                                        .by_column = s->stream->form->by_column };
    if (after)
        trace_collect(s, &trace);
    probe->step(probe->user, &trace);
}

/* Divides f (N, d) by its root mean square, with ddl_f_norm. */
static void normalize_f(const struct sublayer *s, float *f)
{
    const struct pass *p = s->p;
    if (p->ws->layer[s->layer].normalizes_f)
        p->ops->f_norm_fwd(
            p->ctx,
            &(struct f_norm_args){
                .N = p->N, .d = p->config->d_model, .eps = NORM_EPS, .f = f, .rstd = s->acts->f_rstd });
}

/* The gradient of f from that of what the rule read, which is in the workspace's df if f was normalized. */
static struct operand normalize_f_bwd(const struct sublayer *s, struct operand df)
{
    const struct pass *p = s->p;
    const struct activation in_place = p->ws->df;
    if (!p->ws->layer[s->layer].normalizes_f)
        return df;
    p->ops->f_norm_bwd(p->ctx, &(struct f_norm_grad_args){ .N = p->N,
                                                           .d = p->config->d_model,
                                                           .f = s->acts->f,
                                                           .rstd = s->acts->f_rstd,
                                                           .df = in_place.value,
                                                           .df16 = in_place.bf16 });
    probe_tensor(p, "df", in_place.value, p->config->d_model);
    return operand_of(in_place);
}

/* F(ctx) into the stream (add), or into `out`, which is then written. A forced factor applies to what enters
 * the stream. */
static void branch(const struct sublayer *s, struct operand ctx, float *out, bool add)
{
    const struct pass *p = s->p;
    if (!s->force || !(s->force->keys & DDL_FORCE_F_SCALE)) {
        branch_fwd[s->sub](p, s->layer, ctx, out, add);
        normalize_f(s, out);
        return;
    }
    branch_fwd[s->sub](p, s->layer, ctx, force_f(p), false);
    normalize_f(s, force_f(p));
    if (!add)
        p->ops->zero(p->ctx, out, p->N * p->config->d_model * sizeof *out);
    force_add_f(p, s->force->f_scale, out);
}

void sublayer_fwd(const struct pass *p, struct stream *stream, size_t layer, int sub)
{
    const struct sublayer s = sublayer_of(p, stream, layer, sub);
    const struct residual_rule *rule = p->ws->layer[layer].rule;
    size_t state = p->config->d_model * stream->channels;
    probe_enter(p, false, layer, ddl_sublayer_names[sub]);
    probe_sublayer(&s, false);
    const float *x_in = rule->read_fwd(&s, p->cache ? &p->cache->layer[layer].compress[sub] : NULL);
    struct operand ctx = norm_fwd(&s, x_in);
    if (rule->context_fwd)
        rule->context_fwd(&s, x_in, ctx.value);
    if (s.acts->state)
        pass_copy(p, p->N * state, stream->X, s.acts->state);
    p->ws->layer[layer].sub[sub].before = s.acts->state ? s.acts->state : stream->X;
    stream->X_next = s.acts->next ? s.acts->next : stream->X;
    if (rule->adds_in_place) {
        bool add = rule->place ? rule->place(&s) : true;
        branch(&s, ctx, stream->X_next, add);
    } else {
        branch(&s, ctx, s.acts->f, false);
        probe_tensor(p, "f", s.acts->f, p->ws->layer[layer].f_width);
        rule->write_fwd(&s, (struct operand){ .value = x_in, .bf16 = s.acts->x16 }, ctx);
    }
    stream->X = stream->X_next;
    probe_tensor(p, "X", stream->X, state);
    probe_sublayer(&s, true);
}

/* The state before the sublayer of a rule that does not reverse it. Where the block's first sublayer wrote it
 * to memory that other blocks use too, that sublayer's write_fwd is repeated. */
static float *state_before(const struct residual_rule *rule, const struct sublayer *s)
{
    float *before = s->acts->before, *shared = s->p->ws->between;
    if (s->sub == MLP && shared && before == shared) {
        struct stream stream = *s->stream;
        stream.X = s->p->ws->layer[s->layer].sub[ATTN].before;
        stream.X_next = shared;
        const struct sublayer first = sublayer_of(s->p, &stream, s->layer, ATTN);
        rule->write_fwd(&first, (struct operand){ 0 }, (struct operand){ 0 });
    }
    return before;
}

void sublayer_bwd(const struct pass *p, struct stream *stream, size_t layer, int sub)
{
    const struct sublayer s = sublayer_of(p, stream, layer, sub);
    const struct residual_rule *rule = p->ws->layer[layer].rule;
    float *dctx = p->ws->dctx;
    probe_enter(p, true, layer, ddl_sublayer_names[sub]);
    if (rule->earlier != STREAM_REVERSED)
        stream->X = state_before(rule, &s);
    struct operand df = normalize_f_bwd(&s, rule->write_bwd(&s));
    /* x_in and ctx as forward had them: kept, or recomputed (x_in from the state, which is the earlier one
     * again). */
    bool is_kept = p->ws->options.recompute == DDL_RECOMPUTE_NONE;
    const float *x_in = is_kept && s.acts->x_in ? s.acts->x_in
                        : rule->read_again      ? rule->read_again(&s)
                                                : rule->read_fwd(&s, NULL);
    struct operand ctx = is_kept ? operand_of(s.acts->ctx) : norm_fwd(&s, x_in);
    if (df.value || df.bf16)
        branch_bwd[sub](p, layer, ctx, df, dctx);
    else
        p->ops->zero(p->ctx, dctx, p->N * p->config->d_model * sizeof *dctx);
    if (rule->context_bwd)
        rule->context_bwd(&s, ctx, dctx);
    norm_bwd(&s, x_in);
    if (rule->input_bwd)
        rule->input_bwd(&s, (struct operand){ .value = x_in, .bf16 = s.acts->x16 }, sublayer_dx_in(&s));
    rule->read_bwd(&s);
}
