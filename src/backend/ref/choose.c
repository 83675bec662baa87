/* The likeliest ids of a row of logits, and the choice of one. Without memory there are none: ids are -1. */
#include "backend/ref/ref.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* An id and what it counts. */
struct candidate {
    float z;
    int32_t id;
    uint64_t weight;
};

static int by_likelihood(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->z != y->z ? (x->z < y->z) - (x->z > y->z) : (x->id > y->id) - (x->id < y->id);
}

static int by_id(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

void ref_likeliest(void *ctx, const struct likeliest_args *a)
{
    (void)ctx;
    struct candidate *all = ddl_mem_alloc(a->V * sizeof *all);
    for (size_t row = 0; row < a->N; row++) {
        const float *z = a->z + row * a->V;
        double total = 0;
        size_t n = 0;
        for (size_t id = 0; all && id < a->V; id++) {
            if (!isnan(z[id]))
                all[n++] = (struct candidate){ .z = z[id], .id = (int32_t)id };
        }
        if (n)
            qsort(all, n, sizeof *all, by_likelihood);
        for (size_t id = 0; n && id < a->V; id++)
            total += exp((double)z[id] - (double)all[0].z);
        for (size_t i = 0; i < a->k; i++) {
            a->id[row * a->k + i] = i < n ? all[i].id : -1;
            a->logprob[row * a->k + i] =
                i < n ? (float)((double)all[i].z - (double)all[0].z - log(total)) : 0;
        }
    }
    ddl_mem_free(all);
}

static uint64_t sum_of(const struct candidate *all, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += all[i].weight;
    return sum;
}

/* As many of the n candidates, which begin with the likeliest, as the row's limits leave. */
static size_t limit(const struct choose_args *a, size_t row, const struct candidate *all, size_t n)
{
    size_t k = a->top_k[row] > 0 && (size_t)a->top_k[row] < n ? (size_t)a->top_k[row] : n, m = 0;
    if (a->top_p[row] < 1) {
        double least = ceil((double)a->top_p[row] * (double)sum_of(all, k));
        for (uint64_t sum = 0; m < k && (m == 0 || (double)sum < least); m++)
            sum += all[m].weight;
        k = m;
    }
    double least = ceil((double)a->min_p[row] / (double)DDL_WEIGHT_UNIT);
    while (k > 1 && (double)all[k - 1].weight < least)
        k--;
    return k;
}

/* Of the n ids of z; `all`: (n) scratch, or NULL (no memory: -1). */
static int32_t choose(const struct choose_args *a, size_t row, const float *z, struct candidate *all)
{
    size_t n = 0, i = 0;
    for (size_t id = 0; all && id < a->n; id++) {
        if (isfinite(z[id]))
            all[n++] = (struct candidate){ .z = z[id], .id = (int32_t)id };
    }
    if (n == 0)
        return -1;
    qsort(all, n, sizeof *all, by_likelihood);
    if (a->temperature[row] == 0)
        return all[0].id;
    for (size_t j = 0; j < n; j++)
        all[j].weight = (uint64_t)(exp(((double)all[j].z - (double)all[0].z) / (double)a->temperature[row]) /
                                       (double)DDL_WEIGHT_UNIT +
                                   0.5);
    n = limit(a, row, all, n);
    qsort(all, n, sizeof *all, by_id);
    double total = (double)sum_of(all, n);
    for (uint64_t sum = all[0].weight; i + 1 < n && (double)sum <= floor(a->u[row] * total);)
        sum += all[++i].weight;
    return all[i].id;
}

void ref_choose(void *ctx, const struct choose_args *a)
{
    (void)ctx;
    struct candidate *all = ddl_mem_alloc(a->n * sizeof *all);
    for (size_t row = 0; row < a->N; row++) {
        float *z = a->z + row * a->V, *before = a->before + row * a->changes;
        const int32_t *changed = a->changed + row * a->changes;
        for (size_t i = 0; i < a->changes; i++) {
            float repeat = a->repeat[row * a->changes + i], shift = a->shift[row * a->changes + i];
            before[i] = changed[i] < 0 ? 0 : z[changed[i]];
            if (changed[i] >= 0)
                z[changed[i]] = (before[i] > 0 ? before[i] / repeat : before[i] * repeat) + shift;
        }
        if (a->temperature[row] >= 0)
            a->id[row] = choose(a, row, z, all);
        for (size_t i = 0; i < a->changes; i++) {
            if (changed[i] >= 0)
                z[changed[i]] = before[i];
        }
    }
    ddl_mem_free(all);
}
