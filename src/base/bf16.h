/* bfloat16: the upper half of a float32. */
#ifndef DDL_BASE_BF16_H
#define DDL_BASE_BF16_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline float ddl_bf16_widen(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline bool ddl_bf16_is_finite(uint16_t half)
{
    return (half & 0x7f80u) != 0x7f80u;
}

/* To nearest, ties to even; a NaN stays one (quiet). Without branches: loops over it vectorize. */
static inline uint16_t ddl_bf16_round(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    uint32_t nan = bits >> 16 | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

#endif
