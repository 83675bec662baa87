#include "model/observe/figures.h"

#include "ddl/option.h"
#include "ops/ops.h"

#include <math.h>
#include <string.h>

#define FIGURE(name, about)                                                                                  \
    {                                                                                                        \
#name, about, offsetof(struct ddl_inspect_figures, name)                                             \
    }
const struct ddl_inspect_row *ddl_inspect_rows(void)
{
    static const struct ddl_inspect_row rows[] = {
        FIGURE(beta_mean, "mean of the gate β"),
        FIGURE(beta_q05, "5 % quantile of β"),
        FIGURE(beta_q25, "25 % quantile of β"),
        FIGURE(beta_q50, "median of β"),
        FIGURE(beta_q75, "75 % quantile of β"),
        FIGURE(beta_q95, "95 % quantile of β"),
        FIGURE(beta_min, "lowest β"),
        FIGURE(beta_max, "highest β"),
        FIGURE(skip, "share of β < 0.1"),
        FIGURE(match, "share of 0.9 ≤ β ≤ 1.1"),
        FIGURE(over, "share of β > 1.1"),
        FIGURE(reflect, "share of β > 1.9"),
        FIGURE(eigenvalue_mean, "mean of 1 − β‖k‖², the eigenvalue of the shortcut that is not 1"),
        FIGURE(e_pre_rms, "root mean square of kᵀX − v"),
        FIGURE(e_post_rms, "root mean square of kᵀX′ − v"),
        FIGURE(e_identity, "rms of e_post − (1 − β‖k‖²) e_pre, relative to e_pre_rms"),
        FIGURE(erase, "mean of β‖k‖‖p‖ / ‖X‖"),
        FIGURE(write, "mean of β‖k‖‖v‖ / ‖X‖"),
        FIGURE(step, "mean of ‖X′ − X‖ / ‖X‖"),
        FIGURE(overlap_stream, "mean of ‖p‖ / ‖X‖"),
        FIGURE(overlap_next, "mean of |k · k_next|, k_next of the next delta sublayer"),
        FIGURE(lambda_mean, "mean of λ over features"),
        FIGURE(lambda_min, "lowest λ"),
        FIGURE(lambda_max, "highest λ"),
        FIGURE(tau_mean, "mean of the gate τ"),
        FIGURE(tau_q05, "5 % quantile of τ"),
        FIGURE(tau_q50, "median of τ"),
        FIGURE(tau_q95, "95 % quantile of τ"),
        FIGURE(tau_min, "lowest τ"),
        FIGURE(tau_max, "highest τ"),
        FIGURE(mix_diagonal, "mean of M_kk over streams"),
        FIGURE(mix_row, "mean of max_k |Σ_j M_kj|, the gain of mixing forward"),
        FIGURE(mix_column, "mean of max_j |Σ_k M_kj|, the gain of mixing backward"),
        FIGURE(product_row, "the same as mix_row of the product of all M up to this sublayer"),
        FIGURE(product_column, "the same as mix_column of that product"),
        FIGURE(mix_f, "laurel: factor m₀ of F(x)"),
        FIGURE(mix_x, "laurel: factor m₁ of the stream"),
        FIGURE(values_own, "value_residual: factor m₀ of the layer's own values"),
        FIGURE(values_first, "value_residual: factor m₁ of the values of layer 0"),
        { 0 },
    };
    return rows;
}

double ddl_inspect_figure(const struct ddl_inspect_figures *figures, const struct ddl_inspect_row *row)
{
    return *(const double *)((const char *)figures + row->offset);
}

/* ---- rows ---- */

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

void ddl_figures_begin(struct ddl_sublayer_sums *sums, size_t c)
{
    *sums = (struct ddl_sublayer_sums){ .lambda_mean = (double)NAN,
                                        .lambda_min = (double)NAN,
                                        .lambda_max = (double)NAN,
                                        .mix_f = (double)NAN,
                                        .mix_x = (double)NAN,
                                        .values_own = (double)NAN,
                                        .values_first = (double)NAN,
                                        .channel2 = sums->channel2,
                                        .gate = sums->gate };
    memset(sums->channel2, 0, c * sizeof *sums->channel2);
}

void ddl_figures_set_lambda(struct ddl_sublayer_sums *sums, size_t width, const float *lambda)
{
    sums->lambda_mean = 0;
    sums->lambda_min = INFINITY;
    sums->lambda_max = -INFINITY;
    for (size_t i = 0; i < width; i++) {
        sums->lambda_mean += (double)lambda[i] / (double)width;
        sums->lambda_min = fmin(sums->lambda_min, (double)lambda[i]);
        sums->lambda_max = fmax(sums->lambda_max, (double)lambda[i]);
    }
}

