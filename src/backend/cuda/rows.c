/* Copies, conversions, and ops on rows and flat arrays. */
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
    size_t size = a->dst16 ? sizeof *a->dst16 : sizeof *a->dst;
    const char *src = a->dst16 ? (const char *)a->src16 : (const char *)a->src;
    const char *dst = a->dst16 ? (const char *)a->dst16 : (const char *)a->dst;
    const char *src_end = src + size * ((a->rows - 1) * a->src_stride + a->width);
    const char *dst_end = dst + size * ((a->rows - 1) * a->dst_stride + a->width);
    bool overlap = dst < src_end && src < dst_end;
    if (overlap)
        cuda_launch(d, CUDA_copy_in_order, cuda_blocks(d, matrices(a->batch), 1), 0, a);
    else
        cuda_launch(d, CUDA_copy, cuda_blocks(d, matrices(a->batch) * a->rows * a->width, EACH), 0, a);
}

void cuda_copy_bf16(void *ctx, const struct copy_bf16_args *a)
{
    struct cuda_device *d = ctx;
    size_t n = matrices(a->batch) * a->rows * a->width;
    cuda_launch(d, CUDA_copy_bf16, cuda_blocks(d, n, EACH), 0, a);
}

CUDA_LONG_ROW_OP(rmsnorm_fwd, rmsnorm_args)

static void add_columns(struct cuda_device *device, const struct cuda_columns *columns)
{
    cuda_launch(device, CUDA_add_columns, cuda_blocks(device, columns->width, CUDA_SUMMED_COLUMNS), 0,
                columns);
}

void cuda_add_part(struct cuda_device *device, size_t blocks, size_t stride, size_t first, size_t width,
                   float *y)
{
    add_columns(device, &(struct cuda_columns){ blocks, width, stride, device->scratch + first, y });
}

void cuda_add_blocks(struct cuda_device *device, size_t blocks, size_t width, const float *partial, float *y)
{
    add_columns(device, &(struct cuda_columns){ blocks, width, width, partial, y });
}

void cuda_add_columns(struct cuda_device *device, size_t blocks, size_t width, float *y)
{
    cuda_add_part(device, blocks, width, 0, width, y);
}

void cuda_rmsnorm_bwd(void *ctx, const struct rmsnorm_grad_args *a)
{
    struct cuda_device *d = ctx;
    size_t blocks = cuda_blocks_of_sums(d, a->N);
    if (a->N == 0)
        return;
    cuda_launch(d, a->d > CUDA_SHORT_ROW ? CUDA_rmsnorm_bwd_long : CUDA_rmsnorm_bwd, blocks, 0,
                &(struct cuda_rmsnorm_grad){ *a, d->scratch });
    cuda_add_columns(d, blocks, a->d, a->dw);
}

void cuda_bias_fwd(void *ctx, const struct bias_args *a)
{
    struct cuda_device *d = ctx;
    cuda_launch(d, CUDA_bias_fwd, cuda_blocks(d, a->N * a->d, THREADS), 0, a);
}

void cuda_bias_bwd(void *ctx, const struct bias_grad_args *a)
{
    struct cuda_device *d = ctx;
    size_t blocks = cuda_blocks_of_sums(d, a->N);
    if (a->N == 0)
        return;
    cuda_launch(d, CUDA_bias_bwd, blocks, 0, &(struct cuda_bias_grad){ *a, d->scratch });
    cuda_add_columns(d, blocks, a->d, a->db);
}

void cuda_gather(void *ctx, const struct gather_args *a)
{
    struct cuda_device *d = ctx;
    cuda_launch(d, CUDA_gather, cuda_blocks(d, a->N * a->width, EACH), 0, a);
}

void cuda_gather_bf16(void *ctx, const struct gather_bf16_args *a)
{
    struct cuda_device *d = ctx;
    cuda_launch(d, CUDA_gather_bf16, cuda_blocks(d, a->N * a->width, EACH), 0, a);
}

/* Ops on a->n numbers. */
#define FLAT(name, args)                                                                                     \
    void cuda_##name(void *ctx, const struct args *a)                                                        \
    {                                                                                                        \
        struct cuda_device *d = ctx;                                                                         \
        cuda_launch(d, CUDA_##name, cuda_blocks(d, a->n, EACH), 0, a);                                       \
    }
FLAT(cast_bf16, cast_bf16_args)
FLAT(widen_bf16, widen_bf16_args)
FLAT(fill, fill_args)
FLAT(tanh_fwd, tanh_args)
FLAT(tanh_bwd, tanh_grad_args)
FLAT(gelu_fwd, gelu_args)
FLAT(gelu_bwd, gelu_grad_args)
#undef FLAT

void cuda_swiglu_fwd(void *ctx, const struct swiglu_args *a)
{
    struct cuda_device *d = ctx;
    cuda_launch(d, CUDA_swiglu_fwd, cuda_blocks(d, a->N * a->m, EACH), 0, a);
}

void cuda_swiglu_bwd(void *ctx, const struct swiglu_grad_args *a)
{
    struct cuda_device *d = ctx;
    cuda_launch(d, CUDA_swiglu_bwd, cuda_blocks(d, a->N * a->m, EACH), 0, a);
}
