/* 8-bit matrices (backend/q8.h) in device code. */
#ifndef DDL_CUDA_Q8_CUH
#define DDL_CUDA_Q8_CUH

#include "backend/cuda/kernels/device.cuh"
#include "backend/q8.h"

/* Tiles from one row of tiles to the next. */
__device__ inline size_t q8_groups(size_t width)
{
    return (width + DDL_GROUP - 1) / DDL_GROUP;
}

/* Number k of the four in a word. */
__device__ inline float q8_number(uint32_t word, unsigned k)
{
    return static_cast<float>(static_cast<int8_t>(word >> 8 * k & 0xff));
}

#endif
