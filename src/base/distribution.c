#include "base/distribution.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ddl_distribution_reset(struct ddl_distribution *d, double top)
{
    *d = (struct ddl_distribution){
        .top = top, .min = INFINITY, .max = -INFINITY, .capacity = d->capacity, .first = d->first
    };
}

bool ddl_distribution_init(struct ddl_distribution *d, double top, size_t capacity)
{
    d->capacity = capacity;
    d->first = ddl_mem_alloc(capacity * sizeof *d->first);
    ddl_distribution_reset(d, top);
    return d->first != NULL;
}

void ddl_distribution_free(struct ddl_distribution *d)
{
    ddl_mem_free(d->first);
}

static size_t bin_of(const struct ddl_distribution *d, double value, size_t bins)
{
    double at = value / d->top * (double)bins;
    if (!(at > 0)) /* NaN too */
        return 0;
    return at < (double)bins ? (size_t)at : bins - 1;
}

void ddl_distribution_add(struct ddl_distribution *d, float value)
{
    double x = (double)value;
    if (d->n < d->capacity)
        d->first[d->n] = value;
    d->n++;
    d->sum += x;
    d->sum_squares += x * x;
    d->min = fmin(d->min, x);
    d->max = fmax(d->max, x);
    d->skip += x < 0.1;
    d->match += x >= 0.9 && x <= 1.1;
    d->over += x > 1.1;
    d->reflect += x > 1.9;
    d->histogram[bin_of(d, x, DDL_DISTRIBUTION_BINS)]++;
    d->fine[bin_of(d, x, DDL_DISTRIBUTION_FINE_BINS)]++;
}

size_t ddl_distribution_kept(const struct ddl_distribution *d)
{
    return d->n < d->capacity ? (size_t)d->n : d->capacity;
}

double ddl_distribution_mean(const struct ddl_distribution *d)
{
    return d->n ? d->sum / (double)d->n : (double)NAN;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Value k of n in ascending order, from the fine histogram; within a bin, values are assumed to be evenly
 * spread. */
static double fine_value(const struct ddl_distribution *d, uint64_t k)
{
    uint64_t below = 0;
    size_t i = 0;
    while (below + d->fine[i] <= k)
        below += d->fine[i++];
    double within = ((double)(k - below) + 0.5) / (double)d->fine[i];
    double value = ((double)i + within) * d->top / DDL_DISTRIBUTION_FINE_BINS;
    return fmin(fmax(value, d->min), d->max);
}

static double fine_quantile(const struct ddl_distribution *d, double q)
{
    double at = q * (double)(d->n - 1);
    uint64_t low = (uint64_t)at, high = low + 1 < d->n ? low + 1 : low;
    double share = at - (double)low, value = fine_value(d, low);
    return share > 0 ? value * (1 - share) + fine_value(d, high) * share : value;
}

bool ddl_distribution_quantiles(const struct ddl_distribution *d, size_t n, const double *q, double *out)
{
    size_t kept = ddl_distribution_kept(d);
    if (d->n == 0 || d->n > kept) {
        for (size_t i = 0; i < n; i++)
            out[i] = d->n ? fine_quantile(d, q[i]) : (double)NAN;
        return true;
    }
    float *sorted = ddl_mem_alloc(kept * sizeof *sorted);
    if (!sorted)
        return false;
    memcpy(sorted, d->first, kept * sizeof *sorted);
    qsort(sorted, kept, sizeof *sorted, by_value);
    for (size_t i = 0; i < n; i++) {
        double at = q[i] * (double)(kept - 1);
        size_t low = (size_t)at, high = low + 1 < kept ? low + 1 : low;
        double share = at - (double)low;
        out[i] = (double)sorted[low] * (1 - share) + (double)sorted[high] * share;
    }
    ddl_mem_free(sorted);
    return true;
}
