/* What ops must do to the bit, or by an algebraic law, on every backend and instruction set. What they
 * compute is compared with "ref" by tests/ops/test_trial.c. */
#include "support/backends.h"

#include "base/bf16.h"
#include "ddl/config.h"
#include "model/operator/staging.h"

#include <math.h>
#include <string.h>

static void finish(struct ddl_staging *s)
{
    struct ddl_error err;
    assert_ok(ddl_staging_finish(s, &err), err);
}

/* ---- the delta rule ---- */

/* 65 and 130 channels take more than one tile; the last two are large enough for three threads. */
static const struct shape {
    size_t N, d, c;
} shapes[] = {
    { 1, 1, 1 },   { 3, 7, 2 },  { 2, 63, 3 },   { 5, 64, 1 },   { 3, 100, 5 },  { 4, 100, 8 },
    { 2, 33, 16 }, { 2, 7, 65 }, { 2, 19, 130 }, { 97, 100, 4 }, { 61, 768, 2 },
};

static const struct rule {
    int form, update;
} rules[] = {
    { DDL_FORM_UNIT, DDL_UPDATE_DELTA }, { DDL_FORM_UNIT, DDL_UPDATE_WRITE },
    { DDL_FORM_UNIT, DDL_UPDATE_ERASE }, { DDL_FORM_RATIO, DDL_UPDATE_DELTA },
    { DDL_FORM_L2, DDL_UPDATE_DELTA },
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, N_RULES = sizeof rules / sizeof *rules };

/* Host arrays of one token update and its backward pass. */
struct update {
    float *X, *q, *v, *beta, *G, *X_out, *dX, *dq, *dv, *dbeta;
};

static void run_update(ddl_backend *backend, struct shape s, struct rule r, const struct update *u)
{
    size_t NX = s.N * s.d * s.c, Nc = s.N * s.c, Nd = s.N * s.d;
    struct ddl_staging a = { .backend = backend };
    struct ddl_delta_args f = { .N = s.N,
                                .d = s.d,
                                .c = s.c,
                                .eps = 1e-5f,
                                .form = r.form,
                                .update = r.update,
                                .X = ddl_staging_in(&a, u->X, NX),
                                .q = ddl_staging_in(&a, u->q, Nd),
                                .v = ddl_staging_in(&a, u->v, Nc),
                                .beta = ddl_staging_in(&a, u->beta, s.N),
                                .X_out = ddl_staging_out(&a, u->X_out, NX) };
    struct ddl_delta_grad_args b = { .N = s.N,
                                     .d = s.d,
                                     .c = s.c,
                                     .eps = 1e-5f,
                                     .form = r.form,
                                     .update = r.update,
                                     .X = f.X,
                                     .q = f.q,
                                     .v = f.v,
                                     .beta = f.beta,
                                     .G = ddl_staging_in(&a, u->G, NX),
                                     .dX = ddl_staging_out(&a, u->dX, NX),
                                     .dq = ddl_staging_out(&a, u->dq, Nd),
                                     .dv = ddl_staging_out(&a, u->dv, Nc),
                                     .dbeta = ddl_staging_out(&a, u->dbeta, s.N) };
    assert_false(a.failed);
    backend->ops->delta_fwd(backend->ctx, &f);
    backend->ops->delta_bwd(backend->ctx, &b);
    finish(&a);
}

static struct update new_update(struct shape s)
{
    size_t NX = s.N * s.d * s.c, Nc = s.N * s.c, Nd = s.N * s.d;
    return (struct update){ .X = some_floats(NX),
                            .q = some_floats(Nd),
                            .v = some_floats(Nc),
                            .beta = floats_around(s.N, 1, 0.3f),
                            .G = some_floats(NX),
                            .X_out = floats_around(NX, NAN, 0),
                            .dX = floats_around(NX, NAN, 0),
                            .dq = floats_around(Nd, NAN, 0),
                            .dv = floats_around(Nc, NAN, 0),
                            .dbeta = floats_around(s.N, NAN, 0) };
}

