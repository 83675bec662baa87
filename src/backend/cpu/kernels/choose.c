/* The next token of a row of logits. Ids are ordered by keys, integers that compare as their logits do; a
 * limit by number or by weight is found by radix: sums over the first 11 bits of keys, of those with the
 * same first bits over the next 11, then over the last 10. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vmath.h"

#include <float.h>

enum { RUN = 256, BUCKETS = 2048, LEVELS = 3 };

struct row {
    const float *z;
    size_t n;
    float top, temperature;
};

static bool is_finite(float z)
{
    return fabsf(z) <= FLT_MAX;
}

/* 0 and -0 have the same key; that of a finite number is not 0. */
static uint32_t key_of(float z)
{
    uint32_t bits = bits_of(z + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000U;
}

static float logit_of(uint32_t key)
{
    return float_of(key >> 31 ? key & 0x7fffffffU : ~key);
}

static uint32_t weight_of(const struct row *r, float z)
{
    float units = vexp((z - r->top) / r->temperature) * (1 / DDL_WEIGHT_UNIT);
    return is_finite(z) ? (uint32_t)(int32_t)(units + 0.5f) : 0;
}

/* Where a part of the order ends: with the first `ties` ids that have this key. Key 0: nowhere. */
struct end {
    uint32_t key;
    uint64_t ties;
};

/* The weights of ids [first, first + RUN), or 1 for each finite logit; their number. */
static size_t measure(const struct row *r, bool by_weight, size_t first, uint32_t *w)
{
    size_t n = r->n - first < RUN ? r->n - first : RUN;
    if (by_weight) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            w[i] = weight_of(r, r->z[first + i]);
    } else {
        for (size_t i = 0; i < n; i++)
            w[i] = is_finite(r->z[first + i]);
    }
    return n;
}

/* Where the likeliest ids reach the limit (1 or more): in number, or in weight. */
static struct end find_end(const struct row *r, bool by_weight, uint64_t limit)
{
    static const int shifts[LEVELS] = { 21, 10, 0 }, widths[LEVELS] = { 11, 11, 10 };
    uint32_t w[RUN], key = 0; /* its bits above the level's */
    for (int level = 0; level < LEVELS; level++) {
        uint64_t sums[BUCKETS] = { 0 };
        uint32_t last = (1U << widths[level]) - 1;
        for (size_t first = 0, n; first < r->n; first += n) {
            n = measure(r, by_weight, first, w);
            for (size_t i = 0; i < n; i++) {
                uint32_t part = key_of(r->z[first + i]) >> shifts[level];
                if (level == 0 || part >> widths[level] == key)
                    sums[part & last] += w[i];
            }
        }
        uint32_t bucket = last;
        while (bucket > 0 && sums[bucket] < limit)
            limit -= sums[bucket--];
        key = key << widths[level] | bucket;
    }
    uint64_t each = by_weight ? weight_of(r, logit_of(key)) : 1;
    return (struct end){ key, each ? limit / each + (limit % each != 0) : limit };
}

/* The weight of the ids before the end that have `least` or more, up to the id, whose number goes to *id, by
 * which the sum exceeds the threshold. */
static uint64_t sum_until(const struct row *r, struct end end, uint32_t least, uint64_t threshold,
                          int32_t *id)
{
    uint64_t sum = 0, ties = 0;
    uint32_t w[RUN];
    for (size_t first = 0, n; first < r->n && sum <= threshold; first += n) {
        n = measure(r, true, first, w);
        for (size_t i = 0; i < n && sum <= threshold; i++) {
            uint32_t key = key_of(r->z[first + i]);
            if (key < end.key || w[i] < least || (key == end.key && ties++ >= end.ties))
                continue;
            sum += w[i];
            *id = (int32_t)(first + i);
        }
    }
    return sum;
}

