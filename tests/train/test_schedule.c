/* train/schedule.c: the formula of docs/equations.md, 10, by hand. */
#include "support/support.h"

#include "train/schedule.h"

#include <math.h>

static void follows_the_formula(void **state)
{
    (void)state;
    /* W = 4, S = 12, lr 1, lr_min 0.1: cos(pi j / 8) of j = 0 .. 7 by hand */
    static const double expected[] = { 0.25,        0.5,        0.75, 1,           1,           0.965746,
                                       0.868198050, 0.72220753, 0.55, 0.377792467, 0.231801949, 0.134254 };
    for (size_t s = 0; s < 12; s++)
        assert_true(fabs(ddl_schedule(1, 0.1, 4, 12, s) - expected[s]) < 1e-5);
}

static void edges(void **state)
{
    (void)state;
    assert_true(ddl_schedule(2, 0.2, 0, 10, 0) == 2);      /* no warm-up: the peak at once */
    assert_true(ddl_schedule(2, 0.2, 10, 10, 9) == 2);     /* nothing but warm-up          */
    assert_true(ddl_schedule(2, 0.2, 3, 10, 10) == 0.2);   /* behind the end               */
    assert_true(ddl_schedule(2, 0.2, 3, 10, 1000) == 0.2); /* far behind                   */
    assert_true(ddl_schedule(1e-3, 1e-4, 2000, 100000, 1999) == 1e-3);
    assert_true(ddl_schedule(1e-3, 1e-4, 2000, 100000, 2000) == 1e-3);
    assert_true(fabs(ddl_schedule(1e-3, 1e-4, 2000, 100000, 51000) - 5.5e-4) < 1e-15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_the_formula),
        cmocka_unit_test(edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
