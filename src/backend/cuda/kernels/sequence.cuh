/* Sequences of dense and ragged batches. */
#ifndef DDL_CUDA_SEQUENCE_CUH
#define DDL_CUDA_SEQUENCE_CUH

#include "backend/cuda/kernels/device.cuh"
#include "ops/args.h"

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

#endif