/* beta = 0: the same bits, signed zeros included, whatever v holds; and gradients without NaN. */
static void a_closed_gate_changes_nothing(ddl_backend *backend)
{
    for (size_t i = 0; i < N_SHAPES * N_RULES; i++) {
        struct shape s = shapes[i / N_RULES];
        struct update u = new_update(s);
        size_t NX = s.N * s.d * s.c;
        memset(u.beta, 0, s.N * sizeof *u.beta);
        for (size_t j = 0; j < NX; j += 3)
            u.X[j] = -0.0f, u.G[j] = -0.0f;
        for (size_t j = 0; j < s.N * s.c; j++)
            u.v[j] = j % 2 ? INFINITY : NAN;
        run_update(backend, s, rules[i % N_RULES], &u);
        assert_memory_equal(u.X_out, u.X, NX * sizeof *u.X);
        assert_memory_equal(u.dX, u.G, NX * sizeof *u.X);
        for (size_t j = 0; j < s.N * s.d; j++)
            assert_true(u.dq[j] == 0);
        for (size_t j = 0; j < s.N * s.c; j++)
            assert_true(u.dv[j] == 0);
        release_all();
    }
}

/* Some gates closed: those rows keep their bits, beside others that do not. */
static void some_closed_gates_change_nothing(ddl_backend *backend)
{
    for (size_t i = 0; i < N_SHAPES; i++) {
        struct shape s = shapes[i];
        struct update u = new_update(s);
        size_t width = s.d * s.c;
        for (size_t n = 0; n < s.N; n += 2)
            u.beta[n] = 0;
        run_update(backend, s, rules[0], &u);
        for (size_t n = 0; n < s.N; n++) {
            bool same = memcmp(u.X_out + n * width, u.X + n * width, width * sizeof *u.X) == 0;
            assert_true(same == (n % 2 == 0));
        }
        release_all();
    }
}

/* q = 0: nothing happens to the state's gradient, and that of q is as on "ref". */
static void no_direction(ddl_backend *backend)
{
    struct shape s = { 3, 21, 4 };
    size_t NX = s.N * s.d * s.c, Nd = s.N * s.d;
    ddl_backend *ref;
    struct ddl_error err;
    assert_ok(ddl_backend_create(&ref, "ref", 1, &err), err);
    for (size_t r = 0; r < N_RULES; r++) {
        struct update u = new_update(s);
        float *dq = u.dq;
        memset(u.q, 0, Nd * sizeof *u.q);
        run_update(backend, s, rules[r], &u);
        assert_memory_equal(u.dX, u.G, NX * sizeof *u.G);
        for (size_t j = 0; j < s.N * s.c; j++)
            assert_true(u.dv[j] == 0);
        for (size_t j = 0; j < s.N; j++)
            assert_true(u.dbeta[j] == 0);
        u.dq = floats_around(Nd, NAN, 0);
        run_update(ref, s, rules[r], &u);
        assert_close(Nd, dq, u.dq, 5e-6);
        release_all();
    }
    ddl_backend_free(ref);
}

/* ---- other rules ---- */

/* A sum with the weights 0, ..., 0, 1 is the last state, bit for bit. */
static void the_initial_weights_of_a_sum(ddl_backend *backend)
{
    enum { COUNT = 133, N = 5 };
    float *X = some_floats(N * COUNT), *out = some_floats(COUNT), w[N] = { [N - 1] = 1 };
    struct ddl_staging s = { .backend = backend };
    struct weighted_sum_args args = { .count = COUNT,
                                      .n = N,
                                      .X = ddl_staging_in(&s, X, N * COUNT),
                                      .X_stride = COUNT,
                                      .w = ddl_staging_in(&s, w, N),
                                      .w_stride = 1,
                                      .out = ddl_staging_out(&s, out, COUNT) };
    assert_false(s.failed);
    backend->ops->weighted_sum(backend->ctx, &args);
    finish(&s);
    assert_memory_equal(out, X + (N - 1) * COUNT, COUNT * sizeof *X);
    release_all();
}

/* Saturated gates leave the state untouched, or replace it. */
static void saturated_gates_of_a_highway(ddl_backend *backend)
{
    enum { D = 21 };
    float *X = some_floats(2 * D), *f = some_floats(2 * D), z[2] = { -1e4f, 1e4f }, b[1] = { 0 };
    float before[2 * D];
    memcpy(before, X, sizeof before);
    struct ddl_staging s = { .backend = backend };
    struct highway_args args = { .N = 2,
                                 .d = D,
                                 .w = 1,
                                 .f = ddl_staging_in(&s, f, 2 * D),
                                 .b = ddl_staging_in(&s, b, 1),
                                 .tau = ddl_staging_inout(&s, z, 2),
                                 .X = ddl_staging_inout(&s, X, 2 * D) };
    assert_false(s.failed);
    backend->ops->highway_fwd(backend->ctx, &args);
    finish(&s);
    assert_memory_equal(X, before, D * sizeof *X);
    assert_memory_equal(X + D, f + D, D * sizeof *X);
    release_all();
}

