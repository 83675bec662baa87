/* Rows by fours of numbers, and sums over rows. */
#ifndef DDL_CUDA_COLUMNS_CUH
#define DDL_CUDA_COLUMNS_CUH

#include "backend/cuda/kernels/vectors.cuh"

/* The first of this thread's fours of a row of d numbers, one after the other. */
#define EACH_FOUR(i, d) for (size_t i = 4 * threadIdx.x; i < (d); i += 4 * blockDim.x)

/* Numbers i .. i + 3 of the row of y that begins at `row`, and of that of y16, where these are not NULL. */
__device__ inline void put_row4(float *y, uint16_t *y16, size_t row, size_t i, size_t d, bool fast, float4 v)
{
    if (y)
        store_row4(y + row, i, d, fast, v);
    if (y16)
        store_row4_bf16(y16 + row, i, d, fast, v);
}

/* The same of number i of each. */
__device__ inline void put(float *y, uint16_t *y16, size_t i, float v)
{
    if (y)
        y[i] = v;
    if (y16)
        y16[i] = bf16_of(v);
}

/* The part of a matrix of `width` columns that a block sums: the columns from `column` on that its threads
 * have, and the rows first, first + step, ... The grid is a multiple of the blocks that a row takes. */
struct column_block {
    size_t column, first, step;

    __device__ explicit column_block(size_t width)
    {
        const size_t across = (width + 4 * blockDim.x - 1) / (4 * blockDim.x);
        first = blockIdx.x / across;
        step = gridDim.x / across;
        column = 4 * ((blockIdx.x - first * across) * blockDim.x + threadIdx.x);
    }
};

#endif
