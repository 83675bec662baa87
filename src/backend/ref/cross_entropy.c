#include "backend/ref/ref.h"

#include <math.h>

void ref_cross_entropy(void *ctx, const struct cross_entropy_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        float *z = a->z + n * a->V;
        int32_t target = a->targets[n];
        double top = -INFINITY, total = 0;
        for (size_t j = 0; j < a->V; j++)
            top = fmax(top, (double)z[j]);
        for (size_t j = 0; j < a->V; j++)
            total += exp((double)z[j] - top);
        double lse = top + log(total);
        a->loss[n] = target < 0 ? 0 : (float)(lse - (double)z[target]);
        for (size_t j = 0; a->grad && j < a->V; j++) {
            double p = exp((double)z[j] - lse) - (j == (size_t)target ? 1 : 0);
            z[j] = target < 0 ? 0 : (float)((double)a->grad_scale * p);
        }
    }
}
