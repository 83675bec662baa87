#include "backend/ref/ref.h"

/* What both products have: operands in one format, the result in one. */
struct product {
    bool trans_a, trans_b;
    size_t M, N, K, lda, ldb, ldc;
    double alpha, beta;
    const float *A, *B;
    const uint16_t *A16, *B16;
    float *C;
    uint16_t *C16;
};

/* Four columns of C at a time: an addition waits only for the one before it in the same sum. */
static inline void multiply(const struct product *a)
{
    /* op(A)[m, k] is number m am + k ak, and op(B)[k, n] is number k bk + n bn. */
    size_t am = a->trans_a ? 1 : a->lda, ak = a->trans_a ? a->lda : 1;
    size_t bk = a->trans_b ? 1 : a->ldb, bn = a->trans_b ? a->ldb : 1;
    for (size_t m = 0; m < a->M; m++) {
        for (size_t n = 0; n < a->N; n += 4) {
            size_t last = a->N - 1 - n; /* past the last column: that one again */
            size_t y0 = n * bn, y1 = y0 + (last < 1 ? last : 1) * bn, y2 = y0 + (last < 2 ? last : 2) * bn,
                   y3 = y0 + (last < 3 ? last : 3) * bn;
            double sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
            for (size_t k = 0; k < a->K; k++) {
                double x = (double)ref_get(a->A, a->A16, m * am + k * ak);
                sum0 += x * (double)ref_get(a->B, a->B16, y0 + k * bk);
                sum1 += x * (double)ref_get(a->B, a->B16, y1 + k * bk);
                sum2 += x * (double)ref_get(a->B, a->B16, y2 + k * bk);
                sum3 += x * (double)ref_get(a->B, a->B16, y3 + k * bk);
            }
            const double sum[4] = { sum0, sum1, sum2, sum3 };
            for (size_t j = 0; j < 4 && j <= last; j++) {
                size_t at = m * a->ldc + n + j;
                double added = a->beta == 0 ? 0 : a->beta * (double)a->C[at];
                ref_put(a->C, a->C16, at, a->alpha * sum[j] + added);
            }
        }
    }
}

#define PRODUCT_OF(a)                                                                                        \
    .trans_a = (a)->trans_a, .trans_b = (a)->trans_b, .M = (a)->M, .N = (a)->N, .K = (a)->K,                 \
    .lda = (a)->lda, .ldb = (a)->ldb, .ldc = (a)->ldc, .alpha = (double)(a)->alpha,                          \
    .beta = (double)(a)->beta, .C = (a)->C

void ref_matmul(void *ctx, const struct matmul_args *a)
{
    (void)ctx;
    multiply(&(struct product){ PRODUCT_OF(a), .A = a->A, .B = a->B });
}

void ref_matmul_bf16(void *ctx, const struct matmul_bf16_args *a)
{
    (void)ctx;
    multiply(&(struct product){ PRODUCT_OF(a), .A16 = a->A, .B16 = a->B, .C16 = a->C16 });
}
