/* Residual rules with one state, and the element-wise delta rule. */
#include "backend/cuda/cuda.h"

enum { COLUMNS = 4 * 128 }; /* of a block */

CUDA_LONG_ROW_OP(f_norm_fwd, f_norm_args)
CUDA_LONG_ROW_OP(f_norm_bwd, f_norm_grad_args)
CUDA_ROW_OP(scale_fwd, scale_args)
CUDA_ROW_OP(gated_fwd, gated_args)
CUDA_ROW_OP(gated_bwd, gated_grad_args)
CUDA_ROW_OP(highway_fwd, highway_args)
CUDA_ROW_OP(laurel_fwd, laurel_args)
CUDA_ROW_OP(elementwise_fwd, ddl_elementwise_args)
CUDA_ROW_OP(elementwise_bwd, ddl_elementwise_grad_args)

void cuda_scale_bwd(void *ctx, const struct scale_grad_args *a)
{
    struct cuda_device *d = ctx;
    if (a->N == 0)
        return;
    size_t rows = cuda_row_blocks(d, a->N, cuda_parts(a->d, COLUMNS), a->d),
           blocks = rows * cuda_parts(a->d, COLUMNS);
    cuda_launch(d, CUDA_scale_bwd, blocks, 0, &(struct cuda_scale_grad){ *a, d->scratch });
    if (a->dlambda)
        cuda_add_part(d, a->w == 1 ? blocks : rows, a->w, 0, a->w, a->dlambda);
}

void cuda_highway_bwd(void *ctx, const struct highway_grad_args *a)
{
    struct cuda_device *d = ctx;
    bool one = a->w == 1;
    if (a->N == 0)
        return;
    size_t rows =
        one ? cuda_row_blocks(d, a->N, 1, 1) : cuda_row_blocks(d, a->N, cuda_parts(a->d, COLUMNS), a->d);
    cuda_launch(d, one ? CUDA_highway_one_bwd : CUDA_highway_bwd,
                one ? rows : rows * cuda_parts(a->d, COLUMNS), 0,
                &(struct cuda_highway_grad){ *a, d->scratch });
    cuda_add_part(d, rows, a->w, 0, a->w, a->db);
}

void cuda_laurel_bwd(void *ctx, const struct laurel_grad_args *a)
{
    struct cuda_device *d = ctx;
    if (a->N == 0)
        return;
    size_t blocks = cuda_row_blocks(d, a->N, 1, 2);
    cuda_launch(d, CUDA_laurel_bwd, blocks, 0, &(struct cuda_laurel_grad){ *a, d->scratch });
    cuda_add_part(d, blocks, 2, 0, 2, a->dmix);
}

void cuda_weighted_sum(void *ctx, const struct weighted_sum_args *a)
{
    struct cuda_device *d = ctx;
    cuda_launch(d, CUDA_weighted_sum, cuda_blocks(d, a->count, COLUMNS), 0, a);
}

void cuda_weighted_sum_bwd(void *ctx, const struct weighted_sum_grad_args *a)
{
    struct cuda_device *d = ctx;
    if (a->count == 0 || a->n == 0)
        return;
    size_t blocks = cuda_row_blocks(d, cuda_parts(a->count, COLUMNS), 1, a->n);
    cuda_launch(d, CUDA_weighted_sum_bwd, blocks, 0, &(struct cuda_weighted_sum_grad){ *a, d->scratch });
    cuda_add_part(d, blocks, a->n, 0, a->n, a->dw);
}
