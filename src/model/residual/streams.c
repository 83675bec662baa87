/* The state of n streams: X0 has the embedding in each, the readout is their sum. */
#include "model/residual/streams.h"

#include "model/params/gradients.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"

/* ---- the form of the state ---- */

static size_t channels(const struct ddl_config *config)
{
    return config->streams;
}

/* x (N, d) in every stream of X (N, n, d). */
static void repeat(const struct pass *p, size_t n, const float *x, float *X)
{
    size_t d = p->config->d_model;
    p->ops->copy(p->ctx, &(struct copy_args){ .rows = p->N,
                                              .width = d,
                                              .src = x,
                                              .src_stride = d,
                                              .dst = X,
                                              .dst_stride = n * d,
                                              .batch = n,
                                              .dst_batch = d });
}

static void sum(const struct pass *p, size_t n, const float *X, float *y)
{
    p->ops->streams_sum(
        p->ctx, &(struct streams_sum_args){ .N = p->N, .d = p->config->d_model, .n = n, .X = X, .y = y });
}

static void embed_streams_fwd(const struct pass *p, const struct stream *stream, const float *x)
{
    repeat(p, stream->channels, x, stream->X);
}

static void embed_streams_bwd(const struct pass *p, const struct stream *stream, float *dx)
{
    sum(p, stream->channels, stream->dX, dx);
}

static const float *readout_streams_fwd(const struct pass *p, const struct stream *stream)
{
    sum(p, stream->channels, stream->X, p->ws->x_in);
    probe_tensor(p, "x_in", p->ws->x_in, p->config->d_model);
    return p->ws->x_in;
}

static void readout_streams_bwd(const struct pass *p, struct stream *stream)
{
    repeat(p, stream->channels, p->ws->dx_in, stream->dX);
    probe_tensor(p, "dX", stream->dX, stream->channels * p->config->d_model);
}

const struct state_form streams_form = {
    .channels = channels,
    .is_always_read = true,
    .by_column = true,
    .is_mixed = true,
    .embed_fwd = embed_streams_fwd,
    .embed_bwd = embed_streams_bwd,
    .readout_fwd = readout_streams_fwd,
    .readout_bwd = readout_streams_bwd,
};

/* ---- parameters and sizes ---- */

/* n (n + 2). */
static size_t weights_of(const struct ddl_config *config)
{
    return config->streams * (config->streams + 2);
}

static bool is_matrix(const struct streams_params *of, size_t i)
{
    return of->row[i].group == DDL_GROUP_MATRIX;
}

/* Vectors of a token that the matrices project, n or 1; 0 without matrices. */
static size_t groups(const struct ddl_config *k, const struct streams_params *of)
{
    for (size_t i = 0; i < of->n; i++) {
        if (is_matrix(of, i))
            return k->streams * k->d_model / of->row[i].shape[1];
    }
    return 0;
}

/* Numbers of Wf. */
static size_t projected(const struct streams_params *of)
{
    size_t sum = 0;
    for (size_t i = 0; i < of->n; i++)
        sum += is_matrix(of, i) ? of->row[i].shape[0] * of->row[i].shape[1] : 0;
    return sum;
}

void streams_declare(struct param_plan *plan, const struct streams_params *of, int *index)
{
    for (size_t i = 0; i < of->n; i++)
        param_plan_add(plan, &of->row[i], &index[i]);
}

void streams_layout(const struct layout *l, const struct streams_params *of, float **acts)
{
    size_t projections = groups(l->config, of);
    acts[STREAMS_W] = layout_rows(l, true, weights_of(l->config));
    acts[STREAMS_T] = layout_rows(l, projections > 0, weights_of(l->config));
    acts[STREAMS_RSTD] = layout_rows(l, projections > 0, projections);
    acts[STREAMS_WF] = layout_floats(l, projections > 0, projected(of), 1);
}

void streams_scratch(const struct layout *l, const struct streams_params *of, float **out)
{
    bool projects = groups(l->config, of) > 0;
    out[STREAMS_DW] = layout_rows(l, true, weights_of(l->config));
    out[STREAMS_DZ] = layout_rows(l, projects, weights_of(l->config));
    out[STREAMS_DWF] = layout_floats(l, projects, projected(of), 1);
}

size_t streams_sums(const struct ddl_config *config, const struct streams_params *of)
{
    enum { SCALES = 3 };
    return projected(of) + weights_of(config) + SCALES;
}

double streams_flops(const struct ddl_config *config)
{
    return 2 * (double)weights_of(config) * (double)config->d_model;
}

/* ---- the parts of the rules ---- */

bool streams_identity(const struct sublayer *s)
{
    return s->force && (s->force->keys & DDL_FORCE_MIX);
}

void streams_fold(const struct sublayer *s, const struct streams_params *of)
{
    const struct pass *p = s->p;
    size_t projections = groups(p->config, of), m = 0;
    if (projections == 0)
        return;
    struct streams_fold_args args = { .d = p->config->d_model,
                                      .n = p->config->streams / projections,
                                      .norm = param_value(p, s->params[of->norm]),
                                      .Wf = s->acts->rule[STREAMS_WF] };
    for (size_t i = 0; i < of->n; i++) {
        if (!is_matrix(of, i))
            continue;
        args.rows[m] = of->row[i].shape[0];
        args.W[m++] = param_value(p, s->params[i]);
    }
    p->ops->streams_fold_fwd(p->ctx, &args);
}

