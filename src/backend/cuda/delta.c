/* The delta rule, and pooling of its state. */
#include "backend/cuda/cuda.h"

/* Threads: as few as can hold a state in registers, and a multiple of the threads that a feature takes. */
struct cuda_state_launch cuda_state_launch(size_t d, size_t c)
{
    size_t feature = c % 4 == 0 ? c / 4 : c % 2 == 0 ? c / 2 : c;
    struct cuda_state_launch s = { .threads = 64 };
    while (!s.held && s.threads < CUDA_STATE_THREADS) {
        s.threads *= 2;
        s.held = s.threads <= 256 && s.threads / feature * feature * 4 * CUDA_STATE_FOURS >= d * c;
    }
    s.shared = (8 * s.threads + s.threads / 32 + 2 * c) * sizeof(float);
    s.staged = d <= (CUDA_SHARED_BYTES - s.shared) / sizeof(float);
    if (s.staged)
        s.shared += d * sizeof(float);
    return s;
}

void cuda_delta_fwd(void *ctx, const struct ddl_delta_args *a)
{
    struct cuda_device *d = ctx;
    struct cuda_state_launch s = cuda_state_launch(a->d, a->c);
    struct cuda_delta arguments = { *a, s.staged };
    CUDA_CLEAR_PADDING(&arguments);
    cuda_launch_threads(d, s.held ? CUDA_delta_fwd : CUDA_delta_fwd_long, cuda_blocks(d, a->N, 1), s.threads,
                        s.shared, &arguments);
}

void cuda_delta_inverse(void *ctx, const struct ddl_delta_inverse_args *a)
{
    struct cuda_device *d = ctx;
    struct cuda_state_launch s = cuda_state_launch(a->d, a->c);
    struct cuda_delta_inverse arguments = { *a, s.staged };
    CUDA_CLEAR_PADDING(&arguments);
    cuda_launch_threads(d, s.held ? CUDA_delta_inverse : CUDA_delta_inverse_long, cuda_blocks(d, a->N, 1),
                        s.threads, s.shared, &arguments);
}

void cuda_delta_bwd(void *ctx, const struct ddl_delta_grad_args *a)
{
    struct cuda_device *d = ctx;
    struct cuda_state_launch s = cuda_state_launch(a->d, a->c);
    struct cuda_delta_grad arguments = { *a, s.staged };
    CUDA_CLEAR_PADDING(&arguments);
    cuda_launch_threads(d, s.held ? CUDA_delta_bwd : CUDA_delta_bwd_long, cuda_blocks(d, a->N, 1), s.threads,
                        s.shared, &arguments);
}

/* Pooling has no state in registers. */
static size_t pool_shared(const struct cuda_state_launch *s, size_t c)
{
    return (8 * s->threads + 2 * c) * sizeof(float);
}

void cuda_pool_fwd(void *ctx, const struct pool_args *a)
{
    struct cuda_device *d = ctx;
    struct cuda_state_launch s = cuda_state_launch(a->d, a->c);
    cuda_launch_threads(d, CUDA_pool_fwd, cuda_blocks(d, a->N, 1), s.threads, pool_shared(&s, a->c), a);
}

void cuda_pool_bwd(void *ctx, const struct pool_grad_args *a)
{
    struct cuda_device *d = ctx;
    struct cuda_state_launch s = cuda_state_launch(a->d, a->c);
    if (a->N == 0)
        return;
    size_t blocks = a->w_a ? cuda_row_blocks(d, a->N, 1, a->d) : cuda_blocks(d, a->N, 1);
    cuda_launch_threads(d, CUDA_pool_bwd, blocks, s.threads, pool_shared(&s, a->c),
                        &(struct cuda_pool_grad){ *a, d->scratch });
    if (a->w_a)
        cuda_add_columns(d, blocks, a->d, a->dw_a);
}
