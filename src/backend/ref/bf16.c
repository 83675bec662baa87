/* Casts to bfloat16; products and lookups of bfloat16 matrices. */
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

void ref_matmul_bf16(void *ctx, const struct matmul_bf16_args *a)
{
    (void)ctx;
    /* As in ref_matmul: op(A)[m, k] is A[m am + k ak], and op(B)[k, n] is B[k bk + n bn]. */
    size_t am = a->trans_a ? 1 : a->lda, ak = a->trans_a ? a->lda : 1;
    size_t bk = a->trans_b ? 1 : a->ldb, bn = a->trans_b ? a->ldb : 1;
    for (size_t m = 0; m < a->M; m++) {
        for (size_t n = 0; n < a->N; n += 4) {
            size_t last = a->N - 1 - n; /* past the last column: that one again */
            const uint16_t *x = a->A + m * am, *y0 = a->B + n * bn, *y1 = y0 + (last < 1 ? last : 1) * bn,
                           *y2 = y0 + (last < 2 ? last : 2) * bn, *y3 = y0 + (last < 3 ? last : 3) * bn;
            double sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
            for (size_t k = 0; k < a->K; k++) {
                double xk = (double)ddl_bf16_widen(x[k * ak]);
                sum0 += xk * (double)ddl_bf16_widen(y0[k * bk]);
                sum1 += xk * (double)ddl_bf16_widen(y1[k * bk]);
                sum2 += xk * (double)ddl_bf16_widen(y2[k * bk]);
                sum3 += xk * (double)ddl_bf16_widen(y3[k * bk]);
            }
            const double sum[4] = { sum0, sum1, sum2, sum3 };
            for (size_t j = 0; j < 4 && j <= last; j++) {
                size_t at = m * a->ldc + n + j;
                double added = a->beta == 0 ? 0 : (double)a->beta * (double)a->C[at];
                ref_put(a->C, a->C16, at, (double)a->alpha * sum[j] + added);
            }
        }
    }
}
