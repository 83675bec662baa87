/* Ops of hyper-connections: cpu against ref, and laws. */
#include "support/backends.h"

#include "ddl/config.h"

#include <math.h>
#include <string.h>

DEFINE_CALL(streams_fold_fwd, streams_fold_args)
DEFINE_CALL(streams_fold_bwd, streams_fold_grad_args)
DEFINE_CALL(streams_sum, streams_sum_args)
DEFINE_CALL(streams_write_fwd, streams_write_args)
DEFINE_CALL(streams_write_bwd, streams_write_grad_args)
DEFINE_CALL(hyper_fwd, hyper_args)
DEFINE_CALL(hyper_bwd, hyper_grad_args)
DEFINE_CALL(mhc_fwd, mhc_args)
DEFINE_CALL(mhc_bwd, mhc_grad_args)

/* The last two are large enough for three threads. */
static const struct shape {
    size_t N, d, n;
} shapes[] = { { 0, 5, 2 },   { 1, 1, 1 },   { 1, 7, 4 },  { 3, 63, 3 },  { 7, 100, 4 },
               { 17, 16, 2 }, { 35, 21, 5 }, { 5, 40, 8 }, { 63, 96, 4 }, { 101, 33, 3 } };
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void test_fold(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_SHAPES; s++) {
        size_t d = shapes[s].d, n = shapes[s].n, width = n * d, total = 2 * n + n * n;
        float *norm = floats_around(width, 1, 0.5f);
        struct streams_fold_args fwd = { .d = d, .n = n, .norm = norm, .rows = { n, n, n * n } };
        struct streams_fold_grad_args bwd = {
            .d = d, .n = n, .norm = norm, .rows = { n, n, n * n }, .dWf = some_floats(total * width)
        };
        for (size_t part = 0; part < 3; part++)
            fwd.W[part] = bwd.W[part] = some_floats(fwd.rows[part] * width);
        struct output forward[] = { { &fwd.Wf, total * width, 1e-6, NULL, NULL } };
        COMPARE(streams_fold_fwd, fwd, forward);
        struct output backward[] = { { &bwd.dW[0], n * width, 1e-6, some_floats(n * width), NULL },
                                     { &bwd.dW[1], n * width, 1e-6, some_floats(n * width), NULL },
                                     { &bwd.dW[2], n * n * width, 1e-6, some_floats(n * n * width), NULL },
                                     { &bwd.dnorm, width, 5e-6, some_floats(width), NULL } };
        COMPARE(streams_fold_bwd, bwd, backward);
        release_all();
    }
}

static void test_write(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_SHAPES; s++) {
        size_t N = shapes[s].N, d = shapes[s].d, n = shapes[s].n, all = N * n * d, mixing = n * (n + 2);
        float *X = some_floats(all), *w = some_floats(N * mixing), *f = some_floats(N * d);
        struct streams_write_args fwd = { .N = N, .d = d, .n = n, .X = X, .w = w, .f = f };
        struct output apart[] = { { &fwd.X_out, all, 2e-6, NULL, NULL } };
        COMPARE(streams_write_fwd, fwd, apart);
        struct output in_place[] = { { &fwd.X_out, all, 2e-6, X, &fwd.X } };
        COMPARE(streams_write_fwd, fwd, in_place);
        struct streams_write_grad_args bwd = {
            .N = N, .d = d, .n = n, .X = X, .w = w, .f = f, .G = some_floats(all)
        };
        float *dw = some_floats(N * mixing); /* that of r is left */
        struct output backward[] = { { &bwd.df, N * d, 2e-6, NULL, NULL },
                                     { &bwd.dw, N * mixing, 5e-6, dw, NULL },
                                     { &bwd.x_in, N * d, 2e-6, NULL, NULL } };
        COMPARE(streams_write_bwd, bwd, backward);
        backward[2].slot = NULL;
        bwd.x_in = NULL;
        compare_outputs(call_streams_write_bwd, &bwd, 2, backward);
        struct streams_sum_args sum = { .N = N, .d = d, .n = n, .X = X };
        struct output sums[] = { { &sum.y, N * d, 1e-6, NULL, NULL } };
        COMPARE(streams_sum, sum, sums);
        release_all();
    }
}

