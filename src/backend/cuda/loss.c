/* Cross-entropy and ranks of targets. */
#include "backend/cuda/cuda.h"

void cuda_cross_entropy(void *ctx, const struct cross_entropy_args *a)
{
    struct cuda_device *d = ctx;
    if (a->N)
        cuda_launch(d, CUDA_cross_entropy, cuda_blocks(d, a->N, 1), 0, a);
}

void cuda_loss_fold(void *ctx, const struct loss_fold_args *a)
{
    struct cuda_device *d = ctx;
    if (a->N)
        cuda_launch(d, CUDA_loss_fold, cuda_blocks(d, a->N, 1), 0, a);
}

void cuda_loss_grad(void *ctx, const struct loss_grad_args *a)
{
    struct cuda_device *d = ctx;
    if (a->N)
        cuda_launch(d, CUDA_loss_grad, cuda_blocks(d, a->N, 1), 0, a);
}

void cuda_rank(void *ctx, const struct rank_args *a)
{
    struct cuda_device *d = ctx;
    if (a->N)
        cuda_launch(d, CUDA_rank, cuda_blocks(d, a->N, 1), 0, a);
}
