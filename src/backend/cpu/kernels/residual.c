/* Residual rules other than delta, and sums of states. */
#include "backend/cpu/kernels/bf16.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vec.h"
#include "backend/cpu/kernels/vmath.h"

#include <math.h>
#include <string.h>

void DDL_KERNEL(f_norm_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct f_norm_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        float *f = a->f + n * a->d;
        float rstd = 1 / sqrtf(dot(a->d, f, f) / (float)a->d + a->eps);
#pragma omp simd
        for (size_t i = 0; i < a->d; i++)
            f[i] *= rstd;
        if (a->rstd)
            a->rstd[n] = rstd;
    }
}

void DDL_KERNEL(f_norm_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct f_norm_grad_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        const float *f = a->f + n * a->d;
        float *df = a->df + n * a->d, rstd = a->rstd[n], along = dot(a->d, f, df) / (float)a->d;
#pragma omp simd
        for (size_t i = 0; i < a->d; i++)
            df[i] = rstd * (df[i] - along * f[i]);
        if (a->df16)
            round_row(a->d, df, a->df16 + n * a->d);
    }
}

/* X += sign lambda (*) f; lambda (w), w = 1 or d; NULL: 1. */
INLINE void add_times_lambda(size_t d, size_t w, float sign, const float *lambda, const float *f, float *X)
{
    if (w == 1) {
        add_scaled(d, lambda ? sign * lambda[0] : sign, f, X);
        return;
    }
#pragma omp simd
    for (size_t i = 0; i < d; i++)
        X[i] += sign * lambda[i] * f[i];
}

void DDL_KERNEL(scale_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct scale_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++)
        add_times_lambda(a->d, a->w, 1, a->lambda, a->f + n * a->d, a->X + n * a->d);
}

/* Row n of y = factor x. */
INLINE void scale_row(size_t d, size_t n, float factor, const float *x, float *y, uint16_t *y16,
                      const bool bf16)
{
#pragma omp simd
    for (size_t i = n * d; i < (n + 1) * d; i++)
        set(y, y16, i, factor * x[i], bf16);
}

INLINE void scale_rows_bwd(const struct scale_grad_args *a, size_t lo, size_t hi, float *scratch,
                           const bool bf16)
{
    for (size_t n = lo; n < hi; n++) {
        const float *f = a->f + n * a->d, *G = a->G + n * a->d, *lambda = a->lambda;
        if (a->X)
            add_times_lambda(a->d, a->w, -1, lambda, f, a->X + n * a->d);
        if (a->w == 1) {
            if (lambda)
                scratch[0] += dot(a->d, G, f);
            scale_row(a->d, n, lambda ? lambda[0] : 1, a->G, a->df, a->df16, bf16);
        } else {
#pragma omp simd
            for (size_t i = 0; i < a->d; i++) {
                scratch[i] += G[i] * f[i];
                set(a->df, a->df16, n * a->d + i, lambda[i] * G[i], bf16);
            }
        }
    }
}

void DDL_KERNEL(scale_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct scale_grad_args *a = args;
    if (a->df16)
        scale_rows_bwd(a, lo, hi, scratch, true);
    else
        scale_rows_bwd(a, lo, hi, scratch, false);
}

void DDL_KERNEL(gated_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct gated_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++)
        add_scaled(a->d, a->beta[n], a->f + n * a->d, a->X + n * a->d);
}

void DDL_KERNEL(gated_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct gated_grad_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        const float *f = a->f + n * a->d, *G = a->G + n * a->d;
        float beta = a->beta[n];
        if (a->X)
            add_scaled(a->d, -beta, f, a->X + n * a->d);
        a->dbeta[n] = dot(a->d, G, f);
        if (a->df16)
            scale_row(a->d, n, beta, a->G, NULL, a->df16, true);
        else
            scale_row(a->d, n, beta, a->G, a->df, NULL, false);
    }
}

