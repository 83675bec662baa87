/* Residual rules other than delta: cpu against ref. */
#include "support/backends.h"

DEFINE_CALL(scale_fwd, scale_args)
DEFINE_CALL(scale_bwd, scale_grad_args)
DEFINE_CALL(gated_fwd, gated_args)
DEFINE_CALL(gated_bwd, gated_grad_args)

static const struct shape {
    size_t N, d;
} shapes[] = { { 0, 5 }, { 1, 1 }, { 1, 7 }, { 3, 63 }, { 7, 100 }, { 63, 768 }, { 511, 100 }, { 100, 1 } };
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* A sum of n products of normal numbers has the size sqrt(n), and a rounding error of at most sqrt(n) units
 * of it where rows are added one by one. */
static void test_scale(void **state)
{
    (void)state;
    for (size_t s = 0; s < 2 * N_SHAPES; s++) {
        size_t N = shapes[s / 2].N, d = shapes[s / 2].d, w = s % 2 ? d : 1;
        float *f = some_floats(N * d), *lambda = floats_around(w, 1, 0.5f), *X = some_floats(N * d);
        struct scale_args fwd = { .N = N, .d = d, .w = w, .f = f, .lambda = lambda };
        struct output forward[] = { { &fwd.X, N * d, 1e-6, X, NULL } };
        COMPARE(scale_fwd, fwd, forward);
        struct scale_grad_args bwd = {
            .N = N, .d = d, .w = w, .f = f, .lambda = lambda, .G = some_floats(N * d)
        };
        struct output backward[] = { { &bwd.X, N * d, 1e-6, X, NULL },
                                     { &bwd.df, N * d, 1e-6, NULL, NULL },
                                     { &bwd.dlambda, w, 5e-6, some_floats(w), NULL } };
        COMPARE(scale_bwd, bwd, backward);
        release_all();
    }
}

static void test_gated(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_SHAPES; s++) {
        size_t N = shapes[s].N, d = shapes[s].d;
        float *f = some_floats(N * d), *beta = floats_around(N, 1, 0.5f), *X = some_floats(N * d);
        struct gated_args fwd = { .N = N, .d = d, .f = f, .beta = beta };
        struct output forward[] = { { &fwd.X, N * d, 1e-6, X, NULL } };
        COMPARE(gated_fwd, fwd, forward);
        struct gated_grad_args bwd = { .N = N, .d = d, .f = f, .beta = beta, .G = some_floats(N * d) };
        struct output backward[] = { { &bwd.X, N * d, 1e-6, X, NULL },
                                     { &bwd.df, N * d, 1e-6, NULL, NULL },
                                     { &bwd.dbeta, N, 5e-6, NULL, NULL } };
        COMPARE(gated_bwd, bwd, backward);
        release_all();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_scale), cmocka_unit_test(test_gated) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
