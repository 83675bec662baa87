/* SwiGLU and functions of single numbers. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vec.h"
#include "backend/cpu/kernels/vmath.h"

void DDL_KERNEL(swiglu_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct swiglu_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        const float *u = a->ug + n * 2 * a->m, *g = u + a->m;
        float *s = a->s + n * a->m;
#pragma omp simd
        for (size_t i = 0; i < a->m; i++)
            s[i] = u[i] * vsigmoid(u[i]) * g[i];
    }
}

/* silu' = sigma (1 + u (1 - sigma)) */
void DDL_KERNEL(swiglu_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct swiglu_grad_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        const float *u = a->ug + n * 2 * a->m, *g = u + a->m, *ds = a->ds + n * a->m;
        float *du = a->dug + n * 2 * a->m, *dg = du + a->m;
#pragma omp simd
        for (size_t i = 0; i < a->m; i++) {
            float sigma = vsigmoid(u[i]), silu = u[i] * sigma, slope = sigma + silu * (1 - sigma);
            float grad_u = ds[i] * g[i] * slope, grad_g = ds[i] * silu;
            du[i] = grad_u;
            dg[i] = grad_g;
        }
    }
}

void DDL_KERNEL(tanh_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct tanh_args *a = args;
    const float *x = a->x;
    float *y = a->y;
    (void)scratch;
#pragma omp simd
    for (size_t i = lo; i < hi; i++)
        y[i] = vtanh(x[i]);
}

void DDL_KERNEL(tanh_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct tanh_grad_args *a = args;
    const float *y = a->y, *dy = a->dy;
    float *dx = a->dx;
    (void)scratch;
#pragma omp simd
    for (size_t i = lo; i < hi; i++)
        dx[i] = dy[i] * (1 - y[i] * y[i]);
}

/* The library's erfc, one number at a time: the generic block alone uses GELU, and 1 + erf would lose the
 * left tail. */
static float normal_cdf(float x)
{
    return 0.5f * erfcf(-x * 0.707106781f);
}

void DDL_KERNEL(gelu_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct gelu_args *a = args;
    (void)scratch;
    for (size_t i = lo; i < hi; i++)
        a->y[i] = a->x[i] * normal_cdf(a->x[i]);
}

/* gelu' = Phi(x) + x phi(x) */
void DDL_KERNEL(gelu_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct gelu_grad_args *a = args;
    (void)scratch;
    for (size_t i = lo; i < hi; i++) {
        float x = a->x[i], density = 0.398942280f * vexp(-0.5f * x * x);
        a->dx[i] = a->dy[i] * (normal_cdf(x) + x * density);
    }
}
