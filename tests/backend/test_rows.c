/* Norms, rotation, activations, projections, embeddings, loss and optimizer: cpu against ref. */
#include "backend/q8.h"
#include "support/backends.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

DEFINE_CALL(rmsnorm_fwd, rmsnorm_args)
DEFINE_CALL(rmsnorm_bwd, rmsnorm_grad_args)
DEFINE_CALL(rope_fwd, rope_args)
DEFINE_CALL(mix_values_fwd, mix_values_args)
DEFINE_CALL(mix_values_bwd, mix_values_grad_args)
DEFINE_CALL(rope_bwd, rope_grad_args)
DEFINE_CALL(swiglu_fwd, swiglu_args)
DEFINE_CALL(swiglu_bwd, swiglu_grad_args)
DEFINE_CALL(project_fwd, project_args)
DEFINE_CALL(project_bwd, project_grad_args)
DEFINE_CALL(tanh_fwd, tanh_args)
DEFINE_CALL(tanh_bwd, tanh_grad_args)
DEFINE_CALL(gelu_fwd, gelu_args)
DEFINE_CALL(gelu_bwd, gelu_grad_args)
DEFINE_CALL(fill, fill_args)
DEFINE_CALL(bias_fwd, bias_args)
DEFINE_CALL(bias_bwd, bias_grad_args)
DEFINE_CALL(gather, gather_args)
DEFINE_CALL(gather_bf16, gather_bf16_args)
DEFINE_CALL(gather_q8, gather_q8_args)
DEFINE_CALL(embed_bwd, embed_grad_args)
DEFINE_CALL(copy, copy_args)
DEFINE_CALL(cross_entropy, cross_entropy_args)
DEFINE_CALL(rank, rank_args)
DEFINE_CALL(adamw, adamw_args)

static const struct shape {
    size_t N, d;
} shapes[] = { { 0, 5 }, { 1, 1 }, { 1, 7 }, { 3, 63 }, { 7, 100 }, { 5, 128 }, { 63, 768 }, { 511, 100 } };
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void test_rmsnorm(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_SHAPES; s++) {
        size_t N = shapes[s].N, d = shapes[s].d;
        float *x = some_floats(N * d), *w = floats_around(d, 1, 0.2f), *dy = some_floats(N * d);
        struct rmsnorm_args f = { .N = N, .d = d, .eps = 1e-5f, .x = x, .w = w };
        struct output fwd[] = { { &f.y, N * d, 1e-6, NULL, NULL }, { &f.rstd, N, 1e-6, NULL, NULL } };
        COMPARE(rmsnorm_fwd, f, fwd);
        struct output in_place[] = { { &f.y, N * d, 1e-6, x, &f.x } };
        f.rstd = NULL;
        COMPARE(rmsnorm_fwd, f, in_place);

        float *rstd = some_floats(N);
        for (size_t n = 0; n < N; n++) {
            double squares = 0;
            for (size_t i = 0; i < d; i++)
                squares += (double)x[n * d + i] * (double)x[n * d + i];
            rstd[n] = (float)(1 / sqrt(squares / (double)d + 1e-5));
        }
        struct rmsnorm_grad_args b = { .N = N, .d = d, .x = x, .w = w, .rstd = rstd, .dy = dy };
        /* d = 1: dx is the result of a cancellation, so its relative error is not small */
        double limit = d > 1 ? 2e-6 : 0.1;
        struct output bwd[] = { { &b.dx, N * d, limit, NULL, NULL },
                                { &b.dw, d, 2e-6, some_floats(d), NULL } };
        COMPARE(rmsnorm_bwd, b, bwd);
        struct output bwd_in_place[] = { { &b.dx, N * d, limit, dy, &b.dy }, { &b.dw, d, 2e-6, w, NULL } };
        COMPARE(rmsnorm_bwd, b, bwd_in_place);
        b.accumulate = true, b.dy = dy;
        struct output added[] = { { &b.dx, N * d, 2e-6, some_floats(N * d), NULL },
                                  { &b.dw, d, 2e-6, w, NULL } };
        COMPARE(rmsnorm_bwd, b, added);
        release_all();
    }
}

