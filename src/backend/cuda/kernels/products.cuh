/* Products of rows with a few weight rows that all rows share. A warp computes OUTPUTS products of
 * PRODUCT_ROWS rows at a time: lane l adds the columns 4 l, 4 l + 128, ..., so that a row's bits depend on
 * its width alone. */
#ifndef DDL_CUDA_PRODUCTS_CUH
#define DDL_CUDA_PRODUCTS_CUH

#include "backend/cuda/kernels/vectors.cuh"
#include "ops/args.h"

enum {
    PRODUCT_ROWS = 4,
    PRODUCT_OUTPUTS = 32 / PRODUCT_ROWS
}; /* a lane has one of the products at the end */
enum {
    PRODUCT_MANY = 3 * PRODUCT_OUTPUTS
}; /* of rows that are read once for as many as mhc's four streams have */

/* The gradient of output `at` before the sigmoid: with y = s sigma(z), sigma' = sigma (1 - sigma). */
__device__ inline float logit_grad(const struct project_grad_args &op, size_t at)
{
    const float dy = op.dy[at], y = op.y[at];
    return op.sigmoid ? dy * y * (1 - y / op.scale) : dy;
}

/* Output j of a projection whose product is known. */
__device__ inline float projected(const struct project_args &a, size_t j, float product)
{
    const float z = product + a.b[j];
    return a.sigmoid ? a.scale / (1 + expf(-z)) : z;
}

/* Calls done(row, o, x_row . W_o) once for every row < rows and o < outputs, in one lane, and squares(row,
 * x_row . x_row). x (rows, width), W (outputs, width). OUTPUTS is a multiple of PRODUCT_OUTPUTS. */
template <unsigned OUTPUTS, class Done, class Squares>
__device__ inline void row_products(size_t rows, size_t outputs, size_t width, const float *x, const float *W,
                                    Done done, Squares squares)
{
    const unsigned lane = threadIdx.x % 32, warps = blockDim.x / 32;
    const bool fast = width % 4 == 0 && aligned16(x, W);
    for (size_t first = PRODUCT_ROWS * (blockIdx.x * static_cast<size_t>(warps) + threadIdx.x / 32);
         first < rows; first += PRODUCT_ROWS * gridDim.x * static_cast<size_t>(warps)) {
        float square[PRODUCT_ROWS] = { 0, 0, 0, 0 };
        for (size_t o = 0; o < outputs; o += OUTPUTS) {
            float sum[PRODUCT_ROWS][OUTPUTS];
#pragma unroll
            for (unsigned r = 0; r < PRODUCT_ROWS; r++)
#pragma unroll
                for (unsigned p = 0; p < OUTPUTS; p++)
                    sum[r][p] = 0;
            for (size_t i = 4 * lane; i < width; i += 4 * 32) {
                float4 v[PRODUCT_ROWS];
#pragma unroll
                for (unsigned r = 0; r < PRODUCT_ROWS; r++) {
                    v[r] = first + r < rows ? load_row4(x + (first + r) * width, i, width, fast) : splat4(0);
                    square[r] += o == 0 ? dot4(v[r], v[r]) : 0;
                }
#pragma unroll
                for (unsigned p = 0; p < OUTPUTS; p++) {
                    if (o + p >= outputs)
                        continue;
                    const float4 w = load_row4(W + (o + p) * width, i, width, fast);
#pragma unroll
                    for (unsigned r = 0; r < PRODUCT_ROWS; r++)
                        sum[r][p] += dot4(v[r], w);
                }
            }
#pragma unroll
            for (unsigned part = 0; part < OUTPUTS; part += PRODUCT_OUTPUTS) {
                float mine = 0;
#pragma unroll
                for (unsigned r = 0; r < PRODUCT_ROWS; r++)
#pragma unroll
                    for (unsigned p = 0; p < PRODUCT_OUTPUTS; p++) {
                        const float total = o + part + p < outputs ? warp_sum(sum[r][part + p]) : 0;
                        mine = lane == r * PRODUCT_OUTPUTS + p ? total : mine;
                    }
                const size_t row = first + lane / PRODUCT_OUTPUTS, output = o + part + lane % PRODUCT_OUTPUTS;
                if (row < rows && output < outputs)
                    done(row, output, mine);
            }
        }
        float mine = 0;
#pragma unroll
        for (unsigned r = 0; r < PRODUCT_ROWS; r++) {
            const float total = warp_sum(square[r]);
            mine = lane == r ? total : mine;
        }
        if (lane < PRODUCT_ROWS && first + lane < rows)
            squares(first + lane, mine);
    }
}

#endif