void DDL_KERNEL(highway_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct highway_args *a = args;
    const float *b = a->b;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        const float *f = a->f + n * a->d;
        float *X = a->X + n * a->d, *tau = a->tau + n * a->w;
        if (a->w == 1) {
            float t = tau[0] = vsigmoid(tau[0] + b[0]);
#pragma omp simd
            for (size_t i = 0; i < a->d; i++)
                X[i] = (1 - t) * X[i] + t * f[i];
        } else {
#pragma omp simd
            for (size_t i = 0; i < a->d; i++) {
                float t = vsigmoid(tau[i] + b[i]);
                tau[i] = t;
                X[i] = (1 - t) * X[i] + t * f[i];
            }
        }
    }
}

/* One tau for the row: returns dz. */
INLINE float highway_row_bwd(const struct highway_grad_args *a, size_t n, const bool bf16)
{
    const float *X = a->X + n * a->d, *f = a->f + n * a->d, *G = a->G + n * a->d;
    float *dX = a->dX + n * a->d, t = a->tau[n], dtau = 0;
#pragma omp simd reduction(+ : dtau)
    for (size_t i = 0; i < a->d; i++) {
        float g = G[i];
        dtau += g * (f[i] - X[i]);
        set(a->df, a->df16, n * a->d + i, t * g, bf16);
        dX[i] = (1 - t) * g;
    }
    return dtau * t * (1 - t);
}

/* One tau for each feature of the row. */
INLINE void highway_features_bwd(const struct highway_grad_args *a, size_t n, float *db, const bool bf16,
                                 const bool dz_bf16)
{
    const float *X = a->X + n * a->d, *f = a->f + n * a->d, *G = a->G + n * a->d, *tau = a->tau + n * a->d;
    float *dX = a->dX + n * a->d;
#pragma omp simd
    for (size_t i = 0; i < a->d; i++) {
        float g = G[i], t = tau[i], z = g * (f[i] - X[i]) * t * (1 - t);
        set(a->dz, a->dz16, n * a->d + i, z, dz_bf16);
        db[i] += z;
        set(a->df, a->df16, n * a->d + i, t * g, bf16);
        dX[i] = (1 - t) * g;
    }
}

INLINE void highway_rows_bwd(const struct highway_grad_args *a, size_t lo, size_t hi, float *scratch,
                             const bool bf16, const bool dz_bf16)
{
    for (size_t n = lo; n < hi; n++) {
        if (a->w == 1) {
            float dz = highway_row_bwd(a, n, bf16);
            set(a->dz, a->dz16, n, dz, dz_bf16);
            scratch[0] += dz;
        } else {
            highway_features_bwd(a, n, scratch, bf16, dz_bf16);
        }
    }
}

void DDL_KERNEL(highway_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct highway_grad_args *a = args;
    if (a->df16 && a->dz16)
        highway_rows_bwd(a, lo, hi, scratch, true, true);
    else if (a->df16)
        highway_rows_bwd(a, lo, hi, scratch, true, false);
    else if (a->dz16)
        highway_rows_bwd(a, lo, hi, scratch, false, true);
    else
        highway_rows_bwd(a, lo, hi, scratch, false, false);
}

/* m = 2 softmax(mix). */
INLINE void laurel_factors(const float *mix, float *m)
{
    m[0] = 2 * vsigmoid(mix[0] - mix[1]);
    m[1] = 2 * vsigmoid(mix[1] - mix[0]);
}

void DDL_KERNEL(laurel_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct laurel_args *a = args;
    float m[2] = { 1, 1 };
    (void)scratch;
    if (a->mix)
        laurel_factors(a->mix, m);
    float m0 = m[0], m1 = m[1];
    for (size_t n = lo; n < hi; n++) {
        const float *f = a->f + n * a->d;
        float *X = a->X + n * a->d;
#pragma omp simd
        for (size_t i = 0; i < a->d; i++)
            X[i] = m0 * f[i] + m1 * X[i];
        for (size_t j = 0; j < a->r; j++)
            a->low[n * a->r + j] *= m1;
        if (a->low16)
            round_row(a->r, a->low + n * a->r, a->low16 + n * a->r);
    }
}

