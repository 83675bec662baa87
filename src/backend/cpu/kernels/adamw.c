#include "backend/cpu/kernels/kernels.h"
#include "base/bf16.h"

#include <math.h>

void DDL_KERNEL(adamw)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct adamw_args *a = args;
    float *restrict p = a->p, *restrict m = a->m, *restrict v = a->v;
    const float *restrict g = a->g;
    float beta1 = a->beta1, beta2 = a->beta2, new1 = 1 - beta1, new2 = 1 - beta2, g_scale = a->g_scale;
    float decay = a->lr * a->weight_decay, step = a->lr / a->bias1, bias2 = 1 / a->bias2, eps = a->eps;
    (void)scratch;
#pragma omp simd
    for (size_t i = lo; i < hi; i++) {
        float grad = g[i] * g_scale;
        float m_i = beta1 * m[i] + new1 * grad, v_i = beta2 * v[i] + new2 * grad * grad;
        m[i] = m_i;
        v[i] = v_i;
        p[i] -= decay * p[i] + step * m_i / (sqrtf(v_i * bias2) + eps);
    }
    if (!a->p16)
        return;
    uint16_t *restrict p16 = a->p16;
#pragma omp simd
    for (size_t i = lo; i < hi; i++)
        p16[i] = ddl_bf16_round(p[i]);
}
