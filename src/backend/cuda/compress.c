/* The state from embeddings, its compressor, gates and targets, and the embedding's gradient. */
#include "backend/cuda/cuda.h"

#include "ddl/kinds.h"

enum { THREADS = 128, COLUMNS = 4 * THREADS, TILE = 16 };

void cuda_init_state_fwd(void *ctx, const struct init_state_args *a)
{
    struct cuda_device *d = ctx;
    size_t N = a->B * a->T;
    cuda_launch(d, CUDA_init_state_fwd, cuda_blocks(d, N, 1), 0, a);
}

void cuda_init_state_bwd(void *ctx, const struct init_state_grad_args *a)
{
    struct cuda_device *d = ctx;
    size_t N = a->B * a->T, dc = a->d * a->c;
    if (N == 0)
        return;
    cuda_launch(d, CUDA_init_state_bwd, cuda_blocks(d, N * a->d, THREADS), 0, a);
    if (!a->w)
        return;
    size_t rows = cuda_row_blocks(d, N, cuda_parts(dc, COLUMNS), dc * a->K);
    cuda_launch(d, CUDA_init_state_weights_bwd, rows * cuda_parts(dc, COLUMNS), 0,
                &(struct cuda_init_state_grad){ *a, d->scratch });
    cuda_add_part(d, rows, dc * a->K, 0, dc * a->K, a->dw);
}

void cuda_fold_fwd(void *ctx, const struct fold_args *a)
{
    struct cuda_device *d = ctx;
    cuda_launch(d, CUDA_fold_fwd, cuda_blocks(d, a->d * a->c, THREADS), 0, a);
}

void cuda_fold_bwd(void *ctx, const struct fold_grad_args *a)
{
    struct cuda_device *d = ctx;
    cuda_launch(d, CUDA_fold_bwd, cuda_blocks(d, a->d * a->c, THREADS), 0, a);
    if (a->kind != DDL_COMPRESS_MIX)
        cuda_launch(d, CUDA_fold_read_bwd, cuda_blocks(d, a->c, 1), 0, a);
}

void cuda_compress_fwd(void *ctx, const struct compress_args *a)
{
    struct cuda_device *d = ctx;
    size_t N = a->B * a->T, tiles = cuda_parts(N, TILE);
    if (N)
        cuda_launch(d, CUDA_compress_fwd, cuda_blocks(d, tiles * cuda_parts(a->d, THREADS), 1), 0, a);
}

size_t cuda_compress_across(size_t numbers)
{
    return cuda_parts(numbers, COLUMNS);
}

/* Blocks of rows for the gradient of the folded weights: as many as a device has at a time of a kernel that
 * holds the states in registers (read_delta_bwd), which divides the rows alike. */
static size_t rows_blocks(const struct cuda_device *d, size_t N, size_t count)
{
    size_t blocks = cuda_row_blocks(d, N, 1, count),
           resident = CUDA_STATE_BLOCKS * (size_t)d->multiprocessors;
    return blocks < resident ? blocks : resident;
}

void cuda_compress_bwd(void *ctx, const struct compress_grad_args *a)
{
    struct cuda_device *d = ctx;
    size_t N = a->B * a->T, dc = a->d * a->c, count = a->taps * dc;
    cuda_zero(d, a->de, count * sizeof *a->de);
    if (N == 0)
        return;
    size_t rows = rows_blocks(d, N, count);
    cuda_launch(d, CUDA_compress_bwd, rows * cuda_compress_across(dc), 0,
                &(struct cuda_compress_grad){ *a, d->scratch });
    cuda_add_part(d, rows, count, 0, count, a->de);
}

void cuda_project_fwd(void *ctx, const struct project_args *a)
{
    struct cuda_device *d = ctx;
    cuda_launch(d, CUDA_project_fwd, cuda_blocks(d, a->N, CUDA_PRODUCT_ROWS), 0, a);
}

void cuda_project_bwd(void *ctx, const struct project_grad_args *a)
{
    struct cuda_device *d = ctx;
    size_t count = a->c * a->d, width = count + a->c;
    if (a->N == 0)
        return;
    size_t rows = cuda_row_blocks(d, a->N, 1, width); /* as rmsnorm_bwd divides them */
    cuda_launch(d, CUDA_project_bwd, rows * cuda_parts(a->d, CUDA_PROJECT_COLUMNS), 0,
                &(struct cuda_project_grad){ *a, d->scratch });
    cuda_add_part(d, rows, width, 0, count, a->dW);
    cuda_add_part(d, rows, width, count, a->c, a->db);
}

void cuda_embed_bwd(void *ctx, const struct embed_grad_args *a)
{
    struct cuda_device *d = ctx;
    cuda_launch(d, CUDA_embed_bwd, cuda_blocks(d, a->N * cuda_parts(a->d, COLUMNS), 1), 0, a);
}
