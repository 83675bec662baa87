#include "backend/ref/ref.h"

#include <math.h>

void ref_project_fwd(void *ctx, const struct project_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        for (size_t j = 0; j < a->c; j++) {
            double z = a->b[j];
            for (size_t i = 0; i < a->d; i++)
                z += (double)a->W[j * a->d + i] * (double)a->x[n * a->d + i];
            a->y[n * a->c + j] = (float)(a->sigmoid ? (double)a->scale / (1 + exp(-z)) : z);
        }
    }
}

/* dL/dz of output (n, j): with y = s sigma(z), sigma' = sigma (1 - sigma) */
static double logit_grad(const struct project_grad_args *a, size_t nj)
{
    double dy = a->dy[nj], y = a->y[nj];
    return a->sigmoid ? dy * y * (1 - y / (double)a->scale) : dy;
}

void ref_project_bwd(void *ctx, const struct project_grad_args *a)
{
    (void)ctx;
    for (size_t j = 0; j < a->c; j++) {
        double db = 0;
        for (size_t n = 0; n < a->N; n++)
            db += logit_grad(a, n * a->c + j);
        a->db[j] += (float)db;
        for (size_t i = 0; i < a->d; i++) {
            double dw = 0;
            for (size_t n = 0; n < a->N; n++)
                dw += logit_grad(a, n * a->c + j) * (double)a->x[n * a->d + i];
            a->dW[j * a->d + i] += (float)dw;
        }
    }
    for (size_t n = 0; n < a->N; n++) {
        for (size_t i = 0; i < a->d; i++) {
            double dx = a->dx[n * a->d + i];
            for (size_t j = 0; j < a->c; j++)
                dx += logit_grad(a, n * a->c + j) * (double)a->W[j * a->d + i];
            a->dx[n * a->d + i] = (float)dx;
            if (a->dx16)
                a->dx16[n * a->d + i] = ddl_bf16_round((float)dx);
        }
    }
}
