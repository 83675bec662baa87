/* Pooling of the value channels of a state, one block a token. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/state.cuh"

/* Dynamic shared memory: numbers of a chunk twice, then sums of channels and weights (c each). */
struct pool_memory {
    float *parts, *sums, *weights;

    __device__ pool_memory(float *memory, size_t c)
        : parts(memory), sums(memory + 8 * blockDim.x), weights(sums + c)
    {
    }
};

/* sums[j] = sum_i q_i X_ij of a token, after a barrier. */
__device__ inline void channel_sums(const state_shape &s, const float *X, const float *q, bool fast,
                                    const struct pool_memory &m)
{
    float4 own = splat4(0);
    for (unsigned k = 0; k < s.chunks; k++)
        own = fma4(s.load(X, k, fast), s.of_features(q, k), own);
    __syncthreads(); /* parts and sums may still be read */
    if (threadIdx.x < s.active)
        store4(m.parts, 4 * threadIdx.x, own);
    __syncthreads();
    sum_channels(s, 1, m.parts, m.sums);
    __syncthreads();
}

KERNEL(pool_fwd, 512, struct pool_args)
{
    DYNAMIC_SHARED(float, memory);
    const state_shape s(a.d, a.c);
    const struct pool_memory m(memory, a.c);
    const bool fast = s.fast(a.X);
    for (size_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        const float *X = a.X + n * s.numbers;
        if (a.w_a) {
            channel_sums(s, X, a.w_a, fast, m);
            const float scale = 1.0f / sqrtf(static_cast<float>(a.d));
            float top = -INFINITY, total = 0;
            for (unsigned j = 0; j < s.c; j++)
                top = fmaxf(top, m.sums[j] * scale);
            for (unsigned j = 0; j < s.c; j++)
                total += expf(m.sums[j] * scale - top);
            for (unsigned j = threadIdx.x; j < s.c; j += blockDim.x)
                a.a[n * s.c + j] = m.weights[j] = expf(m.sums[j] * scale - top) / total;
        } else {
            for (unsigned j = threadIdx.x; j < s.c; j += blockDim.x)
                m.weights[j] = 1.0f / static_cast<float>(s.c);
        }
        __syncthreads();
        float *z = a.z + n * a.d;
        for (unsigned k = 0; k < s.chunks; k++)
            sum_features(s, k, multiply4(s.load(X, k, fast), s.of_channels(m.weights)), m.parts,
                         [&](unsigned i, float sum) { z[i] = sum; });
        __syncthreads();
    }
}

/* With da_j = dz . X_:j: dscore_j = a_j (da_j - sum_l a_l da_l) / sqrt(d), dX_ij += dscore_j w_i + a_j dz_i;
 * dw_i sums dscore_j X_ij over channels and tokens, the latter in the block's row of partial sums. */
KERNEL(pool_bwd, 512, struct cuda_pool_grad)
{
    DYNAMIC_SHARED(float, memory);
    const struct pool_grad_args &op = a.op;
    const state_shape s(op.d, op.c);
    const struct pool_memory m(memory, op.c);
    const bool fast = s.fast(op.X, op.dX);
    float *partial = a.partial + blockIdx.x * op.d;
    for (size_t i = threadIdx.x; op.w_a && i < op.d; i += blockDim.x)
        partial[i] = 0;
    __syncthreads();
    for (size_t n = blockIdx.x; n < op.N; n += gridDim.x) {
        const float *X = op.X + n * s.numbers, *dz = op.dz + n * op.d;
        float *dX = op.dX + n * s.numbers;
        if (op.w_a) {
            channel_sums(s, X, dz, fast, m);
            float mean = 0;
            for (unsigned j = 0; j < s.c; j++)
                mean += op.a[n * s.c + j] * m.sums[j];
            const float scale = 1.0f / sqrtf(static_cast<float>(op.d));
            __syncthreads();
            for (unsigned j = threadIdx.x; j < s.c; j += blockDim.x) {
                m.weights[j] = op.a[n * s.c + j];
                m.sums[j] = m.weights[j] * (m.sums[j] - mean) * scale; /* dscore */
            }
        } else {
            for (unsigned j = threadIdx.x; j < s.c; j += blockDim.x)
                m.weights[j] = 1.0f / static_cast<float>(s.c);
        }
        __syncthreads();
        for (unsigned k = 0; k < s.chunks; k++) {
            float4 grad = fma4(s.of_channels(m.weights), s.of_features(dz, k), s.load(dX, k, fast));
            if (op.w_a) {
                const float4 dscore = s.of_channels(m.sums);
                grad = fma4(dscore, s.of_features(op.w_a, k), grad);
                sum_features(s, k, multiply4(s.load(X, k, fast), dscore), m.parts,
                             [&](unsigned i, float sum) { partial[i] += sum; });
            }
            s.store(dX, k, fast, grad);
        }
        __syncthreads();
    }
}
