/* Kernels that test the emulator: correct ones, and one for each kind of fault that it must find. nvcc
 * compiles them too. emulator.sh finds the lines that a report must name by the comments "fault: NAME". */
#include "backend/cuda/kernels/device.cuh"
#include "kernels.h"

#define ALL 0xffffffffu

/* The sum of a row by one block: shuffles within a warp, shared memory between warps. */
KERNEL(row_sum, 256, struct rows)
{
    SHARED(float, sums, 8);
    const float *x = a.x + static_cast<size_t>(blockIdx.x) * a.columns;
    float sum = 0;
    for (unsigned i = threadIdx.x; i < a.columns; i += blockDim.x)
        sum += x[i];
    for (int bits = 16; bits > 0; bits /= 2)
        sum += __shfl_xor_sync(ALL, sum, bits);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0;
        for (unsigned i = 0; i < blockDim.x / 32; i++)
            total += sums[i];
        a.y[blockIdx.x] = total;
    }
}

/* One lane's view of the warp operations: 8 results a lane. */
KERNEL(warp_operations, 32, struct rows)
{
    const int lane = static_cast<int>(threadIdx.x);
    float *y = a.y + 8 * lane;
    y[0] = __shfl_sync(ALL, a.x[lane], 5);
    y[1] = __shfl_xor_sync(ALL, a.x[lane], 3);
    y[2] = __shfl_up_sync(ALL, a.x[lane], 2);
    y[3] = __shfl_down_sync(ALL, a.x[lane], 2, 8);
    y[4] = static_cast<float>(__ballot_sync(ALL, lane % 3 == 0) >> 16);
    y[5] = __any_sync(ALL, lane == 7) && !__all_sync(ALL, lane != 7);
    const unsigned half = lane < 16 ? 0xffffu : 0xffff0000u; /* two groups with operations of their own */
    y[6] = lane < 16 ? __shfl_xor_sync(half, a.x[lane], 1) : __shfl_sync(half, a.x[lane], 31);
    __syncwarp(half);
    y[7] = float_of_bf16(bf16_of(a.x[lane]));
}

/* c (16, 8) = a (16, 16) b (16, 8), with a and b (as its transpose) in shared memory in bfloat16; the second
 * tile of a is copied while nothing waits for it. */
KERNEL(product, 32, struct product_arguments)
{
    SHARED(uint16_t, left, 16 * 16);
    SHARED(uint16_t, right, 16 * 16);
    const unsigned lane = threadIdx.x;
    cp_async_16(left + 8 * lane, a.a + 8 * lane);
    cp_async_commit();
    cp_async_16(right + 8 * lane, a.b + 8 * lane);
    cp_async_commit();
    cp_async_wait<1>();
    __syncwarp();
    uint32_t left_fragment[4], right_fragment[4];
    ldmatrix_x4(left_fragment, left + lane % 16 * 16 + lane / 16 * 8);
    cp_async_wait<0>();
    __syncwarp();
    ldmatrix_x4_transposed(right_fragment, right + lane % 16 * 16 + lane / 16 * 8);
    float d[4] = { 0, 0, 0, 0 };
    mma_bf16_16x8x16(d, left_fragment, right_fragment);
    for (unsigned i = 0; i < 4; i++)
        a.c[(lane / 4 + 8 * (i / 2)) * 8 + 2 * (lane % 4) + i % 2] = d[i];
}

/* Loads and stores of 16 bytes. */
KERNEL(vectors, 256, struct rows)
{
    DYNAMIC_SHARED(float4, tile);
    tile[threadIdx.x] = reinterpret_cast<const float4 *>(a.x)[threadIdx.x];
    __syncthreads();
    reinterpret_cast<float4 *>(a.y)[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

/* How often each number is in a row, -48 .. 48: counted by all threads at once. */
KERNEL(histogram, 256, struct rows)
{
    SHARED(unsigned, counts, 97);
    SHARED(unsigned, total, 1);
    for (unsigned i = threadIdx.x; i < 97; i += blockDim.x)
        counts[i] = 0;
    if (threadIdx.x == 0)
        total[0] = 0;
    __syncthreads();
    unsigned own = 0; /* the old values: 0, 1, ... of each number in some order */
    for (unsigned i = threadIdx.x; i < a.columns; i += blockDim.x)
        own += atomicAdd(&counts[static_cast<int>(a.x[i]) + 48], 1u);
    atomicAdd(&total[0], own);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < 97; i += blockDim.x)
        a.y[i] = static_cast<float>(counts[i]);
    if (threadIdx.x == 0)
        a.y[97] = static_cast<float>(total[0]);
}

KERNEL(missing_barrier, 256, struct rows)
{
    SHARED(float, sums, 256);
    sums[threadIdx.x] = a.x[threadIdx.x]; /* fault: missing_barrier */
    a.y[threadIdx.x] = sums[blockDim.x - 1 - threadIdx.x];
}

KERNEL(missing_warp_barrier, 32, struct rows)
{
    SHARED(float, tile, 32);
    tile[threadIdx.x] = a.x[threadIdx.x];                          /* fault: missing_warp_barrier */
    const float other = __shfl_xor_sync(ALL, a.x[threadIdx.x], 1); /* which does not order memory */
    a.y[threadIdx.x] = other + tile[threadIdx.x ^ 1];
}

KERNEL(racing_blocks, 32, struct rows)
{
    if (threadIdx.x == blockIdx.x)
        a.y[0] = a.x[threadIdx.x]; /* fault: racing_blocks */
}

KERNEL(racing_blocks_after_barrier, 32, struct rows)
{
    SHARED(float, tile, 32);
    tile[threadIdx.x] = a.x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0)
        a.y[0] = tile[blockIdx.x]; /* fault: racing_blocks_after_barrier */
}

