/* Rows of numbers in bfloat16. */
#ifndef DDL_BACKEND_CPU_BF16_H
#define DDL_BACKEND_CPU_BF16_H

#include "backend/cpu/kernels/vec.h"
#include "base/bf16.h"

/* Number i of x or, with `bf16`, of x16. */
INLINE float get(const float *x, const uint16_t *x16, size_t i, const bool bf16)
{
    return bf16 ? ddl_bf16_widen(x16[i]) : x[i];
}

/* That number = value, rounded in x16. */
INLINE void set(float *x, uint16_t *x16, size_t i, float value, const bool bf16)
{
    if (bf16)
        x16[i] = ddl_bf16_round(value);
    else
        x[i] = value;
}

/* y = x rounded. */
INLINE void round_row(size_t n, const float *restrict x, uint16_t *restrict y)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = ddl_bf16_round(x[i]);
}

/* y = x as float32. */
INLINE void widen_row(size_t n, const uint16_t *restrict x, float *restrict y)
{
    size_t i = 0;
    for (; i + V <= n; i += V)
        store(y + i, load_bf16(x + i));
    for (; i < n; i++)
        y[i] = ddl_bf16_widen(x[i]);
}

#endif
