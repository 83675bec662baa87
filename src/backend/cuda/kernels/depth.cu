/* Attention over depth. A block has a row at a time: each warp computes the products of whole sources, then
 * the threads sum the sources column by column. depth_fwd reads them once if they fit into shared memory. */
#include "backend/cuda/kernels/columns.cuh"
#include "backend/cuda/kernels/kernels.h"

enum { THREADS = 128, WARPS = THREADS / 32, FOURS = 8 };

/* Row n of source i: a finished block, or the part after the last one. */
__device__ inline const float *source_row(const struct depth_args &a, size_t i, size_t n)
{
    return (i < a.n ? a.blocks + i * a.stride : a.part) + n * a.d;
}

__device__ inline bool in_fours(const struct depth_args &a)
{
    return a.d % 4 == 0 && a.stride % 4 == 0 && aligned16(a.blocks, a.part, a.q);
}

/* The products of a source, by one warp, in every lane; the score is r v . q. */
struct source_products {
    float mean_square, score, with_dh;
};

__device__ inline source_products products_of(const struct depth_args &a, const float *v, const float *dh,
                                              bool fast)
{
    float squares = 0, with_q = 0, with_dh = 0;
    for (size_t i = 4 * (threadIdx.x % 32); i < a.d; i += 4 * 32) {
        const float4 x = load_row4(v, i, a.d, fast);
        squares += dot4(x, x);
        with_q += dot4(x, load_row4(a.q, i, a.d, fast));
        if (dh)
            with_dh += dot4(x, load_row4(dh, i, a.d, fast));
    }
    const float mean = warp_sum(squares) / static_cast<float>(a.d);
    return { mean, warp_sum(with_q) / sqrtf(mean + a.eps), warp_sum(with_dh) };
}

/* The largest of n scores, and the sum of the exponentials relative to it. */
__device__ inline float top_of(const float *scores, size_t n, float *total)
{
    float top = scores[0];
    for (size_t i = 1; i < n; i++)
        top = fmaxf(top, scores[i]);
    *total = 0;
    for (size_t i = 0; i < n; i++)
        *total += expf(scores[i] - top);
    return top;
}

/* HELD: the sources are read once, into shared memory. */
template <bool HELD> __device__ inline void depth_fwd_of(const struct depth_args &a, float *scores, bool fast)
{
    const size_t sources = a.n + 1;
    const bool fast_h = a.d % 4 == 0 && aligned16(a.h);
    float *const weights = scores + sources, *const held = scores + CUDA_DEPTH_HELD(a.n);
    for (size_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        __syncthreads(); /* the last row's numbers are still read */
        if (HELD) {
            for (size_t i = threadIdx.x / 32; i < sources; i += WARPS)
                for (size_t j = 4 * (threadIdx.x % 32); j < a.d; j += 4 * 32)
                    cp_async_16(held + i * a.d + j, source_row(a, i, n) + j);
            cp_async_commit();
            cp_async_wait<0>(); /* products_of reads what the same thread has copied */
        }
        for (size_t i = threadIdx.x / 32; i < sources; i += WARPS) {
            const float *v = HELD ? held + i * a.d : source_row(a, i, n);
            const source_products p = products_of(a, v, nullptr, fast);
            if (threadIdx.x % 32 == 0) {
                scores[i] = p.score;
                if (a.rms)
                    a.rms[n * a.width + i] = sqrtf(p.mean_square);
            }
        }
        __syncthreads();
        float total;
        const float top = top_of(scores, sources, &total);
        for (size_t i = threadIdx.x; i < sources; i += THREADS)
            a.alpha[n * a.width + i] = weights[i] = expf(scores[i] - top) / total;
        __syncthreads();
        EACH_FOUR(j, a.d)
        {
            float4 h = splat4(0);
#pragma unroll 2 /* more take more registers */
            for (size_t i = 0; i < sources; i++) {
                const float *v = HELD ? held + i * a.d : source_row(a, i, n);
                h = fma4(splat4(weights[i]), load_row4(v, j, a.d, fast), h);
            }
            store_row4(a.h + n * a.d, j, a.d, fast_h, h);
        }
    }
}

KERNEL(depth_fwd, 128, struct cuda_depth)
{
    DYNAMIC_SHARED(float, scores);
    const bool fast = in_fours(a.op);
    if (a.held && fast)
        depth_fwd_of<true>(a.op, scores, true);
    else
        depth_fwd_of<false>(a.op, scores, fast);
}

/* sum + the sum over the sources of e_i v_i, columns j .. j + 3. */
__device__ inline float4 add_sources(const struct depth_args &fwd, const float *e, size_t n, size_t j,
                                     bool fast, float4 sum)
{
    for (size_t i = 0; i <= fwd.n; i++)
        sum = fma4(splat4(e[i]), load_row4(source_row(fwd, i, n), j, fwd.d, fast), sum);
    return sum;
}

