/* Cross-entropy, whole or a tile of the vocabulary at a time, ranks of targets, and likeliest ids. A block
 * computes a row; each thread sums exponentials of its numbers relative to the largest so far, and threads
 * are added in double in a fixed order. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/vectors.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

struct softmax_sum {
    float top, total; /* sum of exp(z - top) */
};

__device__ inline float largest4(float4 v)
{
    return fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
}

/* Numbers i .. i + 3 of n, -infinity past the end. */
__device__ inline float4 logits4(const float *z, size_t i, size_t n, bool fast)
{
    const float none = -INFINITY;
    if (fast)
        return load4(z, i);
    return make_float4(z[i], i + 1 < n ? z[i + 1] : none, i + 2 < n ? z[i + 2] : none,
                       i + 3 < n ? z[i + 3] : none);
}

/* Of this thread's numbers. */
__device__ inline softmax_sum sum_of_thread(const float *z, size_t n, bool fast)
{
    softmax_sum s = { -INFINITY, 0 };
    for (size_t i = 4 * threadIdx.x; i < n; i += 4 * THREADS) {
        const float4 v = logits4(z, i, n, fast);
        const float top = fmaxf(s.top, largest4(v)), base = top == -INFINITY ? 0 : top;
        if (top > s.top)
            s.total *= expf(s.top - base);
        s.total += expf(v.x - base) + expf(v.y - base) + expf(v.z - base) + expf(v.w - base);
        s.top = top;
    }
    return s;
}

__device__ inline float block_largest(float x, float *shared)
{
    for (int bits = 16; bits > 0; bits /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, bits));
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = x;
    __syncthreads();
    for (unsigned warp = 0; warp < WARPS; warp++)
        x = fmaxf(x, shared[warp]);
    __syncthreads();
    return x;
}

/* A thread without numbers has no share, whatever the top is. */
__device__ inline double share_of(softmax_sum s, float top)
{
    return s.top == -INFINITY && !(s.total != s.total) ? 0 : static_cast<double>(s.total * expf(s.top - top));
}

/* The gradient of the loss for the logits z of columns `first` .. first + 3; factor: 1 / sum exp(z - top). */
__device__ inline float4 gradient4(float4 z, float top, float factor, float scale, int32_t target,
                                   size_t first)
{
    const float each[4] = { z.x, z.y, z.z, z.w };
    float g[4];
#pragma unroll
    for (unsigned k = 0; k < 4; k++) {
        const bool is_target = first + k == static_cast<size_t>(target);
        g[k] = target < 0 ? 0 : scale * (expf(each[k] - top) * factor - (is_target ? 1.0f : 0.0f));
    }
    return make_float4(g[0], g[1], g[2], g[3]);
}

KERNEL(cross_entropy, 256, struct cross_entropy_args)
{
    SHARED(float, tops, WARPS);
    SHARED(double, totals, WARPS);
    const bool fast = a.V % 4 == 0 && aligned16(a.z);
    for (size_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        float *z = a.z + n * a.V;
        const int32_t target = a.targets[n];
        const float at_target = target < 0 ? 0 : z[target];
        const softmax_sum s = sum_of_thread(z, a.V, fast);
        const float top = block_largest(s.top, tops);
        const double total = block_sum(share_of(s, top), totals); /* all threads have read at_target */
        if (threadIdx.x == 0)
            a.loss[n] =
                target < 0 ? 0 : static_cast<float>(log(total) + (static_cast<double>(top) - at_target));
        if (!a.grad)
            continue;
        const float scale = *a.grad_scale, factor = static_cast<float>(1 / total);
        for (size_t i = 4 * threadIdx.x; i < a.V; i += 4 * THREADS) {
            store_row4(z, i, a.V, fast, gradient4(logits4(z, i, a.V, fast), top, factor, scale, target, i));
        }
    }
}

KERNEL(loss_tile, 256, struct loss_tile_args)
{
    SHARED(float, tops, WARPS);
    SHARED(double, totals, WARPS);
    const bool fast = a.n % 4 == 0 && aligned16(a.z);
    for (size_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        const float *z = a.z + n * a.n;
        const float before = a.first ? a.top[n] : -INFINITY;
        const double total_before = a.first ? a.total[n] : 0;
        const softmax_sum s = sum_of_thread(z, a.n, fast);
        const float top = fmaxf(before, block_largest(s.top, tops));
        double total = block_sum(share_of(s, top), totals); /* all threads have read what was before */
        if (threadIdx.x != 0)
            continue;
        if (a.first)
            total += total_before * exp(static_cast<double>(before) - top);
        a.top[n] = top;
        a.total[n] = total;
        const int32_t target = a.targets[n];
        const size_t column = static_cast<size_t>(target) - a.first;
        if (target >= 0 && static_cast<size_t>(target) >= a.first && column < a.n)
            a.at_target[n] = z[column];
        if (a.loss)
            a.loss[n] =
                target < 0 ? 0 : static_cast<float>(log(total) + (static_cast<double>(top) - a.at_target[n]));
    }
}

