#include "support/delta_case.h"
#include "support/properties.h"

#include "base/mem.h"
#include "ddl/delta.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct vectors {
    ddl_backend *backend;
    size_t N, d;
    float *x, *q, *v, *beta, *G, *x_out, *dx, *dq, *dv, *dbeta;
};

static struct vectors vectors_make(ddl_backend *backend, size_t N, size_t d, uint64_t stream)
{
    struct vectors p = { backend,
                         N,
                         d,
                         random_floats(N * d, stream),
                         random_floats(N * d, stream + 1),
                         random_floats(N * d, stream + 2),
                         random_floats(N, stream + 3),
                         random_floats(N * d, stream + 4),
                         poisoned_floats(N * d),
                         poisoned_floats(N * d),
                         poisoned_floats(N * d),
                         poisoned_floats(N * d),
                         poisoned_floats(N) };
    for (size_t n = 0; n < N; n++) {
        p.beta[n] = 1 + tanhf(p.beta[n]);
        p.q[n * d] += 2;
    }
    return p;
}

static void vectors_free(struct vectors *p)
{
    float *all[] = { p->x, p->q, p->v, p->beta, p->G, p->x_out, p->dx, p->dq, p->dv, p->dbeta };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ddl_mem_free(all[i]);
}

static double elementwise_loss(void *user)
{
    const struct vectors *p = user;
    struct ddl_error err = { 0 };
    struct ddl_elementwise_args a = { .N = p->N,
                                      .d = p->d,
                                      .eps = delta_eps,
                                      .x = p->x,
                                      .q = p->q,
                                      .v = p->v,
                                      .beta = p->beta,
                                      .x_out = p->x_out };
    assert_ok(ddl_elementwise_forward(p->backend, &a, &err), err);
    return weighted_sum(p->N * p->d, p->G, p->x_out);
}

/* x' = x - beta k (k . x) + beta k (*) v from the definition */
static void check_elementwise(const struct vectors *p)
{
    float *expected = poisoned_floats(p->N * p->d);
    double *k = malloc(p->d * sizeof *k), read;
    for (size_t n = 0; n < p->N; n++) {
        double beta = (double)p->beta[n], along = 0;
        delta_direction(p->d, p->q + n * p->d, DDL_FORM_UNIT, k, &read);
        for (size_t i = 0; i < p->d; i++)
            along += k[i] * (double)p->x[n * p->d + i];
        for (size_t i = 0; i < p->d; i++) {
            size_t at = n * p->d + i;
            expected[at] = (float)((double)p->x[at] - beta * k[i] * along + beta * k[i] * (double)p->v[at]);
        }
    }
    assert_close(p->N * p->d, p->x_out, expected, 1e-6);
    free(k);
    ddl_mem_free(expected);
}

static void elementwise(ddl_backend *backend)
{
    for (size_t s = 0; s < N_DELTA_SHAPES; s++) {
        struct vectors p = vectors_make(backend, delta_shapes[s][0], delta_shapes[s][1], 1300 + s);
        size_t n = p.N * p.d;
        elementwise_loss(&p);
        check_elementwise(&p);
        struct ddl_error err = { 0 };
        struct ddl_elementwise_grad_args g = { .N = p.N,
                                               .d = p.d,
                                               .eps = delta_eps,
                                               .x = p.x,
                                               .q = p.q,
                                               .v = p.v,
                                               .beta = p.beta,
                                               .G = p.G,
                                               .dx = p.dx,
                                               .dq = p.dq,
                                               .dv = p.dv,
                                               .dbeta = p.dbeta };
        assert_ok(ddl_elementwise_backward(backend, &g, &err), err);
        float *inputs[] = { p.x, p.q, p.v, p.beta }, *grads[] = { p.dx, p.dq, p.dv, p.dbeta };
        for (size_t i = 0; i < 4; i++) {
            size_t count = i == 3 ? p.N : n;
            float *u = random_floats(count, 6000 + i);
            double found = weighted_sum(count, grads[i], u);
            double size = rms(count, grads[i]) * sqrt((double)count) + rms(n, p.G);
            close_enough(found, slope(elementwise_loss, &p, count, inputs[i], u, 2e-2), 1e-3 * size,
                         "slope of the element-wise form");
            ddl_mem_free(u);
        }
        g.dx = p.G; /* in place */
        assert_ok(ddl_elementwise_backward(backend, &g, &err), err);
        assert_memory_equal(p.G, p.dx, n * sizeof *p.dx);
        elementwise_loss(&p);
        struct ddl_elementwise_args a = {
            .N = p.N, .d = p.d, .eps = delta_eps, .x = p.x, .q = p.q, .v = p.v, .beta = p.beta, .x_out = p.x
        };
        assert_ok(ddl_elementwise_forward(backend, &a, &err), err);
        assert_memory_equal(p.x, p.x_out, n * sizeof *p.x);
        vectors_free(&p);
    }
}

static void elementwise_beta_zero_copies_bits(ddl_backend *backend)
{
    struct vectors p = vectors_make(backend, 2, 37, 1400);
    for (size_t i = 0; i < 2 * 37; i++) {
        p.x[i] = i % 2 ? -0.0f : p.x[i];
        p.v[i] = i % 3 ? INFINITY : NAN;
    }
    p.beta[0] = p.beta[1] = 0;
    elementwise_loss(&p);
    assert_memory_equal(p.x_out, p.x, 2 * 37 * sizeof *p.x);
    vectors_free(&p);
}

PROPERTY(elementwise)
PROPERTY(elementwise_beta_zero_copies_bits)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_elementwise_beta_zero_copies_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
