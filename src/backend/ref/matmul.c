#include "backend/ref/ref.h"

void ref_matmul(void *ctx, const struct matmul_args *a)
{
    (void)ctx;
    for (size_t m = 0; m < a->M; m++) {
        for (size_t n = 0; n < a->N; n++) {
            double sum = 0;
            for (size_t k = 0; k < a->K; k++) {
                double x = a->trans_a ? a->A[k * a->lda + m] : a->A[m * a->lda + k];
                double y = a->trans_b ? a->B[n * a->ldb + k] : a->B[k * a->ldb + n];
                sum += x * y;
            }
            float *C = &a->C[m * a->ldc + n];
            *C = (float)((double)a->alpha * sum + (a->beta == 0 ? 0 : (double)a->beta * (double)*C));
        }
    }
}