static const struct heads {
    size_t B, T, H, h, R;
    bool norm;
} heads[] = {
    { 0, 2, 1, 4, 4, true },   { 1, 1, 1, 2, 2, true },     { 2, 3, 2, 6, 4, true },
    { 2, 7, 3, 64, 64, true }, { 2, 7, 3, 64, 64, false },  { 1, 5, 2, 50, 24, true },
    { 3, 4, 2, 63, 0, true },  { 2, 63, 4, 128, 64, true }, { 1, 2, 1, 8, 0, false },
};

static void test_rope(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        struct heads s = heads[i];
        size_t N = s.B * s.T, width = s.H * s.h, positions = s.T, x_stride = width + 5;
        float *x = some_floats(N * x_stride), *w = s.norm ? floats_around(s.h, 1, 0.3f) : NULL;
        float *angle = some_floats(positions * s.R), *cosines = some_floats(positions * s.R),
              *sines = some_floats(positions * s.R);
        for (size_t j = 0; j < positions * s.R / 2; j++)
            cosines[j] = cosf(angle[j]), sines[j] = sinf(angle[j]);
        /* rows wider than needed: what is between stays */
        size_t y_stride = width + 3, n_y = N * y_stride;
        struct rope_args f = { .B = s.B,
                               .T = s.T,
                               .H = s.H,
                               .h = s.h,
                               .R = s.R,
                               .eps = 1e-5f,
                               .cos = cosines,
                               .sin = sines,
                               .x = x,
                               .x_stride = x_stride,
                               .w = w,
                               .y_stride = y_stride };
        struct output fwd[] = { { &f.y, n_y, 1e-6, some_floats(n_y), NULL } };
        COMPARE(rope_fwd, f, fwd);

        float *dy = some_floats(N * y_stride);
        struct rope_grad_args b = { .B = s.B,
                                    .T = s.T,
                                    .H = s.H,
                                    .h = s.h,
                                    .R = s.R,
                                    .eps = 1e-5f,
                                    .cos = cosines,
                                    .sin = sines,
                                    .x = x,
                                    .x_stride = x_stride,
                                    .w = w,
                                    .dy = dy,
                                    .dy_stride = y_stride,
                                    .dx_stride = x_stride };
        /* the second output is there only with a norm: dw is NULL where w is */
        struct output bwd[] = { { &b.dx, N * x_stride, 2e-6, x, NULL },
                                { &b.dw, s.h, 2e-6, some_floats(s.h), NULL } };
        compare_outputs(call_rope_bwd, &b, w ? 2 : 1, bwd);
        b.dx_stride = y_stride;
        struct output in_place[] = { { &b.dx, N * y_stride, 2e-6, dy, &b.dy },
                                     { &b.dw, s.h, 2e-6, w, NULL } };
        compare_outputs(call_rope_bwd, &b, w ? 2 : 1, in_place);
        release_all();
    }
}

static void test_swiglu(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_SHAPES; s++) {
        size_t N = shapes[s].N, m = shapes[s].d;
        float *ug = floats_around(N * 2 * m, 0, 3);
        struct swiglu_args f = { .N = N, .m = m, .ug = ug };
        struct output fwd[] = { { &f.s, N * m, 1e-6, NULL, NULL } };
        COMPARE(swiglu_fwd, f, fwd);
        struct swiglu_grad_args b = { .N = N, .m = m, .ug = ug, .ds = some_floats(N * m) };
        struct output bwd[] = { { &b.dug, N * 2 * m, 1e-6, NULL, NULL } };
        COMPARE(swiglu_bwd, b, bwd);
        struct output in_place[] = { { &b.dug, N * 2 * m, 1e-6, ug, &b.ug } };
        COMPARE(swiglu_bwd, b, in_place);
        release_all();
    }
}

