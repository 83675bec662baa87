/* The streams of a token. A thread has four columns of all of them. */
#ifndef DDL_CUDA_STREAMS_CUH
#define DDL_CUDA_STREAMS_CUH

#include "backend/cuda/kernels/columns.cuh"
#include "backend/cuda/kernels/kernels.h"

/* Columns i .. i + 3 of the n streams of a token. */
struct columns_of_streams {
    float4 x[DDL_MAX_STREAMS];

    __device__ columns_of_streams(const float *X, size_t n, size_t i, size_t d, bool fast)
    {
#pragma unroll
        for (unsigned j = 0; j < DDL_MAX_STREAMS; j++)
            x[j] = j < n ? load_row4(X + j * d, i, d, fast) : splat4(0);
    }
    /* sum_j by_j X_:j, the weights `step` apart */
    __device__ float4 weighed(const float *by, size_t n, size_t step, float4 sum) const
    {
#pragma unroll
        for (unsigned j = 0; j < DDL_MAX_STREAMS; j++)
            if (j < n)
                sum = fma4(splat4(by[j * step]), x[j], sum);
        return sum;
    }
};

/* X'_:k = sum_j M_kj X_:j + b_k f of token t, and in `held`, shared memory (n, d), unless that is NULL. */
__device__ inline void write_streams(const struct streams_write_args &a, size_t t, float *held, bool fast)
{
    const size_t n = a.n, d = a.d;
    const float *b = a.w + t * n * (n + 2) + n, *M = b + n;
    EACH_FOUR(i, d)
    {
        const columns_of_streams X(a.X + t * n * d, n, i, d, fast);
        const float4 f = load_row4(a.f + t * d, i, d, fast);
        for (size_t k = 0; k < n; k++) {
            const float4 x = X.weighed(M + k * n, n, 1, scale4(f, b[k]));
            store_row4(a.X_out + (t * n + k) * d, i, d, fast, x);
            if (held)
                store_row4(held + k * d, i, d, fast, x);
        }
    }
}

/* Gradients of writing the streams of a token, which one thread adds up over its columns. */
struct stream_write_grads {
    float products[DDL_MAX_STREAMS][DDL_MAX_STREAMS + 1]; /* of dX'_:k with X_:j, and with f */

    __device__ stream_write_grads()
    {
#pragma unroll
        for (unsigned k = 0; k < DDL_MAX_STREAMS; k++)
#pragma unroll
            for (unsigned j = 0; j <= DDL_MAX_STREAMS; j++)
                products[k][j] = 0;
    }
    /* Columns i .. i + 3, of which gradient(k) is dX'_:k. Stores df, and x_in, which it returns, if that is
     * not NULL. */
    template <class Gradient>
    __device__ float4 add(const struct streams_write_grad_args &a, size_t t, size_t i, bool fast,
                          Gradient gradient)
    {
        const size_t n = a.n, d = a.d;
        const float *r = a.w + t * n * (n + 2), *b = r + n;
        const columns_of_streams X(a.X + t * n * d, n, i, d, fast);
        const float4 f = load_row4(a.f + t * d, i, d, fast);
        float4 df = splat4(0);
#pragma unroll
        for (unsigned k = 0; k < DDL_MAX_STREAMS; k++) {
            if (k >= n)
                continue;
            const float4 g = gradient(k);
            df = fma4(splat4(b[k]), g, df);
            products[k][DDL_MAX_STREAMS] += dot4(g, f);
#pragma unroll
            for (unsigned j = 0; j < DDL_MAX_STREAMS; j++)
                products[k][j] += dot4(g, X.x[j]);
        }
        put_row4(a.df, a.df16, t * d, i, d, fast, df);
        if (!a.x_in)
            return splat4(0);
        const float4 x_in = X.weighed(r, n, 1, splat4(0));
        store_row4(a.x_in + t * d, i, d, fast, x_in);
        return x_in;
    }
    /* Stores dM and db: the sums over the columns, of each of the WARPS warps in `sums`, (WARPS, MOST, MOST +
     * 1) in shared memory, first. */
    template <unsigned WARPS>
    __device__ void finish(const struct streams_write_grad_args &a, size_t t, float *sums) const
    {
        enum : unsigned { MOST = DDL_MAX_STREAMS };
        const size_t n = a.n;
        float *db = a.dw + t * n * (n + 2) + n;
        __syncthreads(); /* the last token's sums are still read */
#pragma unroll
        for (unsigned k = 0; k < MOST; k++)
#pragma unroll
            for (unsigned j = 0; j <= MOST; j++) {
                if (k >= n || (j >= n && j != MOST))
                    continue;
                const float sum = warp_sum(products[k][j]);
                if (threadIdx.x % 32 == 0)
                    sums[(threadIdx.x / 32 * MOST + k) * (MOST + 1) + j] = sum;
            }
        __syncthreads();
        for (unsigned at = threadIdx.x; at < n * (n + 1); at += 32 * WARPS) {
            const unsigned k = at / static_cast<unsigned>(n + 1), j = at - k * static_cast<unsigned>(n + 1);
            float sum = 0;
            for (unsigned warp = 0; warp < WARPS; warp++)
                sum += sums[(warp * MOST + k) * (MOST + 1) + (j == n ? MOST : j)];
            (j == n ? db[k] : db[n + k * n + j]) = sum;
        }
    }
};

#endif
