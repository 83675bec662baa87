#include "backend/ref/ref.h"

#include "base/bf16.h"

#include <math.h>

static double highest(size_t n, const float *z, double top)
{
    for (size_t j = 0; j < n; j++)
        top = (double)z[j] > top ? (double)z[j] : top;
    return top;
}

void ref_cross_entropy(void *ctx, const struct cross_entropy_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        float *z = a->z + n * a->V;
        int32_t target = a->targets[n];
        double top = highest(a->V, z, -INFINITY), total = 0;
        for (size_t j = 0; j < a->V; j++)
            total += exp((double)z[j] - top);
        double lse = top + log(total);
        a->loss[n] = target < 0 ? 0 : (float)(lse - (double)z[target]);
        for (size_t j = 0; a->grad && j < a->V; j++) {
            double p = exp((double)z[j] - lse) - (j == (size_t)target ? 1 : 0);
            z[j] = target < 0 ? 0 : (float)((double)*a->grad_scale * p);
        }
    }
}

void ref_loss_tile(void *ctx, const struct loss_tile_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        const float *z = a->z + n * a->n;
        double before = a->first ? (double)a->top[n] : -INFINITY, top = highest(a->n, z, before);
        double total = a->first ? a->total[n] * exp(before - top) : 0;
        for (size_t j = 0; j < a->n; j++)
            total += exp((double)z[j] - top);
        a->top[n] = (float)top;
        a->total[n] = total;
        size_t target = (size_t)a->targets[n];
        if (a->targets[n] >= 0 && target >= a->first && target < a->first + a->n)
            a->at_target[n] = z[target - a->first];
        if (a->loss)
            a->loss[n] = a->targets[n] < 0 ? 0 : (float)(log(total) + (top - (double)a->at_target[n]));
    }
}

void ref_loss_grad(void *ctx, const struct loss_grad_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        for (size_t j = 0; j < a->n; j++) {
            double p = exp((double)a->z[n * a->n + j] - (double)a->top[n]) / a->total[n];
            p -= a->first + j == (size_t)a->targets[n] ? 1 : 0;
            a->dz[n * a->n + j] = ddl_bf16_round(a->targets[n] < 0 ? 0 : (float)((double)*a->grad_scale * p));
        }
    }
}

/* With t = z - top: log sum exp t - sum t exp t / sum exp t. */
static double entropy(size_t V, const float *z)
{
    double top = highest(V, z, -INFINITY), total = 0, weighted = 0;
    for (size_t j = 0; j < V; j++) {
        double t = (double)z[j] - top, p = exp(t);
        total += p;
        weighted += t * p;
    }
    return log(total) - weighted / total;
}

void ref_rank(void *ctx, const struct rank_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        const float *z = a->z + n * a->V;
        int32_t target = a->targets[n];
        a->rank[n] = target < 0 ? -1 : 0;
        for (size_t j = 0; target >= 0 && j < a->V; j++)
            a->rank[n] += z[j] > z[target] || (z[j] == z[target] && j < (size_t)target);
        if (a->entropy)
            a->entropy[n] = (float)entropy(a->V, z);
    }
}
