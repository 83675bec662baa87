#include "backend/cpu/kernels/bf16.h"
#include "backend/cpu/kernels/kernels.h"

#include <math.h>

void DDL_KERNEL(rmsnorm_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct rmsnorm_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        const float *x = a->x + n * a->d, *w = a->w;
        float rstd = 1 / sqrtf(dot(a->d, x, x) / (float)a->d + a->eps);
        if (a->x16)
            round_row(a->d, x, a->x16 + n * a->d);
        if (a->y16) {
            uint16_t *y16 = a->y16 + n * a->d;
#pragma omp simd
            for (size_t i = 0; i < a->d; i++)
                y16[i] = ddl_bf16_round(x[i] * rstd * w[i]);
        }
        if (a->y) {
            float *y = a->y + n * a->d;
#pragma omp simd
            for (size_t i = 0; i < a->d; i++)
                y[i] = x[i] * rstd * w[i];
        }
        if (a->rstd)
            a->rstd[n] = rstd;
    }
}

/* dx = rstd (w dy - x rstd^2 mean(w dy x)), dw = sum_n dy x rstd */
void DDL_KERNEL(rmsnorm_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct rmsnorm_grad_args *a = args;
    for (size_t n = lo; n < hi; n++) {
        const float *x = a->x + n * a->d, *dy = a->dy + n * a->d, *w = a->w;
        float *dx = a->dx + n * a->d, rstd = a->rstd[n], sum = 0;
#pragma omp simd reduction(+ : sum)
        for (size_t i = 0; i < a->d; i++) {
            sum += w[i] * dy[i] * x[i];
            scratch[i] += dy[i] * x[i] * rstd;
        }
        float along = rstd * rstd * rstd * sum / (float)a->d;
        if (a->accumulate) {
#pragma omp simd
            for (size_t i = 0; i < a->d; i++)
                dx[i] += rstd * w[i] * dy[i] - along * x[i];
        } else {
#pragma omp simd
            for (size_t i = 0; i < a->d; i++)
                dx[i] = rstd * w[i] * dy[i] - along * x[i];
        }
        if (a->dx16)
            round_row(a->d, dx, a->dx16 + n * a->d);
    }
}
