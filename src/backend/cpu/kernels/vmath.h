/* exp, sigmoid and tanh without branches, so that loops over them vectorize. Errors against the exact value,
 * found over all floats by tests/backend/test_vmath.c: exp 1.5 ulp, sigmoid and tanh 3 ulp; sigmoid below
 * 1e-38 may be 0. */
#ifndef DDL_BACKEND_CPU_VMATH_H
#define DDL_BACKEND_CPU_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* exp(x) = 2^n (1 + a polynomial in r), x = n ln 2 + r, |r| <= ln 2 / 2. For vectors too (vexp.h). */
#define EXP_LEAST (-105.0f) /* exp is 0 below, infinite above EXP_MOST */
#define EXP_MOST 90.0f
#define EXP_ROUND 0x1.8p23f /* adding it leaves the nearest integer in the low bits */
#define EXP_1_BY_LN2 0x1.715476p0f
#define EXP_LN2_HIGH 0x1.62e4p-1f /* 15 bits of ln 2: n times it is exact */
#define EXP_LN2_LOW 0x1.7f7d1cp-20f
#define EXP_R6 0.00139263256f
#define EXP_R5 0.00836329275f
#define EXP_R4 0.0416665538f
#define EXP_R3 0.166665763f
#define EXP_R2 0.5f

/* exp(x) = 2^whole times what is returned. */
static inline float exp_parts(float x, int32_t *whole)
{
    float shifted = x * EXP_1_BY_LN2 + EXP_ROUND;
    float n = shifted - EXP_ROUND;
    float r = x - n * EXP_LN2_HIGH;
    r -= n * EXP_LN2_LOW;
    float p = EXP_R6;
    p = p * r + EXP_R5;
    p = p * r + EXP_R4;
    p = p * r + EXP_R3;
    p = p * r + EXP_R2;
    p = p * (r * r) + r;
    *whole = (int32_t)(bits_of(shifted) - bits_of(EXP_ROUND));
    return p + 1.0f;
}

/* 2^whole is applied in two factors, so that results below the smallest normal number and above the largest
 * come out right. NaN stays NaN. */
static inline float vexp(float x)
{
    int32_t whole;
    x = x < EXP_LEAST ? EXP_LEAST : x;
    x = x > EXP_MOST ? EXP_MOST : x;
    float p = exp_parts(x, &whole);
    int32_t half = whole >> 1;
    return p * float_of((uint32_t)(half + 127) << 23) * float_of((uint32_t)(whole - half + 127) << 23);
}

/* exp(x) of x <= 0 in float32's precision and double's range. NaN stays NaN. */
static inline double vexp_wide(float x)
{
    int32_t whole;
    float p = exp_parts(x < -700.0f ? -700.0f : x, &whole);
    uint64_t bits = (uint64_t)(uint32_t)(whole + 1023) << 52;
    double factor;
    memcpy(&factor, &bits, sizeof factor);
    return (double)p * factor;
}

static inline float vsigmoid(float x)
{
    return 1.0f / (1.0f + vexp(-x));
}

static inline float vtanh(float x)
{
    float size = fabsf(x), u = x * x;
    float p = 0.00229274482f;
    p = p * u - 0.00834394552f;
    p = p * u + 0.0217689187f;
    p = p * u - 0.0539592593f;
    p = p * u + 0.133333036f;
    p = p * u - 0.333333332f;
    float small = size + size * (u * p);
    float large = 1.0f - 2.0f / (vexp(2.0f * size) + 1.0f);
    return copysignf(size < 0.625f ? small : large, x);
}

#endif
