/* attnres: attention over depth (docs/equations.md, 9; attention residuals, arXiv 2603.15031). The input of a
 * sublayer is a weighted sum of the finished blocks and the running part, h = sum_i alpha_i v_i, the weights
 * a softmax of the products of a learned query with the normalized v_i. F's output begins a new part every
 * ddl_attnres_block sublayers, after which the part before is a finished block, and is added to the part
 * otherwise. The readout is one more such sum.
 *
 * In training every part is kept: place s of the state is the part before sublayer s, so the sources of
 * sublayer s are the places 0, B, 2B, ... below s, and s. Backward keeps the gradient of h of sublayer s in
 * place s + 1, which nothing reads any more, and computes the gradient of a place as one sum over the
 * sublayers that read it. Without training only the finished blocks and one part are kept. */
#include "model/observe/probe_calls.h"
#include "model/params/gradients.h"
#include "model/params/precision.h"
#include "model/residual/table.h"

#include <math.h>

enum { QUERY, NORM }; /* parameters */
/* Memory of the readout, which the sublayers share, as backward computes them again: the query times the
 * norm's weight (d); the weights of n + 1 sources (N, n + 1), and their root mean squares, for a probe. With
 * M the most sources there are: */
enum { Q, ALPHA, RMS };
/* Scratch, by sublayer with the readout last: the same two (2L + 1, d) and (2L + 1, N, M); the gradients of
 * the scores, times the reciprocal norms (2L + 1, N, M); the gradient of q (d). */
enum { ALL_Q, ALL_ALPHA, ALL_E, DQ };

/* One weighted sum: a sublayer, or the readout. */
struct depth {
    const struct pass *p;
    size_t s; /* number of the sublayer; 2L: the readout */
    const int *params;
};

static size_t sublayers(const struct ddl_config *k)
{
    return 2 * k->n_layers;
}

/* Blocks that are finished before sublayer s. */
static size_t finished(const struct ddl_config *k, size_t s)
{
    return s / k->attnres_block + (s % k->attnres_block != 0);
}

/* Sources of the readout, which are the most. */
static size_t most_sources(const struct ddl_config *k)
{
    return finished(k, sublayers(k)) + 1;
}

/* The part before sublayer s. */
static float *part_of(const struct pass *p, size_t s)
{
    size_t place = p->ws->options.train ? s : finished(p->config, s);
    return p->ws->X + place * p->N * p->config->d_model;
}

static size_t number_of(const struct sublayer *s)
{
    return 2 * s->layer + (size_t)s->sub;
}

static struct depth depth_of(const struct sublayer *s)
{
    return (struct depth){ s->p, number_of(s), s->params };
}

static struct depth depth_of_readout(const struct pass *p)
{
    return (struct depth){ p, sublayers(p->config), p->m->params.model.readout_form };
}

static void fold(const struct depth *at, float *q)
{
    const struct pass *p = at->p;
    p->ops->streams_fold_fwd(p->ctx, &(struct streams_fold_args){ .d = p->config->d_model,
                                                                  .n = 1,
                                                                  .rows = { 1 },
                                                                  .W = { param_value(p, at->params[QUERY]) },
                                                                  .norm = param_value(p, at->params[NORM]),
                                                                  .Wf = q });
}

static struct depth_args sources_of(const struct depth *at, const float *q)
{
    const struct pass *p = at->p;
    size_t places = p->ws->options.train ? p->config->attnres_block : 1;
    return (struct depth_args){ .N = p->N,
                                .d = p->config->d_model,
                                .n = finished(p->config, at->s),
                                .eps = NORM_EPS,
                                .blocks = p->ws->X,
                                .stride = places * p->N * p->config->d_model,
                                .part = part_of(p, at->s),
                                .q = q,
                                .width = most_sources(p->config) };
}

