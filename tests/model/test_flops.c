/* model/pass/flops.c: counted by hand for small configurations. */
#include "support/runs.h"

#include <math.h>

/* d 21, m 56, H h 18, V 31, three layers, T 9: five tokens seen on average. */
static const double matrices = 3.0 * (4 * 18 * 21 + 3 * 56 * 21), head = 31 * 21, scores = 3 * 2 * 18 * 5.0;

static void by_hand(void **state)
{
    (void)state;
    struct ddl_config k = tiny_config("baseline", 31);
    double base = 2 * (matrices + head + scores);
    assert_true(ddl_config_flops_per_token(&k, 9, false) == base);
    assert_true(ddl_config_flops_per_token(&k, 9, true) == 3 * base);
    /* Six sublayers: gate and target of width 1, the rank-one update. */
    k = tiny_config("ddl-1", 31);
    double expected = base + 6 * (2 * 2 * 21 + 4 * 21 + 4 * 21);
    assert_true(ddl_config_flops_per_token(&k, 9, false) == expected);
    /* Four channels; seven compressions with four taps; the embedding's. */
    k = tiny_config("ddl-tc-ec", 31);
    expected = base + 6 * (2 * 5 * 21 + 4 * 84 + 4 * 21) + 7 * 2 * 4 * 84 + 2 * 4 * 84;
    assert_true(ddl_config_flops_per_token(&k, 9, false) == expected);
    k = tiny_config("ddl-cc", 31);
    expected = base + 6 * (2 * 5 * 21 + 4 * 84 + 4 * 21) + 7 * 2 * 84;
    assert_true(ddl_config_flops_per_token(&k, 9, false) == expected);
    /* A product of rank 4 each way, m_0 f + m_1 x; two layers with mixed values. */
    k = tiny_config("laurel", 31);
    k.laurel_rank = 4;
    k.value_residual = true;
    expected = base + 6 * (2 * 2 * 4 * 21 + 3 * 21) + 2 * 3 * 18;
    assert_true(ddl_config_flops_per_token(&k, 9, false) == expected);
    k.n_heads = 0;
    assert_true(isnan(ddl_config_flops_per_token(&k, 9, false)));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(by_hand) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
