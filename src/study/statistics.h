/* Means with confidence intervals and t-tests. Formulas: docs/sweep.md. */
#ifndef DDL_STUDY_STATISTICS_H
#define DDL_STUDY_STATISTICS_H

#include "ddl/compare.h"

#include <stddef.h>

/* The regularized incomplete beta function I_x(a, b) for a, b > 0 and x in [0, 1]. */
double statistics_beta(double a, double b, double x);
/* The probability that |T| > |t| for T with Student's t distribution of df > 0 degrees of freedom, not
 * necessarily an integer; NaN for a NaN. */
double statistics_t_two_sided(double t, double df);
/* The t > 0 with statistics_t_two_sided(t, df) = p, for p in (0, 1). */
double statistics_t_critical(double p, double df);

/* The probability that T > t. */
double statistics_t_upper(double t, double df);
/* The probability that T <= t for T with the noncentral t distribution; within 1e-6 if the noncentrality is
 * above 1000 sqrt(df). */
double statistics_t_noncentral(double t, double df, double noncentrality);
/* The noncentrality for which statistics_t_noncentral(t, df, .) = p, for p in (0, 1); NaN for |t| > 1000. */
double statistics_t_noncentrality(double t, double df, double p);
/* The smallest number n >= 2 of seeds with which a two-sided t-test at `level` of a mean of n values with n -
 * 1 times df_factor degrees of freedom is significant with probability `power`, if the expected value is
 * `effect` > 0 standard deviations; NaN if it is above a million. */
double statistics_seeds(double effect, double df_factor, double level, double power);
/* As statistics_seeds, for two one-sided tests at `level` of a mean within `margin` > 0 standard deviations
 * of 0, if its expected value is 0. The power is taken as 2 P - 1, where P is that of one of the tests: at
 * most the true one, which also counts the results that fail both. */
double statistics_equivalence_seeds(double margin, double df_factor, double level, double power);

/* Mean, sample standard deviation and 95 % confidence interval of the n values. */
struct ddl_mean statistics_mean(const double *values, size_t n);
/* The same of the n differences a - b (b may be NULL: 0). A deviation that is rounding of a and b is 0. */
struct ddl_mean statistics_mean_difference(const double *a, const double *b, size_t n);
/* The two-sided p-values of Welch's t-test for two means, and of the t-test of n pairs. NaN with fewer than
 * two values on a side, and if the standard error is 0. */
double statistics_welch(const struct ddl_mean *a, const struct ddl_mean *b);
double statistics_paired(const double *a, const double *b, size_t n);

#endif
