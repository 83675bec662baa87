/* Softmax: of the loss, and of attention's score blocks. */
#include "backend/cpu/kernels/bf16.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/softmax.h"

#include <string.h>

/* The entropy is a difference, and needs shorter runs than exp_sum. */
enum { SHORT_RUN = 64 };

void DDL_KERNEL(cross_entropy)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct cross_entropy_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        float *z = a->z + n * a->V;
        int32_t target = a->targets[n];
        if (target < 0) {
            a->loss[n] = 0;
            if (a->grad)
                memset(z, 0, a->V * sizeof *z);
            continue;
        }
        float top = largest(a->V, z), at_target = z[target];
        double total = exp_sum(a->V, z, 1, top, a->grad ? z : NULL);
        a->loss[n] = (float)(log(total) + ((double)top - (double)at_target));
        if (!a->grad)
            continue;
        float factor = (float)((double)*a->grad_scale / total);
        /* the target's own p - 1 = -(sum of the others): in double, since both may be near 1 */
        double of_target = ((double)z[target] - total) / total;
#pragma omp simd
        for (size_t j = 0; j < a->V; j++)
            z[j] *= factor;
        z[target] = (float)((double)*a->grad_scale * of_target);
    }
}

void DDL_KERNEL(loss_tile)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct loss_tile_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        const float *z = a->z + n * a->n;
        float top = largest(a->n, z);
        double before = 0;
        if (a->first) {
            top = a->top[n] > top ? a->top[n] : top;
            before = a->total[n] * exp((double)a->top[n] - (double)top);
        }
        a->top[n] = top;
        a->total[n] = before + exp_sum_in_vectors(a->n, z, 1, top, NULL);
        size_t target = (size_t)a->targets[n];
        if (a->targets[n] >= 0 && target >= a->first && target - a->first < a->n)
            a->at_target[n] = z[target - a->first];
        if (a->loss)
            a->loss[n] =
                a->targets[n] < 0 ? 0 : (float)(log(a->total[n]) + ((double)top - (double)a->at_target[n]));
    }
}

void DDL_KERNEL(loss_grad)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct loss_grad_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        const float *z = a->z + n * a->n;
        uint16_t *dz = a->dz + n * a->n;
        int32_t target = a->targets[n];
        if (target < 0) {
            memset(dz, 0, a->n * sizeof *dz);
            continue;
        }
        float top = a->top[n], factor = (float)((double)*a->grad_scale / a->total[n]);
        for (size_t first = 0; first < a->n; first += RUN) {
            float part[RUN];
            size_t width = a->n - first < RUN ? a->n - first : RUN, j = 0;
            for (; j < width; j += V)
                store(part + j, exp_of(load_within(z + first, j, width) - splat(top)) * splat(factor));
            round_row(width, part, dz + first);
        }
        size_t at = (size_t)target - a->first;
        if ((size_t)target >= a->first && at < a->n) {
            /* p - 1 = -(sum of the others): in double, since both may be near 1 */
            double of_target = ((double)vexp(z[at] - top) - a->total[n]) / a->total[n];
            dz[at] = ddl_bf16_round((float)((double)*a->grad_scale * of_target));
        }
    }
}

static int32_t rank_of(size_t n, const float *z, size_t target)
{
    float own = z[target];
    int32_t above = 0;
#pragma omp simd reduction(+ : above)
    for (size_t j = 0; j < n; j++)
        above += z[j] > own;
    for (size_t j = 0; j < target; j++)
        above += z[j] == own;
    return above;
}

/* With t = z - top: log sum(exp t) - sum(t exp t) / sum(exp t). */
static float entropy_of(size_t n, const float *z)
{
    float top = largest(n, z);
    double total = 0, weighted = 0;
    for (size_t first = 0; first < n; first += SHORT_RUN) {
        size_t end = n - first < SHORT_RUN ? n : first + SHORT_RUN;
        float sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
        for (size_t j = first; j < end; j++) {
            float t = z[j] - top, p = vexp(t);
            sum += p;
            product += t * p;
        }
        total += (double)sum;
        weighted += (double)product;
    }
    return (float)(log(total) - weighted / total);
}

void DDL_KERNEL(rank)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct rank_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        const float *z = a->z + n * a->V;
        a->rank[n] = a->targets[n] < 0 ? -1 : rank_of(a->V, z, (size_t)a->targets[n]);
        if (a->entropy)
            a->entropy[n] = entropy_of(a->V, z);
    }
}

void DDL_KERNEL(softmax_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct softmax_args *a = args;
    (void)scratch;
    for (size_t r = lo; r < hi; r++) {
        float *S = a->S + r * a->span;
        size_t n = seen(a->first, r, a->key, a->span);
        if (n > 0)
            add_scores(a, r, S, n, false);
        memset(S + n, 0, (a->span - n) * sizeof *S);
    }
}

void DDL_KERNEL(softmax_finish)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct softmax_args *a = args;
    (void)scratch;
    for (size_t r = lo; r < hi; r++) {
        float *y = a->y + r * a->y_stride, by = (float)(1 / a->total[r]);
#pragma omp simd
        for (size_t i = 0; i < a->h; i++)
            y[i] *= by;
        if (a->y16)
            round_row(a->h, y, a->y16 + r * a->y16_stride);
        if (a->lse)
            a->lse[r * a->lse_stride] = (float)((double)a->top[r] + log(a->total[r]));
    }
}

void DDL_KERNEL(softmax_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct softmax_grad_args *a = args;
    (void)scratch;
    for (size_t r = lo; r < hi; r++) {
        float *S = a->S + r * a->span, *dP = a->dP + r * a->span;
        size_t n = seen(a->first, r, a->key, a->span);
        grad_row(a, r, S, dP, n);
        memset(S + n, 0, (a->span - n) * sizeof *S);
        memset(dP + n, 0, (a->span - n) * sizeof *dP);
    }
}
