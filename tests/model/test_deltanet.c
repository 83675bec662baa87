/* A stack of delta steps over depth is the delta rule over time. DeltaNet's recurrence for a memory S (c, d),
 * a key k_t, a value v_t and a step size beta_t is
 *
 *     S_t = S_(t-1) (I - beta_t k_t k_t^T) + beta_t v_t k_t^T
 *
 * Transposed, X = S^T (d, c), this is X_t = (I - beta_t k_t k_t^T) X_(t-1) + beta_t k_t v_t^T, which is one
 * step of the Delta operator: layer t of the stack reads and writes what DeltaNet does at time t. */
#include "support/support.h"

#include "base/mem.h"
#include "ddl/backend.h"
#include "ddl/delta.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 12, D = 7, C = 3 };

/* Unit keys, values, and step sizes in (0, 2), a row per step; q are the keys at other lengths. */
struct sequence {
    float *q, *v;
    double k[STEPS][D];
    float beta[STEPS];
};

static struct sequence make_sequence(void)
{
    struct sequence s = { .q = random_floats(STEPS * D, 1), .v = random_floats(STEPS * C, 2) };
    float *u = random_floats(STEPS, 3);
    for (size_t t = 0; t < STEPS; t++) {
        double norm = 0;
        s.beta[t] = 2 / (1 + expf(-u[t]));
        for (size_t i = 0; i < D; i++)
            norm += (double)s.q[t * D + i] * (double)s.q[t * D + i];
        for (size_t i = 0; i < D; i++)
            s.k[t][i] = (double)s.q[t * D + i] / sqrt(norm);
    }
    ddl_mem_free(u);
    return s;
}

static void free_sequence(struct sequence *s)
{
    ddl_mem_free(s->q);
    ddl_mem_free(s->v);
}

/* S <- S (I - beta k k^T) + beta v k^T, computed as a product of matrices. */
static void recurrence(double S[C][D], const double *k, const float *v, double beta)
{
    double next[C][D];
    for (size_t j = 0; j < C; j++) {
        for (size_t i = 0; i < D; i++) {
            next[j][i] = beta * (double)v[j] * k[i];
            for (size_t m = 0; m < D; m++)
                next[j][i] += S[j][m] * ((m == i) - beta * k[m] * k[i]);
        }
    }
    memcpy(S, next, sizeof next);
}

static void step(ddl_backend *backend, const struct sequence *s, size_t t, float *X)
{
    struct ddl_error err;
    const struct ddl_delta_args args = { .N = 1,
                                         .d = D,
                                         .c = C,
                                         .eps = 1e-6f,
                                         .X = X,
                                         .q = s->q + t * D,
                                         .v = s->v + t * C,
                                         .beta = &s->beta[t],
                                         .X_out = X };
    assert_ok(ddl_delta_forward(backend, &args, &err), err);
}

static void on_every_backend(void (*test)(ddl_backend *backend, const struct sequence *s))
{
    struct ddl_error err;
    struct sequence s = make_sequence();
    for (size_t i = 0; test_backend(i); i++) {
        ddl_backend *backend;
        assert_ok(ddl_backend_create(&backend, test_backend(i), 1, &err), err);
        test(backend, &s);
        ddl_backend_free(backend);
    }
    free_sequence(&s);
}

/* The state after every layer is the transposed memory after every time step. */
static void depth_is_time_on(ddl_backend *backend, const struct sequence *s)
{
    double S[C][D] = { { 0 } };
    float X[D * C] = { 0 }, transposed[D * C];
    for (size_t t = 0; t < STEPS; t++) {
        recurrence(S, s->k[t], s->v + t * C, (double)s->beta[t]);
        step(backend, s, t, X);
        for (size_t i = 0; i < D; i++) {
            for (size_t j = 0; j < C; j++)
                transposed[i * C + j] = (float)S[j][i];
        }
        assert_close(D * C, X, transposed, 1e-5);
    }
}

static void depth_is_time(void **state)
{
    (void)state;
    on_every_backend(depth_is_time_on);
}

/* What makes it a memory: after a step with beta = 1 the key reads its value exactly, whatever was stored. */
static void a_key_reads_its_value_on(ddl_backend *backend, const struct sequence *s)
{
    struct sequence once = *s;
    float X[D * C] = { 0 };
    once.beta[STEPS - 1] = 1;
    for (size_t t = 0; t < STEPS; t++)
        step(backend, &once, t, X);
    for (size_t j = 0; j < C; j++) {
        double read = 0;
        for (size_t i = 0; i < D; i++)
            read += once.k[STEPS - 1][i] * (double)X[i * C + j];
        assert_true(fabs(read - (double)once.v[(STEPS - 1) * C + j]) < 1e-5);
    }
}

static void a_key_reads_its_value(void **state)
{
    (void)state;
    on_every_backend(a_key_reads_its_value_on);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depth_is_time),
        cmocka_unit_test(a_key_reads_its_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
