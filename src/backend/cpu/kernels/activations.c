/* SwiGLU and functions of single numbers. */
#include "backend/cpu/kernels/bf16.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vmath.h"

static void swiglu_bf16_fwd(const struct swiglu_args *a, size_t lo, size_t hi)
{
    for (size_t n = lo; n < hi; n++) {
        const uint16_t *u16 = a->ug16 + n * a->ug_stride, *g16 = u16 + a->m;
        uint16_t *s = a->s16 + n * a->s_stride;
#pragma omp simd
        for (size_t i = 0; i < a->m; i++) {
            float u = ddl_bf16_widen(u16[i]), g = ddl_bf16_widen(g16[i]);
            s[i] = ddl_bf16_round(u * vsigmoid(u) * g);
        }
    }
}

void DDL_KERNEL(swiglu_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct swiglu_args *a = args;
    (void)scratch;
    if (a->ug16) {
        swiglu_bf16_fwd(a, lo, hi);
        return;
    }
    for (size_t n = lo; n < hi; n++) {
        const float *u = a->ug + n * a->ug_stride, *g = u + a->m;
        float *s = a->s + n * a->s_stride;
#pragma omp simd
        for (size_t i = 0; i < a->m; i++)
            s[i] = u[i] * vsigmoid(u[i]) * g[i];
    }
}

/* silu' = sigma (1 + u (1 - sigma)) */
static void swiglu_bf16_bwd(const struct swiglu_grad_args *a, size_t lo, size_t hi)
{
    for (size_t n = lo; n < hi; n++) {
        const uint16_t *u16 = a->ug16 + n * a->ug_stride, *g16 = u16 + a->m;
        const float *ds = a->ds + n * a->m;
        uint16_t *du = a->dug16 + n * a->ug_stride, *dg = du + a->m;
#pragma omp simd
        for (size_t i = 0; i < a->m; i++) {
            float u = ddl_bf16_widen(u16[i]), g = ddl_bf16_widen(g16[i]);
            float sigma = vsigmoid(u), silu = u * sigma, slope = sigma + silu * (1 - sigma);
            du[i] = ddl_bf16_round(ds[i] * g * slope);
            dg[i] = ddl_bf16_round(ds[i] * silu);
        }
    }
}

void DDL_KERNEL(swiglu_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct swiglu_grad_args *a = args;
    (void)scratch;
    if (a->ug16) {
        swiglu_bf16_bwd(a, lo, hi);
        return;
    }
    for (size_t n = lo; n < hi; n++) {
        const float *u = a->ug + n * a->ug_stride, *g = u + a->m, *ds = a->ds + n * a->m;
        float *du = a->dug + n * a->ug_stride, *dg = du + a->m;
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

/* One row; the constants: which of v (and y) and first are in bfloat16. */
INLINE void mix_row(const struct mix_values_args *a, size_t n, float m0, float m1, const bool v16,
                    const bool first16)
{
    size_t v = n * a->v_stride, first = n * a->width, y = n * a->y_stride;
#pragma omp simd
    for (size_t i = 0; i < a->width; i++) {
        float sum = m0 * get(a->v, a->v16, v + i, v16) + m1 * get(a->first, a->first16, first + i, first16);
        set(a->y, a->y16, y + i, sum, v16);
    }
}

void DDL_KERNEL(mix_values_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct mix_values_args *a = args;
    float m0 = a->mix ? a->mix[0] : 1, m1 = a->mix ? a->mix[1] : 1;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        if (!a->v16)
            mix_row(a, n, m0, m1, false, false);
        else if (a->first16)
            mix_row(a, n, m0, m1, true, true);
        else
            mix_row(a, n, m0, m1, true, false);
    }
}

/* One row; `bf16`: v, first and dv in that format. */
INLINE void mix_values_row_bwd(const struct mix_values_grad_args *a, size_t n, const bool bf16,
                               const bool accumulate, double *dmix)
{
    size_t at = n * a->width, v = n * a->v_stride, dv = n * a->dv_stride;
    float m0 = a->mix[0], m1 = a->mix[1], own = 0, other = 0, *dfirst = a->dfirst + at;
#pragma omp simd reduction(+ : own, other)
    for (size_t i = 0; i < a->width; i++) {
        float g = get(a->dv, a->dv16, dv + i, bf16);
        own += g * get(a->v, a->v16, v + i, bf16);
        other += g * get(a->first, a->first16, at + i, bf16);
        set(a->dv, a->dv16, dv + i, m0 * g, bf16);
        dfirst[i] = accumulate ? dfirst[i] + m1 * g : m1 * g;
    }
    dmix[0] += (double)own;
    dmix[1] += (double)other;
}

void DDL_KERNEL(mix_values_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct mix_values_grad_args *a = args;
    double dmix[2] = { 0 }; /* many rows, and their sums may cancel */
    for (size_t n = lo; n < hi; n++) {
        if (a->dv16 && a->accumulate)
            mix_values_row_bwd(a, n, true, true, dmix);
        else if (a->dv16)
            mix_values_row_bwd(a, n, true, false, dmix);
        else if (a->accumulate)
            mix_values_row_bwd(a, n, false, true, dmix);
        else
            mix_values_row_bwd(a, n, false, false, dmix);
    }
    scratch[0] += (float)dmix[0];
    scratch[1] += (float)dmix[1];
}
