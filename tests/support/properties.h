/* Properties of every backend, and how tests measure them. */
#ifndef DDL_TEST_PROPERTIES_H
#define DDL_TEST_PROPERTIES_H

#include "ops/ops.h"
#include "support/support.h"

/* Runs a check on every backend of this build. */
typedef void property_fn(ddl_backend *backend);
void on_every_backend(property_fn *property);

/* Defines test_<name>, a cmocka test that runs <name> on every backend. */
#define PROPERTY(name)                                                                                       \
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