KERNEL(missing_wait, 32, struct rows)
{
    SHARED(float, tile, 4 * 32);
    cp_async_16(tile + 4 * threadIdx.x, a.x + 4 * threadIdx.x);
    cp_async_commit();
    a.y[threadIdx.x] = tile[4 * threadIdx.x];
    cp_async_wait<0>();
}

KERNEL(never_waited, 32, struct rows)
{
    SHARED(float, tile, 4 * 32);
    cp_async_16(tile + 4 * threadIdx.x, a.x + 4 * threadIdx.x);
    cp_async_commit();
    a.y[threadIdx.x] = 0;
}

KERNEL(uninitialized_shared, 256, struct rows)
{
    SHARED(float, sums, 256);
    if (threadIdx.x % 2 == 0)
        sums[threadIdx.x] = a.x[threadIdx.x];
    a.y[threadIdx.x] = sums[threadIdx.x];
}

KERNEL(shared_overflow, 256, struct rows)
{
    SHARED(float, sums, 32);
    SHARED(float, other, 32);
    if (threadIdx.x < 33)
        sums[threadIdx.x] = a.x[threadIdx.x]; /* fault: shared_overflow */
    if (threadIdx.x < 32)
        other[threadIdx.x] = 0;
    __syncthreads();
    a.y[threadIdx.x] = sums[threadIdx.x % 32] + other[threadIdx.x % 32];
}

KERNEL(shared_underflow, 32, struct rows)
{
    SHARED(float, sums, 32);
    if (threadIdx.x < 31)
        sums[static_cast<int>(threadIdx.x) - 1] = a.x[threadIdx.x]; /* fault: shared_underflow */
    __syncthreads();
    a.y[threadIdx.x] = threadIdx.x < 30 ? sums[threadIdx.x] : 0;
}

KERNEL(much_shared, 256, struct rows)
{
    SHARED(float, sums, 8 * 256);
    SHARED(float, other, 1); /* fault: much_shared */
    sums[threadIdx.x] = a.x[threadIdx.x];
    if (threadIdx.x == 0)
        other[0] = 0;
    __syncthreads();
    a.y[threadIdx.x] = sums[threadIdx.x] + other[0];
}

KERNEL(global_overflow, 256, struct rows)
{
    a.y[threadIdx.x + a.columns] = a.x[threadIdx.x]; /* fault: global_overflow */
}

KERNEL(misaligned_vector, 32, struct rows)
{
    const float4 v = *reinterpret_cast<const float4 *>(a.x + 1); /* fault: misaligned_vector */
    a.y[threadIdx.x] = v.x;
}

KERNEL(misaligned_copy, 32, struct rows)
{
    SHARED(float, tile, 4 * 32);
    cp_async_16(tile + 4 * threadIdx.x, a.x + 4 * threadIdx.x + 1); /* fault: misaligned_copy */
    cp_async_commit();
    cp_async_wait<0>();
    a.y[threadIdx.x] = tile[4 * threadIdx.x];
}

KERNEL(matrix_in_global, 32, struct rows)
{
    uint32_t r[4];
    ldmatrix_x4(r, a.x + 4 * threadIdx.x); /* fault: matrix_in_global */
    a.y[threadIdx.x] = __uint_as_float(r[0]);
}

KERNEL(divergent_barrier, 256, struct rows)
{
    a.y[threadIdx.x] = a.x[threadIdx.x];
    if (threadIdx.x < 7)
        __syncthreads(); /* fault: divergent_barrier */
}

KERNEL(two_barriers, 256, struct rows)
{
    if (threadIdx.x < 128)
        __syncthreads(); /* fault: two_barriers */
    else
        __syncthreads();
    a.y[threadIdx.x] = a.x[threadIdx.x];
}

KERNEL(wrong_lane, 32, struct rows)
{
    if (threadIdx.x < 16)
        a.y[threadIdx.x] = __shfl_xor_sync(0xffffu, a.x[threadIdx.x], 16); /* fault: wrong_lane */
}

KERNEL(wrong_mask, 32, struct rows)
{
    if (threadIdx.x < 16)
        a.y[threadIdx.x] = __shfl_xor_sync(0xffu, a.x[threadIdx.x], 1); /* fault: wrong_mask */
}

KERNEL(ended_lane, 32, struct rows)
{
    if (threadIdx.x >= 16)
        return;
    __syncwarp(0xffffu);
    a.y[threadIdx.x] = __shfl_xor_sync(ALL, a.x[threadIdx.x], 1); /* fault: ended_lane */
}

KERNEL(absent_lane, 24, struct rows)
{
    a.y[threadIdx.x] = __shfl_xor_sync(ALL, a.x[threadIdx.x], 1); /* fault: absent_lane */
}

KERNEL(waiting_lanes, 32, struct rows)
{
    if (threadIdx.x < 16)
        __syncwarp(); /* fault: waiting_lanes */
    else
        __syncthreads();
    a.y[threadIdx.x] = a.x[threadIdx.x];
}