/* h of all sources, and what a probe shows of them. mix: enum ddl_force_mix, or DDL_MIXES. */
static void depth_fwd(const struct depth *at, int mix, float *h)
{
    const struct pass *p = at->p;
    float *const *shared = p->ws->readout;
    if (mix == DDL_MIX_MEAN)
        p->ops->zero(p->ctx, shared[Q], p->config->d_model * sizeof *shared[Q]);
    else
        fold(at, shared[Q]);
    struct depth_args args = sources_of(at, shared[Q]);
    args.width = args.n + 1;
    args.alpha = shared[ALPHA];
    args.rms = p->probe ? shared[RMS] : NULL;
    args.h = h;
    p->ops->depth_fwd(p->ctx, &args);
    if (mix == DDL_MIX_LAST) {
        p->ops->zero(p->ctx, args.alpha, p->N * args.width * sizeof *args.alpha);
        args.alpha += args.n;
        args.rms = NULL;
        args.n = 0;
        p->ops->depth_fwd(p->ctx, &args);
    }
    probe_tensor(p, "alpha", shared[ALPHA], args.width);
    probe_tensor(p, "source_rms", p->probe ? shared[RMS] : NULL, args.width);
    probe_tensor(p, "x_in", h, p->config->d_model);
}

/* From the gradient of h: those of the parameters, and what the sources' gradients are computed from. */
static void depth_bwd(const struct depth *at, const float *dh)
{
    const struct pass *p = at->p;
    float *const *all = p->ws->scratch[DDL_RESIDUAL_ATTNRES];
    size_t d = p->config->d_model, at_s = at->s * p->N * most_sources(p->config);
    float *q = all[ALL_Q] + at->s * d;
    fold(at, q);
    p->ops->depth_bwd(p->ctx, &(struct depth_grad_args){ .fwd = sources_of(at, q),
                                                         .dh = dh,
                                                         .alpha = all[ALL_ALPHA] + at_s,
                                                         .e = all[ALL_E] + at_s,
                                                         .dq = all[DQ] });
    p->ops->streams_fold_bwd(p->ctx,
                             &(struct streams_fold_grad_args){ .d = d,
                                                               .n = 1,
                                                               .rows = { 1 },
                                                               .W = { param_value(p, at->params[QUERY]) },
                                                               .norm = param_value(p, at->params[NORM]),
                                                               .dWf = all[DQ],
                                                               .dW = { param_grad(p, at->params[QUERY]) },
                                                               .dnorm = param_grad(p, at->params[NORM]) });
    probe_grad(p, at->params[QUERY]);
    probe_grad(p, at->params[NORM]);
    pass_copy(p, p->N * d, dh, part_of(p, at->s + 1));
}

/* The gradient of the part before sublayer s: it is a source of that sublayer, and as a finished block of all
 * that follow. A part that goes on has the gradient of the next part besides, which dX holds. */
static void source_bwd(const struct pass *p, size_t s, struct stream *stream)
{
    const struct ddl_config *k = p->config;
    float *const *all = p->ws->scratch[DDL_RESIDUAL_ATTNRES];
    bool block = s % k->attnres_block == 0;
    size_t d = k->d_model, width = most_sources(k), first = s * p->N * width + finished(k, s);
    p->ops->source_bwd(p->ctx, &(struct source_grad_args){ .N = p->N,
                                                           .d = d,
                                                           .n = block ? sublayers(k) + 1 - s : 1,
                                                           .eps = NORM_EPS,
                                                           .v = part_of(p, s),
                                                           .q = all[ALL_Q] + s * d,
                                                           .alpha = all[ALL_ALPHA] + first,
                                                           .e = all[ALL_E] + first,
                                                           .width = width,
                                                           .weights_stride = p->N * width,
                                                           .dh = part_of(p, s + 1),
                                                           .dh_stride = p->N * d,
                                                           .accumulate = !block,
                                                           .dv = stream->dX,
                                                           .dv16 = p->ws->dX16 });
    stream->dX16 = p->ws->dX16;
    probe_tensor(p, "dX", stream->dX, d);
}