/* The sums in t have d or n d terms of size 1, those of the gradients N more. A gradient of one number is
 * added to a number of the size of its sum, so that the limit is not relative to what cancellation leaves. */
static void test_hyper(void **state)
{
    (void)state;
    for (size_t s = 0; s < 2 * N_SHAPES; s++) {
        size_t N = shapes[s / 2].N, d = shapes[s / 2].d, n = shapes[s / 2].n, all = N * n * d;
        size_t mixing = n * (n + 2), projected = (n + 2) * d;
        bool dynamic = s % 2;
        float by = 1 / sqrtf((float)d), a[1] = { 0.7f }, e[1] = { -0.4f };
        float *X = some_floats(all), *alpha = some_floats(n * (n + 1)), *beta = some_floats(n);
        float *Wf = floats_around(projected, 0, by);
        struct hyper_args fwd = {
            .N = N, .d = d, .n = n, .eps = 1e-5f, .X = X, .alpha = alpha, .beta = beta
        };
        if (dynamic)
            fwd.Wf = Wf, fwd.a = a, fwd.e = e;
        struct output forward[] = { { &fwd.w, N * mixing, 5e-6, NULL, NULL },
                                    { &fwd.x_in, N * d, 5e-6, NULL, NULL },
                                    { &fwd.t, N * mixing, 5e-6, NULL, NULL },
                                    { &fwd.rstd, N * n, 2e-6, NULL, NULL } };
        compare_outputs(call_hyper_fwd, &fwd, dynamic ? 4 : 2, forward);
        fwd.identity = true;
        compare_outputs(call_hyper_fwd, &fwd, dynamic ? 4 : 2, forward);
        float *G = some_floats(all);
        struct hyper_grad_args bwd = { .N = N,
                                       .d = d,
                                       .n = n,
                                       .X = X,
                                       .w = some_floats(N * mixing),
                                       .dw = some_floats(N * mixing),
                                       .dx_in = some_floats(N * d) };
        if (dynamic) {
            bwd.Wf = Wf, bwd.a = a, bwd.e = e;
            bwd.t = some_floats(N * mixing);
            bwd.rstd = floats_around(N * n, 1, 0.3f);
        }
        struct output backward[] = { { &bwd.dX, all, 5e-6, G, NULL },
                                     { &bwd.dalpha, n * (n + 1), 5e-6, some_floats(n * (n + 1)), NULL },
                                     { &bwd.dbeta, n, 5e-6, some_floats(n), NULL },
                                     { &bwd.dz, N * mixing, 1e-5, NULL, NULL },
                                     { &bwd.da, 1, 1e-5, floats_around(1, 30, 1), NULL },
                                     { &bwd.de, 1, 1e-5, floats_around(1, 30, 1), NULL },
                                     { &bwd.dWf, projected, 1e-5, NULL, NULL } };
        compare_outputs(call_hyper_bwd, &bwd, dynamic ? 7 : 3, backward);
        release_all();
    }
}

