/* Hyper-connections. */
#include "backend/ref/ref.h"

#include "ddl/config.h"

#include <math.h>
#include <string.h>

enum { MAX_N = DDL_MAX_STREAMS, MAX_MIX = MAX_N * (MAX_N + 2) };

/* ---- projections ---- */

/* The matrix that has row p of Wf; *row: which of its rows that is. */
static size_t matrix_of(const size_t *rows, size_t p, size_t *row)
{
    size_t matrix = 0;
    for (*row = p; *row >= rows[matrix]; matrix++)
        *row -= rows[matrix];
    return matrix;
}

void ref_streams_fold_fwd(void *ctx, const struct streams_fold_args *a)
{
    size_t width = a->d * a->n, row;
    (void)ctx;
    for (size_t p = 0; p < a->rows[0] + a->rows[1] + a->rows[2]; p++) {
        size_t matrix = matrix_of(a->rows, p, &row);
        for (size_t i = 0; i < a->d; i++) {
            for (size_t j = 0; j < a->n; j++) {
                size_t at = i * a->n + j;
                double W = (double)a->W[matrix][row * width + at];
                a->Wf[p * width + j * a->d + i] = (float)(W * (double)a->norm[at]);
            }
        }
    }
}

void ref_streams_fold_bwd(void *ctx, const struct streams_fold_grad_args *a)
{
    size_t width = a->d * a->n, row;
    (void)ctx;
    for (size_t i = 0; i < a->d; i++) {
        for (size_t j = 0; j < a->n; j++) {
            size_t at = i * a->n + j;
            double dnorm = 0;
            for (size_t p = 0; p < a->rows[0] + a->rows[1] + a->rows[2]; p++) {
                size_t matrix = matrix_of(a->rows, p, &row);
                double dWf = (double)a->dWf[p * width + j * a->d + i];
                dnorm += dWf * (double)a->W[matrix][row * width + at];
                a->dW[matrix][row * width + at] += (float)(dWf * (double)a->norm[at]);
            }
            a->dnorm[at] += (float)dnorm;
        }
    }
}

/* ---- reading and writing ---- */

void ref_streams_sum(void *ctx, const struct streams_sum_args *a)
{
    (void)ctx;
    for (size_t t = 0; t < a->N; t++) {
        for (size_t i = 0; i < a->d; i++) {
            double sum = 0;
            for (size_t j = 0; j < a->n; j++)
                sum += (double)a->X[(t * a->n + j) * a->d + i];
            a->y[t * a->d + i] = (float)sum;
        }
    }
}

/* sum_j by_j X_:j of a token */
static void weigh(size_t d, size_t n, const float *by, const float *X, float *y, uint16_t *y16)
{
    for (size_t i = 0; i < d; i++) {
        double sum = 0;
        for (size_t j = 0; j < n; j++)
            sum += (double)by[j] * (double)X[j * d + i];
        ref_put(y, y16, i, sum);
    }
}

void ref_streams_write_fwd(void *ctx, const struct streams_write_args *a)
{
    size_t d = a->d, n = a->n;
    (void)ctx;
    for (size_t t = 0; t < a->N; t++) {
        const float *X = a->X + t * n * d, *b = a->w + t * n * (n + 2) + n, *M = b + n;
        for (size_t i = 0; i < d; i++) {
            double next[MAX_N];
            for (size_t k = 0; k < n; k++) {
                next[k] = (double)b[k] * (double)a->f[t * d + i];
                for (size_t j = 0; j < n; j++)
                    next[k] += (double)M[k * n + j] * (double)X[j * d + i];
            }
            for (size_t k = 0; k < n; k++)
                a->X_out[(t * n + k) * d + i] = (float)next[k];
        }
    }
}

void ref_streams_write_bwd(void *ctx, const struct streams_write_grad_args *a)
{
    size_t d = a->d, n = a->n;
    (void)ctx;
    for (size_t t = 0; t < a->N; t++) {
        const float *X = a->X + t * n * d, *G = a->G + t * n * d, *w = a->w + t * n * (n + 2);
        float *db = a->dw + t * n * (n + 2) + n, *dM = db + n;
        for (size_t k = 0; k < n; k++) {
            db[k] = (float)ref_dot(d, G + k * d, a->f + t * d);
            for (size_t j = 0; j < n; j++)
                dM[k * n + j] = (float)ref_dot(d, G + k * d, X + j * d);
        }
        weigh(d, n, w + n, G, a->df ? a->df + t * d : NULL, a->df16 ? a->df16 + t * d : NULL);
        if (a->x_in)
            weigh(d, n, w, X, a->x_in + t * d, NULL);
    }
}

