/* The streams of hyper-connections, and attention over depth. */
#include "backend/cuda/cuda.h"

enum { THREADS = 128 };

/* Ops on a->N tokens, a block each. */
#define TOKENS(name, args)                                                                                   \
    void cuda_##name(void *ctx, const struct args *a)                                                        \
    {                                                                                                        \
        struct cuda_device *d = ctx;                                                                         \
        if (a->N)                                                                                            \
            cuda_launch(d, CUDA_##name, cuda_blocks(d, a->N, 1), 0, a);                                      \
    }
TOKENS(streams_sum, streams_sum_args)
TOKENS(streams_write_fwd, streams_write_args)
TOKENS(streams_write_bwd, streams_write_grad_args)
TOKENS(source_bwd, source_grad_args)
#undef TOKENS

void cuda_streams_fold_fwd(void *ctx, const struct streams_fold_args *a)
{
    struct cuda_device *d = ctx;
    size_t rows = a->rows[0] + a->rows[1] + a->rows[2];
    cuda_launch(d, CUDA_streams_fold_fwd, cuda_blocks(d, rows * a->d * a->n, THREADS), 0, a);
}

void cuda_streams_fold_bwd(void *ctx, const struct streams_fold_grad_args *a)
{
    struct cuda_device *d = ctx;
    cuda_launch(d, CUDA_streams_fold_bwd, cuda_blocks(d, a->d * a->n, THREADS), 0, a);
}

void cuda_depth_fwd(void *ctx, const struct depth_args *a)
{
    struct cuda_device *d = ctx;
    if (a->N)
        cuda_launch(d, CUDA_depth_fwd, cuda_blocks(d, a->N, 1), (a->n + 1) * sizeof(float), a);
}

void cuda_depth_bwd(void *ctx, const struct depth_grad_args *a)
{
    struct cuda_device *d = ctx;
    size_t width = a->fwd.d, blocks = a->fwd.N ? cuda_row_blocks(d, a->fwd.N, 1, width) : 0;
    cuda_zero(d, a->dq, width * sizeof *a->dq);
    if (!blocks)
        return;
    cuda_launch(d, CUDA_depth_bwd, blocks, 4 * (a->fwd.n + 1) * sizeof(float),
                &(struct cuda_depth_grad){ *a, d->scratch });
    cuda_add_columns(d, blocks, width, a->dq);
}
