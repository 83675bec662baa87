/* The reference backend, an executable specification: scalar, double accumulators, one thread, no library.
 * Each op follows the equation above its arguments in ops/args.h. */
#ifndef DDL_BACKEND_REF_H
#define DDL_BACKEND_REF_H

#include "base/bf16.h"
#include "ops/ops.h"

#include <math.h>

extern const struct ddl_ops ddl_ops_ref;

#define DECLARE_OP(name, args) void ref_##name(void *ctx, const struct args *a);
DDL_OPS(DECLARE_OP)
#undef DECLARE_OP
/* The row `back` tokens before row n of X (N, width), which is number t of its dense sequence; of a ragged
 * batch (ragged->B > 0) perhaps in its history (histories, keep, width). NULL before the sequence. */
const float *ref_earlier_row(const struct ddl_ragged *ragged, size_t n, size_t t, size_t back, size_t keep,
                             size_t width, const float *X, const float *history);

/* The sum of the products of n numbers. */
static inline double ref_dot(size_t n, const float *x, const float *y)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

static inline double ref_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Number i of an operand in one of two formats. */
static inline float ref_get(const float *x, const uint16_t *x16, size_t i)
{
    return x16 ? ddl_bf16_widen(x16[i]) : x[i];
}

/* Number i of a result, as float32 and rounded to bfloat16, where these are not NULL. */
static inline void ref_put(float *x, uint16_t *x16, size_t i, double value)
{
    if (x)
        x[i] = (float)value;
    if (x16)
        x16[i] = ddl_bf16_round((float)value);
}

#endif
