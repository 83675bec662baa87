#include "backend/ref/ref.h"

#include "base/bf16.h"

#include <math.h>

void ref_sum(void *ctx, const struct sum_args *a)
{
    (void)ctx;
    double sum = 0;
    for (size_t i = 0; i < a->n; i++)
        sum += (double)a->x[i];
    *a->sum = sum;
}

void ref_sum_squares(void *ctx, const struct sum_squares_args *a)
{
    (void)ctx;
    for (size_t s = 0; s < a->sums; s++)
        a->sum[s] = 0;
    for (size_t k = 0; k < a->parts.n; k++) {
        const float *x = a->x + a->parts.begin[k];
        double sum = 0;
        for (int64_t i = 0; i < a->parts.size[k]; i++)
            sum += (double)x[i] * (double)x[i];
        a->sum[a->into ? a->into[k] : 0] += sum;
    }
}

void ref_clip(void *ctx, const struct clip_args *a)
{
    (void)ctx;
    bool finite = isfinite(*a->square);
    for (size_t i = 0; i < a->n; i++)
        finite = finite && isfinite(a->losses[i]);
    double factor = a->clip > 0 ? fmin(1, (double)a->clip / (sqrt(*a->square) + 1e-6)) : 1;
    *a->factor = finite ? (float)factor : NAN;
}

/* Part k. */
static void update(const struct adamw_args *a, size_t k)
{
    float *p = a->p + a->parts.begin[k], *m = a->m + a->moments[k], *v = a->v + a->moments[k];
    const float *g = a->g + a->parts.begin[k];
    uint16_t *p16 = a->p16 && a->copy[k] >= 0 ? a->p16 + a->copy[k] : NULL;
    double lr = (double)(float)(a->rates[0] * (double)a->lr_scale[k]);
    for (int64_t i = 0; i < a->parts.size[k]; i++) {
        double grad = (double)g[i] * (double)*a->g_scale;
        double m_i = (double)a->beta1 * (double)m[i] + (1 - (double)a->beta1) * grad;
        double v_i = (double)a->beta2 * (double)v[i] + (1 - (double)a->beta2) * grad * grad;
        double decayed = (double)p[i] * (1 - lr * (double)a->weight_decay[k]);
        m[i] = (float)m_i;
        v[i] = (float)v_i;
        p[i] = (float)(decayed - lr * (m_i / a->rates[1]) / (sqrt(v_i / a->rates[2]) + (double)a->eps));
        if (p16)
            p16[i] = ddl_bf16_round(p[i]);
    }
}

void ref_adamw(void *ctx, const struct adamw_args *a)
{
    (void)ctx;
    for (size_t k = 0; k < a->parts.n && !isnan(*a->g_scale); k++)
        update(a, k);
}
