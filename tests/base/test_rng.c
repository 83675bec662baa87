/* base/rng.h: known answers of Philox, and that streams look like what they claim. */
#include "support/support.h"

#include "base/rng.h"

#include <math.h>

static void philox_known_answers(void **state)
{
    (void)state;
    /* Random123's kat_vectors: philox4x32, 10 rounds, counter and key all zero. */
    struct ddl_rng_block b = ddl_rng_at(0, 0);
    const uint32_t expected[4] = { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 };
    for (int i = 0; i < 4; i++)
        assert_int_equal(b.word[i], expected[i]);
}

static void moments(void **state)
{
    (void)state;
    uint64_t key = ddl_rng_key(1, "moments");
    double sum = 0, squares = 0, uniform = 0;
    enum { N = 100000 };
    for (uint64_t i = 0; i < N; i++) {
        double z = ddl_rng_normal(key, i), u = ddl_rng_uniform(key, i);
        sum += z;
        squares += z * z;
        uniform += u;
        assert_true(u >= 0 && u < 1);
        assert_true(ddl_rng_below(key, i, 7) < 7);
    }
    assert_true(fabs(sum / N) < 0.02);
    assert_true(fabs(squares / N - 1) < 0.02);
    assert_true(fabs(uniform / N - 0.5) < 0.01);
}

static void keys_differ(void **state)
{
    (void)state;
    assert_true(ddl_rng_key(1, "a") != ddl_rng_key(2, "a"));
    assert_true(ddl_rng_key(1, "a") != ddl_rng_key(1, "b"));
    assert_true(ddl_rng_key(1, "a") == ddl_rng_key(1, "a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(moments),
        cmocka_unit_test(keys_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