/* Equal logits of the mixture, and none, leave both factors 1, exactly. */
static void equal_logits_of_laurel(ddl_backend *backend)
{
    enum { D = 21 };
    for (int none = 0; none < 2; none++) {
        float *X = some_floats(D), *f = some_floats(D), mix[2] = { 0.3f, 0.3f }, sum[D];
        for (size_t j = 0; j < D; j++)
            sum[j] = f[j] + X[j];
        struct ddl_staging s = { .backend = backend };
        struct laurel_args args = { .N = 1,
                                    .d = D,
                                    .f = ddl_staging_in(&s, f, D),
                                    .mix = ddl_staging_in(&s, none ? NULL : mix, 2),
                                    .X = ddl_staging_inout(&s, X, D) };
        assert_false(s.failed);
        backend->ops->laurel_fwd(backend->ctx, &args);
        finish(&s);
        assert_memory_equal(X, sum, sizeof sum);
        release_all();
    }
}

/* Rows of M, which are normalized last, sum to 1, also for large and very unequal logits. */
static void rows_of_mixing_matrices_sum_to_one(ddl_backend *backend)
{
    enum { N = 21, D = 19, n = 4, MIXING = n * (n + 2) };
    float *X = some_floats(N * n * D), *Wf = some_floats(MIXING * n * D), w[N * MIXING];
    float t[N * MIXING], rstd[N], x_in[N * D], scale[1] = { 1 };
    float *bias = floats_around(n * n, 0, 30);
    struct ddl_staging s = { .backend = backend };
    const float *device_bias = ddl_staging_in(&s, bias, n * n), *one = ddl_staging_in(&s, scale, 1);
    struct mhc_args args = { .N = N,
                             .d = D,
                             .n = n,
                             .iterations = DDL_MAX_SINKHORN,
                             .eps = 1e-5f,
                             .X = ddl_staging_in(&s, X, N * n * D),
                             .Wf = ddl_staging_in(&s, Wf, MIXING * n * D),
                             .bias = { device_bias, device_bias, device_bias },
                             .scale = { one, one, one },
                             .t = ddl_staging_out(&s, t, N * MIXING),
                             .rstd = ddl_staging_out(&s, rstd, N),
                             .w = ddl_staging_out(&s, w, N * MIXING),
                             .x_in = ddl_staging_out(&s, x_in, N * D) };
    assert_false(s.failed);
    backend->ops->mhc_fwd(backend->ctx, &args);
    finish(&s);
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
    }
    release_all();
}

/* ---- copies ---- */

/* dst after copying, against a plain loop; `from`: numbers of src before its first row. */
static void check_copy(ddl_backend *backend, struct copy_args a, const float *x, float *y, size_t n,
                       bool moves, size_t from)
{
    float *expected = some_floats(n);
    memcpy(expected, y, n * sizeof *expected);
    for (size_t b = 0; b < a.batch; b++) {
        for (size_t r = 0; r < a.rows; r++)
            memcpy(expected + b * a.dst_batch + r * a.dst_stride,
                   (moves ? y : x) + from + b * a.src_batch + r * a.src_stride, a.width * sizeof *expected);
    }
    struct ddl_staging s = { .backend = backend };
    a.dst = ddl_staging_inout(&s, y, n);
    a.src = (moves ? a.dst : ddl_staging_in(&s, x, n)) + from;
    assert_false(s.failed);
    backend->ops->copy(backend->ctx, &a);
    finish(&s);
    assert_memory_equal(y, expected, n * sizeof *expected);
}

/* Several matrices with strides between them; and rows moved to the front of their own matrix. */
static void copies_of_several_matrices(ddl_backend *backend)
{
    static const size_t widths[] = { 1, 7, 100, 20000 };
    enum { MATRICES = 3, ROWS = 4, LENGTH = 6 };
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        size_t width = widths[i], stride = width + 3, n = (size_t)MATRICES * LENGTH * stride;
        float *x = some_floats(n), *y = some_floats(n);
        const struct copy_args apart = { .rows = ROWS,
                                         .width = width,
                                         .src_stride = stride,
                                         .dst_stride = width + 1,
                                         .batch = MATRICES,
                                         .src_batch = LENGTH * stride,
                                         .dst_batch = ROWS * (width + 1) };
        const struct copy_args moved = { .rows = ROWS,
                                         .width = width,
                                         .src_stride = stride,
                                         .dst_stride = stride,
                                         .batch = MATRICES,
                                         .src_batch = LENGTH * stride,
                                         .dst_batch = LENGTH * stride };
        check_copy(backend, apart, x, y, n, false, 0);
        check_copy(backend, moved, x, y, n, true, stride);
        release_all();
    }
}