static void test_project(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES * 6; i++) {
        size_t N = shapes[i / 6].N, d = shapes[i / 6].d, c = (size_t[]){ 1, 4, 7 }[i % 3];
        bool sigmoid = i % 6 < 3;
        float *x = some_floats(N * d), *W = floats_around(c * d, 0, 1 / sqrtf((float)d)), *b = some_floats(c);
        struct project_args f = {
            .N = N, .d = d, .c = c, .sigmoid = sigmoid, .scale = 4, .x = x, .W = W, .b = b
        };
        struct output fwd[] = { { &f.y, N * c, 2e-6, NULL, NULL } };
        COMPARE(project_fwd, f, fwd);
        struct project_grad_args g = { .N = N,
                                       .d = d,
                                       .c = c,
                                       .sigmoid = sigmoid,
                                       .scale = 4,
                                       .x = x,
                                       .W = W,
                                       .y = floats_around(N * c, 2, 0.5f),
                                       .dy = some_floats(N * c) };
        struct output bwd[] = { { &g.dx, N * d, 1e-6, some_floats(N * d), NULL },
                                { &g.dW, c * d, 2e-6, some_floats(c * d), NULL },
                                { &g.db, c, 5e-6, some_floats(c), NULL } };
        COMPARE(project_bwd, g, bwd);
        release_all();
    }
}

static void test_plain_functions(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0, 1, 7, 63, 100, 50021 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i];
        float *x = floats_around(n, 0, 2), *dy = some_floats(n), *y = floats_around(n, 0, 0.3f);
        struct tanh_args t = { .n = n, .x = x };
        struct output tanh_fwd[] = { { &t.y, n, 1e-6, x, &t.x } };
        COMPARE(tanh_fwd, t, tanh_fwd);
        struct tanh_grad_args tg = { .n = n, .y = y, .dy = dy };
        struct output tanh_bwd[] = { { &tg.dx, n, 1e-6, dy, &tg.dy } };
        COMPARE(tanh_bwd, tg, tanh_bwd);
        struct gelu_args g = { .n = n, .x = x };
        struct output gelu_fwd[] = { { &g.y, n, 1e-6, NULL, NULL } };
        COMPARE(gelu_fwd, g, gelu_fwd);
        struct gelu_grad_args gg = { .n = n, .x = x, .dy = dy };
        struct output gelu_bwd[] = { { &gg.dx, n, 1e-6, dy, &gg.dy } };
        COMPARE(gelu_bwd, gg, gelu_bwd);
        struct fill_args fill = { .n = n, .value = -0.25f };
        struct output filled[] = { { &fill.x, n, 0, NULL, NULL } };
        COMPARE(fill, fill, filled);
        release_all();
    }
}

/* Reads rows in bfloat16, and in tiles that have other rows before them. */
static void check_reduced_lookup(size_t N, size_t d, const int32_t *tokens, size_t V, const float *E)
{
    enum { BEFORE = 6 };
    uint16_t *halves = ddl_mem_alloc(V * d * sizeof *halves);
    struct ddl_q8 *eighths = ddl_mem_zalloc(ddl_q8_tiles(BEFORE + V, d) * sizeof *eighths);
    struct ddl_backend *ref;
    assert_true(halves && eighths);
    assert_int_equal(ddl_backend_create(&ref, "ref", 1, NULL), DDL_OK);
    ref->ops->cast_bf16(ref->ctx, &(struct cast_bf16_args){ V * d, E, halves });
    ref->ops->quantize_q8(ref->ctx, &(struct quantize_q8_args){ V, d, BEFORE, E, eighths });
    ddl_backend_free(ref);
    struct gather_bf16_args e16 = { .N = N, .width = d, .index = tokens, .x = halves };
    struct output x16[] = { { &e16.y, N * d, 0, NULL, NULL } };
    COMPARE(gather_bf16, e16, x16);
    struct gather_q8_args e8 = { .N = N, .width = d, .first = BEFORE, .index = tokens, .x = eighths };
    struct output x8[] = { { &e8.y, N * d, 0, NULL, NULL } };
    COMPARE(gather_q8, e8, x8);
    ddl_mem_free(halves);
    ddl_mem_free(eighths);
}

