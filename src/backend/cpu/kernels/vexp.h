/* vexp of a vector, with the same bits where the compiler fuses the same multiply-adds. */
#ifndef DDL_BACKEND_CPU_VEXP_H
#define DDL_BACKEND_CPU_VEXP_H

#include "backend/cpu/kernels/vec.h"
#include "backend/cpu/kernels/vmath.h"

/* x 2^whole, whole numbers in floats. */
INLINE vec times_power(vec x, vec shifted, vec whole)
{
#if defined(__AVX512F__)
    (void)shifted;
    return (vec)_mm512_scalef_ps((__m512)x, (__m512)whole);
#else
    vec_int power = (vec_int)shifted - splat_ints(0x4b400000), half = power >> 1;
    (void)whole;
    return x * (vec)((half + 127) << 23) * (vec)((power - half + 127) << 23);
#endif
}

INLINE vec exp_of(vec x)
{
    const vec round = splat(0x1.8p23f);
    x = larger(splat(-105.0f), x);
    x = smaller(splat(90.0f), x);
    vec shifted = x * splat(0x1.715476p0f) + round, whole = shifted - round;
    vec r = x - whole * splat(0x1.62e4p-1f);
    r -= whole * splat(0x1.7f7d1cp-20f);
    vec p = splat(0.00139263256f);
    p = p * r + splat(0.00836329275f);
    p = p * r + splat(0.0416665538f);
    p = p * r + splat(0.166665763f);
    p = p * r + splat(0.5f);
    p = p * (r * r) + r;
    return times_power(p + splat(1.0f), shifted, whole);
}

#endif
