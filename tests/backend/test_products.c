/* Attention: long sequences against ref, threads, values that are not finite. */
#include "support/attention_case.h"

#include "base/bf16.h"
#include "ddl/backend.h"

#include <math.h>
#include <stdlib.h>

DEFINE_CALL(attention_bwd, attention_grad_args)

/* B, T, H, h, past: single tokens against a cache; strips of 12 queries, blocks of 96 and pieces of 576 keys
 * and a bit, or that exactly (in bfloat16 strips of 32); where there is a past, pieces' borders within a
 * strip. */
static const size_t cases[][5] = {
    { 0, 3, 1, 4, 0 },     { 1, 1, 1, 1, 0 },      { 2, 1, 3, 8, 70 },   { 3, 2, 2, 7, 5 },
    { 2, 7, 3, 64, 0 },    { 1, 64, 2, 64, 0 },    { 2, 65, 1, 63, 0 },  { 1, 100, 2, 32, 30 },
    { 1, 200, 2, 128, 0 }, { 1, 1, 6, 64, 900 },   { 1, 9, 2, 256, 3 },  { 2, 8, 2, 33, 130 },
    { 3, 1, 2, 24, 0 },    { 1, 1, 3, 100, 0 },    { 1, 12, 1, 16, 0 },  { 1, 97, 1, 31, 575 },
    { 1, 30, 2, 32, 560 }, { 1, 40, 1, 17, 1141 }, { 1, 9, 1, 8, 1150 }, { 2, 577, 1, 12, 0 },
    { 1, 1160, 1, 34, 0 }, { 1, 96, 1, 5, 0 },     { 1, 576, 1, 32, 0 }, { 1, 12, 1, 9, 564 },
    { 1, 0, 1, 8, 64 },    { 1, 0, 2, 8, 0 },      { 2, 20, 0, 4, 0 },   { 1, 1152, 1, 3, 0 },
    { 2, 600, 1, 48, 0 },  { 1, 33, 2, 16, 1130 },
};
enum { CASES = sizeof cases / sizeof *cases };

/* Case c with queries `spread` wide. */
static struct attention_args forward_of(const size_t *c, float spread, size_t format)
{
    const struct attention_args a = { .B = c[0], .T = c[1], .H = c[2], .h = c[3], .past = c[4] };
    return attention_case(a, a.B, a.past + a.T, spread, (enum attention_format)format);
}

static void compare_forward(struct attention_args f, double limit)
{
    compare_attention(f, f.past + f.T, limit);
}

static void test_attention(void **state)
{
    (void)state;
    for (size_t i = 0; i < ATTENTION_FORMATS * CASES; i++) {
        compare_forward(forward_of(cases[i / ATTENTION_FORMATS], 2, i % ATTENTION_FORMATS), 2e-6);
        release_all();
    }
}

/* Scores so far apart that a piece's new largest one makes nothing of all before it, or none of what comes.
 * An error of a score is one of its exponential: in proportion to the scores. */
static void test_attention_of_large_scores(void **state)
{
    (void)state;
    static const size_t large[][5] = { { 1, 20, 1, 16, 1145 }, { 1, 700, 1, 16, 0 }, { 1, 3, 2, 16, 40 } };
    for (size_t i = 0; i < 12; i++) {
        compare_forward(forward_of(large[i / 4], i % 2 ? 100 : 30, i / 2 % 2 ? ALL_BF16 : FLOAT32),
                        i % 2 ? 1e-4 : 3e-5);
        release_all();
    }
}

/* What a query gives does not depend on how queries are shared out. */
static void test_threads_change_no_bit_of_attention(void **state)
{
    (void)state;
    for (size_t i = 0; i < ATTENTION_FORMATS * CASES; i++) {
        struct attention_args f = forward_of(cases[i / ATTENTION_FORMATS], 2, i % ATTENTION_FORMATS);
        size_t n = f.B * f.T * f.H * f.h;
        float *y[4];
        for (size_t threads = 0; threads < 4; threads++) {
            struct ddl_backend *backend = cpu_backend(NULL, threads + 1);
            f.y = y[threads] = some_floats(n);
            call_attention_fwd(backend, &f);
            ddl_backend_free(backend);
            if (n)
                assert_memory_equal(y[threads], y[0], n * sizeof **y);
        }
        release_all();
    }
}

/* All scores of the first piece -infinity, those of the next finite. */
static void test_attention_past_infinite_scores(void **state)
{
    (void)state;
    enum { SPAN = 720, BLIND = 600, h = 16 };
    static const size_t shape[] = { 1, 12, 1, h, SPAN - 12 };
    for (int bf16 = 0; bf16 < 2; bf16++) {
        struct attention_args f = forward_of(shape, 2, bf16 ? ALL_BF16 : FLOAT32);
        float *q = some_floats(12 * f.q_stride), *k = some_floats(f.k_batch);
        uint16_t *q16 = some_halves(12 * f.q_stride), *k16 = some_halves(f.k_batch);
        for (size_t t = 0; t < 12; t++)
            q[t * f.q_stride] = 3e38f, q16[t * f.q_stride] = ddl_bf16_round(3e38f);
        for (size_t s = 0; s < SPAN; s++) {
            float x = s < BLIND ? -3e38f : 0;
            k[s * f.k_stride] = x, k16[s * f.k_stride] = ddl_bf16_round(x);
        }
        if (bf16)
            f.q16 = q16, f.k16 = k16;
        else
            f.q = q, f.k = k;
        compare_forward(f, 2e-6);
        release_all();
    }
}

