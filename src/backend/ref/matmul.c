#include "backend/ref/ref.h"

/* Four columns of C at a time: an addition waits only for the one before it in the same sum. */
void ref_matmul(void *ctx, const struct matmul_args *a)
{
    (void)ctx;
    /* op(A)[m, k] is A[m am + k ak], and op(B)[k, n] is B[k bk + n bn]. */
    size_t am = a->trans_a ? 1 : a->lda, ak = a->trans_a ? a->lda : 1;
    size_t bk = a->trans_b ? 1 : a->ldb, bn = a->trans_b ? a->ldb : 1;
    for (size_t m = 0; m < a->M; m++) {
        for (size_t n = 0; n < a->N; n += 4) {
            size_t last = a->N - 1 - n; /* past the last column: that one again */
            const float *x = a->A + m * am, *y0 = a->B + n * bn, *y1 = y0 + (last < 1 ? last : 1) * bn,
                        *y2 = y0 + (last < 2 ? last : 2) * bn, *y3 = y0 + (last < 3 ? last : 3) * bn;
            double sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
            for (size_t k = 0; k < a->K; k++) {
                sum0 += (double)x[k * ak] * (double)y0[k * bk];
                sum1 += (double)x[k * ak] * (double)y1[k * bk];
                sum2 += (double)x[k * ak] * (double)y2[k * bk];
                sum3 += (double)x[k * ak] * (double)y3[k * bk];
            }
            const double sum[4] = { sum0, sum1, sum2, sum3 };
            for (size_t j = 0; j < 4 && j <= last; j++) {
                float *C = &a->C[m * a->ldc + n + j];
                *C = (float)((double)a->alpha * sum[j] + (a->beta == 0 ? 0 : (double)a->beta * (double)*C));
            }
        }
    }
}