static void test_bias_embed_copy(void **state)
{
    (void)state;
    enum { VOCABULARY = 11 };
    for (size_t s = 0; s < N_SHAPES; s++) {
        size_t N = shapes[s].N, d = shapes[s].d;
        float *dy = some_floats(N * d), *E = some_floats(VOCABULARY * d);
        struct bias_args f = { .N = N, .d = d, .b = some_floats(d) };
        struct output biased[] = { { &f.y, N * d, 1e-7, dy, NULL } };
        COMPARE(bias_fwd, f, biased);
        struct bias_grad_args b = { .N = N, .d = d, .dy = dy };
        struct output db[] = { { &b.db, d, 2e-6, some_floats(d), NULL } };
        COMPARE(bias_bwd, b, db);

        int32_t *tokens = ddl_mem_alloc(N * sizeof *tokens); /* most occur several times */
        assert_non_null(tokens);
        for (size_t n = 0; n < N; n++)
            tokens[n] = (int32_t)(n * n % VOCABULARY);
        struct gather_args e = { .N = N, .width = d, .index = tokens, .x = E };
        struct output x[] = { { &e.y, N * d, 0, NULL, NULL } };
        COMPARE(gather, e, x);
        check_reduced_lookup(N, d, tokens, VOCABULARY, E);
        struct embed_grad_args g = { .N = N, .d = d, .tokens = tokens, .dx = dy };
        struct output dE[] = { { &g.dE, VOCABULARY * d, 2e-6, E, NULL } };
        COMPARE(embed_bwd, g, dE);
        ddl_mem_free(tokens);

        struct copy_args c = { .rows = N, .width = d, .src = dy, .src_stride = d, .dst_stride = d + 2 };
        struct output copied[] = { { &c.dst, N * (d + 2), 0, some_floats(N * (d + 2)), NULL } };
        COMPARE(copy, c, copied);
        release_all();
    }
}

/* Matrix b of dst, against a plain loop over what src held before. */
static void check_copy(const struct ddl_backend *backend, const struct copy_args *a, const float *before,
                       const float *dst_before, size_t n)
{
    float *expected = ddl_mem_alloc(n * sizeof *expected);
    assert_non_null(expected);
    memcpy(expected, dst_before, n * sizeof *expected);
    for (size_t b = 0; b < a->batch; b++) {
        size_t from = b * a->src_batch;
        size_t to = b * a->dst_batch;
        for (size_t r = 0; r < a->rows; r++)
            memcpy(expected + to + r * a->dst_stride, before + from + r * a->src_stride,
                   a->width * sizeof *expected);
    }
    backend->ops->copy(backend->ctx, a);
    assert_memory_equal(a->dst, expected, n * sizeof *expected);
    ddl_mem_free(expected);
}

/* Several matrices at a time, with strides between them; and rows moved to the front of their own matrix. */
static void check_batched_copy(ddl_backend *backend)
{
    static const size_t widths[] = { 1, 7, 100, 20000 };
    enum { MATRICES = 3, ROWS = 4, LENGTH = 6 };
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        size_t width = widths[i], stride = width + 3, n = (size_t)MATRICES * LENGTH * stride;
        float *x = some_floats(n), *y = some_floats(n), *before = ddl_mem_alloc(n * sizeof *before);
        assert_non_null(before);
        struct copy_args a = { .rows = ROWS, .width = width, .src = x, .src_stride = stride, .dst = y };
        a.batch = MATRICES, a.src_batch = LENGTH * stride;
        a.dst_stride = width + 1, a.dst_batch = ROWS * (width + 1);
        memcpy(before, y, n * sizeof *before);
        check_copy(backend, &a, x, before, n);
        struct copy_args shift = { .batch = MATRICES, .rows = ROWS, .width = width, .dst = y };
        shift.src = y + stride, shift.src_stride = shift.dst_stride = stride;
        shift.src_batch = shift.dst_batch = LENGTH * stride;
        memcpy(before, y, n * sizeof *before);
        check_copy(backend, &shift, before + stride, before, n);
        ddl_mem_free(before);
        release_all();
    }
}

