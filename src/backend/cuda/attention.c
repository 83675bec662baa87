/* Attention and what is around it: rotary embedding, mixed values, rows of caches. */
#include "backend/cuda/cuda.h"

enum { THREADS = 256, WARPS = THREADS / 32, TILE = CUDA_ATTENTION_TILE, MOST_WIDTH = 128 };

/* Shared memory of `tiles` tiles of rows of h numbers, and of `weights` numbers for each thread. */
static size_t shared_bytes(size_t tiles, size_t h, size_t weights)
{
    const size_t pitch = (h + 3) / 4 * 4 + 4;
    return (tiles * TILE * pitch + weights * THREADS) * sizeof(float);
}

/* Blocks of the kernels for wide heads. */
static size_t wide_blocks(size_t rows, size_t H)
{
    return cuda_parts(rows, WARPS) * H;
}

/* Whether 16 bytes can be copied at a time from each of the rows. */
static bool is_aligned(const void *x, size_t stride, size_t batch)
{
    return (uintptr_t)x % 16 == 0 && stride % 8 == 0 && batch % 8 == 0;
}

/* Whether the kernels for tensor cores take it. */
static bool fits_mma(const struct attention_args *a)
{
    return a->q16 && a->k16 && a->y16 && a->h % 16 == 0 && a->h <= MOST_WIDTH &&
           is_aligned(a->q16, a->q_stride, 0) && is_aligned(a->k16, a->k_stride, a->k_batch) &&
           is_aligned(a->v16, a->v_stride, a->v_batch) && is_aligned(a->y16, a->h, 0);
}

/* In sequences of one token the gradients of all scores are 0, exactly so in attention_bwd. */
static bool grad_fits_mma(const struct attention_grad_args *a)
{
    return a->T > 1 && a->q16 && a->h % 16 == 0 && a->h <= MOST_WIDTH && is_aligned(a->q16, a->q_stride, 0) &&
           is_aligned(a->k16, a->k_stride, 0) && is_aligned(a->v16, a->v_stride, 0) &&
           is_aligned(a->dy, 0, 0) && is_aligned(a->dq16, a->dq_stride, 0) &&
           is_aligned(a->dk16, a->dk_stride, 0) && is_aligned(a->dv16, a->dv_stride, 0);
}

/* The kernels for tensor cores: heads of exactly `most` numbers, or of at most so many. */
static const struct mma_kernels {
    size_t most;
    bool exact;
    enum cuda_kernel fwd, bwd_q, bwd_kv;
} mma_kernels[] = {
    { 64, true, CUDA_attention_mma_fwd_64, CUDA_attention_mma_bwd_q_64, CUDA_attention_mma_bwd_kv_64 },
    { 64, false, CUDA_attention_mma_fwd_to_64, CUDA_attention_mma_bwd_q_to_64,
      CUDA_attention_mma_bwd_kv_to_64 },
    { 128, true, CUDA_attention_mma_fwd_128, CUDA_attention_mma_bwd_q_128, CUDA_attention_mma_bwd_kv_128 },
    { MOST_WIDTH, false, CUDA_attention_mma_fwd_to_128, CUDA_attention_mma_bwd_q_to_128,
      CUDA_attention_mma_bwd_kv_to_128 },
};

static const struct mma_kernels *mma_kernels_of(size_t h)
{
    const struct mma_kernels *k = mma_kernels;
    while (k->exact ? h != k->most : h > k->most)
        k++;
    return k;
}

/* Numbers of a part of the keys: struct cuda_attention_parts. */
static size_t part_stride(size_t h)
{
    return cuda_parts(h, 4) * 4 + 4;
}

size_t cuda_attention_part_bytes(size_t heads, size_t span, size_t h)
{
    size_t parts = cuda_parts(span, CUDA_ATTENTION_PART);
    return parts > 1 ? heads * parts * part_stride(h) * sizeof(float) : 0;
}