/* t = rstd W x for one row of `width` numbers. Returns rstd. */
static double normed_products(size_t width, size_t n_out, double eps, const float *x, const float *W,
                              float *t)
{
    double rstd = 1 / sqrt(ref_dot(width, x, x) / (double)width + eps);
    for (size_t o = 0; o < n_out; o++)
        t[o] = (float)(rstd * ref_dot(width, W + o * width, x));
    return rstd;
}

/* t = rstd W x of one token: `groups` rows x of n d / groups numbers, rstd (groups), W (n_out, n d / groups),
 * t and its gradient dz = rstd dt (groups, n_out). */
struct projection {
    size_t groups, n_out;
    const float *rstd, *x, *W, *t, *dz;
};

/* The gradient of a token's state, in place: dX_:j = sum_k M_kj G_:k + r_j dx_in, and through the projection
 * of each row, sum_o dz_o W_o - rstd (sum_o dz_o t_o) x / width. */
static void state_bwd(size_t d, size_t n, const float *w, const float *dx_in, const struct projection *p,
                      float *dX)
{
    const float *r = w, *M = w + 2 * n;
    size_t width = n * d / p->groups;
    for (size_t i = 0; i < d; i++) {
        double next[MAX_N];
        for (size_t j = 0; j < n; j++) {
            size_t at = j * d + i, g = at / width;
            next[j] = (double)r[j] * (double)dx_in[i];
            for (size_t k = 0; k < n; k++)
                next[j] += (double)M[k * n + j] * (double)dX[k * d + i];
            for (size_t o = 0; o < p->n_out; o++) {
                double by = (double)p->dz[g * p->n_out + o];
                next[j] += by * (double)p->W[o * width + at % width];
                next[j] -= by * (double)p->rstd[g] * (double)p->t[g * p->n_out + o] * (double)p->x[at] /
                           (double)width;
            }
        }
        for (size_t j = 0; j < n; j++)
            dX[j * d + i] = (float)next[j];
    }
}

/* dW (n_out, width) = dz (rows, n_out)^T x (rows, width) */
static void projected_bwd(size_t rows, size_t n_out, size_t width, const float *dz, const float *x, float *dW)
{
    for (size_t at = 0; at < n_out * width; at++) {
        double sum = 0;
        for (size_t row = 0; row < rows; row++)
            sum += (double)dz[row * n_out + at / width] * (double)x[row * width + at % width];
        dW[at] = (float)sum;
    }
}

static void set_identity(size_t n, float *M)
{
    for (size_t i = 0; i < n * n; i++)
        M[i] = i % (n + 1) == 0;
}

/* ---- hyper-connections ---- */

void ref_hyper_fwd(void *ctx, const struct hyper_args *a)
{
    size_t d = a->d, n = a->n, out = n + 2;
    (void)ctx;
    for (size_t token = 0; token < a->N; token++) {
        const float *X = a->X + token * n * d;
        float *r = a->w + token * n * out, *b = r + n, *M = b + n;
        for (size_t j = 0; j < n; j++) {
            double dynamic[MAX_N + 2] = { 0 };
            float *t = a->Wf ? a->t + (token * n + j) * out : NULL;
            if (t)
                a->rstd[token * n + j] = (float)normed_products(d, out, (double)a->eps, X + j * d, a->Wf, t);
            for (size_t o = 0; t && o < out; o++)
                dynamic[o] = (double)(o < n + 1 ? *a->a : *a->e) * tanh((double)t[o]);
            const float *alpha = a->alpha + j * (n + 1);
            r[j] = (float)((double)alpha[0] + dynamic[0]);
            for (size_t k = 0; k < n; k++)
                M[k * n + j] = (float)((double)alpha[1 + k] + dynamic[1 + k]);
            b[j] = (float)((double)a->beta[j] + dynamic[n + 1]);
        }
        if (a->identity)
            set_identity(n, M);
        weigh(d, n, r, X, a->x_in + token * d, NULL);
    }
}

/* Sums over rows, in double. */
struct hyper_sums {
    double dalpha[MAX_N * (MAX_N + 1)], dbeta[MAX_N], da, de;
};