static int32_t choose(const struct row *r, const struct choose_args *a, size_t row)
{
    size_t top_k = (size_t)a->top_k[row];
    double top_p = (double)a->top_p[row];
    struct end end = { 0 };
    int32_t id = -1;
    if (top_k > 0 && top_k < r->n)
        end = find_end(r, false, top_k);
    if (top_p < 1) {
        double limit = ceil(top_p * (double)sum_until(r, end, 0, UINT64_MAX, &id));
        end = find_end(r, true, limit < 1 ? 1 : (uint64_t)limit);
    }
    uint32_t least = (uint32_t)ceilf(a->min_p[row] * (1 / DDL_WEIGHT_UNIT));
    uint64_t total = sum_until(r, end, least, UINT64_MAX, &id);
    uint64_t threshold = (uint64_t)(a->u[row] * (double)total);
    sum_until(r, end, least, threshold < total ? threshold : total - 1, &id);
    return id;
}

static int32_t likeliest_of(const float *z, size_t n)
{
    int32_t best = -1;
    for (size_t i = 0; i < n; i++) {
        if (is_finite(z[i]) && (best < 0 || z[i] > z[best]))
            best = (int32_t)i;
    }
    return best;
}

static void change_logits(const struct choose_args *a, size_t row, float *z)
{
    for (size_t at = row * a->changes; at < (row + 1) * a->changes; at++) {
        int32_t id = a->changed[at];
        a->before[at] = id < 0 ? 0 : z[id];
        if (id >= 0)
            z[id] = (z[id] > 0 ? z[id] / a->repeat[at] : z[id] * a->repeat[at]) + a->shift[at];
    }
}

static void restore_logits(const struct choose_args *a, size_t row, float *z)
{
    for (size_t at = row * a->changes; at < (row + 1) * a->changes; at++) {
        if (a->changed[at] >= 0)
            z[a->changed[at]] = a->before[at];
    }
}

void DDL_KERNEL(choose)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct choose_args *a = args;
    (void)scratch;
    for (size_t row = lo; row < hi; row++) {
        float *z = a->z + row * a->V, temperature = a->temperature[row];
        change_logits(a, row, z);
        if (temperature >= 0) {
            int32_t best = likeliest_of(z, a->n);
            bool greedy = best < 0 || temperature == 0 || a->top_k[row] == 1;
            const struct row r = { z, a->n, greedy ? 0 : z[best], temperature };
            a->id[row] = greedy ? best : choose(&r, a, row);
        }
        restore_logits(a, row, z);
    }
}

void DDL_KERNEL(likeliest)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct likeliest_args *a = args;
    (void)scratch;
    for (size_t row = lo; row < hi; row++) {
        const float *z = a->z + row * a->V;
        int32_t *ids = a->id + row * a->k;
        double total = 0;
        float top = -INFINITY;
        size_t n = 0;
        for (size_t id = 0; id < a->V; id++) { /* a sorted list, into which few ids are inserted */
            top = z[id] > top ? z[id] : top;
            if (isnan(z[id]) || a->k == 0 || (n == a->k && !(z[id] > z[ids[n - 1]])))
                continue;
            n += n < a->k;
            size_t at = n - 1;
            for (; at > 0 && z[id] > z[ids[at - 1]]; at--)
                ids[at] = ids[at - 1];
            ids[at] = (int32_t)id;
        }
        for (size_t first = 0; first < a->V; first += RUN) {
            size_t end = a->V - first < RUN ? a->V : first + RUN;
            float sum = 0;
#pragma omp simd reduction(+ : sum)
            for (size_t i = first; i < end; i++)
                sum += vexp(z[i] - top);
            total += (double)sum;
        }
        double log_sum = (double)top + log(total);
        for (size_t i = 0; i < a->k; i++) {
            a->logprob[row * a->k + i] = i < n ? (float)((double)z[ids[i]] - log_sum) : 0;
            ids[i] = i < n ? ids[i] : -1;
        }
    }
}