void streams_fold_bwd(const struct sublayer *s, const struct streams_params *of)
{
    const struct pass *p = s->p;
    size_t projections = groups(p->config, of), m = 0;
    if (projections)
        probe_tensor(p, "dprojections", s->scratch[STREAMS_DZ], weights_of(p->config));
    probe_tensor(p, "dX", s->stream->dX, s->stream->channels * p->config->d_model);
    if (projections) {
        struct streams_fold_grad_args args = { .d = p->config->d_model,
                                               .n = p->config->streams / projections,
                                               .norm = param_value(p, s->params[of->norm]),
                                               .dWf = s->scratch[STREAMS_DWF],
                                               .dnorm = param_grad(p, s->params[of->norm]) };
        for (size_t i = 0; i < of->n; i++) {
            if (!is_matrix(of, i))
                continue;
            args.rows[m] = of->row[i].shape[0];
            args.W[m] = param_value(p, s->params[i]);
            args.dW[m++] = param_grad(p, s->params[i]);
        }
        p->ops->streams_fold_bwd(p->ctx, &args);
    }
    for (size_t i = 0; i < of->n; i++)
        probe_grad(p, s->params[i]);
}

void streams_probe(const struct sublayer *s, const struct streams_params *of)
{
    const struct pass *p = s->p;
    size_t weights = weights_of(p->config);
    if (groups(p->config, of))
        probe_tensor(p, "projections", s->acts->rule[STREAMS_T], weights);
    probe_tensor(p, "mixing", s->acts->rule[STREAMS_W], weights);
    probe_tensor(p, "x_in", s->acts->x_in, p->config->d_model);
}

const float *streams_read_again(const struct sublayer *s)
{
    return s->acts->x_in; /* streams_write_bwd computed it */
}

void streams_write_fwd(const struct sublayer *s, struct operand x_in, struct operand ctx)
{
    const struct pass *p = s->p;
    (void)x_in;
    (void)ctx;
    p->ops->streams_write_fwd(p->ctx, &(struct streams_write_args){ .N = p->N,
                                                                    .d = p->config->d_model,
                                                                    .n = s->stream->channels,
                                                                    .X = s->stream->X,
                                                                    .w = s->acts->rule[STREAMS_W],
                                                                    .f = s->acts->f,
                                                                    .X_out = s->stream->X_next });
}

struct operand streams_write_bwd(const struct sublayer *s)
{
    const struct pass *p = s->p;
    struct activation df = s->df;
    bool again = p->ws->options.recompute != DDL_RECOMPUTE_NONE;
    p->ops->streams_write_bwd(p->ctx,
                              &(struct streams_write_grad_args){ .N = p->N,
                                                                 .d = p->config->d_model,
                                                                 .n = s->stream->channels,
                                                                 .X = s->stream->X,
                                                                 .w = s->acts->rule[STREAMS_W],
                                                                 .f = s->acts->f,
                                                                 .G = s->stream->dX,
                                                                 .df = df.value,
                                                                 .df16 = df.bf16,
                                                                 .dw = s->scratch[STREAMS_DW],
                                                                 .x_in = again ? s->acts->x_in : NULL });
    probe_activation(p, "df", df, p->N, p->config->d_model);
    return operand_of(df);
}

/* ---- what they show ---- */

static size_t all_weights(const struct ddl_config *config, size_t layer, int sub)
{
    (void)layer;
    (void)sub;
    return weights_of(config);
}

static size_t each_stream(const struct ddl_config *config, size_t layer, int sub)
{
    (void)layer;
    (void)sub;
    return config->streams;
}

static size_t matrix(const struct ddl_config *config, size_t layer, int sub)
{
    (void)layer;
    (void)sub;
    return config->streams * config->streams;
}

static const float *weights_data(const struct sublayer *s)
{
    return s->acts->rule[STREAMS_W];
}

static size_t at_read(const struct ddl_config *config)
{
    (void)config;
    return 0;
}

static size_t at_write(const struct ddl_config *config)
{
    return config->streams;
}

static size_t at_matrix(const struct ddl_config *config)
{
    return 2 * config->streams;
}

static const struct ddl_figure figures[] = {
    { "mix_diagonal", "mean of M_kk over streams", "diag", NULL, 3, DDL_FIGURE_MIXING },
    { "mix_row", "mean of max_k |Σ_j M_kj|, the gain of mixing forward", "row", NULL, 3, DDL_FIGURE_MIXING },
    { "mix_column", "mean of max_j |Σ_k M_kj|, the gain of mixing backward", "column", NULL, 3,
      DDL_FIGURE_MIXING },
    { "product_row", "the same as mix_row of the product of all M up to this sublayer", "∏ row", NULL, 3,
      DDL_FIGURE_MIXING },
    { "product_column", "the same as mix_column of that product", "∏ col", NULL, 3, DDL_FIGURE_MIXING },
    { 0 },
};

const struct trace_tensor streams_traced[] = {
    { .name = "mixing",
      .about = "weights of reading, of writing, and the mixing matrix",
      .extent = TRACE_TOKENS,
      .is_used = true,
      .width = all_weights,
      .data = weights_data },
    { .name = "mix_read",
      .about = "weights of reading",
      .title = "read",
      .summary = TRACE_MEAN,
      .width = each_stream,
      .offset = at_read },
    { .name = "mix_write",
      .about = "weights of writing",
      .title = "write",
      .summary = TRACE_MEAN,
      .width = each_stream,
      .offset = at_write },
    { .name = "mix_mean",
      .about = "mixing matrices",
      .summary = TRACE_MIXING,
      .width = matrix,
      .offset = at_matrix,
      .product = "mix_product",
      .figures = figures },
    { 0 },
};
