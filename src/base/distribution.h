/* The distribution of a stream of values in [0, top]: mean, shares, quantiles, histogram, in bounded
 * memory. */
#ifndef DDL_BASE_DISTRIBUTION_H
#define DDL_BASE_DISTRIBUTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DDL_DISTRIBUTION_BINS = 40, DDL_DISTRIBUTION_FINE_BINS = 8192 };

struct ddl_distribution {
    double top; /* values above it are counted in the last bin */
    uint64_t n;
    double sum, sum_squares, min, max;
    uint64_t skip, match, over, reflect; /* of gates beta       */
    uint64_t histogram[DDL_DISTRIBUTION_BINS];
    uint64_t fine[DDL_DISTRIBUTION_FINE_BINS];
    size_t capacity;
    float *first; /* (capacity) the first values, in order */
};

/* Quantiles are exact up to `capacity` values, which are kept (0: none). false: out of memory. */
bool ddl_distribution_init(struct ddl_distribution *d, double top, size_t capacity);
/* Removes all values and sets `top`. */
void ddl_distribution_reset(struct ddl_distribution *d, double top);
void ddl_distribution_free(struct ddl_distribution *d);
void ddl_distribution_add(struct ddl_distribution *d, float value);
size_t ddl_distribution_kept(const struct ddl_distribution *d);
double ddl_distribution_mean(const struct ddl_distribution *d);
/* Quantiles q (n, increasing) by linear interpolation, as in docs/inspect.md; NAN without values. Beyond
 * `capacity` values from the fine histogram, with an error of at most one of its bins. false: out of memory,
 * which only exact quantiles need. */
bool ddl_distribution_quantiles(const struct ddl_distribution *d, size_t n, const double *q, double *out);

#endif