static void test_mhc(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_SHAPES; s++) {
        size_t N = shapes[s].N, d = shapes[s].d, n = shapes[s].n, all = N * n * d, width = n * d;
        size_t mixing = n * (n + 2);
        float by = 1 / sqrtf((float)width), scale[3] = { 0.7f, -0.4f, 1.2f };
        float *X = some_floats(all), *Wf = floats_around(mixing * width, 0, by);
        const float *bias[] = { some_floats(n), some_floats(n), some_floats(n * n) };
        struct mhc_args fwd = {
            .N = N, .d = d, .n = n, .iterations = 1 + 7 * (s % 4), .eps = 1e-5f, .X = X, .Wf = Wf
        };
        struct mhc_grad_args bwd = { .N = N,
                                     .d = d,
                                     .n = n,
                                     .iterations = fwd.iterations,
                                     .X = X,
                                     .Wf = Wf,
                                     .t = some_floats(N * mixing),
                                     .rstd = floats_around(N, 1, 0.3f),
                                     .w = some_floats(N * mixing),
                                     .dw = some_floats(N * mixing),
                                     .dx_in = some_floats(N * d) };
        for (size_t part = 0; part < 3; part++) {
            fwd.bias[part] = bwd.bias[part] = bias[part];
            fwd.scale[part] = bwd.scale[part] = &scale[part];
        }
        struct output forward[] = { { &fwd.w, N * mixing, 5e-6, NULL, NULL },
                                    { &fwd.x_in, N * d, 5e-6, NULL, NULL },
                                    { &fwd.t, N * mixing, 5e-6, NULL, NULL },
                                    { &fwd.rstd, N, 2e-6, NULL, NULL } };
        COMPARE(mhc_fwd, fwd, forward);
        fwd.identity = true;
        COMPARE(mhc_fwd, fwd, forward);
        struct output backward[] = { { &bwd.dX, all, 5e-6, some_floats(all), NULL },
                                     { &bwd.dz, N * mixing, 1e-5, NULL, NULL },
                                     { &bwd.dbias[0], n, 1e-5, some_floats(n), NULL },
                                     { &bwd.dbias[1], n, 1e-5, some_floats(n), NULL },
                                     { &bwd.dbias[2], n * n, 1e-5, some_floats(n * n), NULL },
                                     { &bwd.dscale[0], 1, 1e-5, floats_around(1, 30, 1), NULL },
                                     { &bwd.dscale[1], 1, 1e-5, floats_around(1, 30, 1), NULL },
                                     { &bwd.dscale[2], 1, 1e-5, floats_around(1, 30, 1), NULL },
                                     { &bwd.dWf, mixing * width, 1e-5, NULL, NULL } };
        COMPARE(mhc_bwd, bwd, backward);
        release_all();
    }
}

/* Rows and columns of M sum to 1 after enough iterations, also for large and very unequal logits, and a token
 * has the same bits beside others and alone. */
static void test_mixing_matrices(void **state)
{
    (void)state;
    enum { N = 21, D = 19, n = 4, MIXING = n * (n + 2) };
    for (size_t i = 0; isa_name(i); i++) {
        struct ddl_backend *backend = cpu_backend(isa_name(i), 1);
        if (!backend)
            continue;
        float *X = some_floats(N * n * D), *Wf = some_floats(MIXING * n * D), w[N * MIXING], alone[MIXING];
        float t[N * MIXING], rstd[N], x_in[N * D], one_x_in[D], scale[1] = { 1 };
        float *bias = floats_around(n * n, 0, 30);
        struct mhc_args args = { .N = N,
                                 .d = D,
                                 .n = n,
                                 .iterations = DDL_MAX_SINKHORN,
                                 .eps = 1e-5f,
                                 .X = X,
                                 .Wf = Wf,
                                 .bias = { bias, bias, bias },
                                 .scale = { scale, scale, scale },
                                 .t = t,
                                 .rstd = rstd,
                                 .w = w,
                                 .x_in = x_in };
        backend->ops->mhc_fwd(backend->ctx, &args);
        for (size_t token = 0; token < N; token++) {
            for (size_t k = 0; k < n; k++) {
                float row = 0;
                for (size_t j = 0; j < n; j++) {
                    float element = w[token * MIXING + 2 * n + k * n + j];
                    assert_true(element >= 0 && element <= 1 + 1e-6f);
                    row += element;
                }
                assert_true(fabsf(row - 1) < 1e-5f);
            }
            struct mhc_args one = args;
            one.N = 1;
            one.X = X + token * n * D;
            one.w = alone;
            one.x_in = one_x_in;
            backend->ops->mhc_fwd(backend->ctx, &one);
            assert_memory_equal(alone, w + token * MIXING, sizeof alone);
            assert_memory_equal(one_x_in, x_in + token * D, sizeof one_x_in);
        }
        ddl_backend_free(backend);
        release_all();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_fold), cmocka_unit_test(test_write),
                                        cmocka_unit_test(test_hyper), cmocka_unit_test(test_mhc),
                                        cmocka_unit_test(test_mixing_matrices) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
