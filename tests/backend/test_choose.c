/* The laws of the op choose beyond the cases of ops/cases.h: temperature, top-k, top-p and min-p, by
 * enumeration of the chance and by counting; limits in long rows; changed logits. */
#include "support/backends.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { V = 7, STEPS = 20000 };
static const float logits[V] = { 0.5f, -1, 2, 2, -INFINITY, 1, 0 };

struct settings {
    float temperature;
    int32_t top_k;
    float top_p, min_p;
};

static float *filled(size_t n, float value)
{
    float *x = ddl_mem_alloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = value;
    return x;
}

/* ids (n) = what is chosen of the n logits of z for each of N numbers u. */
static void choose(struct ddl_backend *backend, const struct settings *s, const float *z, size_t n,
                   const double *u, size_t N, int32_t *ids)
{
    float *rows = filled(N * n, 0);
    float *temperature = filled(N, s->temperature), *top_p = filled(N, s->top_p),
          *min_p = filled(N, s->min_p);
    int32_t *top_k = ddl_mem_alloc(N * sizeof *top_k);
    assert_non_null(top_k);
    for (size_t i = 0; i < N; i++) {
        memcpy(rows + i * n, z, n * sizeof *z);
        top_k[i] = s->top_k;
    }
    backend->ops->choose(backend->ctx, &(struct choose_args){ .N = N,
                                                              .V = n,
                                                              .n = n,
                                                              .z = rows,
                                                              .temperature = temperature,
                                                              .top_k = top_k,
                                                              .top_p = top_p,
                                                              .min_p = min_p,
                                                              .u = u,
                                                              .id = ids });
    ddl_mem_free(rows);
    ddl_mem_free(temperature);
    ddl_mem_free(top_p);
    ddl_mem_free(min_p);
    ddl_mem_free(top_k);
}

static int32_t choose_one(struct ddl_backend *backend, struct settings s, const float *z, size_t n, double u)
{
    int32_t id = -2;
    choose(backend, &s, z, n, &u, 1, &id);
    return id;
}

/* Calls the test with every instruction set and with ref. */
static void on_all(void (*test)(struct ddl_backend *backend))
{
    struct ddl_backend *backend;
    assert_int_equal(ddl_backend_create(&backend, "ref", 1, NULL), DDL_OK);
    test(backend);
    ddl_backend_free(backend);
    for (size_t isa = 0; isa_name(isa); isa++) {
        backend = cpu_backend(isa_name(isa), 2);
        if (backend)
            test(backend);
        ddl_backend_free(backend);
    }
}

/* The softmax over the ids of `kept` (a bit each). */
static void expect(const double *shares, double temperature, unsigned kept)
{
    double total = 0;
    for (int i = 0; i < V; i++)
        total += kept >> i & 1 ? exp((double)logits[i] / temperature) : 0;
    for (int i = 0; i < V; i++) {
        double p = kept >> i & 1 ? exp((double)logits[i] / temperature) / total : 0;
        assert_true(fabs(shares[i] - p) < 2.0 / STEPS);
    }
}

/* Shares of the ids as u runs evenly over [0, 1): the distribution itself. */
static void check_laws(struct ddl_backend *backend)
{
    /* In order of likelihood: 2, 3, 5, 0, 6, 1; at temperature 1 their sums reach .360, .720, .853, .933,
     * .982, 1
     */
    static const struct {
        struct settings settings;
        unsigned kept;
    } cases[] = {
        { { 1, 0, 1, 0 }, 0x6f },      { { 0.5f, 0, 1, 0 }, 0x6f },  { { 3, 0, 1, 0 }, 0x6f },
        { { 1, 100, 1, 0 }, 0x6f },    { { 1, 7, 1, 0 }, 0x6f },     { { 1, 6, 1, 0 }, 0x6f },
        { { 1, 2, 1, 0 }, 0x0c },      { { 1, 3, 1, 0 }, 0x2c },     { { 2, 4, 1, 0 }, 0x2d },
        { { 1, 1, 1, 0 }, 0x04 },      { { 1, 0, 0.6f, 0 }, 0x0c },  { { 1, 0, 0.73f, 0 }, 0x2c },
        { { 1, 0, 0.001f, 0 }, 0x04 }, { { 1, 0, 0, 0 }, 0x04 },     { { 1, 0, 0.86f, 0 }, 0x2d },
        { { 1, 3, 0.8f, 0 }, 0x0c },   { { 1, 3, 0.9f, 0 }, 0x2c },  { { 1, 0, 0.99999f, 0 }, 0x6f },
        { { 1, 0, 1, 0.3f }, 0x2c },   { { 1, 0, 1, 0.2f }, 0x2d },  { { 1, 0, 1, 1 }, 0x0c },
        { { 2, 0, 1, 0.4f }, 0x2d },   { { 1, 2, 1, 0.01f }, 0x0c }, { { 1, 0, 0.6f, 0.1f }, 0x0c },
    };
    static double u[STEPS];
    static int32_t ids[STEPS];
    for (int i = 0; i < STEPS; i++)
        u[i] = (i + 0.5) / STEPS;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        double shares[V] = { 0 };
        choose(backend, &cases[k].settings, logits, V, u, STEPS, ids);
        for (int i = 0; i < STEPS; i++) {
            assert_in_range(ids[i], 0, V - 1);
            shares[ids[i]] += 1.0 / STEPS;
        }
        expect(shares, (double)cases[k].settings.temperature, cases[k].kept);
    }
}

static void laws(void **state)
{
    (void)state;
    on_all(check_laws);
}

