/* One sublayer of an inspection's pass: copies its tensors to host memory and adds its rows, step by step. */
#include "study/inspection.h"

#include "base/mem.h"
#include "ops/ops.h"

#include <math.h>
#include <string.h>

static void download(const struct ddl_inspection *in, float *host, const float *x, size_t n)
{
    const struct ddl_backend *backend = ddl_model_backend(in->model);
    backend->ops->download(backend->ctx, host, x, n * sizeof *host);
}

/* ---- gates ---- */

/* The row as a token in its context. */
static struct ddl_inspect_token token_of(const struct ddl_inspection *in, size_t row, double beta)
{
    const struct ddl_batch *batch = in->batch;
    size_t T = batch->T, t = row % T;
    size_t from = t < DDL_INSPECT_BEFORE ? 0 : t - DDL_INSPECT_BEFORE;
    size_t to = t + DDL_INSPECT_AFTER < T ? t + DDL_INSPECT_AFTER : T - 1;
    struct ddl_inspect_token token = {
        .beta = beta, .index = in->rows + row, .position = t, .n = to - from + 1, .at = t - from
    };
    memcpy(token.tokens, batch->tokens + row - token.at, token.n * sizeof *token.tokens);
    return token;
}

/* Keeps the row if it is more extreme than one of the list: sign 1 for the highest, -1 for the lowest. */
static void add_extreme(const struct ddl_inspection *in, struct extremes *list, size_t row, double beta,
                        double sign)
{
    size_t at = list->n;
    while (at > 0 && sign * beta > sign * list->token[at - 1].beta)
        at--;
    if (at == DDL_INSPECT_EXTREMES)
        return;
    list->n += list->n < DDL_INSPECT_EXTREMES;
    memmove(&list->token[at + 1], &list->token[at], (list->n - at - 1) * sizeof *list->token);
    list->token[at] = token_of(in, row, beta);
}

/* The memory of a sublayer's gate, when it is first seen. */
static bool begin_gate(const struct ddl_inspection *in, struct sublayer_sums *sums, double top, size_t width)
{
    if (sums->figures.has_gate)
        return true;
    sums->gate_width = width;
    sums->position_sum = ddl_mem_zalloc(in->config.seq * sizeof *sums->position_sum);
    sums->position_count = ddl_mem_zalloc(in->config.seq * sizeof *sums->position_count);
    if (width > 1)
        sums->gate_means = ddl_mem_alloc(DDL_INSPECT_EXACT * sizeof *sums->gate_means);
    sums->figures.has_gate = ddl_distribution_init(&sums->figures.gate, top, DDL_INSPECT_EXACT);
    return sums->figures.has_gate && sums->position_sum && sums->position_count &&
           (width == 1 || sums->gate_means);
}

/* gate (N, width) in [0, top]. */
static void add_gates(struct ddl_inspection *in, struct sublayer_sums *sums, size_t rows, size_t width,
                      double top, const float *gate)
{
    if (!begin_gate(in, sums, top, width)) {
        in->out_of_memory = true;
        return;
    }
    for (size_t n = 0; n < rows; n++) {
        double mean = 0;
        for (size_t i = 0; i < width; i++) {
            ddl_distribution_add(&sums->figures.gate, gate[n * width + i]);
            mean += (double)gate[n * width + i] / (double)width;
        }
        if (sums->gate_means && in->rows + n < DDL_INSPECT_EXACT)
            sums->gate_means[in->rows + n] = (float)mean;
        sums->position_sum[n % in->batch->T] += mean;
        sums->position_count[n % in->batch->T]++;
        add_extreme(in, &sums->highest, n, mean, 1);
        add_extreme(in, &sums->lowest, n, mean, -1);
    }
}

/* ---- one row ---- */

/* Adds step r of row n, which takes it from `before` to `after`. */
static void add_row(struct ddl_inspection *in, struct sublayer_sums *sums,
                    const struct ddl_sublayer_step *step, size_t r, size_t n)
{
    size_t d = in->k->d_model, c = in->c, at = n * step->steps + r;
    bool last = r + 1 == step->steps;
    float *before = in->before + n * d * c;
    struct ddl_sublayer_row row = { .d = d,
                                    .c = c,
                                    .before = before,
                                    .after = last ? in->after + n * d * c : in->between,
                                    .direction = step->direction ? in->direction + at * d : NULL,
                                    .target = step->target ? in->target + at * c : NULL,
                                    .mixing = step->mixing ? in->mixing + n * c * (c + 2) : NULL,
                                    .k_eps = step->k_eps,
                                    .beta = step->beta ? in->beta[at] : 0 };
    ddl_figures_set_strides(&row, step->by_column);
    if (!last)
        ddl_figures_take_step(&row, step->update, in->k_now + n * d, in->readout, in->between);
    double size = ddl_figures_add(&sums->figures, &row, in->k_now + n * d, in->readout);
    if (!last)
        memcpy(before, in->between, d * c * sizeof *before);
    if (in->rows + n < DDL_INSPECT_EXACT)
        sums->steps[in->rows + n] = (float)size;
    if (row.target)
        in->log_det += log(fabs(1 - (double)row.beta));
}

/* ---- from one delta step to the next ---- */