/* dz (n, n + 2) of a token. */
static void hyper_weights_bwd(const struct hyper_grad_args *a, size_t token, struct hyper_sums *sums)
{
    size_t d = a->d, n = a->n, out = n + 2;
    const float *db = a->dw + token * n * out + n, *dM = db + n;
    for (size_t j = 0; j < n; j++) {
        double grad[MAX_N + 2];
        grad[0] = ref_dot(d, a->dx_in + token * d, a->X + (token * n + j) * d);
        for (size_t k = 0; k < n; k++)
            grad[1 + k] = (double)dM[k * n + j];
        grad[n + 1] = (double)db[j];
        for (size_t o = 0; o < n + 1; o++)
            sums->dalpha[j * (n + 1) + o] += grad[o];
        sums->dbeta[j] += grad[n + 1];
        for (size_t o = 0; a->Wf && o < out; o++) {
            size_t at = (token * n + j) * out + o;
            double value = tanh((double)a->t[at]), rstd = (double)a->rstd[token * n + j];
            *(o < n + 1 ? &sums->da : &sums->de) += grad[o] * value;
            a->dz[at] = (float)(grad[o] * (double)(o < n + 1 ? *a->a : *a->e) * (1 - value * value) * rstd);
        }
    }
}

void ref_hyper_bwd(void *ctx, const struct hyper_grad_args *a)
{
    size_t d = a->d, n = a->n, out = n + 2;
    struct hyper_sums sums = { .da = 0 };
    (void)ctx;
    for (size_t token = 0; token < a->N; token++) {
        size_t at = token * n * out, projected = a->Wf ? out : 0;
        hyper_weights_bwd(a, token, &sums);
        state_bwd(d, n, a->w + at, a->dx_in + token * d,
                  &(struct projection){ .groups = n,
                                        .n_out = projected,
                                        .rstd = a->rstd ? a->rstd + token * n : NULL,
                                        .x = a->X + token * n * d,
                                        .W = a->Wf,
                                        .t = a->t ? a->t + at : NULL,
                                        .dz = a->dz ? a->dz + at : NULL },
                  a->dX + token * n * d);
    }
    for (size_t i = 0; i < n * (n + 1); i++)
        a->dalpha[i] += (float)sums.dalpha[i];
    for (size_t j = 0; j < n; j++)
        a->dbeta[j] += (float)sums.dbeta[j];
    if (a->Wf) {
        *a->da += (float)sums.da;
        *a->de += (float)sums.de;
        projected_bwd(a->N * n, out, d, a->dz, a->X, a->dWf);
    }
}

/* ---- manifold-constrained hyper-connections ---- */

/* M (n, n) = exp(z), each column divided by its largest element, which the first division cancels. */
static void exp_columns(size_t n, double *M)
{
    for (size_t j = 0; j < n; j++) {
        double top = M[j];
        for (size_t k = 1; k < n; k++)
            top = M[k * n + j] > top ? M[k * n + j] : top;
        for (size_t k = 0; k < n; k++)
            M[k * n + j] = exp(M[k * n + j] - top);
    }
}

/* Divides the n numbers from M on, `step` apart, by their sum, which is returned. */
static double divide_by_sum(size_t n, double *M, size_t step)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += M[i * step];
    for (size_t i = 0; i < n; i++)
        M[i * step] /= sum;
    return sum;
}

/* sums: (iterations, 2, n) =, of columns and of rows. */
static void sinkhorn(size_t n, size_t iterations, double *M, double *sums)
{
    exp_columns(n, M);
    for (size_t s = 0; s < iterations; s++) {
        for (size_t j = 0; j < n; j++)
            sums[2 * s * n + j] = divide_by_sum(n, M + j, n);
        for (size_t k = 0; k < n; k++)
            sums[(2 * s + 1) * n + k] = divide_by_sum(n, M + k * n, 1);
    }
}

/* M = P / sum(P): dP = (dM - dM . M) / sum(P). M becomes P, and dM dP. */
static void divide_by_sum_bwd(size_t n, double sum, double *M, double *dM, size_t step)
{
    double along = 0;
    for (size_t i = 0; i < n; i++)
        along += dM[i * step] * M[i * step];
    for (size_t i = 0; i < n; i++) {
        dM[i * step] = (dM[i * step] - along) / sum;
        M[i * step] *= sum;
    }
}

