/* Attention over depth. A block has a row at a time: each warp computes the products of whole sources, then
 * the threads sum the sources column by column. depth_fwd reads them once if they fit into shared memory. */
#include "backend/cuda/kernels/columns.cuh"
#include "backend/cuda/kernels/kernels.h"

/* Fours of a row that a thread holds in registers, of rows of at most CUDA_SHORT_ROW numbers and of longer
 * ones: those after them are read again, or added up in memory. */
enum { THREADS = 128, WARPS = THREADS / 32, SHORT = CUDA_SHORT_ROW / (4 * THREADS), LONG = 8, UNALIGNED = 1 };

/* The first of the four numbers that this thread has, in turn j. */
__device__ inline size_t begin(unsigned j)
{
    return 4 * (threadIdx.x + THREADS * j);
}

/* Loops over the numbers that are not in registers. */
#define EACH_LATER_FOUR(i, d)                                                                                \
    _Pragma("unroll 1") for (size_t i = begin(F); F != SHORT && i < (d); i += 4 * THREADS)

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

/* sum_k + the sum over the sources of e_i v_i, of the fours that begin at column first(k). */
template <bool fast, unsigned F, class First>
__device__ inline void add_sources(const struct depth_args &fwd, const float *e, size_t n, First first,
                                   float4 (&sum)[F])
{
#pragma unroll(F == SHORT ? 4 : 1)
    for (size_t i = 0; i <= fwd.n; i++) {
        const float *v = source_row(fwd, i, n);
#pragma unroll
        for (unsigned k = 0; k < F; k++)
            if (first(k) < fwd.d)
                sum[k] = fma4(splat4(e[i]), load_row4(v, first(k), fwd.d, fast), sum[k]);
    }
}

/* Partial sums (grid, d) of dq. */
template <bool fast, unsigned F>
__device__ inline void depth_grads(const struct cuda_depth_grad &a, float *scores)
{
    const struct depth_args &fwd = a.op.fwd;
    const size_t sources = fwd.n + 1, d = fwd.d;
    float *dots = scores + sources, *rstds = dots + sources, *e = rstds + sources;
    float *partial = a.partial + blockIdx.x * d;
    float4 dq[F];
#pragma unroll
    for (unsigned k = 0; k < F; k++)
        dq[k] = splat4(0);
    EACH_LATER_FOUR(j, d)
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
        add_sources<fast, F>(fwd, e, n, begin, dq);
        EACH_LATER_FOUR(j, d)
        {
            float4 sum[1] = { load_row4(partial, j, d, false) };
            add_sources<fast, 1>(
                fwd, e, n, [&](unsigned) { return j; }, sum);
            store_row4(partial, j, d, false, sum[0]);
        }
    }
#pragma unroll
    for (unsigned k = 0; k < F; k++)
        if (begin(k) < d)
            store_row4(partial, begin(k), d, false, dq[k]);
}

template <unsigned F> __device__ inline void depth_grads(const struct cuda_depth_grad &a, float *scores)
{
    if (in_fours(a.op.fwd) && aligned16(a.op.dh))
        depth_grads<true, F>(a, scores);
    else
        depth_grads<false, UNALIGNED>(a, scores);
}

KERNEL(depth_bwd, 128, struct cuda_depth_grad)
{
    DYNAMIC_SHARED(float, scores);
    depth_grads<SHORT>(a, scores);
}

KERNEL(depth_bwd_long, 128, struct cuda_depth_grad)
{
    DYNAMIC_SHARED(float, scores);
    depth_grads<LONG>(a, scores);
}

/* Q_k += sum_s e_s q_s, of the fours that begin at column first(k). */
template <bool fast, unsigned F, class First>
__device__ inline void add_queries(const struct source_grad_args &a, size_t n, First first, float4 (&Q)[F])
{
#pragma unroll(F == SHORT ? 4 : 1)
    for (size_t s = 0; s < a.n; s++) {
        const float4 e = splat4(a.e[s * a.weights_stride + n * a.width]);
#pragma unroll
        for (unsigned k = 0; k < F; k++)
            if (first(k) < a.d)
                Q[k] = fma4(e, load_row4(a.q + s * a.d, first(k), a.d, fast), Q[k]);
    }
}

