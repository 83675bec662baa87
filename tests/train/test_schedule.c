/* train/step/schedule.c: the formulas of docs/equations.md, 10, computed by hand, and what holds for every
 * schedule. */
#include "support/support.h"

#include "train/step/schedule.h"

#include <math.h>

static struct ddl_train_config config(int schedule, double lr, uint64_t warmup, uint64_t steps)
{
    struct ddl_train_config t = ddl_train_defaults();
    t.schedule = schedule;
    t.lr = lr;
    t.warmup = warmup;
    t.steps = steps;
    return t;
}

static void cosine_follows_the_formula(void **state)
{
    (void)state;
    /* W = 4, S = 12, lr 1, lr_min 0.1: cos(pi j / 8) of j = 0 .. 7 by hand */
    static const double expected[] = { 0.25,        0.5,        0.75, 1,           1,           0.965746,
                                       0.868198050, 0.72220753, 0.55, 0.377792467, 0.231801949, 0.134254 };
    const struct ddl_train_config t = config(DDL_SCHEDULE_COSINE, 1, 4, 12);
    for (size_t s = 0; s < 12; s++)
        assert_true(fabs(ddl_schedule_lr(&t, s) - expected[s]) < 1e-5);
}

static void cosine_edges(void **state)
{
    (void)state;
    struct ddl_train_config t = config(DDL_SCHEDULE_COSINE, 2, 0, 10);
    assert_true(ddl_schedule_lr(&t, 0) == 2); /* no warmup: the peak at once */
    t.warmup = 10;
    assert_true(ddl_schedule_lr(&t, 9) == 2); /* only warmup */
    t.warmup = 3;
    assert_true(ddl_schedule_lr(&t, 10) == 0.2);   /* past the end */
    assert_true(ddl_schedule_lr(&t, 1000) == 0.2); /* far past the end */
    t = config(DDL_SCHEDULE_COSINE, 1e-3, 2000, 100000);
    assert_true(ddl_schedule_lr(&t, 1999) == 1e-3);
    assert_true(ddl_schedule_lr(&t, 2000) == 1e-3);
    assert_true(fabs(ddl_schedule_lr(&t, 51000) - 5.5e-4) < 1e-15);
}

static void wsd_follows_the_formula(void **state)
{
    (void)state;
    /* W = 2, S = 10, lr 1, lr_min 0.1, decay from step 6 on */
    static const double expected[] = { 0.5, 1, 1, 1, 1, 1, 1, 0.775, 0.55, 0.325, 0.1, 0.1 };
    struct ddl_train_config t = config(DDL_SCHEDULE_WSD, 1, 2, 10);
    t.decay_ratio = 0.4;
    for (size_t s = 0; s < 12; s++)
        assert_true(fabs(ddl_schedule_lr(&t, s) - expected[s]) < 1e-12);
    t.decay_ratio = 0; /* never decays */
    assert_true(ddl_schedule_lr(&t, 9) == 1 && ddl_schedule_lr(&t, 10) == 1);
    t.decay_ratio = 1; /* decays from the end of the warmup */
    assert_true(ddl_schedule_lr(&t, 2) == 1 && fabs(ddl_schedule_lr(&t, 6) - 0.55) < 1e-12);
    t.warmup = 10; /* only warmup */
    assert_true(ddl_schedule_lr(&t, 9) == 1 && ddl_schedule_lr(&t, 10) == 0.1);
}

/* Every schedule warms up linearly to the peak, never rises after it, has no jump, and ends at its final
 * rate. */
static void properties(void **state)
{
    (void)state;
    static const uint64_t warmups[] = { 0, 1, 17, 500 }, steps = 500;
    static const double ratios[] = { 0, 0.1, 0.2, 0.97, 1 };
    for (int i = 0; i < DDL_SCHEDULES * 4 * 5; i++) {
        struct ddl_train_config t = config(i % DDL_SCHEDULES, 3e-3, warmups[i / DDL_SCHEDULES % 4], steps);
        t.decay_ratio = ratios[i / DDL_SCHEDULES / 4];
        double peak = t.lr, lr_min = t.lr * t.lr_min_ratio;
        bool decays =
            t.schedule == DDL_SCHEDULE_COSINE || (t.schedule == DDL_SCHEDULE_WSD && t.decay_ratio > 0);
        for (uint64_t s = 0; s < t.warmup; s++)
            assert_true(fabs(ddl_schedule_lr(&t, s) - peak * (double)(s + 1) / (double)t.warmup) < 1e-15);
        assert_true(t.warmup == steps || ddl_schedule_lr(&t, t.warmup) == peak);
        /* the steepest decay: wsd over its share of the steps; the cosine's slope is pi/2 of a line's */
        double share = t.schedule == DDL_SCHEDULE_WSD ? t.decay_ratio : 1;
        double length = fmin(share * (double)steps, (double)(steps - t.warmup));
        double slope = decays && length > 0 ? 1.6 * (peak - lr_min) / length : 0;
        for (uint64_t s = t.warmup; s < steps; s++) {
            double now = ddl_schedule_lr(&t, s), next = ddl_schedule_lr(&t, s + 1);
            assert_true(next <= now && now - next <= slope * (1 + 1e-9));
        }
        for (uint64_t s = steps; s < steps + 3; s++)
            assert_true(fabs(ddl_schedule_lr(&t, s) - (decays ? lr_min : peak)) < 1e-18);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cosine_follows_the_formula),
        cmocka_unit_test(cosine_edges),
        cmocka_unit_test(wsd_follows_the_formula),
        cmocka_unit_test(properties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
