/* Residual rules other than delta. */
#include "backend/ref/ref.h"

void ref_scale_fwd(void *ctx, const struct scale_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        for (size_t i = 0; i < a->d; i++) {
            double lambda = (double)a->lambda[a->w == 1 ? 0 : i];
            float *X = &a->X[n * a->d + i];
            *X = (float)((double)*X + lambda * (double)a->f[n * a->d + i]);
        }
    }
}

void ref_scale_bwd(void *ctx, const struct scale_grad_args *a)
{
    (void)ctx;
    for (size_t j = 0; j < a->w; j++) {
        double sum = 0;
        for (size_t ni = 0; ni < a->N * a->d; ni++) {
            if (a->w == 1 || ni % a->d == j)
                sum += (double)a->G[ni] * (double)a->f[ni];
        }
        a->dlambda[j] += (float)sum;
    }
    for (size_t ni = 0; ni < a->N * a->d; ni++) {
        double lambda = (double)a->lambda[a->w == 1 ? 0 : ni % a->d];
        a->df[ni] = (float)(lambda * (double)a->G[ni]);
        if (a->X)
            a->X[ni] = (float)((double)a->X[ni] - lambda * (double)a->f[ni]);
    }
}
