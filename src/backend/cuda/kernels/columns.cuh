/* Rows by fours of numbers, and sums over rows. */
#ifndef DDL_CUDA_COLUMNS_CUH
#define DDL_CUDA_COLUMNS_CUH

#include "backend/cuda/kernels/vectors.cuh"

/* The first of this thread's fours of a row of d numbers, one after the other. */
#define EACH_FOUR(i, d) for (size_t i = 4 * threadIdx.x; i < (d); i += 4 * blockDim.x)

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