/* One row: adds m_0 dm_0 and the part of m_1 dm_1 that is in X to dm. */
INLINE void laurel_row_bwd(const struct laurel_grad_args *a, size_t row, const float *m, double *dm,
                           const bool bf16)
{
    const float *X = a->X + row, *f = a->f + row, *G = a->G + row;
    float *dX = a->dX + row, *df = a->df, m0 = m[0], m1 = m[1], sum0 = 0, sum1 = 0;
    uint16_t *df16 = a->df16;
#pragma omp simd reduction(+ : sum0, sum1)
    for (size_t i = 0; i < a->d; i++) {
        float g = G[i];
        sum0 += g * f[i];
        sum1 += g * X[i];
        set(df, df16, row + i, m0 * g, bf16);
        dX[i] = m1 * g;
    }
    dm[0] += (double)(m0 * sum0);
    dm[1] += (double)(m1 * sum1);
}

void DDL_KERNEL(laurel_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct laurel_grad_args *a = args;
    double dm[2] = { 0 }; /* many rows, and their sums may cancel */
    float m[2];
    laurel_factors(a->mix, m);
    for (size_t n = lo; n < hi; n++) {
        size_t low = n * a->r;
        if (a->df16)
            laurel_row_bwd(a, n * a->d, m, dm, true);
        else
            laurel_row_bwd(a, n * a->d, m, dm, false);
        if (a->r)
            dm[1] += (double)dot(a->r, a->dlow + low, a->low + low);
        if (a->X16)
            round_row(a->d, a->X + n * a->d, a->X16 + n * a->d);
        for (size_t j = low; j < low + a->r; j++) {
            if (a->dlow16)
                a->dlow16[j] = ddl_bf16_round(a->dlow[j] * m[1]);
            else
                a->dlow[j] *= m[1];
        }
    }
    scratch[0] += (float)dm[0];
    scratch[1] += (float)dm[1];
}

/* A vector of every array at a time, so that each number is read once and the sums stay in registers. */
void DDL_KERNEL(weighted_sum)(const void *args, size_t lo, size_t hi, float *scratch)
{
    enum { WIDE = 4 * V };
    const struct weighted_sum_args *a = args;
    size_t i = lo;
    (void)scratch;
    for (; i + WIDE <= hi; i += WIDE) {
        vec sum[4] = { { 0 } };
        for (size_t p = 0; p < 4 && a->accumulate; p++)
            sum[p] = load(a->out + i + p * V);
        for (size_t j = 0; j < a->n; j++) {
            const float *X = a->X + j * a->X_stride + i;
            vec w = splat(a->w[j * a->w_stride]);
            for (size_t p = 0; p < 4; p++)
                sum[p] += w * load(X + p * V);
        }
        for (size_t p = 0; p < 4; p++)
            store(a->out + i + p * V, sum[p]);
        if (a->out16)
            round_row(WIDE, a->out + i, a->out16 + i);
    }
    /* The last numbers are vectors too: where a call ends depends on other rows, and a scalar loop need not
     * be rounded like the one above. */
    for (; i < hi; i += V) {
        size_t n = hi - i < V ? hi - i : V;
        float lanes[V];
        vec sum = a->accumulate ? load_within(a->out, i, hi) : splat(0);
        for (size_t j = 0; j < a->n; j++)
            sum += splat(a->w[j * a->w_stride]) * load_within(a->X + j * a->X_stride, i, hi);
        store(lanes, sum);
        memcpy(a->out + i, lanes, n * sizeof *lanes);
        if (a->out16)
            round_row(n, lanes, a->out16 + i);
    }
}

/* A piece of G is read from the first cache for every array. */
void DDL_KERNEL(weighted_sum_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    enum { PIECE = 2048 };
    const struct weighted_sum_grad_args *a = args;
    for (size_t at = lo; at < hi; at += PIECE) {
        size_t piece = hi - at < PIECE ? hi - at : PIECE;
        for (size_t j = 0; j < a->n; j++)
            scratch[j] += dot(piece, a->G + at, a->X + j * a->X_stride + at);
    }
}
