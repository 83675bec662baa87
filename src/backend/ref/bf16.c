/* Casts to bfloat16, and lookups of bfloat16 matrices. */
#include "backend/ref/ref.h"

#include "backend/host.h"
#include "base/bf16.h"

void ref_cast_bf16(void *ctx, const struct cast_bf16_args *a)
{
    (void)ctx;
    for (size_t i = 0; i < a->n; i++)
        a->y[i] = ddl_bf16_round(a->x[i]);
}

void ref_widen_bf16(void *ctx, const struct widen_bf16_args *a)
{
    (void)ctx;
    for (size_t i = 0; i < a->n; i++)
        a->y[i] = ddl_bf16_widen(a->x[i]);
}

void ref_copy_bf16(void *ctx, const struct copy_bf16_args *a)
{
    (void)ctx;
    for (size_t b = 0; b < (a->batch ? a->batch : 1); b++) {
        const float *src = a->src + host_copy_offset(b, 0, a->src_stride, a->src_batch);
        uint16_t *dst = a->dst + host_copy_offset(b, 0, a->dst_stride, a->dst_batch);
        for (size_t n = 0; n < a->rows; n++) {
            for (size_t i = 0; i < a->width; i++)
                dst[n * a->dst_stride + i] = ddl_bf16_round(src[n * a->src_stride + i]);
        }
    }
}

void ref_gather_bf16(void *ctx, const struct gather_bf16_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        for (size_t i = 0; i < a->width; i++)
            a->y[n * a->width + i] = ddl_bf16_widen(a->x[(size_t)a->index[n] * a->width + i]);
    }
}
