/* The table, and memory: the host's. */
#include "backend/ref/ref.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

static ddl_status open_ref(void **ctx, size_t threads, char *text, size_t text_size, struct ddl_error *err)
{
    (void)threads;
    (void)err;
    *ctx = NULL;
    snprintf(text, text_size, "ref (scalar, double accumulators)");
    return DDL_OK;
}

static void close_ref(void *ctx)
{
    (void)ctx;
}

static ddl_status reserve_nothing(void *ctx, const struct ddl_extent *extent, struct ddl_error *err)
{
    (void)ctx;
    (void)extent;
    (void)err;
    return DDL_OK;
}

static void *alloc_host(void *ctx, size_t bytes)
{
    (void)ctx;
    return ddl_mem_alloc(bytes);
}

static void free_host(void *ctx, void *block)
{
    (void)ctx;
    ddl_mem_free(block);
}

static void move_bytes(void *ctx, void *dst, const void *src, size_t bytes)
{
    (void)ctx;
    if (bytes)
        memcpy(dst, src, bytes);
}

static void zero_bytes(void *ctx, void *dst, size_t bytes)
{
    (void)ctx;
    if (bytes)
        memset(dst, 0, bytes);
}

static void copy_rows(void *ctx, const struct copy_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->rows; n++)
        memmove(a->dst + n * a->dst_stride, a->src + n * a->src_stride, a->width * sizeof *a->dst);
}

const struct ddl_ops ddl_ops_ref = {
    .name = "ref",
    .host_memory = true,
    .open = open_ref,
    .close = close_ref,
    .reserve = reserve_nothing,
    .alloc = alloc_host,
    .free = free_host,
    .upload = move_bytes,
    .download = move_bytes,
    .zero = zero_bytes,
    .copy = copy_rows,
    .matmul = ref_matmul,
    .embed_fwd = ref_embed_fwd,
    .embed_bwd = ref_embed_bwd,
    .expand_fwd = ref_expand_fwd,
    .expand_bwd = ref_expand_bwd,
    .collapse_fwd = ref_collapse_fwd,
    .collapse_bwd = ref_collapse_bwd,
    .compress_fwd = ref_compress_fwd,
    .compress_bwd = ref_compress_bwd,
    .rmsnorm_fwd = ref_rmsnorm_fwd,
    .rmsnorm_bwd = ref_rmsnorm_bwd,
    .rope_fwd = ref_rope_fwd,
    .rope_bwd = ref_rope_bwd,
    .attention_fwd = ref_attention_fwd,
    .attention_bwd = ref_attention_bwd,
    .swiglu_fwd = ref_swiglu_fwd,
    .swiglu_bwd = ref_swiglu_bwd,
    .project_fwd = ref_project_fwd,
    .project_bwd = ref_project_bwd,
    .tanh_fwd = ref_tanh_fwd,
    .tanh_bwd = ref_tanh_bwd,
    .axpy = ref_axpy,
    .fill = ref_fill,
    .delta_fwd = ref_delta_fwd,
    .delta_bwd = ref_delta_bwd,
    .delta_inverse = ref_delta_inverse,
    .elementwise_fwd = ref_elementwise_fwd,
    .elementwise_bwd = ref_elementwise_bwd,
    .gelu_fwd = ref_gelu_fwd,
    .gelu_bwd = ref_gelu_bwd,
    .bias_fwd = ref_bias_fwd,
    .bias_bwd = ref_bias_bwd,
    .pool_fwd = ref_pool_fwd,
    .pool_bwd = ref_pool_bwd,
    .cross_entropy = ref_cross_entropy,
    .sum_squares = ref_sum_squares,
    .adamw = ref_adamw,
};
