/* Sequences of dense and ragged batches, and rows in one of two formats. */
#ifndef DDL_CUDA_SEQUENCE_CUH
#define DDL_CUDA_SEQUENCE_CUH

#include "backend/cuda/kernels/device.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/vectors.cuh"

/* A sequence's rows, and where its keys and values are. */
struct sequence {
    size_t first, rows, past, place;
};

__device__ inline struct sequence sequence_of(const struct attention_args &a, size_t b)
{
    if (a.ragged.B == 0)
        return { b * a.T, a.T, a.past, b };
    const size_t first = static_cast<size_t>(a.ragged.first[b]);
    return { first, static_cast<size_t>(a.ragged.first[b + 1]) - first, static_cast<size_t>(a.ragged.past[b]),
             static_cast<size_t>(a.ragged.slot[b]) };
}

/* The softmax's log denominator and dy . y of row t of a sequence's head. */
__device__ inline float2 *stats_of(const struct cuda_attention_grad &a, size_t sequence, size_t head,
                                   size_t t)
{
    return reinterpret_cast<float2 *>(a.stats) + (sequence * a.op.H + head) * a.op.T + t;
}

/* Rows of h numbers in one of two formats. */
struct source {
    const float *x;
    const uint16_t *x16;
    size_t stride;
    bool fast; /* whole vectors */
};

__device__ inline struct source source_of(const float *x, const uint16_t *x16, size_t stride, size_t h)
{
    return { x, x16, stride, h % 4 == 0 && stride % 4 == 0 && (x16 ? aligned8(x16) : aligned16(x)) };
}

/* Numbers i .. i + 3 of the h numbers from number `at` on, 0 past the end. */
__device__ inline float4 load_source4(const struct source &s, size_t at, size_t i, size_t h)
{
    const bool fast = s.fast && at % 4 == 0;
    return s.x16 ? load_row4_bf16(s.x16 + at, i, h, fast) : load_row4(s.x + at, i, h, fast);
}

#endif