KERNEL(loss_grad, 256, struct loss_grad_args)
{
    const bool fast = a.n % 4 == 0 && aligned16(a.z) && aligned8(a.dz);
    const float scale = *a.grad_scale;
    for (size_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        const float *z = a.z + n * a.n, top = a.top[n];
        const int32_t target = a.targets[n];
        const float factor = static_cast<float>(1 / a.total[n]);
        for (size_t i = 4 * threadIdx.x; i < a.n; i += 4 * THREADS) {
            const float4 v = logits4(z, i, a.n, fast);
            store_row4_bf16(a.dz + n * a.n, i, a.n, fast,
                            gradient4(v, top, factor, scale, target, a.first + i));
        }
    }
}

/* With t = z - top: entropy = log sum exp t - sum t exp t / sum exp t. */
KERNEL(rank, 256, struct rank_args)
{
    SHARED(float, tops, WARPS);
    SHARED(double, totals, WARPS);
    for (size_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        const float *z = a.z + n * a.V;
        const int32_t target = a.targets[n];
        const float at_target = target < 0 ? 0 : z[target];
        double above = 0;
        float top = -INFINITY;
        for (size_t i = threadIdx.x; i < a.V; i += THREADS) {
            const bool earlier = z[i] == at_target && i < static_cast<size_t>(target);
            above += z[i] > at_target || earlier ? 1 : 0;
            top = fmaxf(top, z[i]);
        }
        above = block_sum(above, totals);
        if (threadIdx.x == 0)
            a.rank[n] = target < 0 ? -1 : static_cast<int32_t>(above);
        if (!a.entropy)
            continue;
        top = block_largest(top, tops);
        double total = 0, weighted = 0;
        for (size_t i = threadIdx.x; i < a.V; i += THREADS) {
            const float t = z[i] - top, p = expf(t);
            total += p;
            weighted += static_cast<double>(t) * p;
        }
        total = block_sum(total, totals);
        weighted = block_sum(weighted, totals);
        if (threadIdx.x == 0)
            a.entropy[n] = static_cast<float>(log(total) - weighted / total);
    }
}

/* The place of an id in the order, later ones smaller; 0 for NaN. 0 and -0 are equal. */
__device__ inline unsigned long long place_of(float z, size_t id)
{
    const uint32_t bits = __float_as_uint(z + 0.0f), key = bits >> 31 ? ~bits : bits | 0x80000000u;
    return z != z ? 0 : static_cast<unsigned long long>(key) << 32 | ~static_cast<uint32_t>(id);
}

__device__ inline unsigned long long block_last(unsigned long long x, unsigned long long *shared)
{
    for (int bits = 16; bits > 0; bits /= 2) {
        const unsigned long long other = __shfl_xor_sync(ALL_LANES, x, bits);
        x = other > x ? other : x;
    }
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = x;
    __syncthreads();
    for (unsigned warp = 0; warp < WARPS; warp++)
        x = shared[warp] > x ? shared[warp] : x;
    __syncthreads();
    return x;
}

/* Each round finds the id that comes next in the order. */
KERNEL(likeliest, 256, struct likeliest_args)
{
    SHARED(float, tops, WARPS);
    SHARED(double, totals, WARPS);
    SHARED(unsigned long long, places, WARPS);
    const bool fast = a.V % 4 == 0 && aligned16(a.z);
    for (size_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        const float *z = a.z + n * a.V;
        const softmax_sum s = sum_of_thread(z, a.V, fast);
        const float top = block_largest(s.top, tops);
        const double total = block_sum(share_of(s, top), totals);
        unsigned long long before = ~0ull;
        for (size_t k = 0; k < a.k; k++) {
            unsigned long long next = 0;
            for (size_t i = threadIdx.x; i < a.V; i += THREADS) {
                const unsigned long long place = place_of(z[i], i);
                next = place < before && place > next ? place : next;
            }
            before = block_last(next, places);
            if (threadIdx.x != 0)
                continue;
            const uint32_t id = ~static_cast<uint32_t>(before);
            a.id[n * a.k + k] = before ? static_cast<int32_t>(id) : -1;
            a.logprob[n * a.k + k] =
                before ? static_cast<float>(static_cast<double>(z[id]) - top - log(total)) : 0;
        }
    }
}
