/* bfloat16: rounding, and products where the processor has no units for it. */
#include "backend/cpu/kernels/bf16.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/host.h"

#include <string.h>

void DDL_KERNEL(cast_bf16)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct cast_bf16_args *a = args;
    (void)scratch;
    round_row(hi - lo, a->x + lo, a->y + lo);
}

void DDL_KERNEL(widen_bf16)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct widen_bf16_args *a = args;
    (void)scratch;
    widen_row(hi - lo, a->x + lo, a->y + lo);
}

void DDL_KERNEL(copy_bf16)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct copy_bf16_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        size_t b = n / a->rows, row = n % a->rows;
        round_row(a->width, a->src + host_copy_offset(b, row, a->src_stride, a->src_batch),
                  a->dst + host_copy_offset(b, row, a->dst_stride, a->dst_batch));
    }
}

static float dot16(size_t n, const uint16_t *x, const uint16_t *y)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++)
        sum += ddl_bf16_widen(x[i]) * ddl_bf16_widen(y[i]);
    return sum;
}

static void add_scaled16(size_t n, float a, const uint16_t *restrict x, float *restrict y)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] += a * ddl_bf16_widen(x[i]);
}

/* Four rows of B at a time. */
void DDL_KERNEL(mixed_few_nn)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct mixed_args *a = args;
    (void)scratch;
    for (size_t i = lo; i < hi; i++) {
        const float *A = a->A + i * a->lda;
        float *restrict c = a->C + i * a->ldc;
        size_t k = 0;
        memset(c, 0, a->N * sizeof *c);
        for (; k + 4 <= a->K; k += 4) {
            const uint16_t *b0 = a->B + k * a->ldb, *b1 = b0 + a->ldb, *b2 = b1 + a->ldb, *b3 = b2 + a->ldb;
            for (size_t r = 0; r < 4; r++)
                prefetch(b0, (ROWS_AHEAD + r) * a->ldb * sizeof *b0, a->N * sizeof *b0);
            float a0 = a->alpha * A[k], a1 = a->alpha * A[k + 1], a2 = a->alpha * A[k + 2],
                  a3 = a->alpha * A[k + 3];
#pragma omp simd
            for (size_t j = 0; j < a->N; j++)
                c[j] += (a0 * ddl_bf16_widen(b0[j]) + a1 * ddl_bf16_widen(b1[j])) +
                        (a2 * ddl_bf16_widen(b2[j]) + a3 * ddl_bf16_widen(b3[j]));
        }
        for (; k < a->K; k++)
            add_scaled16(a->N, a->alpha * A[k], a->B + k * a->ldb, c);
    }
}

/* Rows [lo, hi) of C; C16 is summed in scratch, a row of N numbers. */
void DDL_KERNEL(matmul_bf16_plain)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct matmul_bf16_args *a = args;
    size_t row_a = a->trans_a ? 1 : a->lda, step_a = a->trans_a ? a->lda : 1;
    for (size_t i = lo; i < hi; i++) {
        const uint16_t *A = a->A + i * row_a;
        float *C = a->C16 ? scratch : a->C + i * a->ldc;
        for (size_t j = 0; j < a->N; j++)
            C[j] = a->beta == 0 ? 0 : a->beta * C[j];
        for (size_t k = 0; !a->trans_b && k < a->K; k++)
            add_scaled16(a->N, a->alpha * ddl_bf16_widen(A[k * step_a]), a->B + k * a->ldb, C);
        for (size_t j = 0; a->trans_b && j < a->N; j++) {
            const uint16_t *B = a->B + j * a->ldb;
            float sum = 0;
            if (step_a == 1)
                sum = dot16(a->K, A, B);
            for (size_t k = 0; step_a != 1 && k < a->K; k++)
                sum += ddl_bf16_widen(A[k * step_a]) * ddl_bf16_widen(B[k]);
            C[j] += a->alpha * sum;
        }
        if (a->C16)
            round_row(a->N, C, a->C16 + i * a->ldc);
    }
}
