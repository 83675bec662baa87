/* The state of hyper-connections: reading, mixing and writing n streams. */
#include "backend/cpu/kernels/streams.h"
#include "backend/cpu/kernels/bf16.h"
#include "backend/cpu/kernels/kernels.h"

#include <string.h>

/* Row p of the matrices, which are contiguous each: its matrix and its number in it. */
INLINE size_t matrix_of(const size_t *rows, size_t p, size_t *row)
{
    size_t matrix = 0;
    while (p >= rows[matrix])
        p -= rows[matrix++];
    *row = p;
    return matrix;
}

void DDL_KERNEL(streams_fold_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct streams_fold_args *a = args;
    size_t n = a->n, d = a->d, width = n * d;
    (void)scratch;
    for (size_t p = lo; p < hi; p++) {
        size_t row, matrix = matrix_of(a->rows, p, &row);
        const float *W = a->W[matrix] + row * width;
        for (size_t j = 0; j < n; j++) {
            float *Wf = a->Wf + p * width + j * d;
            for (size_t i = 0; i < d; i++)
                Wf[i] = W[i * n + j] * a->norm[i * n + j];
        }
    }
}

void DDL_KERNEL(streams_fold_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct streams_fold_grad_args *a = args;
    size_t n = a->n, d = a->d, width = n * d, total = a->rows[0] + a->rows[1] + a->rows[2];
    (void)lo, (void)hi, (void)scratch;
    for (size_t p = 0; p < total; p++) {
        size_t row, matrix = matrix_of(a->rows, p, &row);
        const float *W = a->W[matrix] + row * width;
        float *dW = a->dW[matrix] + row * width;
        for (size_t j = 0; j < n; j++) {
            const float *dWf = a->dWf + p * width + j * d;
            for (size_t i = 0; i < d; i++) {
                dW[i * n + j] += dWf[i] * a->norm[i * n + j];
                a->dnorm[i * n + j] += dWf[i] * W[i * n + j];
            }
        }
    }
}

void DDL_KERNEL(streams_sum)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct streams_sum_args *a = args;
    (void)scratch;
    for (size_t t = lo; t < hi; t++) {
        const float *X = a->X + t * a->n * a->d;
        float *y = a->y + t * a->d;
        memcpy(y, X, a->d * sizeof *y);
        for (size_t j = 1; j < a->n; j++)
            add_scaled(a->d, 1, X + j * a->d, y);
    }
}

INLINE void write_rows(const struct streams_write_args *a, size_t lo, size_t hi, const size_t n)
{
    size_t d = a->d;
    for (size_t t = lo; t < hi; t++) {
        const float *X = a->X + t * n * d, *f = a->f + t * d, *b = a->w + t * n * (n + 2) + n, *M = b + n;
        float *X_out = a->X_out + t * n * d;
        size_t i = 0;
        for (; i + V <= d; i += V) {
            vec x[MAX_N], add = load(f + i);
            for (size_t j = 0; j < n; j++)
                x[j] = load(X + j * d + i);
            for (size_t k = 0; k < n; k++) {
                vec sum = splat(b[k]) * add;
                for (size_t j = 0; j < n; j++)
                    sum += splat(M[k * n + j]) * x[j];
                store(X_out + k * d + i, sum);
            }
        }
        for (; i < d; i++) {
            float x[MAX_N];
            for (size_t j = 0; j < n; j++)
                x[j] = X[j * d + i];
            for (size_t k = 0; k < n; k++) {
                float sum = b[k] * f[i];
                for (size_t j = 0; j < n; j++)
                    sum += M[k * n + j] * x[j];
                X_out[k * d + i] = sum;
            }
        }
    }
}

void DDL_KERNEL(streams_write_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct streams_write_args *a = args;
    (void)scratch;
    BY_STREAMS(a->n, write_rows, a, lo, hi);
}

/* dM_k: = G_:k . X, db_k = G_:k . f for the stream k of a token. */
INLINE void mix_dots(size_t d, const float *X, const float *f, const float *G, float *dM, float *db,
                     const size_t n)
{
    vec sum[MAX_N + 1] = { { 0 } };
    float total[MAX_N + 1];
    size_t i = 0;
    for (; i + V <= d; i += V) {
        vec g = load(G + i);
        for (size_t j = 0; j < n; j++)
            sum[j] += g * load(X + j * d + i);
        sum[n] += g * load(f + i);
    }
    store_sums(sum, n + 1, total);
    for (; i < d; i++) {
        for (size_t j = 0; j < n; j++)
            total[j] += G[i] * X[j * d + i];
        total[n] += G[i] * f[i];
    }
    memcpy(dM, total, n * sizeof *dM);
    *db = total[n];
}

/* scratch: d numbers, with df16. */
INLINE void write_rows_bwd(const struct streams_write_grad_args *a, size_t lo, size_t hi, float *scratch,
                           const size_t n)
{
    size_t d = a->d;
    for (size_t t = lo; t < hi; t++) {
        const float *X = a->X + t * n * d, *G = a->G + t * n * d, *f = a->f + t * d;
        const float *w = a->w + t * n * (n + 2);
        float *dw = a->dw + t * n * (n + 2), *df = a->df16 ? scratch : a->df + t * d;
        for (size_t k = 0; k < n; k++)
            mix_dots(d, X, f, G + k * d, dw + 2 * n + k * n, dw + n + k, n);
        read_token(d, w + n, G, df, n);
        if (a->df16)
            round_row(d, df, a->df16 + t * d);
        if (a->x_in)
            read_token(d, w, X, a->x_in + t * d, n);
    }
}

void DDL_KERNEL(streams_write_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct streams_write_grad_args *a = args;
    BY_STREAMS(a->n, write_rows_bwd, a, lo, hi, scratch);
}