/* A query of more than eight has the same bits wherever a sequence is cut. */
static void test_pieces_have_the_bits_of_the_whole(void **state)
{
    (void)state;
    enum { T = 620, WIDTH = 2 * 48 };
    static const size_t shape[] = { 1, T, 2, 48, 0 }, cuts[] = { 0, 100, 109, 170, 570, 590, T };
    for (size_t i = 0; isa_name(i / ATTENTION_FORMATS); i++) {
        struct ddl_backend *backend = cpu_backend(isa_name(i / ATTENTION_FORMATS), 2);
        if (!backend)
            continue;
        struct attention_args whole = forward_of(shape, 2, i % ATTENTION_FORMATS);
        float *pieces = some_floats(T * WIDTH);
        whole.y = some_floats(T * WIDTH);
        call_attention_fwd(backend, &whole);
        for (size_t cut = 0; cuts[cut] < T; cut++) {
            struct attention_args piece = whole;
            piece.past = cuts[cut], piece.T = cuts[cut + 1] - cuts[cut];
            piece.y = pieces + piece.past * WIDTH;
            if (whole.q16)
                piece.q16 += piece.past * piece.q_stride;
            else
                piece.q += piece.past * piece.q_stride;
            call_attention_fwd(backend, &piece);
        }
        assert_memory_equal(pieces, whole.y, T * WIDTH * sizeof *pieces);
        ddl_backend_free(backend);
        release_all();
    }
}

static void set_value(const struct attention_args *f, size_t key, float x)
{
    if (f->v16)
        ((uint16_t *)(uintptr_t)f->v16)[key * f->v_stride + 1] = ddl_bf16_round(x);
    else
        ((float *)(uintptr_t)f->v)[key * f->v_stride + 1] = x;
}

/* A value that is not finite reaches the queries that attend to its key, and no earlier one. */
static void check_value_of_one_key(const struct ddl_backend *backend, struct attention_args f, float x)
{
    size_t h = f.h, n = f.T * h, key = f.past + f.T / 2;
    float *finite = some_floats(n), *found = some_floats(n);
    set_value(&f, key, 1);
    f.y = finite;
    call_attention_fwd(backend, &f);
    set_value(&f, key, x);
    f.y = found;
    call_attention_fwd(backend, &f);
    for (size_t t = 0; t < f.T; t++) {
        double error = relative_error(h, found + t * h, finite + t * h);
        bool reached = f.past + t >= key;
        if (reached ? isfinite(found[t * h + 1]) : !(error <= 2e-6))
            fail_msg("%s: query %zu of %zu after %zu, width %zu, value of key %zu is %g: error %g",
                     ddl_backend_description(backend), t, f.T, f.past, h, key, (double)x, error);
    }
}

static void test_values_that_are_not_finite(void **state)
{
    (void)state;
    static const size_t shapes[][5] = { { 1, 3, 1, 8, 0 },    { 1, 8, 1, 5, 70 },   { 1, 30, 1, 33, 0 },
                                        { 1, 9, 1, 16, 3 },   { 1, 200, 1, 64, 0 }, { 1, 24, 1, 12, 564 },
                                        { 1, 12, 1, 8, 570 }, { 1, 700, 1, 7, 0 },  { 1, 90, 1, 48, 560 } };
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    for (size_t set = 0; isa_name(set); set++) {
        struct ddl_backend *backend = cpu_backend(isa_name(set), 2);
        for (size_t i = 0; backend && i < 2 * ATTENTION_FORMATS * SHAPES; i++) {
            struct attention_args f =
                forward_of(shapes[i / 2 / ATTENTION_FORMATS], 2, i / 2 % ATTENTION_FORMATS);
            check_value_of_one_key(backend, f, i % 2 ? NAN : INFINITY);
            release_all();
        }
        ddl_backend_free(backend);
    }
}

