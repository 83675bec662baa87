#include "infer/sampler.h"

#include <math.h>
#include <stdbool.h>

static int32_t largest(const float *logits, size_t V)
{
    int32_t best = -1;
    for (size_t i = 0; i < V; i++) {
        if (isfinite(logits[i]) && (best < 0 || logits[i] > logits[best]))
            best = (int32_t)i;
    }
    return best;
}

/* ---- a heap of ids, the likeliest on top: only as many are put in order as are needed ---- */

static bool before(const float *logits, int32_t a, int32_t b)
{
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

static void sift_down(int32_t *heap, size_t n, size_t at, const float *logits)
{
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= n)
            return;
        if (child + 1 < n && before(logits, heap[child + 1], heap[child]))
            child++;
        if (!before(logits, heap[child], heap[at]))
            return;
        int32_t id = heap[at];
        heap[at] = heap[child];
        heap[child] = id;
        at = child;
    }
}

/* Moves the most probable id of a heap of n to index n - 1, behind the remaining heap. */
static int32_t pop(int32_t *heap, size_t n, const float *logits)
{
    int32_t top = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = top;
    sift_down(heap, n - 1, 0, logits);
    return top;
}

/* exp((z - max) / temperature): never above 1, and 0 for what is not finite. */
static double weight(const struct ddl_sampler *s, float z, float max)
{
    return isfinite(z) ? exp(((double)z - (double)max) / (double)s->temperature) : 0;
}

/* The id at share u of the total weight, in the order of ids. */
static int32_t pick_any(const struct ddl_sampler *s, const float *logits, size_t V, float max, double u)
{
    double total = 0, sum = 0;
    int32_t last = -1;
    for (size_t i = 0; i < V; i++)
        total += weight(s, logits[i], max);
    for (size_t i = 0; i < V; i++) {
        double w = weight(s, logits[i], max);
        if (w == 0)
            continue;
        last = (int32_t)i;
        sum += w;
        if (sum > u * total)
            break;
    }
    return last; /* rounding may leave the sum below the total: then the last one that has weight */
}

/* The same among the k most probable ids, up to total probability top_p and down to min_p. The i-th most
 * probable one, once popped, is heap[n - 1 - i]. */
static int32_t pick_top(const struct ddl_sampler *s, const float *logits, size_t V, float max, double u)
{
    size_t n = 0, popped = 0, kept = 0;
    double total = 0, nucleus = 0, sum = 0;
    for (size_t i = 0; i < V; i++) {
        if (isfinite(logits[i]))
            s->heap[n++] = (int32_t)i;
    }
    for (size_t at = n / 2; at-- > 0;)
        sift_down(s->heap, n, at, logits);
    size_t k = s->top_k && s->top_k < n ? s->top_k : n;
    for (; k < n && popped < k; popped++)
        total += weight(s, logits[pop(s->heap, n - popped, logits)], max);
    for (size_t i = 0; k == n && i < n; i++)
        total += weight(s, logits[s->heap[i]], max);
    while (kept < k && (kept == 0 || s->top_p >= 1 || nucleus < (double)s->top_p * total)) {
        if (kept == popped)
            pop(s->heap, n - popped++, logits);
        double w = weight(s, logits[s->heap[n - 1 - kept]], max);
        if (w < (double)s->min_p) /* the largest weight is 1 */
            break;
        nucleus += w;
        kept++;
    }
    for (size_t i = 0; i < kept; i++) {
        int32_t id = s->heap[n - 1 - i];
        sum += weight(s, logits[id], max);
        if (sum > u * nucleus)
            return id;
    }
    return s->heap[n - kept];
}

int32_t ddl_sampler_pick(const struct ddl_sampler *sampler, const float *logits, size_t V, double u)
{
    int32_t best = largest(logits, V);
    if (best < 0 || sampler->temperature == 0 || sampler->top_k == 1)
        return best;
    if (sampler->top_p >= 1 && sampler->min_p <= 0 && (sampler->top_k == 0 || sampler->top_k >= V))
        return pick_any(sampler, logits, V, logits[best], u);
    return pick_top(sampler, logits, V, logits[best], u);
}
