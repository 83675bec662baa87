/* Plain vectors: fill, bias, sums, rows by number. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vec.h"
#include "base/bf16.h"

#include <string.h>

void DDL_KERNEL(fill)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct fill_args *a = args;
    float *x = a->x, value = a->value;
    (void)scratch;
#pragma omp simd
    for (size_t i = lo; i < hi; i++)
        x[i] = value;
}

void DDL_KERNEL(bias_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct bias_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++)
        add_scaled(a->d, 1, a->b, a->y + n * a->d);
}

void DDL_KERNEL(bias_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct bias_grad_args *a = args;
    for (size_t n = lo; n < hi; n++)
        add_scaled(a->d, 1, a->dy + n * a->d, scratch);
}

void DDL_KERNEL(gather)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct gather_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++)
        memcpy(a->y + n * a->width, a->x + (size_t)a->index[n] * a->width, a->width * sizeof *a->y);
}

void DDL_KERNEL(gather_bf16)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct gather_bf16_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        const uint16_t *restrict x = a->x + (size_t)a->index[n] * a->width;
        float *restrict y = a->y + n * a->width;
#pragma omp simd
        for (size_t i = 0; i < a->width; i++)
            y[i] = ddl_bf16_widen(x[i]);
    }
}

void DDL_KERNEL(embed_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct embed_grad_args *a = args;
    (void)scratch;
    for (size_t n = 0; n < a->N; n++)
        add_scaled(hi - lo, 1, a->dx + n * a->d + lo, a->dE + (size_t)a->tokens[n] * a->d + lo);
}

void DDL_KERNEL(sum_squares)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const float *x = args;
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = lo; i < hi; i++)
        sum += (double)x[i] * (double)x[i];
    memcpy(scratch, &sum, sizeof sum);
}

void DDL_KERNEL(sum_parts)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct parts_args *a = args;
    (void)scratch;
    for (size_t part = 1; part < a->parts; part++)
        add_scaled(hi - lo, 1, a->first + part * a->stride + lo, a->first + lo);
}
