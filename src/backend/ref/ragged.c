/* Ragged batches: rows of earlier passes, and the ops that write a cache. */
#include "backend/ref/ref.h"

const float *ref_earlier_row(const struct ddl_ragged *ragged, size_t n, size_t t, size_t back, size_t keep,
                             size_t width, const float *X, const float *history)
{
    if (!ragged->B)
        return t >= back ? X + (n - back) * width : NULL;
    size_t b = (size_t)ragged->sequence[n], position = (size_t)ragged->position[n];
    t = position - (size_t)ragged->past[b];
    if (position < back)
        return NULL;
    return t >= back ? X + (n - back) * width
                     : history + ((size_t)ragged->from[b] * keep + keep + t - back) * width;
}

void ref_cache_append(void *ctx, const struct cache_append_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->ragged.N; n++) {
        size_t slot = (size_t)a->ragged.slot[a->ragged.sequence[n]];
        size_t at = slot * a->slot_stride + (size_t)a->ragged.position[n] * a->width;
        for (size_t i = 0; i < a->width; i++) {
            float x = ref_get(a->src, a->src16, n * a->src_stride + i);
            ref_put(a->dst, a->dst16, at + i, (double)x);
        }
    }
}

void ref_history_push(void *ctx, const struct history_push_args *a)
{
    (void)ctx;
    for (size_t b = 0; b < a->ragged.B; b++) {
        size_t first = (size_t)a->ragged.first[b], T = (size_t)a->ragged.first[b + 1] - first;
        const float *from = a->history + (size_t)a->ragged.from[b] * a->keep * a->width;
        float *to = a->history + (size_t)a->ragged.to[b] * a->keep * a->width;
        for (size_t row = 0; row < a->keep; row++) {
            size_t at = row + T; /* in the old history followed by the new rows */
            const float *src = at < a->keep ? from + at * a->width : a->X + (first + at - a->keep) * a->width;
            for (size_t i = 0; i < a->width; i++)
                to[row * a->width + i] = src[i];
        }
    }
}