static void sinkhorn_bwd(size_t n, size_t iterations, double *M, double *dM, const double *sums)
{
    for (size_t s = iterations; s-- > 0;) {
        for (size_t k = 0; k < n; k++)
            divide_by_sum_bwd(n, sums[(2 * s + 1) * n + k], M + k * n, dM + k * n, 1);
        for (size_t j = 0; j < n; j++)
            divide_by_sum_bwd(n, sums[2 * s * n + j], M + j, dM + j, n);
    }
    for (size_t i = 0; i < n * n; i++)
        dM[i] *= M[i];
}

/* Part of element i of t, and z = scale t + bias of a token. */
static size_t part_of(size_t n, size_t i)
{
    return i < n ? 0 : i < 2 * n ? 1 : 2;
}

static void logits_of(size_t n, const float *const *scale, const float *const *bias, const float *t,
                      double *z)
{
    for (size_t i = 0; i < n * (n + 2); i++) {
        size_t part = part_of(n, i);
        z[i] = (double)*scale[part] * (double)t[i] + (double)bias[part][i - part * n];
    }
}

void ref_mhc_fwd(void *ctx, const struct mhc_args *a)
{
    size_t d = a->d, n = a->n, out = n * (n + 2);
    (void)ctx;
    for (size_t token = 0; token < a->N; token++) {
        const float *X = a->X + token * n * d;
        float *t = a->t + token * out, *w = a->w + token * out;
        double z[MAX_MIX], sums[2 * MAX_N * DDL_MAX_SINKHORN];
        a->rstd[token] = (float)normed_products(n * d, out, (double)a->eps, X, a->Wf, t);
        logits_of(n, a->scale, a->bias, t, z);
        sinkhorn(n, a->iterations, z + 2 * n, sums);
        for (size_t i = 0; i < out; i++)
            w[i] = (float)(i < 2 * n ? (i < n ? 1 : 2) * ref_sigmoid(z[i]) : z[i]);
        if (a->identity)
            set_identity(n, w + 2 * n);
        weigh(d, n, w, X, a->x_in + token * d, NULL);
    }
}

/* Sums over rows, in double. */
struct mhc_sums {
    double dbias[MAX_MIX], dscale[3];
};

/* dz (n (n + 2)) of a token. */
static void mhc_weights_bwd(const struct mhc_grad_args *a, size_t token, struct mhc_sums *total)
{
    size_t d = a->d, n = a->n, out = n * (n + 2);
    const float *t = a->t + token * out, *dw = a->dw + token * out;
    double z[MAX_MIX], dz[MAX_MIX], sums[2 * MAX_N * DDL_MAX_SINKHORN];
    logits_of(n, a->scale, a->bias, t, z);
    for (size_t i = 0; i < out; i++) {
        double s = ref_sigmoid(z[i]), grad = (double)dw[i];
        if (i < n)
            grad = ref_dot(d, a->dx_in + token * d, a->X + (token * n + i) * d);
        dz[i] = i < 2 * n ? (i < n ? 1 : 2) * grad * s * (1 - s) : grad;
    }
    sinkhorn(n, a->iterations, z + 2 * n, sums);
    sinkhorn_bwd(n, a->iterations, z + 2 * n, dz + 2 * n, sums);
    for (size_t i = 0; i < out; i++) {
        size_t part = part_of(n, i);
        total->dbias[i] += dz[i];
        total->dscale[part] += dz[i] * (double)t[i];
        a->dz[token * out + i] = (float)(dz[i] * (double)*a->scale[part] * (double)a->rstd[token]);
    }
}

void ref_mhc_bwd(void *ctx, const struct mhc_grad_args *a)
{
    size_t d = a->d, n = a->n, out = n * (n + 2);
    struct mhc_sums total = { .dbias = { 0 } };
    (void)ctx;
    for (size_t token = 0; token < a->N; token++) {
        mhc_weights_bwd(a, token, &total);
        state_bwd(d, n, a->w + token * out, a->dx_in + token * d,
                  &(struct projection){ .groups = 1,
                                        .n_out = out,
                                        .rstd = a->rstd + token,
                                        .x = a->X + token * n * d,
                                        .W = a->Wf,
                                        .t = a->t + token * out,
                                        .dz = a->dz + token * out },
                  a->dX + token * n * d);
    }
    for (size_t i = 0; i < out; i++) {
        size_t part = part_of(n, i);
        a->dbias[part][i - part * n] += (float)total.dbias[i];
    }
    for (size_t part = 0; part < 3; part++)
        *a->dscale[part] += (float)total.dscale[part];
    projected_bwd(a->N, out, n * d, a->dz, a->X, a->dWf);
}
