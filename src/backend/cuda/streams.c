/* The streams of hyper-connections, and attention over depth. */
#include "backend/cuda/cuda.h"

enum { THREADS = 128 };

CUDA_ROW_OP(streams_sum, streams_sum_args)
CUDA_ROW_OP(streams_write_fwd, streams_write_args)
CUDA_ROW_OP(streams_write_bwd, streams_write_grad_args)
CUDA_LONG_ROW_OP(source_bwd, source_grad_args)

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

/* Bytes of so many rows in shared memory; 0: they have no place. */
static size_t held_bytes(size_t rows, size_t d)
{
    return d <= CUDA_STATE_SHARED / sizeof(float) / rows ? rows * d * sizeof(float) : 0;
}

void cuda_depth_fwd(void *ctx, const struct depth_args *a)
{
    struct cuda_device *d = ctx;
    size_t scores = CUDA_DEPTH_HELD(a->n) * sizeof(float), sources = held_bytes(a->n + 1, a->d);
    size_t copies = cuda_parts(a->n + 1, THREADS / 32) * cuda_parts(a->d, 4 * 32); /* of a thread */
    bool held = sources > 0 && scores + sources <= CUDA_STATE_SHARED && copies <= CUDA_DEPTH_COPIES;
    struct cuda_depth arguments = { *a, held };
    CUDA_CLEAR_PADDING(&arguments);
    cuda_launch(d, CUDA_depth_fwd, cuda_blocks(d, a->N, 1), scores + (held ? sources : 0), &arguments);
}

void cuda_depth_bwd(void *ctx, const struct depth_grad_args *a)
{
    struct cuda_device *d = ctx;
    size_t width = a->fwd.d, blocks = a->fwd.N ? cuda_row_blocks(d, a->fwd.N, 1, width) : 0;
    cuda_zero(d, a->dq, width * sizeof *a->dq);
    if (!blocks)
        return;
    cuda_launch(d, width > CUDA_SHORT_ROW ? CUDA_depth_bwd_long : CUDA_depth_bwd, blocks,
                4 * (a->fwd.n + 1) * sizeof(float), &(struct cuda_depth_grad){ *a, d->scratch });
    cuda_add_columns(d, blocks, width, a->dq);
}

/* dx += dz W and dW = dz^T x, with dz for dy, of N rows of d numbers with c outputs each. The sums of dz,
 * which would be the gradient of a bias, go nowhere. */
static void products_bwd(struct cuda_device *d, const struct project_grad_args *a)
{
    size_t across = cuda_parts(a->d, 4 * THREADS), count = a->c * a->d;
    size_t blocks = cuda_row_blocks(d, a->N, across, count + a->c);
    struct cuda_project_grad arguments = { *a, d->scratch };
    CUDA_CLEAR_PADDING(&arguments);
    cuda_zero(d, a->dW, count * sizeof *a->dW);
    cuda_launch(d, CUDA_project_many_bwd, blocks * across, 0, &arguments);
    cuda_add_part(d, blocks, count + a->c, 0, count, a->dW);
}

void cuda_hyper_fwd(void *ctx, const struct hyper_args *a)
{
    struct cuda_device *d = ctx;
    size_t shared = held_bytes(a->n, a->d);
    struct cuda_hyper arguments = { *a, shared > 0 };
    CUDA_CLEAR_PADDING(&arguments);
    cuda_launch(d, CUDA_hyper_fwd, cuda_blocks(d, a->N, 1), shared, &arguments);
}

void cuda_hyper_bwd(void *ctx, const struct hyper_grad_args *a)
{
    struct cuda_device *d = ctx;
    size_t n = a->n, out = n + 2, few = n * out + 2, products = a->Wf ? out : 0;
    if (a->Wf)
        cuda_zero(d, a->dWf, out * a->d * sizeof *a->dWf);
    if (a->N == 0)
        return;
    size_t shared = held_bytes(n + products, a->d), width = few + (shared ? products * a->d : 0);
    size_t blocks = cuda_row_blocks(d, a->N, 1, width);
    struct cuda_hyper_grad arguments = { *a, shared > 0, d->scratch };
    CUDA_CLEAR_PADDING(&arguments);
    cuda_launch(d, CUDA_hyper_bwd, blocks, shared, &arguments);
    cuda_add_part(d, blocks, width, 0, n * (n + 1), a->dalpha);
    cuda_add_part(d, blocks, width, n * (n + 1), n, a->dbeta);
    if (!a->Wf)
        return;
    cuda_add_part(d, blocks, width, n * out, 1, a->da);
    cuda_add_part(d, blocks, width, n * out + 1, 1, a->de);
    if (shared)
        cuda_add_part(d, blocks, width, few, out * a->d, a->dWf);
    else
        products_bwd(d, &(struct project_grad_args){ .N = a->N * n,
                                                     .d = a->d,
                                                     .c = out,
                                                     .x = a->X,
                                                     .W = a->Wf,
                                                     .y = a->dz,
                                                     .dy = a->dz,
                                                     .dx = a->dX,
                                                     .dW = a->dWf });
}

void cuda_mhc_fwd(void *ctx, const struct mhc_args *a)
{
    struct cuda_device *d = ctx;
    if (a->N == 0)
        return;
    struct cuda_streams_products products = {
        a->N, a->n * (a->n + 2), a->n * a->d, a->eps, a->X, a->Wf, a->t, a->rstd
    };
    CUDA_CLEAR_PADDING(&products);
    cuda_launch(d, CUDA_streams_products, cuda_blocks(d, a->N, CUDA_PRODUCT_ROWS), 0, &products);
    cuda_launch(d, CUDA_mhc_fwd, cuda_blocks(d, a->N, 1), 0, a);
}

void cuda_mhc_bwd(void *ctx, const struct mhc_grad_args *a)
{
    struct cuda_device *d = ctx;
    size_t n = a->n, out = n * (n + 2), width = out + 3;
    if (a->N == 0) {
        cuda_zero(d, a->dWf, out * n * a->d * sizeof *a->dWf);
        return;
    }
    size_t blocks = cuda_row_blocks(d, a->N, 1, width);
    cuda_launch(d, CUDA_mhc_bwd, blocks, 4 * a->iterations * n * sizeof(double),
                &(struct cuda_mhc_grad){ *a, d->scratch });
    for (size_t part = 0; part < 3; part++) {
        cuda_add_part(d, blocks, width, part * n, part < 2 ? n : n * n, a->dbias[part]);
        cuda_add_part(d, blocks, width, out + part, 1, a->dscale[part]);
    }
    products_bwd(d, &(struct project_grad_args){ .N = a->N,
                                                 .d = n * a->d,
                                                 .c = out,
                                                 .x = a->X,
                                                 .W = a->Wf,
                                                 .y = a->dz,
                                                 .dy = a->dz,
                                                 .dx = a->dX,
                                                 .dW = a->dWf });
}
