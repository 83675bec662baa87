/* infer/sampler.c: the laws of temperature, top-k, top-p and min-p, by enumeration of the chance and by
 * counting. */
#include "support/support.h"

#include "base/rng.h"
#include "infer/sampler.h"

#include <math.h>
#include <string.h>

enum { V = 7, STEPS = 20000 };
static const float logits[V] = { 0.5f, -1, 2, 2, -INFINITY, 1, 0 };
static int32_t heap[V];

/* Shares of the ids as u runs evenly over [0, 1): the distribution itself. */
static void shares_of(struct ddl_sampler s, double *shares)
{
    memset(shares, 0, V * sizeof *shares);
    s.heap = heap;
    for (int i = 0; i < STEPS; i++) {
        int32_t id = ddl_sampler_pick(&s, logits, V, (i + 0.5) / STEPS);
        assert_true(id >= 0 && id < V);
        shares[id] += 1.0 / STEPS;
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

static void laws(void **state)
{
    (void)state;
    /* In order of likelihood: 2, 3, 5, 0, 6, 1; at temperature 1 their sums reach .360, .720, .853, .933,
     * .982, 1
     */
    static const struct {
        float temperature;
        size_t top_k;
        float top_p, min_p;
        unsigned kept;
    } cases[] = {
        { 1, 0, 1, 0, 0x6f },      { 0.5f, 0, 1, 0, 0x6f },  { 3, 0, 1, 0, 0x6f },
        { 1, 100, 1, 0, 0x6f },    { 1, 7, 1, 0, 0x6f },     { 1, 6, 1, 0, 0x6f },
        { 1, 2, 1, 0, 0x0c },      { 1, 3, 1, 0, 0x2c },     { 2, 4, 1, 0, 0x2d },
        { 1, 1, 1, 0, 0x04 },      { 1, 0, 0.6f, 0, 0x0c },  { 1, 0, 0.73f, 0, 0x2c },
        { 1, 0, 0.001f, 0, 0x04 }, { 1, 0, 0, 0, 0x04 },     { 1, 0, 0.86f, 0, 0x2d },
        { 1, 3, 0.8f, 0, 0x0c },   { 1, 3, 0.9f, 0, 0x2c },  { 1, 0, 0.99999f, 0, 0x6f },
        { 1, 0, 1, 0.3f, 0x2c },   { 1, 0, 1, 0.2f, 0x2d },  { 1, 0, 1, 1, 0x0c },
        { 2, 0, 1, 0.4f, 0x2d },   { 1, 2, 1, 0.01f, 0x0c }, { 1, 0, 0.6f, 0.1f, 0x0c },
    };
    double shares[V];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        shares_of((struct ddl_sampler){ cases[i].temperature, cases[i].top_k, cases[i].top_p, cases[i].min_p,
                                        heap },
                  shares);
        expect(shares, (double)cases[i].temperature, cases[i].kept);
    }
}

static void greedy_is_the_first_of_the_largest(void **state)
{
    (void)state;
    const struct ddl_sampler greedy = { 0, 5, 0.5f, 0, heap };
    for (int i = 0; i < 10; i++)
        assert_int_equal(ddl_sampler_pick(&greedy, logits, V, i / 10.0), 2);
    static const float none[3] = { NAN, -INFINITY, NAN }, one[3] = { NAN, -5, -INFINITY };
    assert_int_equal(ddl_sampler_pick(&greedy, none, 3, 0.5), -1);
    assert_int_equal(ddl_sampler_pick(&greedy, one, 3, 0.5), 1);
    const struct ddl_sampler cold = { 1e-30f, 0, 1, 0, heap };
    assert_int_equal(ddl_sampler_pick(&cold, logits, V, 0.2), 2);
    assert_int_equal(ddl_sampler_pick(&cold, logits, V, 0.9), 3);
}

/* With the generator's numbers: chi-squared of 20000 draws, 5 degrees of freedom; 20.5 is its 0.999 quantile.
 */
static void draws_follow_the_distribution(void **state)
{
    (void)state;
    const struct ddl_sampler s = { 1, 0, 1, 0, heap };
    double counts[V] = { 0 }, total = 0, chi = 0;
    uint64_t key = ddl_rng_key(5, "sample");
    for (int i = 0; i < STEPS; i++)
        counts[ddl_sampler_pick(&s, logits, V, ddl_rng_uniform(key, (uint64_t)i))]++;
    for (int i = 0; i < V; i++)
        total += exp((double)logits[i]);
    for (int i = 0; i < V; i++) {
        double e = STEPS * exp((double)logits[i]) / total;
        chi += e > 0 ? (counts[i] - e) * (counts[i] - e) / e : 0;
    }
    assert_true(counts[4] == 0 && chi < 20.5);
}

/* The heap against sorting, on many rows of random logits with ties. */
static void top_k_are_the_largest(void **state)
{
    (void)state;
    enum { N = 100 };
    float z[N];
    int32_t buffer[N];
    for (uint64_t row = 0; row < 200; row++) {
        size_t k = 1 + row % N;
        for (size_t i = 0; i < N; i++)
            z[i] = (float)ddl_rng_below(row, i, 30) / 8;
        const struct ddl_sampler s = { 1, k, 1, 0, buffer };
        int32_t id = ddl_sampler_pick(&s, z, N, ddl_rng_uniform(row, 1000));
        size_t before = 0;
        for (int32_t i = 0; i < N; i++)
            before += z[i] > z[id] || (z[i] == z[id] && i < id);
        assert_true(before < k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(laws),
        cmocka_unit_test(greedy_is_the_first_of_the_largest),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(top_k_are_the_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
