/* Softmax of a row: of the loss, and of attention's score blocks. */
#ifndef DDL_BACKEND_CPU_SOFTMAX_H
#define DDL_BACKEND_CPU_SOFTMAX_H

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vexp.h"

/* A long row's sum is taken run by run in double. */
enum { RUN = 512 };

/* y = exp(scale x - top), and its sum; y may be x or NULL */
INLINE double exp_sum(size_t n, const float *x, float scale, float top, float *y)
{
    double total = 0;
    for (size_t first = 0; first < n; first += RUN) {
        size_t end = n - first < RUN ? n : first + RUN;
        float sum = 0;
        if (y) {
#pragma omp simd reduction(+ : sum)
            for (size_t i = first; i < end; i++)
                sum += y[i] = vexp(x[i] * scale - top);
        } else {
#pragma omp simd reduction(+ : sum)
            for (size_t i = first; i < end; i++)
                sum += vexp(x[i] * scale - top);
        }
        total += (double)sum;
    }
    return total;
}

/* The same in vectors, which are faster but add in another order: for the loss in bfloat16 and attention with
 * AMX. float32 results keep the bits that they had in earlier versions. */
INLINE double exp_sum_in_vectors(size_t n, const float *x, float scale, float top, float *y)
{
    double total = 0;
    for (size_t first = 0; first < n; first += RUN) {
        size_t end = n - first < RUN ? n : first + RUN, i = first;
        vec sum = splat(0);
        for (; i + V <= end; i += V) {
            vec e = exp_of(load(x + i) * splat(scale) - splat(top));
            sum += e;
            if (y)
                store(y + i, e);
        }
        if (i < end) {
            vec e = exp_of(load_within(x, i, end) * splat(scale) - splat(top));
            sum += first_lanes(e, end - i);
            if (y)
                store_first(y + i, e, end - i);
        }
        total += (double)lane_sum(sum);
    }
    return total;
}

/* Columns that row r sees. */
INLINE size_t seen(size_t first, size_t row, size_t key, size_t span)
{
    size_t keys = first + row + 1;
    return keys <= key ? 0 : keys - key < span ? keys - key : span;
}

/* A row's top and total with n scores more, which become weights; its y so far is scaled to the new top.
 * While all scores are -infinity the weights are 0. */
INLINE void add_scores(const struct softmax_args *a, size_t r, float *S, size_t n, const bool in_vectors)
{
    float top = largest(n, S) * a->scale, *y = a->y + r * a->y_stride;
    double before = 0;
    if (a->key > 0 && a->total[r] != 0) {
        top = a->top[r] > top ? a->top[r] : top;
        double by = exp((double)a->top[r] - (double)top);
        float scale = (float)by;
        before = by * a->total[r];
#pragma omp simd
        for (size_t i = 0; i < a->h; i++)
            y[i] *= scale;
    }
    a->top[r] = top;
    float from = top == -INFINITY ? 0 : top;
    a->total[r] = before + (in_vectors ? exp_sum_in_vectors(n, S, a->scale, from, S)
                                       : exp_sum(n, S, a->scale, from, S));
}

/* P and dS of V scores and their dP. */
INLINE void grad_of(const struct softmax_grad_args *a, vec lse, vec mean, vec *S, vec *dP)
{
    *S = exp_of(*S * splat(a->score_scale) - lse);
    *dP = *S * (*dP - mean) * splat(a->scale);
}

/* Scores S and dP of row r, of which the first n are computed, to P and dS. */
INLINE void grad_row(const struct softmax_grad_args *a, size_t r, float *restrict S, float *restrict dP,
                     size_t n)
{
    const float *dy = a->dy + r * a->dy_stride;
    const vec lse = splat(a->lse[r * a->lse_stride]);
    float along = dot(a->h, a->y + r * a->y_stride, dy);
    const vec mean = splat(along);
    /* The first query attends to one key: y is v, and dP equals the mean. dP is computed by the same sum as
     * the mean, because another order of summation would leave a rounding error where the gradient is 0, and
     * AdamW would make full steps of it. */
    if (a->first + r == 0)
        dP[0] = dot(a->h, a->v, dy);
    size_t i = 0;
    for (; i + V <= n; i += V) {
        vec p = load(S + i), ds = load(dP + i);
        grad_of(a, lse, mean, &p, &ds);
        store(S + i, p);
        store(dP + i, ds);
    }
    if (i < n) {
        vec p = load_within(S, i, n), ds = load_within(dP, i, n);
        grad_of(a, lse, mean, &p, &ds);
        store_first(S + i, p, n - i);
        store_first(dP + i, ds, n - i);
    }
}

#endif
