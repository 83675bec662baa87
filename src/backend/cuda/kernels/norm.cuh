/* A row of RMSNorm, from global or shared memory. */
#ifndef DDL_CUDA_NORM_CUH
#define DDL_CUDA_NORM_CUH

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/products.cuh"

enum { NORM_THREADS = 128 }; /* that a row's numbers are divided among: norms.cu has the order of its sum */

struct norm_row {
    const struct rmsnorm_args &a;
    const float *from; /* the row, (d) */
    size_t row;        /* where it begins in y, y16 and x16 */
    bool fast;

    __device__ float4 x(size_t i) const
    {
        return load_row4(from, i, a.d, fast);
    }
    __device__ float rstd(float squares) const
    {
        return 1.0f / sqrtf(squares / static_cast<float>(a.d) + a.eps);
    }
    __device__ float4 w(size_t i) const
    {
        return load_row4(a.w, i, a.d, fast);
    }
    __device__ float4 y(size_t i, float4 x, float rstd) const
    {
        return multiply4(scale4(x, rstd), w(i));
    }
    __device__ void finish(size_t i, float4 x, float4 w, float rstd) const
    {
        const float4 y = multiply4(scale4(x, rstd), w);
        if (a.y)
            store_row4(a.y + row, i, a.d, fast, y);
        if (a.y16)
            store_row4_bf16(a.y16 + row, i, a.d, fast, y);
        if (a.x16)
            store_row4_bf16(a.x16 + row, i, a.d, fast, x);
    }
    __device__ void finish(size_t i, float4 x, float rstd) const
    {
        finish(i, x, w(i), rstd);
    }
};

/* Projects row n, which is in shared memory: a warp computes an output, and adds the columns as row_products
 * does. */
__device__ inline void project_row(const struct cuda_projected_norm &a, const norm_row &r, size_t n,
                                   float rstd)
{
    const unsigned lane = threadIdx.x % 32, warps = blockDim.x / 32;
    unsigned first = threadIdx.x / 32; /* output of this warp */
#pragma unroll
    for (unsigned p = 0; p < CUDA_NORM_PROJECTIONS; p++) {
        const struct project_args &project = a.project[p];
        const unsigned outputs = static_cast<unsigned>(project.c);
        const bool fast = project.d % 4 == 0 && aligned16(project.W);
        for (; first < outputs; first += warps) {
            float sum = 0;
            for (size_t i = 4 * lane; i < project.d; i += 4 * 32) {
                const float4 x = r.x(i), v = project.x == a.norm.x ? x : r.y(i, x, rstd);
                sum += dot4(v, load_row4(project.W + first * project.d, i, project.d, fast));
            }
            sum = warp_sum(sum);
            if (lane == 0)
                project.y[n * outputs + first] = projected(project, first, sum);
        }
        first -= outputs;
    }
}

/* The norm and the projections of row n, whose numbers i .. i + 3 are load(i), called once. `row`: shared
 * memory, (d). For NORM_THREADS threads. */
template <class Load>
__device__ inline void read_row(const struct cuda_projected_norm &a, size_t n, float *row, float *sums,
                                Load load)
{
    const struct rmsnorm_args &op = a.norm;
    const bool fast = op.d % 4 == 0 && aligned16(op.x, op.w, op.y) && aligned8(op.y16, op.x16);
    const norm_row r = { op, row, n * op.d, fast };
    float squares = 0;
    __syncthreads(); /* the row before is still read */
    for (size_t i = 4 * threadIdx.x; i < op.d; i += 4 * NORM_THREADS) {
        const float4 x = load(i);
        store_row4(row, i, op.d, fast, x);
        squares += dot4(x, x);
    }
    const float rstd = r.rstd(block_sum(squares, sums));
    for (size_t i = 4 * threadIdx.x; i < op.d; i += 4 * NORM_THREADS)
        r.finish(i, r.x(i), rstd);
    if (op.rstd && threadIdx.x == 0)
        op.rstd[n] = rstd;
    project_row(a, r, n, rstd);
}

#endif
