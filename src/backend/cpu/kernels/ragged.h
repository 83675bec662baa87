/* Rows of a ragged batch (ops/args.h). */
#ifndef DDL_BACKEND_CPU_KERNELS_RAGGED_H
#define DDL_BACKEND_CPU_KERNELS_RAGGED_H

#include "ops/args.h"

/* The row `back` tokens before row n of X (N, width), perhaps in its sequence's history (histories, keep,
 * width). NULL before the sequence. */
static inline const float *earlier_row(const struct ddl_ragged *r, size_t n, size_t back, size_t keep,
                                       size_t width, const float *X, const float *history)
{
    size_t b = (size_t)r->sequence[n], position = (size_t)r->position[n], t = position - (size_t)r->past[b];
    if (t >= back)
        return X + (n - back) * width;
    return position < back ? NULL : history + ((size_t)r->from[b] * keep + keep + t - back) * width;
}

#endif