static void download_pair(const ddl_backend *backend, const float *x, float *host)
{
    backend->ops->download(backend->ctx, host, x, 2 * sizeof *host);
}

void ddl_figures_set_factors(struct ddl_sublayer_sums *sums, const ddl_backend *backend,
                             const struct ddl_sublayer_step *step)
{
    float pair[2];
    if (step->mix) {
        download_pair(backend, step->mix, pair);
        sums->mix_f = 2 / (1 + exp((double)pair[1] - (double)pair[0]));
        sums->mix_x = 2 / (1 + exp((double)pair[0] - (double)pair[1]));
    }
    if (step->values) {
        download_pair(backend, step->values, pair);
        sums->values_own = (double)pair[0];
        sums->values_first = (double)pair[1];
    }
}

/* k (d) from the direction; without one, F's output is X' - X. Returns |k|. */
static double unit_direction(const struct ddl_sublayer_row *row, double *k)
{
    double eps = (double)row->k_eps, squares = 0;
    for (size_t i = 0; i < row->d; i++) {
        k[i] = row->direction ? (double)row->direction[i] : (double)row->after[i] - (double)row->before[i];
        squares += k[i] * k[i];
    }
    double length = sqrt(squares + eps * eps);
    for (size_t i = 0; i < row->d; i++)
        k[i] = ratio(k[i], length);
    return ratio(sqrt(squares), length);
}

void ddl_figures_set_strides(struct ddl_sublayer_row *row, bool by_column)
{
    row->stride_d = by_column ? 1 : row->c;
    row->stride_c = by_column ? row->d : 1;
}

/* out (c) = k^T X of one of the states of a row; returns its length. */
static double read_along(const struct ddl_sublayer_row *row, const double *k, const float *X, double *out)
{
    double squares = 0;
    memset(out, 0, row->c * sizeof *out);
    for (size_t i = 0; i < row->d; i++) {
        for (size_t j = 0; j < row->c; j++)
            out[j] += k[i] * (double)X[i * row->stride_d + j * row->stride_c];
    }
    for (size_t j = 0; j < row->c; j++)
        squares += out[j] * out[j];
    return sqrt(squares);
}

/* |X' - X| of a row, and the squares of X' by channel. */
static double step_length(struct ddl_sublayer_sums *sums, const struct ddl_sublayer_row *row)
{
    size_t c = row->c;
    double squares = 0;
    for (size_t i = 0; i < row->d; i++) {
        for (size_t j = 0; j < c; j++) {
            size_t at = i * row->stride_d + j * row->stride_c;
            double x = (double)row->after[at], change = x - (double)row->before[at];
            squares += change * change;
            sums->channel2[j] += x * x;
        }
    }
    return sqrt(squares);
}

/* What only a delta step has: p = k^T X (c) and its length are known; size = |X|, post: scratch (c). */
static void add_delta(struct ddl_sublayer_sums *sums, const struct ddl_sublayer_row *row, const double *k,
                      double length, const double *p, double p_length, double size, double *post)
{
    double beta = (double)row->beta, eigenvalue = 1 - beta * length * length;
    read_along(row, k, row->after, post);
    for (size_t j = 0; j < row->c; j++) {
        double v = (double)row->target[j], e_pre = p[j] - v, e_post = post[j] - v;
        double off = e_post - eigenvalue * e_pre;
        sums->pre2 += e_pre * e_pre;
        sums->post2 += e_post * e_post;
        sums->identity2 += off * off;
    }
    sums->eigenvalue += eigenvalue;
    sums->erase += ratio(beta * length * p_length, size);
    sums->write += ratio(beta * length * sqrt(sum_squares(row->c, row->target)), size);
}

void ddl_figures_add_gains(size_t c, const double *M, double *row, double *column)
{
    double largest_row = 0, largest_column = 0;
    for (size_t k = 0; k < c; k++) {
        double along = 0, down = 0;
        for (size_t j = 0; j < c; j++) {
            along += M[k * c + j];
            down += M[j * c + k];
        }
        largest_row = fmax(largest_row, fabs(along));
        largest_column = fmax(largest_column, fabs(down));
    }
    *row += largest_row;
    *column += largest_column;
}

static void add_mixing(struct ddl_sublayer_sums *sums, const struct ddl_sublayer_row *row)
{
    double M[DDL_MAX_STREAMS * DDL_MAX_STREAMS];
    size_t c = row->c;
    for (size_t i = 0; i < c * c; i++)
        M[i] = (double)row->mixing[2 * c + i];
    for (size_t k = 0; k < c; k++)
        sums->mix_diagonal += M[k * c + k] / (double)c;
    ddl_figures_add_gains(c, M, &sums->mix_row, &sums->mix_column);
    sums->mixing_rows++;
}

