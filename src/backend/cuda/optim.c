/* Sums, clipping and AdamW over lists of parameters. */
#include "backend/cuda/cuda.h"

void cuda_sum(void *ctx, const struct sum_args *a)
{
    cuda_launch(ctx, CUDA_sum, 1, 0, a);
}

size_t cuda_squares_bytes(size_t parts)
{
    return parts * CUDA_PART_BLOCKS * sizeof(double);
}

void cuda_sum_squares(void *ctx, const struct sum_squares_args *a)
{
    struct cuda_device *d = ctx;
    size_t blocks = a->parts.n * CUDA_PART_BLOCKS;
    struct cuda_part_squares squares = { *a, cuda_op_memory(d, cuda_squares_bytes(a->parts.n)) };
    if (!squares.partial)
        return;
    if (blocks)
        cuda_launch(d, CUDA_part_squares, blocks, 0, &squares);
    cuda_launch(d, CUDA_list_squares, 1, 0, &squares);
}

void cuda_clip(void *ctx, const struct clip_args *a)
{
    cuda_launch(ctx, CUDA_clip, 1, 0, a);
}

void cuda_adamw(void *ctx, const struct adamw_args *a)
{
    if (a->parts.n)
        cuda_launch(ctx, CUDA_adamw, a->parts.n * CUDA_PART_BLOCKS, 0, a);
}
