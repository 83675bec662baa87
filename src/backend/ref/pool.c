#include "backend/ref/ref.h"

#include <math.h>

/* w_a . X_:j / sqrt(d) */
static double score(const struct pool_args *a, const float *X, size_t j)
{
    double sum = 0;
    for (size_t i = 0; i < a->d; i++)
        sum += (double)a->w_a[i] * (double)X[i * a->c + j];
    return sum / sqrt((double)a->d);
}

static void channel_softmax(const struct pool_args *a, const float *X, float *out)
{
    double top = -INFINITY, total = 0;
    for (size_t j = 0; j < a->c; j++)
        top = fmax(top, score(a, X, j));
    for (size_t j = 0; j < a->c; j++)
        total += exp(score(a, X, j) - top);
    for (size_t j = 0; j < a->c; j++)
        out[j] = (float)(exp(score(a, X, j) - top) / total);
}

void ref_pool_fwd(void *ctx, const struct pool_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        const float *X = a->X + n * a->d * a->c;
        if (a->w_a)
            channel_softmax(a, X, a->a + n * a->c);
        for (size_t i = 0; i < a->d; i++) {
            double sum = 0;
            for (size_t j = 0; j < a->c; j++)
                sum += (a->w_a ? (double)a->a[n * a->c + j] : 1 / (double)a->c) * (double)X[i * a->c + j];
            a->z[n * a->d + i] = (float)sum;
        }
    }
}

/* Through the weights: da_j = dz . X_:j, dscore_j = a_j (da_j - sum_l a_l da_l), score = w_a . X_:j / sqrt(d)
 */
static void attention_row_bwd(const struct pool_grad_args *a, size_t n)
{
    const float *X = a->X + n * a->d * a->c, *weight = a->a + n * a->c, *dz = a->dz + n * a->d;
    double mean = 0;
    for (size_t i = 0; i < a->d; i++) {
        for (size_t j = 0; j < a->c; j++)
            mean += (double)weight[j] * (double)dz[i] * (double)X[i * a->c + j];
    }
    for (size_t j = 0; j < a->c; j++) {
        double da = 0;
        for (size_t i = 0; i < a->d; i++)
            da += (double)dz[i] * (double)X[i * a->c + j];
        double dscore = (double)weight[j] * (da - mean) / sqrt((double)a->d);
        for (size_t i = 0; i < a->d; i++) {
            a->dw_a[i] += (float)(dscore * (double)X[i * a->c + j]);
            a->dX[n * a->d * a->c + i * a->c + j] += (float)(dscore * (double)a->w_a[i]);
        }
    }
}

void ref_pool_bwd(void *ctx, const struct pool_grad_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        if (a->w_a)
            attention_row_bwd(a, n);
        for (size_t i = 0; i < a->d; i++) {
            for (size_t j = 0; j < a->c; j++) {
                double weight = a->w_a ? (double)a->a[n * a->c + j] : 1 / (double)a->c;
                a->dX[(n * a->d + i) * a->c + j] += (float)(weight * (double)a->dz[n * a->d + i]);
            }
        }
    }
}
