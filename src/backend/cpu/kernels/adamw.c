#include "backend/cpu/kernels/bf16.h"
#include "backend/cpu/kernels/kernels.h"
#include "base/bf16.h"

#include <math.h>

enum { IN_CACHE = 4096 /* numbers that are rounded while they are still in the cache */ };

INLINE void update(const struct adamw_part *part, size_t lo, size_t hi)
{
    const struct adamw_args *a = part->all;
    float *restrict p = part->p, *restrict m = part->m, *restrict v = part->v;
    const float *restrict g = part->g;
    float beta1 = a->beta1, beta2 = a->beta2, new1 = 1 - beta1, new2 = 1 - beta2, g_scale = *a->g_scale;
    float decay = part->lr * part->weight_decay, step = part->lr / (float)a->rates[1];
    float bias2 = 1 / (float)a->rates[2], eps = a->eps;
#pragma omp simd
    for (size_t i = lo; i < hi; i++) {
        float grad = g[i] * g_scale;
        float m_i = beta1 * m[i] + new1 * grad, v_i = beta2 * v[i] + new2 * grad * grad;
        m[i] = m_i;
        v[i] = v_i;
        p[i] -= decay * p[i] + step * m_i / (sqrtf(v_i * bias2) + eps);
    }
}

void DDL_KERNEL(adamw)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct adamw_part *part = args;
    (void)scratch;
    for (size_t first = lo; first < hi; first += IN_CACHE) {
        size_t end = hi - first < IN_CACHE ? hi : first + IN_CACHE;
        update(part, first, end);
        if (part->p16)
            round_row(end - first, part->p + first, part->p16 + first);
    }
}