/* ---- the form of the state ---- */

static size_t channels(const struct ddl_config *config)
{
    (void)config;
    return 1;
}

static size_t states(const struct ddl_config *config, bool train)
{
    return train ? sublayers(config) + 2 : most_sources(config);
}

static void add_params(struct param_plan *plan, int *index)
{
    size_t d = plan->config->d_model;
    const struct param_row query = {
        "query.weight", { d }, DDL_GROUP_MATRIX, param_init_constant(0), 0, NULL
    };
    const struct param_row norm = { "norm.weight", { d }, DDL_GROUP_NORM, param_init_constant(1), 0, NULL };
    param_plan_add(plan, &query, &index[QUERY]);
    param_plan_add(plan, &norm, &index[NORM]);
}

static void layout(const struct layout *l, float **acts)
{
    acts[Q] = layout_floats(l, true, 1, l->config->d_model);
    acts[ALPHA] = layout_rows(l, true, most_sources(l->config));
    acts[RMS] = layout_rows(l, true, most_sources(l->config));
}

static void embed_depth_fwd(const struct pass *p, const struct stream *stream, const float *x)
{
    pass_copy(p, p->N * p->config->d_model, x, stream->X);
}

static void embed_depth_bwd(const struct pass *p, const struct stream *stream, float *dx)
{
    pass_copy(p, p->N * p->config->d_model, stream->dX, dx);
}

static const float *readout_depth_fwd(const struct pass *p, const struct stream *stream)
{
    const struct depth at = depth_of_readout(p);
    (void)stream;
    depth_fwd(&at, DDL_MIXES, p->ws->x_in);
    return p->ws->x_in;
}

static void readout_depth_bwd(const struct pass *p, struct stream *stream)
{
    const struct depth at = depth_of_readout(p);
    depth_bwd(&at, p->ws->dx_in);
    p->ops->zero(p->ctx, stream->dX, p->N * p->config->d_model * sizeof *stream->dX);
    source_bwd(p, at.s, stream);
}

static const struct state_form form = {
    .channels = channels,
    .is_always_read = true,
    .states = states,
    .params = add_params,
    .layout = layout,
    .embed_fwd = embed_depth_fwd,
    .embed_bwd = embed_depth_bwd,
    .readout_fwd = readout_depth_fwd,
    .readout_bwd = readout_depth_bwd,
};

/* ---- the rule ---- */

static ddl_status check(const struct ddl_config *config, struct ddl_error *err)
{
    if (!config->dense_average)
        return DDL_OK;
    return ddl_error_set(err, DDL_E_USAGE,
                         "dense_average: expected false with ddl_residual attnres, found true");
}

static void scratch(const struct layout *l, float **out)
{
    size_t reads = sublayers(l->config) + 1, width = reads * most_sources(l->config);
    out[ALL_Q] = layout_floats(l, true, reads, l->config->d_model);
    out[ALL_ALPHA] = layout_rows(l, true, width);
    out[ALL_E] = layout_rows(l, true, width);
    out[DQ] = layout_floats(l, true, 1, l->config->d_model);
}

static size_t most_sums(const struct ddl_config *config)
{
    return config->d_model + most_sources(config);
}

static const float *read_fwd(const struct sublayer *s, struct history *history)
{
    const struct depth at = depth_of(s);
    (void)history;
    bool forced = s->force && s->force->keys & DDL_FORCE_MIX;
    depth_fwd(&at, forced ? s->force->mix : DDL_MIXES, s->acts->x_in);
    return s->acts->x_in;
}

static bool begins_part(const struct sublayer *s)
{
    return number_of(s) % s->p->config->attnres_block == 0;
}

static bool place(const struct sublayer *s)
{
    const struct pass *p = s->p;
    struct stream *stream = s->stream;
    bool adds = !begins_part(s);
    stream->X_next = part_of(p, number_of(s) + 1);
    if (adds && stream->X_next != stream->X)
        pass_copy(p, p->N * p->config->d_model, stream->X, stream->X_next);
    return adds;
}

