/* Loads and stores of four consecutive numbers, in float32 or bfloat16, and sums over a block. */
#ifndef DDL_CUDA_VECTORS_CUH
#define DDL_CUDA_VECTORS_CUH

#include "backend/cuda/kernels/device.cuh"

#define ALL_LANES 0xffffffffu

/* For loops over flat arrays: this thread's first number, and how far apart its numbers are. */
#define GRID_FIRST (blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x)
#define GRID_STRIDE (gridDim.x * static_cast<size_t>(blockDim.x))

/* Numbers i .. i + 3 of x; i is a multiple of 4 and x is aligned to 16. */
__device__ inline float4 load4(const float *x, size_t i)
{
    return *reinterpret_cast<const float4 *>(x + i);
}

__device__ inline void store4(float *x, size_t i, float4 v)
{
    *reinterpret_cast<float4 *>(x + i) = v;
}

__device__ inline float4 load4_bf16(const uint16_t *x, size_t i)
{
    const uint2 pairs = *reinterpret_cast<const uint2 *>(x + i);
    return make_float4(__uint_as_float(pairs.x << 16), __uint_as_float(pairs.x & 0xffff0000u),
                       __uint_as_float(pairs.y << 16), __uint_as_float(pairs.y & 0xffff0000u));
}

__device__ inline void store4_bf16(uint16_t *x, size_t i, float4 v)
{
    *reinterpret_cast<uint2 *>(x + i) = make_uint2(bf16_pair(v.x, v.y), bf16_pair(v.z, v.w));
}

/* With fmaf, so that the bits do not depend on which product of a sum the compiler rounds. */
__device__ inline float dot4(float4 a, float4 b)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, a.x * b.x)));
}

__device__ inline float4 multiply4(float4 a, float4 b)
{
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

__device__ inline float4 add4(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__device__ inline float4 scale4(float4 a, float s)
{
    return make_float4(a.x * s, a.y * s, a.z * s, a.w * s);
}

__device__ inline float4 splat4(float x)
{
    return make_float4(x, x, x, x);
}

/* a b + c */
__device__ inline float4 fma4(float4 a, float4 b, float4 c)
{
    return make_float4(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z), fmaf(a.w, b.w, c.w));
}

/* Numbers of arrays in one of two formats: x16 or y16 where it is not NULL. */
__device__ inline float load_either(const float *x, const uint16_t *x16, size_t i)
{
    return x16 ? float_of_bf16(x16[i]) : x[i];
}

/* Numbers i and i + 1; i is even and the array is aligned to 8. */
__device__ inline float2 load_either2(const float *x, const uint16_t *x16, size_t i)
{
    if (!x16)
        return *reinterpret_cast<const float2 *>(x + i);
    const uint32_t pair = *reinterpret_cast<const uint32_t *>(x16 + i);
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

__device__ inline void store_either2(float *y, uint16_t *y16, size_t i, float2 v)
{
    if (y16)
        *reinterpret_cast<uint32_t *>(y16 + i) = bf16_pair(v.x, v.y);
    else
        *reinterpret_cast<float2 *>(y + i) = v;
}

__device__ inline float4 load_either4(const float *x, const uint16_t *x16, size_t i)
{
    return x16 ? load4_bf16(x16, i) : load4(x, i);
}

__device__ inline void store_either(float *y, uint16_t *y16, size_t i, float v)
{
    if (y16)
        y16[i] = bf16_of(v);
    else
        y[i] = v;
}

__device__ inline void store_either4(float *y, uint16_t *y16, size_t i, float4 v)
{
    if (y16)
        store4_bf16(y16, i, v);
    else
        store4(y, i, v);
}

__device__ inline float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Whether all addresses are multiples of 16, or of 8 (NULL is). */
__device__ inline bool aligned16(const void *a, const void *b = nullptr, const void *c = nullptr,
                                 const void *d = nullptr)
{
    return ((reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) |
             reinterpret_cast<uintptr_t>(c) | reinterpret_cast<uintptr_t>(d)) &
            15) == 0;
}

__device__ inline bool aligned8(const void *a, const void *b = nullptr)
{
    return ((reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b)) & 7) == 0;
}

/* Numbers i .. i + 3 of the d numbers of a row, 0 past the end. `fast`: d is a multiple of 4, and the row is
 * aligned. */
__device__ inline float4 load_row4(const float *x, size_t i, size_t d, bool fast)
{
    if (fast)
        return load4(x, i);
    return make_float4(x[i], i + 1 < d ? x[i + 1] : 0, i + 2 < d ? x[i + 2] : 0, i + 3 < d ? x[i + 3] : 0);
}

__device__ inline void store_row4(float *x, size_t i, size_t d, bool fast, float4 v)
{
    const float each[4] = { v.x, v.y, v.z, v.w };
    if (fast)
        store4(x, i, v);
    else
        for (unsigned k = 0; k < 4 && i + k < d; k++)
            x[i + k] = each[k];
}

__device__ inline void store_row4_bf16(uint16_t *x, size_t i, size_t d, bool fast, float4 v)
{
    const float each[4] = { v.x, v.y, v.z, v.w };
    if (fast)
        store4_bf16(x, i, v);
    else
        for (unsigned k = 0; k < 4 && i + k < d; k++)
            x[i + k] = bf16_of(each[k]);
}

__device__ inline float4 load_row4_bf16(const uint16_t *x, size_t i, size_t d, bool fast)
{
    if (fast)
        return load4_bf16(x, i);
    return make_float4(float_of_bf16(x[i]), i + 1 < d ? float_of_bf16(x[i + 1]) : 0,
                       i + 2 < d ? float_of_bf16(x[i + 2]) : 0, i + 3 < d ? float_of_bf16(x[i + 3]) : 0);
}

/* The sum over the warp of x, in every lane. */
template <class T> __device__ inline T warp_sum(T x)
{
    for (int bits = 16; bits > 0; bits /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, bits);
    return x;
}

/* The sum over the block of x, in every thread; `sums` is shared memory for one number a warp, which may be
 * used again after the next barrier. */
template <class T> __device__ inline T block_sum(T x, T *sums)
{
    x = warp_sum(x);
    __syncthreads(); /* sums may still be read from the last call */
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = x;
    __syncthreads();
    T total = 0;
    for (unsigned warp = 0; warp < blockDim.x / 32; warp++)
        total += sums[warp];
    return total;
}

#endif
