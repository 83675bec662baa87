/* train/step/spike.c: the z-score by its definition, what enters the window, and how a row of skips ends. */
#include "support/support.h"

#include "train/step/spike.h"

#include <math.h>

static int judge(const struct ddl_spike_config *k, struct ddl_spike_state *s, double norm)
{
    return ddl_spike_decide(k, s, norm, NULL);
}

static void off_keeps_nothing(void **state)
{
    (void)state;
    const struct ddl_spike_config k = { .z = 0, .window = 2, .max_skip = 1 };
    struct ddl_spike_state s = { 0 };
    for (int i = 0; i < 10; i++)
        assert_int_equal(judge(&k, &s, i == 9 ? 1e9 : 1), DDL_SPIKE_TAKE);
    assert_int_equal(s.n, 0);
    assert_int_equal(s.skipped, 0);
}

/* 1 2 3 4: mean 2.5, variance 1.25. */
static void scores_by_the_definition(void **state)
{
    (void)state;
    const struct ddl_spike_config k = { .z = 3, .window = 4, .max_skip = 5 };
    const double deviation = sqrt(1.25);
    static const double out[] = { 2.9, 3.1 };
    for (int above = 0; above < 2; above++) {
        struct ddl_spike_state s = { 0 };
        struct ddl_spike_figures f;
        for (int i = 1; i <= 4; i++) /* the window is not full yet: anything is taken */
            assert_int_equal(ddl_spike_decide(&k, &s, i, &f), DDL_SPIKE_TAKE);
        assert_true(f.z == 0);
        double norm = 2.5 + out[above] * deviation;
        assert_int_equal(ddl_spike_decide(&k, &s, norm, &f), above ? DDL_SPIKE_SKIP : DDL_SPIKE_TAKE);
        assert_true(fabs(f.mean - 2.5) < 1e-12 && fabs(f.deviation - deviation) < 1e-12);
        assert_true(fabs(f.z - out[above]) < 1e-12);
        assert_int_equal(s.skipped, above);
        assert_int_equal(s.n, 4);
        assert_true(s.norms[3] == (above ? 4 : norm)); /* a skipped norm stays out */
        assert_true(s.norms[0] == (above ? 1 : 2));
    }
}

static void a_small_norm_is_no_spike(void **state)
{
    (void)state;
    const struct ddl_spike_config k = { .z = 2, .window = 3, .max_skip = 5 };
    struct ddl_spike_state s = { 0 };
    for (int i = 0; i < 3; i++)
        judge(&k, &s, 10 + i);
    assert_int_equal(judge(&k, &s, 1e-9), DDL_SPIKE_TAKE);
}

/* A constant norm has no deviation: a hundredth of it is used instead. */
static void jitter_is_no_spike(void **state)
{
    (void)state;
    const struct ddl_spike_config k = { .z = 6, .window = 8, .max_skip = 5 };
    struct ddl_spike_state s = { 0 };
    for (int i = 0; i < 8; i++)
        judge(&k, &s, 1);
    assert_int_equal(judge(&k, &s, 1.05), DDL_SPIKE_TAKE);
    s = (struct ddl_spike_state){ 0 };
    for (int i = 0; i < 8; i++)
        judge(&k, &s, 1);
    assert_int_equal(judge(&k, &s, 1.07), DDL_SPIKE_SKIP);
    s = (struct ddl_spike_state){ 0 };
    for (int i = 0; i < 20; i++) /* no gradient at all */
        assert_int_equal(judge(&k, &s, 0), DDL_SPIKE_TAKE);
}

/* After a burst the count of consecutive skips restarts, the total continues. A shifted level is accepted
 * after max_skip, and the window restarts with it. */
static void skips_in_a_row_end(void **state)
{
    (void)state;
    const struct ddl_spike_config k = { .z = 4, .window = 4, .max_skip = 3 };
    struct ddl_spike_state s = { 0 };
    for (int i = 0; i < 4; i++)
        judge(&k, &s, 1);
    assert_int_equal(judge(&k, &s, 50), DDL_SPIKE_SKIP);
    assert_int_equal(judge(&k, &s, 60), DDL_SPIKE_SKIP);
    assert_int_equal(s.in_a_row, 2);
    assert_int_equal(judge(&k, &s, 1), DDL_SPIKE_TAKE);
    assert_int_equal(s.in_a_row, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(judge(&k, &s, 50), DDL_SPIKE_SKIP);
    assert_int_equal(judge(&k, &s, 51), DDL_SPIKE_SHIFT);
    assert_int_equal(s.skipped, 5);
    assert_int_equal(s.in_a_row, 0);
    assert_int_equal(s.n, 1);
    assert_true(s.norms[0] == 51);
    for (int i = 0; i < 3; i++)
        assert_int_equal(judge(&k, &s, 50), DDL_SPIKE_TAKE);
    assert_int_equal(judge(&k, &s, 500), DDL_SPIKE_SKIP);
}

/* A run that is resumed with a shorter window looks back on its newest norms. */
static void a_shorter_window_keeps_the_newest(void **state)
{
    (void)state;
    struct ddl_spike_config k = { .z = 4, .window = 6, .max_skip = 3 };
    struct ddl_spike_state s = { 0 };
    for (int i = 0; i < 6; i++)
        judge(&k, &s, 10 + 0.1 * i);
    k.window = 3;
    judge(&k, &s, 10.6);
    assert_int_equal(s.n, 3);
    assert_true(s.norms[0] == 10 + 0.1 * 4 && s.norms[2] == 10.6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(off_keeps_nothing),        cmocka_unit_test(scores_by_the_definition),
        cmocka_unit_test(a_small_norm_is_no_spike), cmocka_unit_test(jitter_is_no_spike),
        cmocka_unit_test(skips_in_a_row_end),       cmocka_unit_test(a_shorter_window_keeps_the_newest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
