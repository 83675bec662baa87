#include "backend/ref/ref.h"

#include <math.h>

void ref_swiglu_fwd(void *ctx, const struct swiglu_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        for (size_t i = 0; i < a->m; i++) {
            size_t at = n * a->ug_stride + i;
            double u = (double)ref_get(a->ug, a->ug16, at), g = (double)ref_get(a->ug, a->ug16, at + a->m);
            ref_put(a->s, a->s16, n * a->s_stride + i, u * ref_sigmoid(u) * g);
        }
    }
}

/* silu'(u) = sigma (1 + u (1 - sigma)) */
void ref_swiglu_bwd(void *ctx, const struct swiglu_grad_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        for (size_t i = 0; i < a->m; i++) {
            size_t at = n * a->ug_stride + i;
            double u = (double)ref_get(a->ug, a->ug16, at), g = (double)ref_get(a->ug, a->ug16, at + a->m);
            double ds = a->ds[n * a->m + i], sigma = ref_sigmoid(u);
            ref_put(a->dug, a->dug16, at, ds * g * sigma * (1 + u * (1 - sigma)));
            ref_put(a->dug, a->dug16, at + a->m, ds * u * sigma);
        }
    }
}
