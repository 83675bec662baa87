/* Sums in double, the clipping factor, and AdamW. Sums over parts of an array have three stages, each in an
 * order that depends on the sizes alone: blocks of a part, the blocks' sums of each part, the parts of each
 * sum. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/vectors.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

/* One block. */
KERNEL(sum, 256, struct sum_args)
{
    SHARED(double, sums, WARPS);
    double sum = 0;
    for (size_t i = threadIdx.x; i < a.n; i += THREADS)
        sum += static_cast<double>(a.x[i]);
    sum = block_sum(sum, sums);
    if (threadIdx.x == 0)
        *a.sum = sum;
}

/* Block b of each part's CUDA_PART_BLOCKS. */
KERNEL(part_squares, 256, struct cuda_part_squares)
{
    SHARED(double, sums, WARPS);
    const size_t part = blockIdx.x / CUDA_PART_BLOCKS, b = blockIdx.x % CUDA_PART_BLOCKS;
    const float *x = a.op.x + a.op.parts.begin[part];
    const size_t n = static_cast<size_t>(a.op.parts.size[part]);
    const size_t fours = aligned16(x) ? n / 4 : 0;
    double sum = 0;
    for (size_t i = b * THREADS + threadIdx.x; i < fours; i += CUDA_PART_BLOCKS * THREADS) {
        const float4 v = load4(x, 4 * i);
        sum += static_cast<double>(v.x) * v.x + static_cast<double>(v.y) * v.y +
               static_cast<double>(v.z) * v.z + static_cast<double>(v.w) * v.w;
    }
    for (size_t i = 4 * fours + b * THREADS + threadIdx.x; i < n; i += CUDA_PART_BLOCKS * THREADS)
        sum += static_cast<double>(x[i]) * x[i];
    if (b * THREADS < fours || 4 * fours + b * THREADS < n) /* most blocks of a small part have nothing */
        sum = block_sum(sum, sums);
    if (threadIdx.x == 0)
        a.partial[blockIdx.x] = sum;
}

/* One block: the sum of each part replaces the first of its blocks' sums, then each thread adds those of a
 * sum. */
KERNEL(list_squares, 256, struct cuda_part_squares)
{
    const size_t lane = threadIdx.x % 32;
    for (size_t part = threadIdx.x / 32; part < a.op.parts.n; part += WARPS) {
        double *blocks = a.partial + part * CUDA_PART_BLOCKS, sum = 0;
        for (size_t b = lane; b < CUDA_PART_BLOCKS; b += 32)
            sum += blocks[b];
        sum = warp_sum(sum);
        if (lane == 0)
            blocks[0] = sum;
    }
    __syncthreads();
    for (size_t into = threadIdx.x; into < a.op.sums; into += THREADS) {
        double sum = 0;
        for (size_t part = 0; part < a.op.parts.n; part++)
            if (static_cast<size_t>(a.op.into ? a.op.into[part] : 0) == into)
                sum += a.partial[part * CUDA_PART_BLOCKS];
        a.op.sum[into] = sum;
    }
}

/* One warp. */
KERNEL(clip, 32, struct clip_args)
{
    bool finite = isfinite(*a.square);
    for (size_t i = threadIdx.x; i < a.n; i += 32)
        finite = finite && isfinite(a.losses[i]);
    finite = __all_sync(ALL_LANES, finite);
    if (threadIdx.x == 0) {
        const double factor =
            a.clip > 0 ? fmin(1.0, static_cast<double>(a.clip) / (sqrt(*a.square) + 1e-6)) : 1.0;
        *a.factor = finite ? static_cast<float>(factor) : __uint_as_float(0x7fc00000u);
    }
}

/* Block b of each part's CUDA_PART_BLOCKS. */
KERNEL(adamw, 256, struct adamw_args)
{
    const float scale = *a.g_scale;
    if (isnan(scale))
        return;
    const size_t part = blockIdx.x / CUDA_PART_BLOCKS, b = blockIdx.x % CUDA_PART_BLOCKS;
    float *p = a.p + a.parts.begin[part], *m = a.m + a.moments[part], *v = a.v + a.moments[part];
    const float *g = a.g + a.parts.begin[part];
    uint16_t *p16 = a.p16 && a.copy[part] >= 0 ? a.p16 + a.copy[part] : nullptr;
    const float lr = static_cast<float>(a.rates[0] * static_cast<double>(a.lr_scale[part]));
    const float keep =
        static_cast<float>(1.0 - static_cast<double>(lr) * static_cast<double>(a.weight_decay[part]));
    const float bias1 = static_cast<float>(a.rates[1]), bias2 = static_cast<float>(a.rates[2]);
    /* 1 - beta in double: beta2 is near 1 */
    const float rest1 = static_cast<float>(1.0 - static_cast<double>(a.beta1));
    const float rest2 = static_cast<float>(1.0 - static_cast<double>(a.beta2));
    const size_t n = static_cast<size_t>(a.parts.size[part]);
    for (size_t i = b * THREADS + threadIdx.x; i < n; i += CUDA_PART_BLOCKS * THREADS) {
        const float grad = g[i] * scale;
        const float m_i = a.beta1 * m[i] + rest1 * grad;
        const float v_i = a.beta2 * v[i] + rest2 * grad * grad;
        m[i] = m_i;
        v[i] = v_i;
        p[i] = p[i] * keep - lr * (m_i / bias1) / (sqrtf(v_i / bias2) + a.eps);
        if (p16)
            p16[i] = bf16_of(p[i]);
    }
}
