/* Ops on flat arrays: tanh, GELU, fill, bias. */
#include "backend/ref/ref.h"

#include <math.h>

void ref_tanh_fwd(void *ctx, const struct tanh_args *a)
{
    (void)ctx;
    for (size_t i = 0; i < a->n; i++)
        a->y[i] = (float)tanh((double)a->x[i]);
}

void ref_tanh_bwd(void *ctx, const struct tanh_grad_args *a)
{
    (void)ctx;
    for (size_t i = 0; i < a->n; i++)
        a->dx[i] = (float)((double)a->dy[i] * (1 - (double)a->y[i] * (double)a->y[i]));
}

static double normal_cdf(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752440);
}

void ref_gelu_fwd(void *ctx, const struct gelu_args *a)
{
    (void)ctx;
    for (size_t i = 0; i < a->n; i++)
        a->y[i] = (float)((double)a->x[i] * normal_cdf((double)a->x[i]));
}

/* gelu'(x) = Phi(x) + x phi(x) */
void ref_gelu_bwd(void *ctx, const struct gelu_grad_args *a)
{
    (void)ctx;
    for (size_t i = 0; i < a->n; i++) {
        double x = a->x[i], density = 0.39894228040143267794 * exp(-x * x / 2);
        a->dx[i] = (float)((double)a->dy[i] * (normal_cdf(x) + x * density));
    }
}

void ref_fill(void *ctx, const struct fill_args *a)
{
    (void)ctx;
    for (size_t i = 0; i < a->n; i++)
        a->x[i] = a->value;
}

void ref_bias_fwd(void *ctx, const struct bias_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        for (size_t i = 0; i < a->d; i++)
            a->y[n * a->d + i] += a->b[i];
    }
}

void ref_bias_bwd(void *ctx, const struct bias_grad_args *a)
{
    (void)ctx;
    for (size_t i = 0; i < a->d; i++) {
        double sum = 0;
        for (size_t n = 0; n < a->N; n++)
            sum += (double)a->dy[n * a->d + i];
        a->db[i] += (float)sum;
    }
}
