/* RMSNorm. A block computes a row at a time. Thread t sums the numbers 4 (t + 128 j) .. 4 (t + 128 j) + 3, j
 * = 0, 1, ..., in this order, so that a row's bits do not depend on where it is in memory. A thread reads F
 * fours of a row once, into registers, all before it uses the first; the numbers after them are read again
 * for the result. Kernels whose name does not end in _long have rows of at most CUDA_SHORT_ROW numbers. */
#include "backend/cuda/kernels/norm.cuh"

enum { THREADS = NORM_THREADS, SHORT = CUDA_SHORT_ROW / (4 * THREADS), LONG = 8, UNALIGNED = 1 };

/* The first of the four numbers that this thread has, in turn j. */
__device__ inline size_t begin(size_t j)
{
    return 4 * (threadIdx.x + THREADS * j);
}

/* Loops over the numbers that are not in registers. */
#define EACH_LATER_FOUR(i, d)                                                                                \
    _Pragma("unroll 1") for (size_t i = begin(F); F != SHORT && i < (d); i += 4 * THREADS)

template <bool fast, unsigned F> __device__ inline void norm_rows(const struct rmsnorm_args &a, float *sums)
{
    for (size_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        const norm_row r = { a, a.x + n * a.d, n * a.d, fast };
        float4 x[F], w[F];
        float squares = 0;
#pragma unroll
        for (unsigned j = 0; j < F; j++) {
            x[j] = begin(j) < a.d ? r.x(begin(j)) : splat4(0);
            w[j] = begin(j) < a.d ? r.w(begin(j)) : splat4(0);
        }
#pragma unroll
        for (unsigned j = 0; j < F; j++)
            squares += dot4(x[j], x[j]);
        EACH_LATER_FOUR(i, a.d)
        squares += dot4(r.x(i), r.x(i));
        const float rstd = r.rstd(block_sum(squares, sums));
#pragma unroll
        for (unsigned j = 0; j < F; j++)
            if (begin(j) < a.d)
                r.finish(begin(j), x[j], w[j], rstd);
        EACH_LATER_FOUR(i, a.d)
        r.finish(i, r.x(i), rstd);
        if (a.rstd && threadIdx.x == 0)
            a.rstd[n] = rstd;
    }
}

template <unsigned F> __device__ inline void norm_rows(const struct rmsnorm_args &a, float *sums)
{
    if (a.d % 4 == 0 && aligned16(a.x, a.w, a.y) && aligned8(a.y16, a.x16))
        norm_rows<true, F>(a, sums);
    else
        norm_rows<false, UNALIGNED>(a, sums);
}

KERNEL(rmsnorm_fwd, 128, struct rmsnorm_args)
{
    SHARED(float, sums, THREADS / 32);
    norm_rows<SHORT>(a, sums);
}

KERNEL(rmsnorm_fwd_long, 128, struct rmsnorm_args)
{
    SHARED(float, sums, THREADS / 32);
    norm_rows<LONG>(a, sums);
}

KERNEL(projected_norm_fwd, 128, struct cuda_projected_norm)
{
    DYNAMIC_SHARED(float, row); /* (d) */
    SHARED(float, sums, THREADS / 32);
    const struct rmsnorm_args &op = a.norm;
    const bool fast = op.d % 4 == 0 && aligned16(op.x);
    for (size_t n = blockIdx.x; n < op.N; n += gridDim.x)
        read_row(a, n, row, sums, [&](size_t i) { return load_row4(op.x + n * op.d, i, op.d, fast); });
}

/* dx = rstd (w dy - x rstd^2 mean(w dy x)) */
struct backward_row {
    const struct rmsnorm_grad_args &a;
    size_t row;
    bool fast;
    float rstd;

    __device__ float4 x(size_t i) const
    {
        return load_row4(a.x + row, i, a.d, fast);
    }
    __device__ float4 dy(size_t i) const
    {
        return load_row4(a.dy + row, i, a.d, fast);
    }
    __device__ float4 w(size_t i) const
    {
        return load_row4(a.w, i, a.d, fast);
    }
    /* What is added to. */
    __device__ float4 old(size_t i) const
    {
        return a.accumulate ? load_row4(a.dx + row, i, a.d, fast) : splat4(0);
    }
    __device__ float4 dx(float4 x, float4 dy, float4 w, float4 old, float factor) const
    {
        const float4 dx = fma4(dy, w, scale4(x, -factor));
        return a.accumulate ? fma4(dx, splat4(rstd), old) : scale4(dx, rstd);
    }
    __device__ void store(size_t i, float4 dx) const
    {
        if (a.dx)
            store_row4(a.dx + row, i, a.d, fast, dx);
        if (a.dx16)
            store_row4_bf16(a.dx16 + row, i, a.d, fast, dx);
    }
};

