/* The figures of one sublayer's step (spec: docs/inspect.md), accumulated in double from host copies of its
 * tensors. */
#include "study/inspection.h"

#include "base/mem.h"
#include "ops/ops.h"

#include <math.h>
#include <string.h>

static double sum_squares(size_t n, const float *x)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

/* a / b; 0 / 0 is 0. */
static double ratio(double a, double b)
{
    return a == 0 ? 0 : a / b;
}

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
    if (sums->has_gate)
        return true;
    sums->gate_width = width;
    sums->position_sum = ddl_mem_zalloc(in->config.seq * sizeof *sums->position_sum);
    sums->position_count = ddl_mem_zalloc(in->config.seq * sizeof *sums->position_count);
    if (width > 1)
        sums->gate_means = ddl_mem_alloc(DDL_INSPECT_EXACT * sizeof *sums->gate_means);
    sums->has_gate = distribution_init(&sums->gate, top);
    return sums->has_gate && sums->position_sum && sums->position_count && (width == 1 || sums->gate_means);
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
            distribution_add(&sums->gate, gate[n * width + i]);
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

static void set_lambda(struct ddl_inspection *in, struct sublayer_sums *sums,
                       const struct ddl_sublayer_step *step)
{
    download(in, in->tau, step->lambda, step->width);
    sums->lambda_mean = 0;
    sums->lambda_min = INFINITY;
    sums->lambda_max = -INFINITY;
    for (size_t i = 0; i < step->width; i++) {
        sums->lambda_mean += (double)in->tau[i] / (double)step->width;
        sums->lambda_min = fmin(sums->lambda_min, (double)in->tau[i]);
        sums->lambda_max = fmax(sums->lambda_max, (double)in->tau[i]);
    }
}

/* ---- one row ---- */

/* k (d) from the direction; without one, F's output is X' - X. Returns |k|. */
static double unit_direction(const struct ddl_inspection *in, const struct ddl_sublayer_step *step,
                             size_t row, double *k)
{
    size_t d = in->k->d_model;
    double eps = (double)step->k_eps, squares = 0;
    for (size_t i = 0; i < d; i++) {
        size_t at = row * d + i;
        k[i] = step->direction ? (double)in->direction[at] : (double)in->after[at] - (double)in->before[at];
        squares += k[i] * k[i];
    }
    double length = sqrt(squares + eps * eps);
    for (size_t i = 0; i < d; i++)
        k[i] = ratio(k[i], length);
    return ratio(sqrt(squares), length);
}

/* out (c) = k^T X; returns its length. */
static double read_along(size_t d, size_t c, const double *k, const float *X, double *out)
{
    double squares = 0;
    memset(out, 0, c * sizeof *out);
    for (size_t i = 0; i < d; i++) {
        for (size_t j = 0; j < c; j++)
            out[j] += k[i] * (double)X[i * c + j];
    }
    for (size_t j = 0; j < c; j++)
        squares += out[j] * out[j];
    return sqrt(squares);
}

/* |X' - X| of a row, and the squares of X' by channel. */
static double step_length(const struct ddl_inspection *in, struct sublayer_sums *sums, size_t row)
{
    size_t d = in->k->d_model, c = in->k->channels;
    const float *X = in->before + row * d * c, *next = in->after + row * d * c;
    double squares = 0;
    for (size_t i = 0; i < d; i++) {
        for (size_t j = 0; j < c; j++) {
            double x = (double)next[i * c + j], change = x - (double)X[i * c + j];
            squares += change * change;
            sums->channel2[j] += x * x;
        }
    }
    return sqrt(squares);
}

/* What only a delta step has: p = k^T X and its length are known. */
static void add_delta(struct ddl_inspection *in, struct sublayer_sums *sums, size_t row, const double *k,
                      double length, double p_length, double size)
{
    size_t d = in->k->d_model, c = in->k->channels;
    const float *v = in->target + row * c;
    double beta = (double)in->beta[row], eigenvalue = 1 - beta * length * length;
    double *p = in->readout, *post = in->readout + c;
    read_along(d, c, k, in->after + row * d * c, post);
    for (size_t j = 0; j < c; j++) {
        double e_pre = p[j] - (double)v[j], e_post = post[j] - (double)v[j];
        double off = e_post - eigenvalue * e_pre;
        sums->pre2 += e_pre * e_pre;
        sums->post2 += e_post * e_post;
        sums->identity2 += off * off;
    }
    sums->eigenvalue += eigenvalue;
    sums->erase += ratio(beta * length * p_length, size);
    sums->write += ratio(beta * length * sqrt(sum_squares(c, v)), size);
    in->log_det += log(fabs(1 - beta));
}

static void add_row(struct ddl_inspection *in, struct sublayer_sums *sums,
                    const struct ddl_sublayer_step *step, size_t row)
{
    size_t d = in->k->d_model, c = in->k->channels;
    double *k = in->k_now + row * d, size = sqrt(sum_squares(d * c, in->before + row * d * c));
    double length = unit_direction(in, step, row, k);
    double p_length = read_along(d, c, k, in->before + row * d * c, in->readout);
    double step_size = ratio(step_length(in, sums, row), size);
    sums->step += step_size;
    if (in->rows + row < DDL_INSPECT_EXACT)
        sums->steps[in->rows + row] = (float)step_size;
    sums->overlap_stream += ratio(p_length, size);
    if (sums->is_delta)
        add_delta(in, sums, row, k, length, p_length, size);
}

/* ---- from one delta sublayer to the next ---- */

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
        in->spectrum_beta[at] = in->beta[n];
    }
}

static void follow_delta(struct ddl_inspection *in, struct sublayer_sums *sums, size_t rows)
{
    size_t d = in->k->d_model;
    for (size_t n = 0; n < rows && in->last; n++) {
        double overlap = 0;
        for (size_t i = 0; i < d; i++)
            overlap += in->k_now[n * d + i] * in->k_last[n * d + i];
        in->last->overlap_next += fabs(overlap);
        in->last->next_rows++;
    }
    keep_for_spectrum(in, rows);
    double *free_memory = in->k_last;
    in->k_last = in->k_now;
    in->k_now = free_memory;
    in->last = sums;
    in->delta_at++;
}

/* ---- one sublayer ---- */

void inspection_observe(void *user, const struct ddl_sublayer_step *step)
{
    struct ddl_inspection *in = user;
    size_t rows = step->rows, d = in->k->d_model, c = in->k->channels;
    struct sublayer_sums *sums = &in->sums[DDL_SUBLAYERS * step->layer + (size_t)step->sub];
    if (!step->after) {
        download(in, in->before, step->X, rows * d * c);
        return;
    }
    download(in, in->after, step->X, rows * d * c);
    if (step->direction)
        download(in, in->direction, step->direction, rows * d);
    if (step->beta) {
        download(in, in->beta, step->beta, rows);
        add_gates(in, sums, rows, 1, 2, in->beta);
    }
    if (step->tau) {
        download(in, in->tau, step->tau, rows * step->width);
        add_gates(in, sums, rows, step->width, 1, in->tau);
    }
    if (step->lambda)
        set_lambda(in, sums, step);
    sums->is_delta = step->target != NULL;
    sums->update = step->update;
    if (step->target)
        download(in, in->target, step->target, rows * c);
    for (size_t n = 0; n < rows; n++)
        add_row(in, sums, step, n);
    sums->rows += rows;
    if (sums->is_delta)
        follow_delta(in, sums, rows);
}
