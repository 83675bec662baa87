/* Residual rules other than delta. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vec.h"

/* X += sign lambda (*) f; lambda (w), w = 1 or d. */
INLINE void add_times_lambda(size_t d, size_t w, float sign, const float *lambda, const float *f, float *X)
{
    if (w == 1) {
        add_scaled(d, sign * lambda[0], f, X);
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

void DDL_KERNEL(scale_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct scale_grad_args *a = args;
    for (size_t n = lo; n < hi; n++) {
        const float *f = a->f + n * a->d, *G = a->G + n * a->d, *lambda = a->lambda;
        float *df = a->df + n * a->d, one = lambda[0];
        if (a->X)
            add_times_lambda(a->d, a->w, -1, lambda, f, a->X + n * a->d);
        if (a->w == 1) {
            scratch[0] += dot(a->d, G, f);
#pragma omp simd
            for (size_t i = 0; i < a->d; i++)
                df[i] = one * G[i];
        } else {
#pragma omp simd
            for (size_t i = 0; i < a->d; i++) {
                scratch[i] += G[i] * f[i];
                df[i] = lambda[i] * G[i];
            }
        }
    }
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
        float *df = a->df + n * a->d, beta = a->beta[n];
        if (a->X)
            add_scaled(a->d, -beta, f, a->X + n * a->d);
        a->dbeta[n] = dot(a->d, G, f);
#pragma omp simd
        for (size_t i = 0; i < a->d; i++)
            df[i] = beta * G[i];
    }
}
