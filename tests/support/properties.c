#include "support/properties.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

void on_every_backend(property_fn *property)
{
    for (size_t i = 0; test_backend(i); i++) {
        struct ddl_error err = { 0 };
        ddl_backend *backend;
        assert_ok(ddl_backend_create(&backend, test_backend(i), 0, &err), err);
        property(backend);
        ddl_backend_free(backend);
    }
}

void close_enough(double found, double expected, double limit, const char *what)
{
    if (!(fabs(found - expected) <= limit)) {
        print_error("%s: found %.9g, expected %.9g, limit %.3g\n", what, found, expected, limit);
        fail();
    }
}

double rms(size_t n, const float *x)
{
    return n ? sqrt(weighted_sum(n, x, x) / (double)n) : 0;
}

double weighted_sum(size_t n, const float *a, const float *b)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

double slope(loss_fn *loss, void *user, size_t n, float *x, const float *u, double h)
{
    static const double at[4] = { -2, -1, 1, 2 }, weight[4] = { 1.0 / 12, -8.0 / 12, 8.0 / 12, -1.0 / 12 };
    float *saved = ddl_mem_alloc(n * sizeof *saved);
    assert_non_null(saved);
    memcpy(saved, x, n * sizeof *saved);
    double sum = 0;
    for (size_t s = 0; s < 4; s++) {
        for (size_t i = 0; i < n; i++)
            x[i] = (float)((double)saved[i] + at[s] * h * (double)u[i]);
        sum += weight[s] * loss(user);
    }
    memcpy(x, saved, n * sizeof *saved);
    ddl_mem_free(saved);
    return sum / h;
}