static void test_batched_copy(void **state)
{
    (void)state;
    ddl_backend *ref;
    assert_int_equal(ddl_backend_create(&ref, "ref", 1, NULL), DDL_OK);
    check_batched_copy(ref);
    ddl_backend_free(ref);
    for (size_t threads = 1; threads <= 3; threads++) {
        struct ddl_backend *cpu = cpu_backend(NULL, threads);
        check_batched_copy(cpu);
        ddl_backend_free(cpu);
    }
}

static void test_cross_entropy(void **state)
{
    (void)state;
    static const struct shape cases[] = {
        { 0, 3 }, { 1, 1 }, { 3, 7 }, { 5, 100 }, { 9, 5003 }, { 40, 4999 }
    };
    const float grad_scale = 0.01f;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t N = cases[i].N, V = cases[i].d;
        float *z = floats_around(N * V, -50, 4);
        int32_t *targets = ddl_mem_alloc(N * sizeof *targets);
        assert_non_null(targets);
        for (size_t n = 0; n < N; n++)
            targets[n] = n % 3 == 1 ? -1 : (int32_t)(n * 131 % V);
        if (N > 2 && V > 1) /* a row that is sure of its target, and one that is sure of another */
            z[targets[0]] = 30, z[2 * V + (size_t)(targets[2] + 1) % V] = 80;
        struct cross_entropy_args a = {
            .N = N, .V = V, .targets = targets, .grad = true, .grad_scale = &grad_scale
        };
        double limit = V > 1 ? 2e-6 : 0; /* of a vocabulary of one, loss and gradient are 0 */
        struct output with_grad[] = { { &a.loss, N, limit, NULL, NULL }, { &a.z, N * V, limit, z, NULL } };
        COMPARE(cross_entropy, a, with_grad);
        a.grad = false;
        struct output unchanged[] = { { &a.loss, N, limit, NULL, NULL }, { &a.z, N * V, 0, z, NULL } };
        COMPARE(cross_entropy, a, unchanged);
        ddl_mem_free(targets);
        release_all();
    }
}

/* Ranks by the definition, on a backend, which is freed. */
static void check_ranks(struct ddl_backend *backend, const struct rank_args *a)
{
    assert_non_null(backend);
    memset(a->rank, 0x55, a->N * sizeof *a->rank);
    backend->ops->rank(backend->ctx, a);
    for (size_t n = 0; n < a->N; n++) {
        const float *z = a->z + n * a->V;
        int32_t target = a->targets[n], expected = target < 0 ? -1 : 0;
        for (size_t j = 0; target >= 0 && j < a->V; j++)
            expected += z[j] > z[target] || (z[j] == z[target] && j < (size_t)target);
        assert_int_equal(a->rank[n], expected);
    }
    ddl_backend_free(backend);
}

