/* Singular values of a product of rank-1 modified identities. */
#ifndef DDL_STUDY_SPECTRUM_H
#define DDL_STUDY_SPECTRUM_H

#include <stddef.h>

/* The doubles that spectrum_of needs. */
size_t spectrum_scratch(size_t S, size_t d);
/* For each s < S the extreme singular values of (I - beta_s k_s k_s^T) ... (I - beta_0 k_0 k_0^T) on the span
 * of k_0 ... k_s: k (S, d), beta (S), sigma_max and sigma_min (S). NaN for numbers that are not finite. */
void spectrum_of(size_t S, size_t d, const float *k, const float *beta, double *scratch, double *sigma_max,
                 double *sigma_min);

#endif