/* Partial sums (grid, d) of dq. */
KERNEL(depth_bwd, 128, struct cuda_depth_grad)
{
    DYNAMIC_SHARED(float, scores);
    const struct depth_args &fwd = a.op.fwd;
    const size_t sources = fwd.n + 1, d = fwd.d;
    const bool fast = in_fours(fwd) && aligned16(a.op.dh);
    float *dots = scores + sources, *rstds = dots + sources, *e = rstds + sources;
    float *partial = a.partial + blockIdx.x * d;
    float4 dq[FOURS];
#pragma unroll
    for (unsigned k = 0; k < FOURS; k++)
        dq[k] = splat4(0);
    for (size_t j = 4 * (threadIdx.x + THREADS * FOURS); j < d; j += 4 * THREADS)
        store_row4(partial, j, d, false, splat4(0));
    for (size_t n = blockIdx.x; n < fwd.N; n += gridDim.x) {
        __syncthreads(); /* the last row's sums are still read */
        for (size_t i = threadIdx.x / 32; i < sources; i += WARPS) {
            const source_products p = products_of(fwd, source_row(fwd, i, n), a.op.dh + n * d, fast);
            if (threadIdx.x % 32 == 0) {
                scores[i] = p.score;
                dots[i] = p.with_dh;
                rstds[i] = 1 / sqrtf(p.mean_square + fwd.eps);
            }
        }
        __syncthreads();
        float total, mean = 0;
        const float top = top_of(scores, sources, &total);
        for (size_t i = 0; i < sources; i++)
            mean += expf(scores[i] - top) / total * dots[i];
        for (size_t i = threadIdx.x; i < sources; i += THREADS) {
            const float alpha = expf(scores[i] - top) / total;
            e[i] = alpha * (dots[i] - mean) * rstds[i];
            a.op.alpha[n * fwd.width + i] = alpha;
            a.op.e[n * fwd.width + i] = e[i];
        }
        __syncthreads();
#pragma unroll
        for (unsigned k = 0; k < FOURS; k++) {
            const size_t j = 4 * (threadIdx.x + THREADS * k);
            if (j < d)
                dq[k] = add_sources(fwd, e, n, j, fast, dq[k]);
        }
        for (size_t j = 4 * (threadIdx.x + THREADS * FOURS); j < d; j += 4 * THREADS)
            store_row4(partial, j, d, false,
                       add_sources(fwd, e, n, j, fast, load_row4(partial, j, d, false)));
    }
#pragma unroll
    for (unsigned k = 0; k < FOURS; k++) {
        const size_t j = 4 * (threadIdx.x + THREADS * k);
        if (j < d)
            store_row4(partial, j, d, false, dq[k]);
    }
}

/* Q of columns j .. j + 3: sum_s e_s q_s */
__device__ inline float4 queries_of(const struct source_grad_args &a, size_t n, size_t j, bool fast)
{
    float4 sum = splat4(0);
    for (size_t s = 0; s < a.n; s++)
        sum = fma4(splat4(a.e[s * a.weights_stride + n * a.width]), load_row4(a.q + s * a.d, j, a.d, fast),
                   sum);
    return sum;
}

/* dv = sum_s alpha_s dh_s + Q - v `along`, columns j .. j + 3 of row n. */
__device__ inline void put_source_grad(const struct source_grad_args &a, size_t n, size_t j, bool fast,
                                       float4 v, float4 Q, float along)
{
    float4 sum = a.accumulate ? load_row4(a.dv + n * a.d, j, a.d, fast) : splat4(0);
    for (size_t s = 0; s < a.n; s++)
        sum = fma4(splat4(a.alpha[s * a.weights_stride + n * a.width]),
                   load_row4(a.dh + s * a.dh_stride + n * a.d, j, a.d, fast), sum);
    put_row4(a.dv, a.dv16, n * a.d, j, a.d, fast, fma4(v, splat4(-along), add4(sum, Q)));
}

KERNEL(source_bwd, 128, struct source_grad_args)
{
    SHARED(float, sums, WARPS);
    const size_t d = a.d;
    const bool fast =
        d % 4 == 0 && a.dh_stride % 4 == 0 && aligned16(a.v, a.q, a.dh, a.dv) && aligned8(a.dv16);
    for (size_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        float4 v[FOURS], Q[FOURS];
        float squares = 0, with_Q = 0;
#pragma unroll
        for (unsigned k = 0; k < FOURS; k++) {
            const size_t j = 4 * (threadIdx.x + THREADS * k);
            v[k] = j < d ? load_row4(a.v + n * d, j, d, fast) : splat4(0);
            Q[k] = j < d ? queries_of(a, n, j, fast) : splat4(0);
            squares += dot4(v[k], v[k]);
            with_Q += dot4(v[k], Q[k]);
        }
        for (size_t j = 4 * (threadIdx.x + THREADS * FOURS); j < d; j += 4 * THREADS) {
            const float4 x = load_row4(a.v + n * d, j, d, fast);
            squares += dot4(x, x);
            with_Q += dot4(x, queries_of(a, n, j, fast));
        }
        const float mean = block_sum(squares, sums) / static_cast<float>(d);
        const float along = block_sum(with_Q, sums) / static_cast<float>(d) / (mean + a.eps);
#pragma unroll
        for (unsigned k = 0; k < FOURS; k++) {
            const size_t j = 4 * (threadIdx.x + THREADS * k);
            if (j < d)
                put_source_grad(a, n, j, fast, v[k], Q[k], along);
        }
        for (size_t j = 4 * (threadIdx.x + THREADS * FOURS); j < d; j += 4 * THREADS)
            put_source_grad(a, n, j, fast, load_row4(a.v + n * d, j, d, fast), queries_of(a, n, j, fast),
                            along);
    }
}
