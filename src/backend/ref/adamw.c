#include "backend/ref/ref.h"

#include "base/bf16.h"

#include <math.h>

void ref_sum(void *ctx, const struct sum_args *a)
{
    (void)ctx;
    double sum = 0;
    for (size_t i = 0; i < a->n; i++)
        sum += (double)a->x[i];
    *a->sum = a->accumulate ? *a->sum + sum : sum;
}

void ref_sum_squares(void *ctx, const struct sum_args *a)
{
    (void)ctx;
    double sum = 0;
    for (size_t i = 0; i < a->n; i++)
        sum += (double)a->x[i] * (double)a->x[i];
    *a->sum = a->accumulate ? *a->sum + sum : sum;
}

void ref_adamw(void *ctx, const struct adamw_args *a)
{
    (void)ctx;
    for (size_t i = 0; i < a->n; i++) {
        double g = (double)a->g[i] * (double)a->g_scale;
        double m = (double)a->beta1 * (double)a->m[i] + (1 - (double)a->beta1) * g;
        double v = (double)a->beta2 * (double)a->v[i] + (1 - (double)a->beta2) * g * g;
        double p = (double)a->p[i] * (1 - (double)a->lr * (double)a->weight_decay);
        a->m[i] = (float)m;
        a->v[i] = (float)v;
        a->p[i] = (float)(p - (double)a->lr * (m / (double)a->bias1) /
                                  (sqrt(v / (double)a->bias2) + (double)a->eps));
        if (a->p16)
            a->p16[i] = ddl_bf16_round(a->p[i]);
    }
}