/* Logits are rounded to quarters, so that many are equal. */
static void test_rank(void **state)
{
    (void)state;
    static const struct shape cases[] = { { 0, 3 }, { 1, 1 }, { 3, 7 }, { 5, 100 }, { 9, 5003 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t N = cases[i].N, V = cases[i].d;
        float *z = floats_around(N * V, -50, 4);
        int32_t *targets = ddl_mem_alloc((2 * N + 1) * sizeof *targets);
        struct ddl_backend *ref;
        assert_non_null(targets);
        for (size_t j = 0; j < N * V; j++)
            z[j] = rintf(4 * z[j]) / 4;
        for (size_t n = 0; n < N; n++)
            targets[n] = n % 3 == 1 ? -1 : (int32_t)(n * 131 % V);
        struct rank_args a = { .N = N, .V = V, .z = z, .targets = targets, .rank = targets + N };
        assert_int_equal(ddl_backend_create(&ref, "ref", 1, NULL), DDL_OK);
        check_ranks(ref, &a);
        for (size_t threads = 1; threads <= 3; threads++)
            check_ranks(cpu_backend(NULL, threads), &a);
        for (size_t isa = 0; isa_name(isa); isa++) {
            struct ddl_backend *cpu = cpu_backend(isa_name(isa), 1);
            if (cpu)
                check_ranks(cpu, &a);
        }
        struct output entropies[] = { { &a.entropy, N, V > 1 ? 2e-6 : 0, NULL, NULL } };
        COMPARE(rank, a, entropies);
        ddl_mem_free(targets);
        release_all();
    }
}

/* What is not finite ends in a factor that changes nothing. */
static void check_clip(const struct ddl_backend *backend)
{
    static const struct {
        float clip;
        double square, losses[2];
        float factor;
    } cases[] = {
        { 1, 4, { 0 }, (float)(1 / (2 + 1e-6)) },
        { 1, 0.25, { 3, 5 }, 1 },
        { 0, 1e300, { 3, 5 }, 1 },
        { 0, 4, { 3, INFINITY }, NAN },
        { 1, NAN, { 3, 5 }, NAN },
        { 1, INFINITY, { 3, 5 }, NAN },
        { 1, 4, { NAN, 5 }, NAN },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float factor = 7, p[] = { 1, 2 }, m[] = { 3, 4 }, v[] = { 5, 6 }, decay = 0.5f;
        const float g[] = { 1, INFINITY }, one = 1;
        const double rates[DDL_RATES] = { 1, 1, 1 };
        const int64_t begin = 0, size = 2;
        backend->ops->clip(backend->ctx, &(struct clip_args){ cases[i].clip, 2, cases[i].losses,
                                                              &cases[i].square, &factor });
        if (!isnan(cases[i].factor)) {
            assert_true(factor == cases[i].factor);
            continue;
        }
        assert_true(isnan(factor));
        backend->ops->adamw(backend->ctx, &(struct adamw_args){ .parts = { 1, 2, 2, &begin, &size },
                                                                .moments = &begin,
                                                                .lr_scale = &one,
                                                                .weight_decay = &decay,
                                                                .p = p,
                                                                .g = g,
                                                                .n_moments = 2,
                                                                .m = m,
                                                                .v = v,
                                                                .g_scale = &factor,
                                                                .rates = rates });
        assert_true(p[0] == 1 && p[1] == 2 && m[0] == 3 && m[1] == 4 && v[0] == 5 && v[1] == 6);
    }
}

static void test_clip(void **state)
{
    (void)state;
    struct ddl_backend *ref, *cpu = cpu_backend(NULL, 2);
    assert_int_equal(ddl_backend_create(&ref, "ref", 1, NULL), DDL_OK);
    check_clip(ref);
    check_clip(cpu);
    ddl_backend_free(ref);
    ddl_backend_free(cpu);
}

static void test_optimizer(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0, 1, 7, 63, 100, 70001 };
    const float scale = 0.5f, lr_scale[] = { 1, 0.5f, 2 }, decay[] = { 0.1f, 0, 0.2f };
    const double rates[DDL_RATES] = { 1e-3, (double)0.1f, (double)0.05f };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i], half = n / 2;
        const int64_t begin[] = { 0, (int64_t)half, 0 }, size[] = { (int64_t)half, (int64_t)(n - half), 0 };
        const struct ddl_parts parts = { 3, n, n, begin, size };
        float *g = some_floats(n), *v = floats_around(n, 1, 0.1f);
        for (size_t j = 0; j < n; j += 5)
            g[j] = 0, v[j] = 0;
        struct adamw_args a = { .parts = parts,
                                .moments = begin,
                                .lr_scale = lr_scale,
                                .weight_decay = decay,
                                .g = g,
                                .n_moments = n,
                                .g_scale = &scale,
                                .rates = rates,
                                .beta1 = 0.9f,
                                .beta2 = 0.95f,
                                .eps = 1e-8f };
        struct output out[] = { { &a.p, n, 1e-6, some_floats(n), NULL },
                                { &a.m, n, 1e-6, floats_around(n, 0, 1e-3f), NULL },
                                { &a.v, n, 1e-6, v, NULL } };
        COMPARE(adamw, a, out);
        for (size_t threads = 1; threads <= 3; threads++) {
            struct ddl_backend *backend = cpu_backend(NULL, threads);
            double squares[2] = { 0 }, sum = 0, found[2], all;
            const int32_t slot[] = { 1, 0, 1 };
            for (size_t j = 0; j < n; j++) {
                squares[j < half] += (double)g[j] * (double)g[j];
                sum += (double)g[j];
            }
            backend->ops->sum(backend->ctx, &(struct sum_args){ n, g, found });
            assert_true(*found == sum); /* in ascending order, to the bit */
            struct sum_squares_args args = { .parts = parts, .x = g, .slots = 1, .sum = &all };
            backend->ops->sum_squares(backend->ctx, &args);
            args = (struct sum_squares_args){ parts, g, slot, 2, found };
            backend->ops->sum_squares(backend->ctx, &args);
            for (size_t j = 0; j < 2; j++)
                assert_true(fabs(found[j] - squares[j]) <= 1e-13 * squares[j]);
            assert_true(all == found[1] + found[0]); /* the parts in ascending order */
            backend->ops->zero(backend->ctx, g, n / 2 * sizeof *g);
            for (size_t j = 0; j < n / 2; j++)
                assert_true(g[j] == 0);
            ddl_backend_free(backend);
        }
        release_all();
    }
}

