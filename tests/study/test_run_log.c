/* study/run_log.c: what metrics.jsonl says, and what it must not say. And `ddl compare` on it. */
#include "support/support.h"

#include "base/file.h"
#include "ddl/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *run_with(const char *name, const char *metrics)
{
    struct ddl_error err;
    const char *folder = scratch_path(name);
    char path[2200];
    assert_ok(ddl_file_make_dir(folder, &err), err);
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    assert_ok(ddl_file_replace(path, metrics, strlen(metrics), &err), err);
    return folder;
}

static const char good[] =
    "{\"step\": 1, \"loss\": 4.0, \"tokens\": 100, \"tokens_per_s\": 50, \"seconds\": 2}\n"
    "{\"step\": 2, \"loss\": 3.0, \"tokens\": 200, \"tokens_per_s\": 70, \"val_loss\":3.5}\n"
    "{\"step\": 3, \"loss\": 2.5, \"tokens\": 300, \"tokens_per_s\": 60}\n";

static void reads_points(void **state)
{
    (void)state;
    struct ddl_run_log log;
    struct ddl_error err;
    assert_ok(ddl_run_log_read(&log, run_with("good", good), &err), err);
    assert_int_equal(log.n, 3);
    assert_int_equal(log.points[2].step, 3);
    assert_true(log.points[0].loss == 4 && isnan(log.points[0].val_loss) && isnan(log.points[0].flops));
    assert_true(ddl_run_log_final_val(&log) == 3.5);
    assert_true(ddl_run_log_final_train(&log) == 2.5);
    assert_true(ddl_run_log_speed(&log) == 60);
    assert_false(log.has_config);
    ddl_run_log_free(&log);
}

/* Steps of which no target is counted have no loss. */
static void masked_steps_have_no_loss(void **state)
{
    (void)state;
    static const char masked[] = "{\"step\": 0, \"loss\": 0, \"tokens\": 0, \"val_loss\": 6}\n"
                                 "{\"step\": 1, \"loss\": 0, \"tokens\": 100, \"skipped\": true}\n"
                                 "{\"step\": 2, \"loss\": 5, \"tokens\": 200}\n"
                                 "{\"step\": 3, \"loss\": 7, \"tokens\": 300, \"skipped\": true}\n"
                                 "{\"step\": 4, \"loss\": 0, \"tokens\": 400, \"skipped\": true}\n";
    struct ddl_run_log log;
    struct ddl_error err;
    assert_ok(ddl_run_log_read(&log, run_with("masked", masked), &err), err);
    assert_int_equal(log.n, 5);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(isnan(log.points[i].loss), i != 2 && i != 3);
    assert_true(ddl_run_log_final_train(&log) == 7); /* a spike has one */
    ddl_run_log_free(&log);
}

static void leaves_out_a_line_being_written(void **state)
{
    (void)state;
    struct ddl_run_log log;
    struct ddl_error err;
    char text[sizeof good + 16];
    snprintf(text, sizeof text, "%s{\"step\": 4, \"l", good);
    assert_ok(ddl_run_log_read(&log, run_with("growing", text), &err), err);
    assert_int_equal(log.n, 3);
    ddl_run_log_free(&log);
}

static void names_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *says;
    } cases[] = {
        { "empty", "", "expected at least one logged step, found none" },
        { "broken", "{\"step\": 1,\n", "metrics.jsonl:1: not JSON" },
        { "no-step", "{\"loss\": 1, \"tokens\": 1}\n", "metrics.jsonl:1: no whole number 'step'" },
        { "no-loss", "{\"step\": 1, \"tokens\": 1}\n", "metrics.jsonl:1: no number 'loss'" },
        { "text", "{\"step\": 1, \"tokens\": 1, \"loss\": 2, \"val_loss\": \"x\"}\n",
          "no number 'val_loss'" },
    };
    struct ddl_run_log log;
    struct ddl_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ddl_run_log_read(&log, run_with(cases[i].name, cases[i].text), &err), DDL_E_FORMAT);
        assert_non_null(strstr(err.text, cases[i].says));
    }
    assert_int_equal(ddl_run_log_read(&log, scratch_path("nowhere"), &err), DDL_E_IO);
}

static void program_draws_and_tabulates(void **state)
{
    (void)state;
    char command[8192], out[8192];
    const char *a = run_with("good", good), *b = run_with("other", good);
    snprintf(command, sizeof command, "%s compare %s %s --width 30 --height 6", ddl_program(), a, b);
    assert_int_equal(run_command(command, out, sizeof out), 0);
    assert_non_null(strstr(out, "   4.000 |"));
    assert_non_null(strstr(out, "3.5000"));
    snprintf(command, sizeof command, "%s compare %s --json", ddl_program(), a);
    assert_int_equal(run_command(command, out, sizeof out), 0);
    assert_non_null(strstr(out, "\"val_loss\":3.5"));
    /* Runs without validation are named below the chart of validation losses. */
    const char *c = run_with("none", "{\"step\": 1, \"tokens\": 10, \"loss\": 9}\n");
    snprintf(command, sizeof command, "%s compare %s %s --val", ddl_program(), c, a);
    assert_int_equal(run_command(command, out, sizeof out), 0);
    assert_non_null(strstr(out, "tokens\n          *  good\n          -  none: no validation loss\n"));
    snprintf(command, sizeof command, "%s compare %s --val", ddl_program(), c);
    assert_int_equal(run_command(command, out, sizeof out), 0);
    assert_non_null(strstr(out, "(no points to draw)\n          -  none: no validation loss\n"));
    snprintf(command, sizeof command, "%s compare 2>&1", ddl_program());
    assert_int_equal(run_command(command, out, sizeof out), 2);
    assert_non_null(strstr(out, "compare: missing argument: expected a run folder (RUN)"));
    snprintf(command, sizeof command, "%s compare %s --widht 3 2>&1", ddl_program(), a);
    assert_int_equal(run_command(command, out, sizeof out), 2);
    assert_non_null(strstr(out, "width"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_points),
        cmocka_unit_test(masked_steps_have_no_loss),
        cmocka_unit_test(leaves_out_a_line_being_written),
        cmocka_unit_test(names_what_is_wrong),
        cmocka_unit_test(program_draws_and_tabulates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
