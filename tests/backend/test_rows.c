/* What the cases of ops/cases.h do not show of ops on rows: ranks and clipping by their definition, sums in
 * their exact order, the optimizer over several parts. */
#include "support/backends.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

DEFINE_CALL(rank, rank_args)
DEFINE_CALL(adamw, adamw_args)
DEFINE_CALL(weighted_sum, weighted_sum_args)

struct shape {
    size_t N, d;
};

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
        struct output entropies[] = { { &a.entropy, N, V > 1 ? 2e-6 : 0, NULL } };
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
        struct output out[] = { { &a.p, n, 1e-6, some_floats(n) },
                                { &a.m, n, 1e-6, floats_around(n, 0, 1e-3f) },
                                { &a.v, n, 1e-6, v } };
        COMPARE(adamw, a, out);
        for (size_t threads = 1; threads <= 3; threads++) {
            struct ddl_backend *backend = cpu_backend(NULL, threads);
            double squares[2] = { 0 }, sum = 0, found[2], all;
            const int32_t into[] = { 1, 0, 1 };
            for (size_t j = 0; j < n; j++) {
                squares[j < half] += (double)g[j] * (double)g[j];
                sum += (double)g[j];
            }
            backend->ops->sum(backend->ctx, &(struct sum_args){ n, g, found });
            assert_true(*found == sum); /* in ascending order, to the bit */
            struct sum_squares_args args = { .parts = parts, .x = g, .sums = 1, .sum = &all };
            backend->ops->sum_squares(backend->ctx, &args);
            args = (struct sum_squares_args){ parts, g, into, 2, found };
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

/* A row of several has the bits that it has alone, wherever the parts of the threads end. */
static void test_weighted_sum_of_rows(void **state)
{
    (void)state;
    enum { ROWS = 9, ARRAYS = 6, WIDEST = 199 };
    static const size_t widths[] = { 1, 31, 100, WIDEST };
    static float all[ROWS * WIDEST], alone[WIDEST];
    float *X = floats_around(ARRAYS * ROWS * WIDEST, 0, 1), *w = floats_around(ARRAYS, 0, 1);
    for (size_t isa = 0; isa_name(isa); isa++) {
        for (size_t threads = 1; threads <= 3; threads++) {
            struct ddl_backend *cpu = cpu_backend(isa_name(isa), threads);
            for (size_t i = 0; cpu && i < sizeof widths / sizeof *widths; i++) {
                size_t d = widths[i];
                struct weighted_sum_args a = { .n = ARRAYS,
                                               .count = ROWS * d,
                                               .X_stride = ROWS * d,
                                               .w_stride = 1,
                                               .X = X,
                                               .w = w,
                                               .out = all };
                call_weighted_sum(cpu, &a);
                a.count = d;
                a.out = alone;
                for (size_t row = 0; row < ROWS; row++) {
                    a.X = X + row * d;
                    call_weighted_sum(cpu, &a);
                    assert_memory_equal(alone, all + row * d, d * sizeof *alone);
                }
            }
            ddl_backend_free(cpu);
        }
    }
    ddl_mem_free(X);
    ddl_mem_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clip),
        cmocka_unit_test(test_optimizer),
        cmocka_unit_test(test_rank),
        cmocka_unit_test(test_weighted_sum_of_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
