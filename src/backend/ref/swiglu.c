#include "backend/ref/ref.h"

#include <math.h>

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

void ref_swiglu_fwd(void *ctx, const struct swiglu_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        for (size_t i = 0; i < a->m; i++) {
            double u = a->ug[n * 2 * a->m + i], g = a->ug[n * 2 * a->m + a->m + i];
            a->s[n * a->m + i] = (float)(u * sigmoid(u) * g);
        }
    }
}

/* silu'(u) = sigma (1 + u (1 - sigma)) */
void ref_swiglu_bwd(void *ctx, const struct swiglu_grad_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        for (size_t i = 0; i < a->m; i++) {
            double u = a->ug[n * 2 * a->m + i], g = a->ug[n * 2 * a->m + a->m + i], ds = a->ds[n * a->m + i];
            double sigma = sigmoid(u);
            a->dug[n * 2 * a->m + i] = (float)(ds * g * sigma * (1 + u * (1 - sigma)));
            a->dug[n * 2 * a->m + a->m + i] = (float)(ds * u * sigma);
        }
    }
}
