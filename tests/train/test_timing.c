/* train/run/timing.c: when parts of a run are due, and the estimate of the time that is left. */
#include "support/support.h"

#include "train/run/timing.h"

#include <math.h>

/* The estimate counts a part as often as a run meets it. */
static void parts_are_counted(void **state)
{
    (void)state;
    for (uint64_t steps = 1; steps < 30; steps++) {
        for (uint64_t every = 0; every < 35; every++) {
            struct ddl_timing timing = { .part[DDL_PART_CHECKPOINT] = { .every = every } };
            ddl_timing_add_part(&timing, DDL_PART_CHECKPOINT, 2);
            double left = 0;
            for (uint64_t step = steps; step-- > 0;) {
                left += ddl_timing_due(step + 1, every, steps) ? 2 : 0;
                assert_true(ddl_timing_left(&timing, step, steps) == left);
            }
            assert_true(ddl_timing_left(&timing, steps, steps) == 0);
        }
    }
}

static void estimates_add_up(void **state)
{
    (void)state;
    struct ddl_timing timing = { .part[DDL_PART_VALIDATION] = { .every = 10, .guess = 4 },
                                 .part[DDL_PART_SAMPLE] = { .every = 50 } };
    assert_true(ddl_timing_left(&timing, 0, 100) == 0); /* nothing was measured */
    ddl_timing_add_step(&timing, 1);
    ddl_timing_add_step(&timing, 3);
    assert_true(timing.step == 2);
    /* 98 steps of 2 s; 10 validations that are expected to take as long as 4 steps */
    assert_true(fabs(ddl_timing_left(&timing, 2, 100) - (98 * 2 + 10 * 4 * 2)) < 1e-9);
    ddl_timing_add_part(&timing, DDL_PART_VALIDATION, 30);
    ddl_timing_add_part(&timing, DDL_PART_VALIDATION, 10);
    ddl_timing_add_part(&timing, DDL_PART_SAMPLE, 5);
    assert_true(fabs(ddl_timing_left(&timing, 20, 100) - (80 * 2 + 8 * 20 + 2 * 5)) < 1e-9);
    /* A load that stays is followed within some dozens of steps. */
    for (int i = 0; i < 100; i++)
        ddl_timing_add_step(&timing, 10);
    assert_true(timing.step > 9.5 && timing.step < 10);
}

static void wall_time_is_cumulative(void **state)
{
    (void)state;
    struct ddl_timing timing = { 0 };
    ddl_timing_start(&timing);
    assert_true(ddl_timing_wall(&timing) >= 0 && ddl_timing_wall(&timing) < 100);
    ddl_timing_add_earlier(&timing, 1000);
    assert_true(ddl_timing_wall(&timing) >= 1000 && ddl_timing_wall(&timing) < 1100);
}

/* A checkpoint is due after the interval, or after 50 times what the last one took if that is longer. */
static void checkpoints_by_time(void **state)
{
    (void)state;
    struct ddl_timing timing = { 0 };
    ddl_timing_set_saved(&timing, 100, 100);
    assert_false(ddl_timing_save_due(&timing, 60, 159));
    assert_true(ddl_timing_save_due(&timing, 60, 160));
    assert_false(ddl_timing_save_due(&timing, 0, 1e9));
    ddl_timing_set_saved(&timing, 160, 164);
    assert_false(ddl_timing_save_due(&timing, 60, 164 + 60));
    assert_false(ddl_timing_save_due(&timing, 60, 164 + 199));
    assert_true(ddl_timing_save_due(&timing, 60, 164 + 200));
    assert_true(ddl_timing_save_due(&timing, 300, 164 + 300));
    assert_false(ddl_timing_save_due(&timing, 300, 164 + 299));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(parts_are_counted),
                                        cmocka_unit_test(estimates_add_up),
                                        cmocka_unit_test(checkpoints_by_time),
                                        cmocka_unit_test(wall_time_is_cumulative) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