/* ---- attention ---- */

static const uint16_t *halves_in(struct ddl_staging *s, const uint16_t *x, size_t n)
{
    return (const uint16_t *)(const void *)ddl_staging_in(s, (const float *)(const void *)x, n / 2);
}

static uint16_t *halves_out(struct ddl_staging *s, uint16_t *x, size_t n)
{
    return (uint16_t *)(void *)ddl_staging_out(s, (float *)(void *)x, n / 2);
}

/* The output's gradient is float32 beside operands in bfloat16: where its large terms cancel, the rest of a
 * number, which bfloat16 would not have, is what the gradients are. All scores are 0. */
static void the_gradient_of_an_output_is_not_rounded(ddl_backend *backend)
{
    enum { T = 16, h = 16, N = T * h };
    const uint16_t one = 0x3f80, minus_one = 0xbf80;
    const float rest = 0x1p-10f, scale = 0.25f;
    uint16_t *q = halves_around(N, 0, 0), *k = halves_around(N, 0, 0), *v = halves_around(N, 0, 0);
    uint16_t *y = halves_around(N, 0, 0), *dq = some_halves(N), *dk = some_halves(N), *dv = some_halves(N);
    float *dy = floats_around(N, 0, 0), lse[T];
    for (size_t t = 0; t < T; t++) {
        lse[t] = logf((float)(t + 1));
        q[t * h + 1] = one;
    }
    k[0] = one;
    v[0] = v[h + 1] = one, v[1] = v[h] = minus_one;
    /* Query 1 weighs two keys by 1/2, query 3 four keys by 1/4. */
    dy[h] = 1 + rest, dy[h + 1] = 1;
    dy[h + 2] = 1 + rest, dy[3 * h + 2] = -2;
    struct ddl_staging s = { .backend = backend };
    struct attention_grad_args a = { .B = 1, .T = T, .H = 1, .h = h, .scale = scale };
    a.q16 = halves_in(&s, q, N), a.k16 = halves_in(&s, k, N), a.v16 = halves_in(&s, v, N);
    a.y16 = halves_in(&s, y, N), a.lse = ddl_staging_in(&s, lse, T), a.dy = ddl_staging_in(&s, dy, N);
    a.dq16 = halves_out(&s, dq, N), a.dk16 = halves_out(&s, dk, N), a.dv16 = halves_out(&s, dv, N);
    a.q_stride = a.k_stride = a.v_stride = a.dq_stride = a.dk_stride = a.dv_stride = h;
    assert_false(s.failed);
    backend->ops->attention_bwd(backend->ctx, &a);
    finish(&s);
    assert_int_equal(dv[2], ddl_bf16_round(rest / 2));
    assert_int_equal(dq[h], ddl_bf16_round(scale * rest / 2));
    assert_int_equal(dk[1], ddl_bf16_round(scale * rest / 2));
    assert_int_equal(dk[h + 1], ddl_bf16_round(-scale * rest / 2));
    release_all();
}

#define LAW(name)                                                                                            \
    static void test_##name(void **state)                                                                    \
    {                                                                                                        \
        (void)state;                                                                                         \
        on_every_set(name);                                                                                  \
    }
LAW(a_closed_gate_changes_nothing)
LAW(some_closed_gates_change_nothing)
LAW(no_direction)
LAW(the_initial_weights_of_a_sum)
LAW(saturated_gates_of_a_highway)
LAW(equal_logits_of_laurel)
LAW(rows_of_mixing_matrices_sum_to_one)
LAW(copies_of_several_matrices)
LAW(the_gradient_of_an_output_is_not_rounded)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_closed_gate_changes_nothing),
        cmocka_unit_test(test_some_closed_gates_change_nothing),
        cmocka_unit_test(test_no_direction),
        cmocka_unit_test(test_the_initial_weights_of_a_sum),
        cmocka_unit_test(test_saturated_gates_of_a_highway),
        cmocka_unit_test(test_equal_logits_of_laurel),
        cmocka_unit_test(test_rows_of_mixing_matrices_sum_to_one),
        cmocka_unit_test(test_copies_of_several_matrices),
        cmocka_unit_test(test_the_gradient_of_an_output_is_not_rounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