/* dv = sum_s alpha_s dh_s + Q - v `along` */
template <bool fast, unsigned F, class First>
__device__ inline void put_source_grad(const struct source_grad_args &a, size_t n, First first,
                                       const float4 (&v)[F], const float4 (&Q)[F], float along)
{
    const size_t row = n * a.d;
    float4 sum[F];
#pragma unroll
    for (unsigned k = 0; k < F; k++)
        sum[k] = a.accumulate && first(k) < a.d ? load_row4(a.dv + row, first(k), a.d, fast) : splat4(0);
#pragma unroll(F == SHORT ? 4 : 1)
    for (size_t s = 0; s < a.n; s++) {
        const float4 alpha = splat4(a.alpha[s * a.weights_stride + n * a.width]);
#pragma unroll
        for (unsigned k = 0; k < F; k++)
            if (first(k) < a.d)
                sum[k] = fma4(alpha, load_row4(a.dh + s * a.dh_stride + row, first(k), a.d, fast), sum[k]);
    }
#pragma unroll
    for (unsigned k = 0; k < F; k++)
        if (first(k) < a.d)
            put_row4(a.dv, a.dv16, row, first(k), a.d, fast, fma4(v[k], splat4(-along), add4(sum[k], Q[k])));
}

template <bool fast, unsigned F>
__device__ inline void source_grads(const struct source_grad_args &a, float *sums)
{
    const size_t d = a.d;
    for (size_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        const float *row = a.v + n * d;
        float4 v[F], Q[F];
        float squares = 0, with_Q = 0;
#pragma unroll
        for (unsigned k = 0; k < F; k++) {
            v[k] = begin(k) < d ? load_row4(row, begin(k), d, fast) : splat4(0);
            Q[k] = splat4(0);
        }
        add_queries<fast, F>(a, n, begin, Q);
#pragma unroll
        for (unsigned k = 0; k < F; k++) {
            squares += dot4(v[k], v[k]);
            with_Q += dot4(v[k], Q[k]);
        }
        EACH_LATER_FOUR(j, d)
        {
            const float4 x = load_row4(row, j, d, fast);
            float4 own[1] = { splat4(0) };
            add_queries<fast, 1>(
                a, n, [&](unsigned) { return j; }, own);
            squares += dot4(x, x);
            with_Q += dot4(x, own[0]);
        }
        const float mean = block_sum(squares, sums) / static_cast<float>(d);
        const float along = block_sum(with_Q, sums) / static_cast<float>(d) / (mean + a.eps);
        put_source_grad<fast, F>(a, n, begin, v, Q, along);
        EACH_LATER_FOUR(j, d)
        {
            const auto column = [&](unsigned) { return j; };
            const float4 x[1] = { load_row4(row, j, d, fast) };
            float4 own[1] = { splat4(0) };
            add_queries<fast, 1>(a, n, column, own);
            put_source_grad<fast, 1>(a, n, column, x, own, along);
        }
    }
}

template <unsigned F> __device__ inline void source_grads(const struct source_grad_args &a, float *sums)
{
    if (a.d % 4 == 0 && a.dh_stride % 4 == 0 && aligned16(a.v, a.q, a.dh, a.dv) && aligned8(a.dv16))
        source_grads<true, F>(a, sums);
    else
        source_grads<false, UNALIGNED>(a, sums);
}

KERNEL(source_bwd, 128, struct source_grad_args)
{
    SHARED(float, sums, WARPS);
    source_grads<SHORT>(a, sums);
}

KERNEL(source_bwd_long, 128, struct source_grad_args)
{
    SHARED(float, sums, WARPS);
    source_grads<LONG>(a, sums);
}
