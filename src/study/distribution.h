/* The distribution of a stream of values in [0, top]: mean, shares, quantiles, histogram, in bounded
 * memory. */
#ifndef DDL_STUDY_DISTRIBUTION_H
#define DDL_STUDY_DISTRIBUTION_H

#include "ddl/inspect.h"

enum { FINE_BINS = 8192 };

struct distribution {
    double top; /* values above it are counted in the last bin */
    uint64_t n;
    double sum, min, max;
    uint64_t skip, match, over, reflect; /* of gates in [0, 2] */
    uint64_t histogram[DDL_INSPECT_BINS];
    uint64_t fine[FINE_BINS];
    float *first; /* (DDL_INSPECT_EXACT) the first values, in order */
};

/* false: out of memory. */
bool distribution_init(struct distribution *d, double top);
void distribution_free(struct distribution *d);
void distribution_add(struct distribution *d, float value);
size_t distribution_kept(const struct distribution *d);
double distribution_mean(const struct distribution *d);
/* Quantiles q (n, increasing) by linear interpolation, as in docs/inspect.md; NAN without values. false: out
 * of memory. */
bool distribution_quantiles(const struct distribution *d, size_t n, const double *q, double *out);

#endif
