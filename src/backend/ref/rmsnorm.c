#include "backend/ref/ref.h"

#include <math.h>

void ref_rmsnorm_fwd(void *ctx, const struct rmsnorm_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        const float *x = a->x + n * a->d;
        double squares = 0;
        for (size_t i = 0; i < a->d; i++)
            squares += (double)x[i] * (double)x[i];
        double rstd = 1 / sqrt(squares / (double)a->d + (double)a->eps);
        for (size_t i = 0; i < a->d; i++) {
            if (a->x16)
                a->x16[n * a->d + i] = ddl_bf16_round(x[i]);
            ref_put(a->y, a->y16, n * a->d + i, (double)x[i] * rstd * (double)a->w[i]);
        }
        if (a->rstd)
            a->rstd[n] = (float)rstd;
    }
}

/* dx = rstd (w dy - x rstd^2 mean(w dy x)), dw += dy x rstd */
void ref_rmsnorm_bwd(void *ctx, const struct rmsnorm_grad_args *a)
{
    (void)ctx;
    for (size_t i = 0; i < a->d; i++) {
        double dw = 0;
        for (size_t n = 0; n < a->N; n++)
            dw += (double)a->dy[n * a->d + i] * (double)a->x[n * a->d + i] * (double)a->rstd[n];
        a->dw[i] += (float)dw;
    }
    for (size_t n = 0; n < a->N; n++) {
        const float *x = a->x + n * a->d, *dy = a->dy + n * a->d;
        const float *dx = a->dx + n * a->d;
        double rstd = a->rstd[n], dot = 0;
        for (size_t i = 0; i < a->d; i++)
            dot += (double)dy[i] * (double)a->w[i] * (double)x[i];
        for (size_t i = 0; i < a->d; i++) {
            double g =
                rstd * ((double)dy[i] * (double)a->w[i] - (double)x[i] * rstd * rstd * dot / (double)a->d);
            ref_put(a->dx, a->dx16, n * a->d + i, a->accumulate ? (double)dx[i] + g : g);
        }
    }
}