/* Sequences with one query. */
static void attention_one_row(struct cuda_device *d, const struct attention_args *a, size_t heads)
{
    size_t span = a->ragged.B ? a->ragged.max_span : a->past + 1, most = cuda_blocks(d, SIZE_MAX, 1) / heads;
    struct cuda_attention_parts arguments = { .op = *a,
                                              .parts = cuda_parts(span, CUDA_ATTENTION_PART),
                                              .stride = part_stride(a->h) };
    arguments.blocks = most == 0 ? 1 : arguments.parts < most ? arguments.parts : most;
    if (arguments.parts > 1 &&
        !(arguments.partial = cuda_op_memory(d, cuda_attention_part_bytes(heads, span, a->h))))
        return;
    cuda_launch(d, CUDA_attention_part, heads * arguments.blocks, part_stride(a->h) * sizeof(float),
                &arguments);
    if (arguments.parts > 1)
        cuda_launch(d, CUDA_attention_join, heads, arguments.parts * sizeof(float), &arguments);
}

/* The others, with at most `rows` queries. */
static void attention_rows(struct cuda_device *d, const struct attention_args *a, size_t heads, size_t rows)
{
    if (a->h > MOST_WIDTH) {
        cuda_launch(d, CUDA_attention_wide_fwd, wide_blocks(a->B * a->T, a->H), 0, a);
        return;
    }
    if (fits_mma(a)) {
        const struct cuda_attention arguments = { *a, cuda_parts(rows, CUDA_MMA_QUERIES) };
        cuda_launch(d, mma_kernels_of(a->h)->fwd, heads * arguments.tiles,
                    (CUDA_MMA_QUERIES + 2 * CUDA_MMA_KEYS) * (a->h + 8) * sizeof *a->q16, &arguments);
        return;
    }
    const struct cuda_attention arguments = { *a, cuda_parts(rows, TILE) };
    cuda_launch(d, CUDA_attention_fwd, heads * arguments.tiles, shared_bytes(2, a->h, TILE / WARPS),
                &arguments);
}

/* A batch with several sequences may have both kinds. */
void cuda_attention_fwd(void *ctx, const struct attention_args *a)
{
    const struct ddl_ragged *r = &a->ragged;
    size_t heads = (r->B ? r->B : a->B) * a->H, rows = r->B ? r->max_rows : a->T;
    if (a->B * a->T == 0 || a->H == 0)
        return;
    if (rows == 1 || r->B > 1)
        attention_one_row(ctx, a, heads);
    if (rows > 1)
        attention_rows(ctx, a, heads, rows);
}

/* Two numbers for each row of a head: attention_stats. */
size_t cuda_attention_bytes(size_t rows, size_t heads)
{
    return 2 * rows * heads * sizeof(float);
}

void cuda_attention_bwd(void *ctx, const struct attention_grad_args *a)
{
    struct cuda_device *d = ctx;
    size_t rows = a->B * a->T;
    if (rows == 0 || a->H == 0)
        return;
    struct cuda_attention_grad arguments = { *a, cuda_parts(a->T, TILE),
                                             cuda_op_memory(d, cuda_attention_bytes(rows, a->H)) };
    const bool fits = grad_fits_mma(a);
    if (!arguments.stats)
        return;
    CUDA_CLEAR_PADDING(&arguments);
    if (fits || a->h > MOST_WIDTH)
        cuda_launch(d, CUDA_attention_wide_stats, cuda_blocks(d, rows * a->H, WARPS), 0, &arguments);
    if (fits) {
        const struct mma_kernels *kernels = mma_kernels_of(a->h);
        const size_t row = (a->h + 8) * sizeof *a->q16, queries = CUDA_MMA_QUERIES, others = CUDA_MMA_OTHERS;
        size_t blocks;
        arguments.tiles = cuda_parts(a->T, queries);
        blocks = a->B * a->H * arguments.tiles;
        cuda_launch(d, kernels->bwd_q, blocks, (3 * queries + 2 * others) * row, &arguments);
        cuda_launch(d, kernels->bwd_kv, blocks, (2 * queries + 3 * others) * row, &arguments);
    } else if (a->h > MOST_WIDTH) {
        cuda_launch(d, CUDA_attention_wide_bwd, wide_blocks(rows, a->H), 0, &arguments);
    } else {
        size_t blocks = a->B * a->H * arguments.tiles;
        cuda_launch(d, CUDA_attention_stats, blocks, shared_bytes(2, a->h, 0), &arguments);
        cuda_launch(d, CUDA_attention_bwd_q, blocks, shared_bytes(4, a->h, TILE / WARPS), &arguments);
        cuda_launch(d, CUDA_attention_bwd_kv, blocks, shared_bytes(4, a->h, 2 * TILE / WARPS), &arguments);
    }
}