size_t inspection_sampled(const struct ddl_inspection *in, uint64_t first, size_t n)
{
    if (!in->every)
        return 0;
    uint64_t before = first / in->every + (first % in->every != 0), end = first + n;
    return (size_t)(end / in->every + (end % in->every != 0) - before);
}

/* Keeps k and beta of the sampled rows. */
static void keep_for_spectrum(struct ddl_inspection *in, size_t rows)
{
    size_t d = in->k->d_model, slot = 0;
    for (size_t n = 0; n < rows && in->every; n++) {
        if ((in->rows + n) % in->every)
            continue;
        size_t at = slot++ * in->n_delta + in->delta_at;
        for (size_t i = 0; i < d; i++)
            in->spectrum_k[at * d + i] = (float)in->k_now[n * d + i];
        in->spectrum_beta[at] = in->gate[n];
    }
}

static void follow_delta(struct ddl_inspection *in, struct sublayer_sums *sums, size_t rows)
{
    size_t d = in->k->d_model;
    for (size_t n = 0; n < rows && in->last; n++) {
        double overlap = 0;
        for (size_t i = 0; i < d; i++)
            overlap += in->k_now[n * d + i] * in->k_last[n * d + i];
        in->last->figures.overlap_next += fabs(overlap);
        in->last->figures.next_rows++;
    }
    keep_for_spectrum(in, rows);
    double *free_memory = in->k_last;
    in->k_last = in->k_now;
    in->k_now = free_memory;
    in->last = sums;
    in->delta_at++;
}

/* ---- mixing matrices ---- */

/* P = M P for the product of a row so far, which is the identity before the first sublayer. */
static void multiply(size_t c, const float *M, bool first, double *P)
{
    double before[DDL_MAX_STREAMS * DDL_MAX_STREAMS];
    for (size_t i = 0; i < c * c; i++)
        before[i] = first ? i % (c + 1) == 0 : P[i];
    for (size_t i = 0; i < c * c; i++) {
        P[i] = 0;
        for (size_t j = 0; j < c; j++)
            P[i] += (double)M[i / c * c + j] * before[j * c + i % c];
    }
}

/* The weights of all rows: their sums, and the products up to this sublayer. */
static void add_mixing(struct ddl_inspection *in, struct sublayer_sums *sums,
                       const struct ddl_sublayer_step *step)
{
    size_t c = in->c, weights = c * (c + 2);
    bool first = step->layer == 0 && step->sub == DDL_SUBLAYER_ATTN;
    download(in, in->mixing, step->mixing, step->rows * weights);
    for (size_t n = 0; n < step->rows; n++) {
        const float *w = in->mixing + n * weights;
        double *P = in->product + n * c * c;
        multiply(c, w + 2 * c, first, P);
        ddl_figures_add_gains(c, P, &sums->figures.product_row, &sums->figures.product_column);
        sums->figures.product_rows++;
        for (size_t i = 0; i < weights; i++)
            sums->mixing[i] += (double)w[i];
        for (size_t i = 0; i < c * c; i++)
            sums->mixing[weights + i] += P[i];
    }
}

/* ---- one sublayer ---- */

static void add_gate(struct ddl_inspection *in, struct sublayer_sums *sums,
                     const struct ddl_sublayer_step *step, size_t r)
{
    size_t rows = step->rows;
    if (step->beta) {
        for (size_t n = 0; n < rows; n++)
            in->gate[n] = in->beta[n * step->steps + r];
        add_gates(in, sums, rows, 1, 2, in->gate);
    }
    if (step->tau)
        add_gates(in, sums, rows, step->width, 1, in->tau);
    if (step->lambda)
        ddl_figures_set_lambda(&sums->figures, step->width, in->tau);
    if (step->mixing)
        add_mixing(in, sums, step);
    ddl_figures_set_factors(&sums->figures, ddl_model_backend(in->model), step);
}

/* Adds the rows of step r. */
static void add_step(struct ddl_inspection *in, const struct ddl_sublayer_step *step, size_t r)
{
    struct sublayer_sums *sums = &in->sums[in->at + r];
    add_gate(in, sums, step, r);
    sums->figures.is_delta = step->target != NULL;
    sums->figures.update = step->update;
    for (size_t n = 0; n < step->rows; n++)
        add_row(in, sums, step, r, n);
    if (sums->figures.is_delta)
        follow_delta(in, sums, step->rows);
}

void inspection_observe(void *user, const struct ddl_sublayer_step *step)
{
    struct ddl_inspection *in = user;
    size_t rows = step->rows, d = in->k->d_model, c = in->c, R = step->steps;
    if (!step->after) {
        download(in, in->before, step->X, rows * d * c);
        return;
    }
    download(in, in->after, step->X, rows * d * c);
    if (step->direction)
        download(in, in->direction, step->direction, rows * R * d);
    if (step->beta)
        download(in, in->beta, step->beta, rows * R);
    if (step->tau)
        download(in, in->tau, step->tau, rows * step->width);
    if (step->lambda)
        download(in, in->tau, step->lambda, step->width);
    if (step->target)
        download(in, in->target, step->target, rows * R * c);
    for (size_t r = 0; r < R; r++)
        add_step(in, step, r);
    in->at += R;
}