/* Of a fused projection, with numbers between the rows; the factors (1, 1) in place. */
static void test_mix_values(void **state)
{
    (void)state;
    static const size_t sizes[][2] = { { 0, 3 }, { 1, 1 }, { 3, 7 }, { 7, 63 }, { 100, 100 }, { 511, 64 } };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t N = sizes[s][0], a = sizes[s][1], all = N * 3 * a;
        float *v = some_floats(all), *first = some_floats(N * a), *mix = some_floats(2);
        struct mix_values_args fwd = {
            .N = N, .width = a, .v = v, .v_stride = 3 * a, .first = first, .mix = mix, .y_stride = a
        };
        struct output forward[] = { { &fwd.y, N * a, 1e-6, NULL, NULL } };
        COMPARE(mix_values_fwd, fwd, forward);
        fwd.mix = NULL;
        fwd.y_stride = 3 * a;
        struct output in_place[] = { { &fwd.y, all, 1e-6, v, &fwd.v } };
        COMPARE(mix_values_fwd, fwd, in_place);
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            struct mix_values_grad_args bwd = { .N = N,
                                                .width = a,
                                                .v = v,
                                                .v_stride = 3 * a,
                                                .first = first,
                                                .mix = mix,
                                                .dv_stride = 3 * a,
                                                .accumulate = accumulate };
            struct output backward[] = { { &bwd.dv, all, 1e-6, some_floats(all), NULL },
                                         { &bwd.dfirst, N * a, 1e-6, accumulate ? some_floats(N * a) : NULL,
                                           NULL },
                                         { &bwd.dmix, 2, 5e-6, some_floats(2), NULL } };
            COMPARE(mix_values_bwd, bwd, backward);
        }
        release_all();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rmsnorm),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_swiglu),
        cmocka_unit_test(test_project),
        cmocka_unit_test(test_plain_functions),
        cmocka_unit_test(test_bias_embed_copy),
        cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_clip),
        cmocka_unit_test(test_optimizer),
        cmocka_unit_test(test_batched_copy),
        cmocka_unit_test(test_rank),
        cmocka_unit_test(test_mix_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