static const float *written(const struct sublayer *s)
{
    return begins_part(s) ? s->stream->X : NULL;
}

static struct operand write_bwd(const struct sublayer *s)
{
    return sublayer_dX(s);
}

static void read_bwd(const struct sublayer *s)
{
    const struct depth at = depth_of(s);
    depth_bwd(&at, sublayer_dx_in(s));
    source_bwd(s->p, at.s, s->stream);
}

/* The mean of all sums, the readout's included: scores and weighted sums of the sources. One product of each
 * query is counted with the matrices. */
static double flops(const struct ddl_config *config)
{
    double sources = 0, S = (double)sublayers(config);
    for (size_t s = 0; s <= sublayers(config); s++)
        sources += (double)finished(config, s) + 1;
    return (4 * sources - 2 * (S + 1)) * (double)config->d_model / S;
}

/* ---- what it shows ---- */

static size_t sources(const struct ddl_config *config, size_t layer, int sub)
{
    return finished(config, 2 * layer + (size_t)sub) + 1;
}

/* During a pass: the next sublayer uses the same memory. */
static const float *alpha_data(const struct sublayer *s)
{
    return s->p->ws ? s->p->ws->readout[ALPHA] : NULL;
}

static const float *rms_data(const struct sublayer *s)
{
    return s->p->ws && s->p->probe ? s->p->ws->readout[RMS] : NULL;
}

static void alpha_derive(size_t width, const float *alpha, double *figures)
{
    double entropy = 0;
    for (size_t i = 0; i < width; i++)
        entropy -= alpha[i] > 0 ? (double)alpha[i] * log((double)alpha[i]) : 0;
    figures[0] = entropy;
    figures[1] = width > 1 ? entropy / log((double)width) : 1;
    figures[2] = (double)alpha[width - 1];
}

static const struct ddl_figure alpha_figures[] = {
    { "alpha_entropy", "mean entropy of the weights α over sources", "entropy", "entropy of α", 3,
      DDL_FIGURE_FACTOR },
    { "alpha_evenness", "the same divided by the entropy of equal weights", "even", "evenness of α", 3,
      DDL_FIGURE_FACTOR },
    { "alpha_part", "mean weight α of the running part", "part", "α of the part", 3, DDL_FIGURE_FACTOR },
    { 0 },
};

static const struct trace_tensor traced[] = {
    { .name = "alpha",
      .about = "weights of the finished blocks and of the running part",
      .title = "weights",
      .extent = TRACE_TOKENS,
      .summary = TRACE_MEAN,
      .width = sources,
      .data = alpha_data,
      .figures = alpha_figures,
      .derive = alpha_derive },
    { .name = "source_rms",
      .about = "root mean squares of the finished blocks and of the running part",
      .title = "rms",
      .extent = TRACE_TOKENS,
      .summary = TRACE_MEAN,
      .width = sources,
      .data = rms_data },
    { 0 },
};

const struct residual_rule residual_attnres = {
    .prefix = "res",
    .state = &form,
    .earlier = STREAM_PLACED,
    .adds_in_place = true,
    .one_channel = true,
    .check = check,
    .params = add_params,
    .scratch = scratch,
    .most_sums = most_sums,
    .read_fwd = read_fwd,
    .read_bwd = read_bwd,
    .place = place,
    .written = written,
    .write_bwd = write_bwd,
    .ops_fwd = DDL_OP_LIST(DDL_OP_streams_fold_fwd, DDL_OP_depth_fwd),
    .ops_bwd = DDL_OP_LIST(DDL_OP_streams_fold_bwd, DDL_OP_depth_bwd, DDL_OP_source_bwd),
    .flops = flops,
    .force_keys = DDL_FORCE_F_SCALE | DDL_FORCE_MIX,
    .mixes = 1U << DDL_MIX_LAST | 1U << DDL_MIX_MEAN,
    .traced = traced,
};
