#include "study/distribution.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool distribution_init(struct distribution *d, double top)
{
    *d = (struct distribution){ .top = top, .min = INFINITY, .max = -INFINITY };
    d->first = ddl_mem_alloc(DDL_INSPECT_EXACT * sizeof *d->first);
    return d->first != NULL;
}

void distribution_free(struct distribution *d)
{
    ddl_mem_free(d->first);
}

static size_t bin_of(const struct distribution *d, double value, size_t bins)
{
    double at = value / d->top * (double)bins;
    if (!(at > 0)) /* NaN too */
        return 0;
    return at < (double)bins ? (size_t)at : bins - 1;
}

void distribution_add(struct distribution *d, float value)
{
    double x = (double)value;
    if (d->n < DDL_INSPECT_EXACT)
        d->first[d->n] = value;
    d->n++;
    d->sum += x;
    d->min = fmin(d->min, x);
    d->max = fmax(d->max, x);
    d->skip += x < 0.1;
    d->match += x >= 0.9 && x <= 1.1;
    d->over += x > 1.1;
    d->reflect += x > 1.9;
    d->histogram[bin_of(d, x, DDL_INSPECT_BINS)]++;
    d->fine[bin_of(d, x, FINE_BINS)]++;
}

size_t distribution_kept(const struct distribution *d)
{
    return d->n < DDL_INSPECT_EXACT ? (size_t)d->n : DDL_INSPECT_EXACT;
}

double distribution_mean(const struct distribution *d)
{
    return d->n ? d->sum / (double)d->n : (double)NAN;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The value below which a share q lies; within a bin, values are assumed to be evenly spread. */
static double fine_quantile(const struct distribution *d, double q)
{
    double rank = q * (double)d->n, below = 0;
    for (size_t i = 0; i < FINE_BINS; i++) {
        double count = (double)d->fine[i];
        if (count > 0 && below + count >= rank) {
            double at = ((double)i + (rank - below) / count) * d->top / FINE_BINS;
            return fmin(fmax(at, d->min), d->max);
        }
        below += count;
    }
    return d->max;
}

bool distribution_quantiles(const struct distribution *d, size_t n, const double *q, double *out)
{
    size_t kept = distribution_kept(d);
    if (kept == 0 || d->n > DDL_INSPECT_EXACT) {
        for (size_t i = 0; i < n; i++)
            out[i] = kept ? fine_quantile(d, q[i]) : (double)NAN;
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
