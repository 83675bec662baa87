/* vexp of a vector, with the same bits where the compiler fuses the same multiply-adds. */
#ifndef DDL_BACKEND_CPU_VEXP_H
#define DDL_BACKEND_CPU_VEXP_H

#include "backend/cpu/kernels/vec.h"
#include "backend/cpu/kernels/vmath.h"

/* x 2^n; n = shifted - EXP_ROUND, whole numbers. */
INLINE vec times_power(vec x, vec shifted, vec n)
{
#if defined(__AVX512F__)
    (void)shifted;
    return (vec)_mm512_scalef_ps((__m512)x, (__m512)n);
#else
    vec_int whole = (vec_int)shifted - (vec_int)splat(EXP_ROUND), half = whole >> 1;
    (void)n;
    return x * (vec)((half + 127) << 23) * (vec)((whole - half + 127) << 23);
#endif
}

INLINE vec exp_of(vec x)
{
    x = larger(splat(EXP_LEAST), x);
    x = smaller(splat(EXP_MOST), x);
    vec shifted = x * splat(EXP_1_BY_LN2) + splat(EXP_ROUND), n = shifted - splat(EXP_ROUND);
    vec r = x - n * splat(EXP_LN2_HIGH);
    r -= n * splat(EXP_LN2_LOW);
    vec p = splat(EXP_R6);
    p = p * r + splat(EXP_R5);
    p = p * r + splat(EXP_R4);
    p = p * r + splat(EXP_R3);
    p = p * r + splat(EXP_R2);
    p = p * (r * r) + r;
    return times_power(p + splat(1.0f), shifted, n);
}

#endif