/* Whether rows of heads in bfloat16 can be read in pairs of numbers: their strides and addresses. */
static bool has_pairs(size_t h, size_t R, size_t strides, uintptr_t rows, uintptr_t floats)
{
    return (h | R / 2 | strides) % 2 == 0 && rows % sizeof(uint32_t) == 0 &&
           floats % (2 * sizeof(float)) == 0;
}

void cuda_rope_fwd(void *ctx, const struct rope_args *a)
{
    struct cuda_device *d = ctx;
    const size_t units = a->B * a->T * a->H;
    if (a->x16 && has_pairs(a->h, a->R, a->x_stride | a->y_stride, (uintptr_t)a->x16 | (uintptr_t)a->y16,
                            (uintptr_t)a->cos | (uintptr_t)a->sin | (uintptr_t)a->w))
        cuda_launch(d, CUDA_rope_fwd_bf16, cuda_blocks(d, units, 2 * WARPS), 0, a);
    else
        cuda_launch(d, CUDA_rope_fwd, cuda_blocks(d, units, WARPS), 0, a);
}

void cuda_rope_bwd(void *ctx, const struct rope_grad_args *a)
{
    struct cuda_device *d = ctx;
    const size_t units = a->B * a->T * a->H, row = a->h * sizeof *a->dw; /* of partial sums, of a head */
    const bool pairs = a->x16 && has_pairs(a->h, a->R, a->x_stride | a->dy_stride | a->dx_stride,
                                           (uintptr_t)a->x16 | (uintptr_t)a->dy16 | (uintptr_t)a->dx16,
                                           (uintptr_t)a->cos | (uintptr_t)a->sin | (uintptr_t)a->w);
    const struct cuda_rope_grad arguments = { *a, d->scratch };
    if (units == 0)
        return;
    if (!a->w) {
        cuda_launch(d, pairs ? CUDA_rope_bwd_bf16 : CUDA_rope_bwd,
                    cuda_blocks(d, units, pairs ? 2 * WARPS : WARPS), 0, &arguments);
        return;
    }
    size_t heads = WARPS; /* that a block has at a time: sums do not depend on their lanes */
    while (heads > 1 && heads * row > CUDA_STATE_SHARED)
        heads /= 2;
    const size_t blocks = cuda_blocks_of_sums(d, cuda_parts(units, heads));
    if (pairs && heads > 1)
        cuda_launch_threads(d, CUDA_rope_bwd_bf16, blocks, 16 * heads, heads * row, &arguments);
    else
        cuda_launch_threads(d, CUDA_rope_bwd, blocks, 32 * heads, heads * row, &arguments);
    cuda_add_columns(d, blocks, a->h, a->dw);
}

void cuda_mix_values_fwd(void *ctx, const struct mix_values_args *a)
{
    struct cuda_device *d = ctx;
    cuda_launch(d, CUDA_mix_values_fwd, cuda_blocks(d, a->N * a->width, THREADS), 0, a);
}

void cuda_mix_values_bwd(void *ctx, const struct mix_values_grad_args *a)
{
    struct cuda_device *d = ctx;
    size_t n = a->N * a->width, blocks = cuda_blocks_of_sums(d, n / THREADS + 1);
    if (n == 0)
        return;
    cuda_launch(d, CUDA_mix_values_bwd, blocks, 0, &(struct cuda_mix_values_grad){ *a, d->scratch });
    cuda_add_columns(d, blocks, 2, a->dmix);
}

void cuda_cache_append(void *ctx, const struct cache_append_args *a)
{
    struct cuda_device *d = ctx;
    cuda_launch(d, CUDA_cache_append, cuda_blocks(d, a->ragged.N * a->width, THREADS), 0, a);
}

void cuda_history_push(void *ctx, const struct history_push_args *a)
{
    struct cuda_device *d = ctx;
    cuda_launch(d, CUDA_history_push, cuda_blocks(d, a->ragged.B * a->width, THREADS), 0, a);
}