/* The rows b, b + grid, ... of block b, with partial sums of dw = dy x rstd. */
template <bool fast, unsigned F>
__device__ inline void norm_grads(const struct cuda_rmsnorm_grad &a, float *sums)
{
    const struct rmsnorm_grad_args &op = a.op;
    const size_t d = op.d;
    float *partial = a.partial + blockIdx.x * d;
    float4 dw[F];
#pragma unroll
    for (unsigned j = 0; j < F; j++)
        dw[j] = splat4(0);
    EACH_LATER_FOUR(i, d)
    store_row4(partial, i, d, false, splat4(0));
    for (size_t n = blockIdx.x; n < op.N; n += gridDim.x) {
        const backward_row r = { op, n * d, fast, op.rstd[n] };
        float4 x[F], dy[F], w[F], old[F];
        float dot = 0;
#pragma unroll
        for (unsigned j = 0; j < F; j++) {
            const bool in = begin(j) < d;
            x[j] = in ? r.x(begin(j)) : splat4(0);
            dy[j] = in ? r.dy(begin(j)) : splat4(0);
            w[j] = in ? r.w(begin(j)) : splat4(0);
            old[j] = in ? r.old(begin(j)) : splat4(0);
        }
#pragma unroll
        for (unsigned j = 0; j < F; j++) {
            const float4 product = multiply4(x[j], dy[j]);
            dot += dot4(product, w[j]);
            dw[j] = add4(dw[j], scale4(product, r.rstd));
        }
        EACH_LATER_FOUR(i, d)
        {
            const float4 product = multiply4(r.x(i), r.dy(i));
            dot += dot4(product, r.w(i));
            store_row4(partial, i, d, false, add4(load_row4(partial, i, d, false), scale4(product, r.rstd)));
        }
        const float factor = r.rstd * r.rstd * (block_sum(dot, sums) / static_cast<float>(d));
#pragma unroll
        for (unsigned j = 0; j < F; j++)
            if (begin(j) < d)
                r.store(begin(j), r.dx(x[j], dy[j], w[j], old[j], factor));
        EACH_LATER_FOUR(i, d)
        r.store(i, r.dx(r.x(i), r.dy(i), r.w(i), r.old(i), factor));
    }
#pragma unroll
    for (unsigned j = 0; j < F; j++)
        if (begin(j) < d)
            store_row4(partial, begin(j), d, d % 4 == 0 && aligned16(partial), dw[j]);
}

template <unsigned F> __device__ inline void norm_grads(const struct cuda_rmsnorm_grad &a, float *sums)
{
    const struct rmsnorm_grad_args &op = a.op;
    if (op.d % 4 == 0 && aligned16(op.x, op.w, op.dy, op.dx) && aligned8(op.dx16))
        norm_grads<true, F>(a, sums);
    else
        norm_grads<false, UNALIGNED>(a, sums);
}

KERNEL(rmsnorm_bwd, 128, struct cuda_rmsnorm_grad)
{
    SHARED(float, sums, THREADS / 32);
    norm_grads<SHORT>(a, sums);
}

KERNEL(rmsnorm_bwd_long, 128, struct cuda_rmsnorm_grad)
{
    SHARED(float, sums, THREADS / 32);
    norm_grads<LONG>(a, sums);
}

/* ---- with projections ---- */

enum { FEW = CUDA_PROJECTED_WIDTH / (4 * THREADS), OUTPUTS = CUDA_PROJECTED_OUTPUTS };

/* A projection and this thread's part of the sums of its gradients. */
template <bool fast> struct projection {
    const struct project_grad_args &op;
    float4 dW[OUTPUTS][FEW];
    float db[OUTPUTS];

    __device__ explicit projection(const struct project_grad_args &op) : op(op)
    {
#pragma unroll
        for (unsigned p = 0; p < OUTPUTS; p++) {
            db[p] = 0;
#pragma unroll
            for (unsigned j = 0; j < FEW; j++)
                dW[p][j] = splat4(0);
        }
    }
    /* Row n of its input is x; adds to dx. */
    __device__ void add(size_t n, const float4 *x, float4 *dx)
    {
#pragma unroll
        for (unsigned p = 0; p < OUTPUTS; p++) {
            if (p >= op.c)
                continue;
            const float dz = logit_grad(op, n * op.c + p);
#pragma unroll
            for (unsigned j = 0; j < FEW; j++) {
                if (begin(j) >= op.d)
                    continue;
                dx[j] = fma4(splat4(dz), load_row4(op.W + p * op.d, begin(j), op.d, fast), dx[j]);
                dW[p][j] = fma4(splat4(dz), x[j], dW[p][j]);
            }
            db[p] += dz;
        }
    }
    /* The sums to partial (c d + c); returns where these end. */
    __device__ float *store(float *partial) const
    {
#pragma unroll
        for (unsigned p = 0; p < OUTPUTS; p++) {
            if (p >= op.c)
                continue;
#pragma unroll
            for (unsigned j = 0; j < FEW; j++)
                if (begin(j) < op.d)
                    store_row4(partial + p * op.d, begin(j), op.d, false, dW[p][j]);
            if (threadIdx.x == 0)
                partial[op.c * op.d + p] = db[p];
        }
        return partial + op.c * op.d + op.c;
    }
};

