/* Laws that every backend must keep, and how tests measure them. */
#ifndef DDL_TEST_LAWS_H
#define DDL_TEST_LAWS_H

#include "ops/ops.h"
#include "support/support.h"

/* Runs a law on every backend of this build. */
typedef void law_fn(ddl_backend *backend);
void on_every_backend(law_fn *law);

/* test_<name>: a cmocka test of the law. */
#define LAW(name)                                                                                            \
    static void test_##name(void **state)                                                                    \
    {                                                                                                        \
        (void)state;                                                                                         \
        on_every_backend(name);                                                                              \
    }

/* Fails unless |found - expected| <= limit. */
void close_enough(double found, double expected, double limit, const char *what);
/* sqrt(mean square), sum of products; in double. */
double rms(size_t n, const float *x);
double weighted_sum(size_t n, const float *a, const float *b);

/* dL/dh of L(x + h u) by the five-point rule with step h; `loss` gives L for what x holds. */
typedef double loss_fn(void *user);
double slope(loss_fn *loss, void *user, size_t n, float *x, const float *u, double h);

#endif