static void check_greedy(struct ddl_backend *backend)
{
    const struct settings greedy = { 0, 5, 0.5f, 0 }, cold = { 1e-30f, 0, 1, 0 };
    for (int i = 0; i < 10; i++)
        assert_int_equal(choose_one(backend, greedy, logits, V, i / 10.0), 2);
    static const float none[3] = { NAN, -INFINITY, NAN }, one[3] = { NAN, -5, -INFINITY };
    assert_int_equal(choose_one(backend, greedy, none, 3, 0.5), -1);
    assert_int_equal(choose_one(backend, greedy, one, 3, 0.5), 1);
    assert_int_equal(choose_one(backend, cold, logits, V, 0.2), 2);
    assert_int_equal(choose_one(backend, cold, logits, V, 0.9), 3);
}

static void greedy_is_the_first_of_the_largest(void **state)
{
    (void)state;
    on_all(check_greedy);
}

/* With the generator's numbers: chi-squared of 20000 draws, 5 degrees of freedom; 20.5 is its 0.999 quantile.
 */
static void check_draws(struct ddl_backend *backend)
{
    const struct settings s = { 1, 0, 1, 0 };
    static double u[STEPS];
    static int32_t ids[STEPS];
    double counts[V] = { 0 }, total = 0, chi = 0;
    for (int i = 0; i < STEPS; i++)
        u[i] = ddl_rng_uniform(ddl_rng_key(5, "sample"), (uint64_t)i);
    choose(backend, &s, logits, V, u, STEPS, ids);
    for (int i = 0; i < STEPS; i++)
        counts[ids[i]]++;
    for (int i = 0; i < V; i++)
        total += exp((double)logits[i]);
    for (int i = 0; i < V; i++) {
        double e = STEPS * exp((double)logits[i]) / total;
        chi += e > 0 ? (counts[i] - e) * (counts[i] - e) / e : 0;
    }
    assert_true(counts[4] == 0 && chi < 20.5);
}

static void draws_follow_the_distribution(void **state)
{
    (void)state;
    on_all(check_draws);
}

/* Rows of random logits with ties, longer than what a kernel has at a time: what is chosen is among the k
 * likeliest. */
static void check_top_k(struct ddl_backend *backend)
{
    enum { N = 1000 };
    float z[N];
    for (uint64_t row = 0; row < 200; row++) {
        size_t k = 1 + row * 7 % N;
        for (size_t i = 0; i < N; i++)
            z[i] = ((float)ddl_rng_below(row, i, 60) - 30) / 8;
        const struct settings s = { 1, (int32_t)k, 1, 0 };
        int32_t id = choose_one(backend, s, z, N, ddl_rng_uniform(row, 10000));
        size_t before = 0;
        for (int32_t i = 0; i < N; i++)
            before += z[i] > z[id] || (z[i] == z[id] && i < id);
        assert_true(before < k);
    }
}

static void top_k_are_the_largest(void **state)
{
    (void)state;
    on_all(check_top_k);
}

/* Ids of a long row, by every backend: those of ref. u is never within the rounding of a boundary. */
static int32_t expected[200];

static void check_long_rows(struct ddl_backend *backend)
{
    enum { N = 5003 };
    float *z = filled(N, 0);
    for (uint64_t row = 0; row < 200; row++) {
        const struct settings s = { 0.3f + (float)(row % 7) / 4, row % 3 ? (int32_t)(row * 17 % N) : 0,
                                    row % 2 ? 0.02f + (float)(row % 49) / 50 : 1, row % 5 ? 0 : 0.01f };
        for (size_t i = 0; i < N; i++)
            z[i] = 4 * (float)ddl_rng_normal(row, i);
        int32_t id = choose_one(backend, s, z, N, ddl_rng_uniform(row, 10000));
        if (strncmp(backend->description, "ref", 3) == 0)
            expected[row] = id;
        assert_int_equal(id, expected[row]);
    }
    ddl_mem_free(z);
}

static void long_rows(void **state)
{
    (void)state;
    on_all(check_long_rows);
}

/* A changed logit wins, and all logits are as before. */
static void check_changes(struct ddl_backend *backend)
{
    float z[] = { 1, 2, -2, 3, 2, 1, -1, 0 };
    const float old[] = { 1, 2, -2, 3, 2, 1, -1, 0 };
    const int32_t changed[] = { 3, 2, -1, 1, -1, 3 };
    const float repeat[] = { 4, 2, 1, 2, 1, 1 }, shift[] = { 0, 0, 0, -5, 0, 2.5f };
    float before[6];
    const float temperature[] = { 0, 0 }, top_p[] = { 1, 1 }, min_p[] = { 0, 0 };
    const int32_t top_k[] = { 0, 0 };
    const double u[] = { 0, 0 };
    int32_t ids[] = { 7, 7 };
    backend->ops->choose(backend->ctx, &(struct choose_args){ .N = 2,
                                                              .V = 4,
                                                              .n = 4,
                                                              .changes = 3,
                                                              .z = z,
                                                              .changed = changed,
                                                              .repeat = repeat,
                                                              .shift = shift,
                                                              .before = before,
                                                              .temperature = temperature,
                                                              .top_k = top_k,
                                                              .top_p = top_p,
                                                              .min_p = min_p,
                                                              .u = u,
                                                              .id = ids });
    assert_int_equal(ids[0], 1); /* 1, 2, -4, 3/4 */
    assert_int_equal(ids[1], 3); /* 2, 1/2 - 5, -1, 2.5 */
    assert_memory_equal(z, old, sizeof z);
    assert_true(before[0] == 3 && before[1] == -2 && before[2] == 0 && before[3] == 1 && before[5] == 0);
}

static void changed_logits(void **state)
{
    (void)state;
    on_all(check_changes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(laws),
        cmocka_unit_test(greedy_is_the_first_of_the_largest),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(top_k_are_the_largest),
        cmocka_unit_test(long_rows),
        cmocka_unit_test(changed_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
