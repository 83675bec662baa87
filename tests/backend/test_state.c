/* The ops between the stream and the expanded state: collapse, compress, expand, pool; cpu against ref. */
#include "support/backends.h"

DEFINE_CALL(fold_fwd, fold_args)
DEFINE_CALL(fold_bwd, fold_grad_args)
DEFINE_CALL(compress_fwd, compress_args)
DEFINE_CALL(compress_bwd, compress_grad_args)
DEFINE_CALL(init_state_fwd, init_state_args)
DEFINE_CALL(init_state_bwd, init_state_grad_args)
DEFINE_CALL(pool_fwd, pool_args)
DEFINE_CALL(pool_bwd, pool_grad_args)

static const struct shape {
    size_t B, T, d, c, K;
} shapes[] = {
    { 0, 3, 7, 4, 4 },    { 1, 1, 1, 1, 1 },    { 1, 1, 7, 2, 4 },    { 2, 3, 63, 3, 2 },
    { 3, 5, 64, 1, 4 },   { 2, 7, 100, 4, 4 },  { 1, 9, 33, 5, 6 },   { 2, 63, 100, 4, 4 },
    { 3, 50, 100, 8, 3 }, { 2, 100, 48, 2, 1 }, { 1, 64, 768, 4, 1 }, { 2, 3, 20, 16, 7 },
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void test_collapse(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES * 3; i++) {
        struct shape s = shapes[i / 3];
        int kind = (int)(i % 3);
        size_t dc = s.d * s.c, taps = kind == DDL_COMPRESS_TOKEN ? s.K : 1;
        size_t n_w = kind == DDL_COMPRESS_TOKEN ? dc * s.K : kind == DDL_COMPRESS_CHANNEL ? s.d * s.K : dc;
        float *w = some_floats(n_w), *r = some_floats(s.c);
        struct fold_args f = { .kind = kind, .d = s.d, .c = s.c, .K = s.K, .w = w, .r = r };
        struct output fwd[] = { { &f.e, taps * dc, 1e-6, NULL, NULL } };
        COMPARE(fold_fwd, f, fwd);
        struct fold_grad_args b = {
            .kind = kind, .d = s.d, .c = s.c, .K = s.K, .w = w, .r = r, .de = some_floats(taps * dc)
        };
        struct output bwd[] = { { &b.dw, n_w, 1e-6, some_floats(n_w), NULL },
                                { &b.dr, s.c, 2e-6, some_floats(s.c), NULL } };
        COMPARE(fold_bwd, b, bwd);
        release_all();
    }
}

static void test_compress(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        struct shape s = shapes[i];
        size_t dc = s.d * s.c, N = s.B * s.T;
        float *X = some_floats(N * dc), *e = some_floats(s.K * dc);
        struct compress_args f = { .B = s.B, .T = s.T, .d = s.d, .c = s.c, .taps = s.K, .X = X, .e = e };
        struct output fwd[] = { { &f.x_in, N * s.d, 2e-6, NULL, NULL } };
        COMPARE(compress_fwd, f, fwd);
        struct compress_grad_args b = {
            .B = s.B, .T = s.T, .d = s.d, .c = s.c, .taps = s.K, .X = X, .e = e, .dx_in = some_floats(N * s.d)
        };
        struct output bwd[] = { { &b.dX, N * dc, 2e-6, some_floats(N * dc), NULL },
                                { &b.de, s.K * dc, 2e-6, NULL, NULL } };
        COMPARE(compress_bwd, b, bwd);
        release_all();
    }
}

static void test_expand(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES * 2; i++) {
        struct shape s = shapes[i / 2];
        size_t dc = s.d * s.c, N = s.B * s.T;
        bool repeat = i % 2;
        float *x = some_floats(N * s.d), *w = repeat ? NULL : some_floats(dc * s.K);
        struct init_state_args f = { .B = s.B, .T = s.T, .d = s.d, .c = s.c, .K = s.K, .x = x, .w = w };
        struct output fwd[] = { { &f.X, N * dc, repeat ? 0 : 2e-6, NULL, NULL } };
        COMPARE(init_state_fwd, f, fwd);
        struct init_state_grad_args b = {
            .B = s.B, .T = s.T, .d = s.d, .c = s.c, .K = s.K, .x = x, .w = w, .dX = some_floats(N * dc)
        };
        struct output bwd[] = { { &b.dx, N * s.d, 2e-6, NULL, NULL },
                                { &b.dw, repeat ? 0 : dc * s.K, 2e-6, some_floats(dc * s.K), NULL } };
        COMPARE(init_state_bwd, b, bwd);
        release_all();
    }
}

static void test_pool(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES * 2; i++) {
        struct shape s = shapes[i / 2];
        size_t c = i / 2 + 1 == N_SHAPES ? 70 : s.c, N = s.B * s.T, dc = s.d * c;
        bool mean = i % 2;
        float *X = some_floats(N * dc), *w_a = mean ? NULL : some_floats(s.d);
        struct pool_args f = { .N = N, .d = s.d, .c = c, .X = X, .w_a = w_a };
        struct output fwd[] = { { &f.z, N * s.d, 2e-6, NULL, NULL },
                                { &f.a, mean ? 0 : N * c, 2e-6, NULL, NULL } };
        COMPARE(pool_fwd, f, fwd);
        float *a = floats_around(N * c, 1 / (float)c, 0.3f / (float)c);
        struct pool_grad_args b = {
            .N = N, .d = s.d, .c = c, .X = X, .w_a = w_a, .a = a, .dz = some_floats(N * s.d)
        };
        struct output bwd[] = { { &b.dX, N * dc, 2e-6, some_floats(N * dc), NULL },
                                { &b.dw_a, mean ? 0 : s.d, 5e-6, some_floats(s.d), NULL } };
        COMPARE(pool_bwd, b, bwd);
        release_all();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collapse),
        cmocka_unit_test(test_compress),
        cmocka_unit_test(test_expand),
        cmocka_unit_test(test_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