/* The rows of rmsnorm_bwd's blocks. */
template <bool fast>
__device__ inline void projected_norm_grads(const struct cuda_projected_norm_grad &a, float *sums)
{
    const struct rmsnorm_grad_args &op = a.op;
    const size_t d = op.d, width = a.normalized.c * (d + 1) + d + a.row.c * (d + 1);
    projection<fast> normalized(a.normalized), row(a.row);
    float4 dw[FEW];
#pragma unroll
    for (unsigned j = 0; j < FEW; j++)
        dw[j] = splat4(0);
    for (size_t n = blockIdx.x; n < op.N; n += gridDim.x) {
        const backward_row r = { op, n * d, fast, op.rstd[n] };
        float4 x[FEW], w[FEW], y[FEW], dy[FEW], dx[FEW];
#pragma unroll
        for (unsigned j = 0; j < FEW; j++) {
            const bool in = begin(j) < d;
            x[j] = in ? r.x(begin(j)) : splat4(0);
            dy[j] = in ? r.dy(begin(j)) : splat4(0);
            w[j] = in ? r.w(begin(j)) : splat4(0);
            dx[j] = in ? r.old(begin(j)) : splat4(0);
            /* Read, since a stream that was taken back does not give the same bits. */
            y[j] = in && a.normalized.c ? load_row4(a.normalized.x + r.row, begin(j), d, fast) : splat4(0);
        }
        normalized.add(n, y, dy);
        float dot = 0;
#pragma unroll
        for (unsigned j = 0; j < FEW; j++) {
            const float4 product = multiply4(x[j], dy[j]);
            dot += dot4(product, w[j]);
            dw[j] = add4(dw[j], scale4(product, r.rstd));
        }
        const float factor = r.rstd * r.rstd * (block_sum(dot, sums) / static_cast<float>(d));
#pragma unroll
        for (unsigned j = 0; j < FEW; j++)
            dx[j] = r.dx(x[j], dy[j], w[j], dx[j], factor);
        row.add(n, x, dx);
#pragma unroll
        for (unsigned j = 0; j < FEW; j++) {
            if (begin(j) >= d)
                continue;
            r.store(begin(j), dx[j]);
            if (a.row.c && a.row.dx16)
                store_row4_bf16(a.row.dx16 + r.row, begin(j), d, fast, dx[j]);
        }
    }
    float *partial = normalized.store(a.partial + blockIdx.x * width);
#pragma unroll
    for (unsigned j = 0; j < FEW; j++)
        if (begin(j) < d)
            store_row4(partial, begin(j), d, false, dw[j]);
    row.store(partial + d);
}

KERNEL(projected_norm_bwd, 128, struct cuda_projected_norm_grad)
{
    SHARED(float, sums, THREADS / 32);
    const struct rmsnorm_grad_args &op = a.op;
    if (op.d % 4 == 0 && aligned16(op.x, op.w, op.dy, op.dx) && aligned8(op.dx16, a.row.dx16) &&
        aligned16(a.normalized.x, a.normalized.W, a.row.W))
        projected_norm_grads<true>(a, sums);
    else
        projected_norm_grads<false>(a, sums);
}

/* ---- sums over blocks ---- */

/* A block has CUDA_SUMMED_COLUMNS columns at a time. Its warp w adds the partial sums w, w + 8, ..., and
 * reads AT_ONCE of them before it adds the first. */
KERNEL(add_columns, 256, struct cuda_columns)
{
    enum { WARPS = 8, AT_ONCE = 8 };
    SHARED(float, sums, WARPS *CUDA_SUMMED_COLUMNS);
    const unsigned lane = threadIdx.x % CUDA_SUMMED_COLUMNS, warp = threadIdx.x / CUDA_SUMMED_COLUMNS;
    for (size_t first = blockIdx.x * static_cast<size_t>(CUDA_SUMMED_COLUMNS); first < a.width;
         first += gridDim.x * static_cast<size_t>(CUDA_SUMMED_COLUMNS)) {
        const size_t i = first + lane;
        float sum = 0;
        for (size_t b = warp; i < a.width && b < a.blocks; b += AT_ONCE * WARPS) {
            const float *from = a.partial + b * a.stride + i;
            const size_t left = a.blocks - b;
            float part[AT_ONCE];
#pragma unroll
            for (unsigned k = 0; k < AT_ONCE; k++, from += WARPS * a.stride)
                part[k] = k * WARPS < left ? *from : 0;
#pragma unroll
            for (unsigned k = 0; k < AT_ONCE; k++)
                sum += part[k];
        }
        sums[threadIdx.x] = sum;
        __syncthreads();
        if (warp == 0 && i < a.width) {
            for (unsigned w = 1; w < WARPS; w++)
                sum += sums[w * CUDA_SUMMED_COLUMNS + lane];
            a.y[i] += sum;
        }
        __syncthreads();
    }
}