void ddl_figures_take_step(const struct ddl_sublayer_row *row, int update, double *k, double *scratch,
                           float *out)
{
    size_t d = row->d, c = row->c;
    unit_direction(row, k);
    read_along(row, k, row->before, scratch);
    for (size_t j = 0; j < c; j++) {
        double v = update == DDL_UPDATE_ERASE ? 0 : (double)row->target[j];
        scratch[j] = (double)row->beta * (update == DDL_UPDATE_WRITE ? v : v - scratch[j]);
    }
    for (size_t i = 0; i < d; i++) {
        for (size_t j = 0; j < c; j++) {
            size_t at = i * row->stride_d + j * row->stride_c;
            out[at] = (float)((double)row->before[at] + k[i] * scratch[j]);
        }
    }
}

double ddl_figures_add(struct ddl_sublayer_sums *sums, const struct ddl_sublayer_row *row, double *k,
                       double *scratch)
{
    double size = sqrt(sum_squares(row->d * row->c, row->before)), length = unit_direction(row, k);
    double p_length = read_along(row, k, row->before, scratch);
    double step = ratio(step_length(sums, row), size);
    sums->rows++;
    sums->step += step;
    sums->overlap_stream += ratio(p_length, size);
    if (row->mixing)
        add_mixing(sums, row);
    if (row->target)
        add_delta(sums, row, k, length, scratch, p_length, size, scratch + row->c);
    return step;
}

/* ---- values ---- */

static double share(uint64_t part, const struct ddl_distribution *d)
{
    return (double)part / (double)d->n;
}

/* The figures of a gate: of beta, or of tau. */
static bool set_gate(struct ddl_inspect_figures *f, const struct ddl_sublayer_sums *sums)
{
    static const double quantiles[] = { 0.05, 0.25, 0.5, 0.75, 0.95 };
    const struct ddl_distribution *d = &sums->gate;
    double q[5];
    if (!ddl_distribution_quantiles(d, 5, quantiles, q))
        return false;
    if (d->top > 1) {
        f->beta_mean = ddl_distribution_mean(d);
        f->beta_q05 = q[0], f->beta_q25 = q[1], f->beta_q50 = q[2], f->beta_q75 = q[3], f->beta_q95 = q[4];
        f->beta_min = d->min, f->beta_max = d->max;
        f->skip = share(d->skip, d), f->match = share(d->match, d);
        f->over = share(d->over, d), f->reflect = share(d->reflect, d);
    } else {
        f->tau_mean = ddl_distribution_mean(d);
        f->tau_q05 = q[0], f->tau_q50 = q[2], f->tau_q95 = q[4];
        f->tau_min = d->min, f->tau_max = d->max;
    }
    return true;
}

static void set_delta(struct ddl_inspect_figures *f, const struct ddl_sublayer_sums *sums, size_t channels)
{
    double rows = (double)sums->rows, numbers = rows * (double)channels;
    f->eigenvalue_mean = sums->eigenvalue / rows;
    f->e_pre_rms = sqrt(sums->pre2 / numbers);
    f->e_post_rms = sqrt(sums->post2 / numbers);
    if (sums->update == DDL_UPDATE_DELTA)
        f->e_identity = sums->identity2 > 0 ? sqrt(sums->identity2 / sums->pre2) : 0;
    f->erase = sums->erase / rows;
    f->write = sums->write / rows;
    if (sums->next_rows)
        f->overlap_next = sums->overlap_next / (double)sums->next_rows;
}

static void set_mixing(struct ddl_inspect_figures *f, const struct ddl_sublayer_sums *sums)
{
    double rows = (double)sums->mixing_rows;
    f->mix_diagonal = sums->mix_diagonal / rows;
    f->mix_row = sums->mix_row / rows;
    f->mix_column = sums->mix_column / rows;
    if (sums->product_rows) {
        f->product_row = sums->product_row / (double)sums->product_rows;
        f->product_column = sums->product_column / (double)sums->product_rows;
    }
}

bool ddl_figures_of(const struct ddl_sublayer_sums *sums, size_t c, struct ddl_inspect_figures *f)
{
    for (const struct ddl_inspect_row *row = ddl_inspect_rows(); row->name; row++)
        *(double *)((char *)f + row->offset) = (double)NAN;
    f->step = sums->step / (double)sums->rows;
    f->overlap_stream = sums->overlap_stream / (double)sums->rows;
    f->lambda_mean = sums->lambda_mean;
    f->lambda_min = sums->lambda_min;
    f->lambda_max = sums->lambda_max;
    f->mix_f = sums->mix_f;
    f->mix_x = sums->mix_x;
    f->values_own = sums->values_own;
    f->values_first = sums->values_first;
    if (sums->is_delta)
        set_delta(f, sums, c);
    if (sums->mixing_rows)
        set_mixing(f, sums);
    return !sums->has_gate || set_gate(f, sums);
}