/* The gradients of a query that sees one key, and of that key by it, are exactly zero (T = 1). */
static void test_attention_backward(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        size_t B = cases[i][0], T = cases[i][1], H = cases[i][2], h = cases[i][3];
        size_t width = H * h, N = B * T, stride = 3 * width, n = N * stride;
        float *qkv = some_floats(n), *y = some_floats(N * width), *lse = some_floats(N * H);
        struct ddl_backend *ref;
        assert_int_equal(ddl_backend_create(&ref, "ref", 1, NULL), DDL_OK);
        call_attention_fwd(ref, &(struct attention_args){ .B = B,
                                                          .T = T,
                                                          .H = H,
                                                          .h = h,
                                                          .scale = 1 / sqrtf((float)h),
                                                          .q = qkv,
                                                          .q_stride = stride,
                                                          .k = qkv + width,
                                                          .k_stride = stride,
                                                          .k_batch = T * stride,
                                                          .v = qkv + 2 * width,
                                                          .v_stride = stride,
                                                          .v_batch = T * stride,
                                                          .y = y,
                                                          .lse = lse });
        ddl_backend_free(ref);
        struct attention_grad_args b = { .B = B,
                                         .T = T,
                                         .H = H,
                                         .h = h,
                                         .scale = 1 / sqrtf((float)h),
                                         .q = qkv,
                                         .k = qkv + width,
                                         .v = qkv + 2 * width,
                                         .q_stride = stride,
                                         .k_stride = stride,
                                         .v_stride = stride,
                                         .y = y,
                                         .lse = lse,
                                         .dy = some_floats(N * width),
                                         .dq_stride = width + 3,
                                         .dk_stride = width + 1,
                                         .dv_stride = width + 2 };
        float *gaps = some_floats(N * (width + 3)); /* between rows: stays */
        struct output bwd[] = { { &b.dq, N * (width + 3), 5e-6, gaps },
                                { &b.dk, N * (width + 1), 5e-6, gaps },
                                { &b.dv, N * (width + 2), 5e-6, gaps } };
        compare_within(&(struct ddl_limits){ .T = T, .h = h }, call_attention_bwd, &b, 3, bwd);
        release_all();
    }
}

/* The same with all operands in bfloat16, which are converted to float32 afterwards. */
static void call_rounded_bwd(const struct ddl_backend *backend, const void *args)
{
    struct attention_grad_args a = *(const struct attention_grad_args *)args;
    float *const y[] = { a.dq, a.dk, a.dv };
    const size_t strides[] = { a.dq_stride, a.dk_stride, a.dv_stride }, N = a.B * a.T, width = a.H * a.h;
    uint16_t *y16[3];
    for (size_t i = 0; i < 3; i++) {
        y16[i] = malloc(N * strides[i] * sizeof **y16 + 1);
        assert_non_null(y16[i]);
    }
    a.dq = a.dk = a.dv = NULL;
    a.dq16 = y16[0], a.dk16 = y16[1], a.dv16 = y16[2];
    backend->ops->attention_bwd(backend->ctx, &a);
    for (size_t i = 0; i < 3; i++) {
        for (size_t n = 0; n < N * width; n++)
            y[i][n / width * strides[i] + n % width] =
                ddl_bf16_widen(y16[i][n / width * strides[i] + n % width]);
        free(y16[i]);
    }
}

/* Gradients of scores are rounded, by at most 2^-9 of each, and their sums cancel by half; those of values
 * are rounded once, in the result. */
static void test_attention_backward_of_halves(void **state)
{
    (void)state;
    static const size_t shapes[][4] = { { 1, 2, 1, 16 },  { 3, 1, 2, 64 },  { 2, 64, 1, 16 },
                                        { 1, 97, 2, 48 }, { 1, 33, 1, 80 }, { 1, 600, 1, 48 },
                                        { 1, 40, 1, 17 } };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        size_t B = shapes[i][0], T = shapes[i][1], H = shapes[i][2], h = shapes[i][3];
        size_t width = H * h, N = B * T, stride = 3 * width;
        uint16_t *qkv = some_halves(N * stride), *y = some_halves(N * width);
        struct attention_args f = { .B = B, .T = T, .H = H, .h = h, .scale = 1 / sqrtf((float)h) };
        f.q16 = qkv, f.k16 = qkv + width, f.v16 = qkv + 2 * width, f.y16 = y, f.lse = some_floats(N * H);
        f.q_stride = f.k_stride = f.v_stride = stride, f.k_batch = f.v_batch = T * stride;
        struct ddl_backend *ref;
        assert_int_equal(ddl_backend_create(&ref, "ref", 1, NULL), DDL_OK);
        ref->ops->attention_fwd(ref->ctx, &f);
        ddl_backend_free(ref);
        struct attention_grad_args b = { .B = B, .T = T, .H = H, .h = h, .scale = f.scale };
        b.q16 = f.q16, b.k16 = f.k16, b.v16 = f.v16, b.y16 = y, b.lse = f.lse, b.dy = some_floats(N * width);
        b.q_stride = b.k_stride = b.v_stride = stride;
        b.dq_stride = width + 3, b.dk_stride = width + 1, b.dv_stride = width + 2;
        float *gaps = some_floats(N * (width + 3));
        struct output bwd[] = { { &b.dq, N * (width + 3), 0x1p-8, gaps },
                                { &b.dk, N * (width + 1), 0x1p-8, gaps },
                                { &b.dv, N * (width + 2), 4e-4, gaps } };
        compare_within(&(struct ddl_limits){ .T = T, .h = h }, call_rounded_bwd, &b, 3, bwd);
        release_all();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_attention_of_large_scores),
        cmocka_unit_test(test_threads_change_no_bit_of_attention),
        cmocka_unit_test(test_attention_past_infinite_scores),
        cmocka_unit_test(test_pieces_have_the_bits_of_the_whole),
        cmocka_unit_test(test_values_that_are_not_finite),
        cmocka_unit_test(test_attention_backward),
        cmocka_unit_test(test_attention_backward_of_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
