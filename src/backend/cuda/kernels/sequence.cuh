/* Sequences of dense and ragged batches. */
#ifndef DDL_CUDA_SEQUENCE_CUH
#define DDL_CUDA_SEQUENCE_CUH

#include "backend/cuda/kernels/device.cuh"
#include "backend/cuda/kernels/kernels.h"

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

#endif
