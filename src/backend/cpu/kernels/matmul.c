/* Products of small and odd shapes, and of few rows with B as it is. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vec.h"

#include <string.h>

/* c = beta c, without reading c where beta is 0 */
static void scale_by(size_t n, float beta, float *c)
{
    if (beta == 0) {
        memset(c, 0, n * sizeof *c);
    } else if (beta != 1) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            c[i] *= beta;
    }
}

/* Rows [lo, hi) of C, any shape. */
void DDL_KERNEL(matmul_plain)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct matmul_args *a = args;
    size_t step_a = a->trans_a ? a->lda : 1;
    (void)scratch;
    for (size_t i = lo; i < hi; i++) {
        const float *A = a->A + i * (a->trans_a ? 1 : a->lda);
        float *C = a->C + i * a->ldc;
        scale_by(a->N, a->beta, C);
        if (!a->trans_b) {
            for (size_t k = 0; k < a->K; k++)
                add_scaled(a->N, a->alpha * A[k * step_a], a->B + k * a->ldb, C);
            continue;
        }
        for (size_t j = 0; j < a->N; j++) {
            const float *B = a->B + j * a->ldb;
            float sum = 0;
            if (step_a == 1)
                sum = dot(a->K, A, B);
            for (size_t k = 0; step_a != 1 && k < a->K; k++)
                sum += A[k * step_a] * B[k];
            C[j] += a->alpha * sum;
        }
    }
}

/* C_i = sum_k alpha A_ik B_k + beta C_i on columns [lo, hi): rows of B are added, four at a time. */
void DDL_KERNEL(matmul_few_nn)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct matmul_args *a = args;
    size_t n = hi - lo, k = 0;
    (void)scratch;
    for (size_t i = 0; i < a->M; i++)
        scale_by(n, a->beta, a->C + i * a->ldc + lo);
    for (; k + 4 <= a->K; k += 4) {
        const float *b0 = a->B + k * a->ldb + lo, *b1 = b0 + a->ldb, *b2 = b1 + a->ldb, *b3 = b2 + a->ldb;
        for (size_t r = 0; r < 4; r++)
            prefetch(b0, (ROWS_AHEAD + r) * a->ldb * sizeof *b0, n * sizeof *b0);
        for (size_t i = 0; i < a->M; i++) {
            const float *A = a->A + i * a->lda + k;
            float *c = a->C + i * a->ldc + lo, a0 = a->alpha * A[0], a1 = a->alpha * A[1],
                  a2 = a->alpha * A[2], a3 = a->alpha * A[3];
#pragma omp simd
            for (size_t j = 0; j < n; j++)
                c[j] += (a0 * b0[j] + a1 * b1[j]) + (a2 * b2[j] + a3 * b3[j]);
        }
    }
    for (; k < a->K; k++) {
        for (size_t i = 0; i < a->M; i++)
            add_scaled(n, a->alpha * a->A[i * a->lda + k], a->B + k * a->ldb + lo, a->C + i * a->ldc + lo);
    }
}
