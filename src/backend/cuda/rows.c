/* Copies, conversions, and ops on rows. */
#include "backend/cuda/cuda.h"

enum { THREADS = 256, EACH = 4 * THREADS }; /* numbers of a block */

static size_t matrices(size_t batch)
{
    return batch ? batch : 1;
}

void cuda_copy(void *ctx, const struct copy_args *a)
{
    struct cuda_device *d = ctx;
    if (a->rows == 0 || a->width == 0)
        return;
    const float *end = a->src + (a->rows - 1) * a->src_stride + a->width;
    const float *dst_end = a->dst + (a->rows - 1) * a->dst_stride + a->width;
    bool overlap = a->dst < end && a->src < dst_end;
    if (overlap)
        cuda_launch(d, CUDA_copy_in_order, cuda_blocks(d, matrices(a->batch), 1), 0, a);
    else
        cuda_launch(d, CUDA_copy, cuda_blocks(d, matrices(a->batch) * a->rows * a->width, EACH), 0, a);
}

void cuda_copy_bf16(void *ctx, const struct copy_bf16_args *a)
{
    struct cuda_device *d = ctx;
    size_t n = matrices(a->batch) * a->rows * a->width;
    if (n)
        cuda_launch(d, CUDA_copy_bf16, cuda_blocks(d, n, EACH), 0, a);
}

void cuda_cast_bf16(void *ctx, const struct cast_bf16_args *a)
{
    struct cuda_device *d = ctx;
    if (a->n)
        cuda_launch(d, CUDA_cast_bf16, cuda_blocks(d, a->n, EACH), 0, a);
}

void cuda_widen_bf16(void *ctx, const struct widen_bf16_args *a)
{
    struct cuda_device *d = ctx;
    if (a->n)
        cuda_launch(d, CUDA_widen_bf16, cuda_blocks(d, a->n, EACH), 0, a);
}

void cuda_fill(void *ctx, const struct fill_args *a)
{
    struct cuda_device *d = ctx;
    if (a->n)
        cuda_launch(d, CUDA_fill, cuda_blocks(d, a->n, EACH), 0, a);
}

void cuda_rmsnorm_fwd(void *ctx, const struct rmsnorm_args *a)
{
    struct cuda_device *d = ctx;
    if (a->N)
        cuda_launch(d, CUDA_rmsnorm_fwd, cuda_blocks(d, a->N, 1), 0, a);
}

void cuda_rmsnorm_bwd(void *ctx, const struct rmsnorm_grad_args *a)
{
    struct cuda_device *d = ctx;
    if (a->N == 0)
        return;
    struct cuda_rmsnorm_grad grad = { *a, d->scratch };
    struct cuda_columns columns = { cuda_blocks_of_sums(d, a->N), a->d, d->scratch, a->dw };
    cuda_launch(d, CUDA_rmsnorm_bwd, columns.blocks, 0, &grad);
    cuda_launch(d, CUDA_add_columns, cuda_blocks(d, a->d, THREADS), 0, &columns);
}

void cuda_swiglu_fwd(void *ctx, const struct swiglu_args *a)
{
    struct cuda_device *d = ctx;
    if (a->N)
        cuda_launch(d, CUDA_swiglu_fwd, cuda_blocks(d, a->N * a->m, EACH), 0, a);
}

void cuda_swiglu_bwd(void *ctx, const struct swiglu_grad_args *a)
{
    struct cuda_device *d = ctx;
    if (a->N)
        cuda_launch(d, CUDA_swiglu_bwd, cuda_blocks(d, a->N * a->m, EACH), 0, a);
}
