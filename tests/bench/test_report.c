/* bench/report.c: a row's statistics, and what counts as a change. */
#include "support/support.h"

#include "bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ddl_bench_report *fresh(void)
{
    struct ddl_bench_report *report = malloc(sizeof *report);
    bench_begin(report, "op", NULL);
    bench_set(report, "model", "ddl-cc-ec");
    return report;
}

static void quartiles(void **state)
{
    (void)state;
    struct ddl_bench_report *report = fresh();
    double five[] = { 5, 1, 4, 2, 3 }, four[] = { 4, 1, 3, 2 }, one[] = { 7 };
    struct ddl_bench_row *row = bench_row(report, "five", five, 5);
    assert_true(row->median == 3 && row->q1 == 2 && row->q3 == 4 && row->best == 1 && row->worst == 5);
    row = bench_row(report, "four", four, 4);
    assert_true(row->median == 2.5 && row->q1 == 1.75 && row->q3 == 3.25 && row->repetitions == 4);
    row = bench_row(report, "one", one, 1);
    assert_true(row->median == 7 && row->q1 == 7 && row->q3 == 7);
    assert_ptr_equal(ddl_bench_find(report, "four"), &report->row[1]);
    assert_null(ddl_bench_find(report, "six"));
    bench_figure(report, "speed", 12);
    assert_true(ddl_bench_figure(report, "speed") == 12 && isnan(ddl_bench_figure(report, "size")));
    free(report);
}

static void count(void *user)
{
    ++*(size_t *)user;
}

/* What is too short for the clock runs many times a repetition; the least and the budget are both kept. */
static void repetitions(void **state)
{
    (void)state;
    struct ddl_bench_report *report = fresh();
    size_t calls = 0;
    struct ddl_bench_row *row = bench_time(report, "count", NULL, count, &calls, 3, 4, 0);
    assert_int_equal(row->repetitions, 4);
    assert_true(calls > 4 * 100 && row->best > 0 && row->median < 1e-3);
    row = bench_time(report, "longer", NULL, count, &calls, 0, 2, 0.05);
    assert_true(row->repetitions > 2);
    free(report);
}

/* A row of a median and quartiles half a spread to each side. */
static void add(struct ddl_bench_report *report, const char *name, double median, double spread)
{
    struct ddl_bench_row *row = &report->row[report->n_rows++];
    snprintf(row->name, sizeof row->name, "%s", name);
    row->median = median;
    row->q1 = median - spread / 2;
    row->q3 = median + spread / 2;
}

static void changes(void **state)
{
    (void)state;
    static const struct {
        double before, spread_before, now, spread_now;
        int outcome;
    } cases[] = {
        { 1, 0.1, 1, 0.1, DDL_BENCH_SAME },      { 1, 0.1, 1.14, 0.1, DDL_BENCH_SAME },
        { 1, 0.1, 1.15, 0.1, DDL_BENCH_SLOWER }, { 1, 0.1, 0.85, 0.1, DDL_BENCH_FASTER },
        { 1, 0, 1.019, 0, DDL_BENCH_SAME },      { 1, 0, 1.021, 0, DDL_BENCH_SLOWER },
        { 1, 0, 0.97, 0, DDL_BENCH_FASTER },     { 1, 0.5, 1.3, 0, DDL_BENCH_SAME },
        { 1e-6, 0, 2e-6, 0, DDL_BENCH_SLOWER },
    };
    enum { N = sizeof cases / sizeof *cases };
    struct ddl_bench_report *old = fresh(), *now = fresh();
    struct ddl_bench_change change[2 * DDL_BENCH_ROWS];
    for (size_t i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "row %zu", i);
        add(old, name, cases[i].before, cases[i].spread_before);
        add(now, name, cases[i].now, cases[i].spread_now);
    }
    add(now, "came", 3, 0);
    add(old, "went", 4, 0);
    assert_int_equal(ddl_bench_compare(old, now, change), N + 2);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(change[i].outcome, cases[i].outcome);
    assert_int_equal(change[N].outcome, DDL_BENCH_NEW);
    assert_true(isnan(change[N].before) && change[N].now == 3);
    assert_int_equal(change[N + 1].outcome, DDL_BENCH_GONE);
    assert_string_equal(change[N + 1].name, "went");
    free(old);
    free(now);
}

/* Only reports with equal settings are compared; of several, the last one. */
static void matches(void **state)
{
    (void)state;
    struct ddl_bench_report *old = malloc(3 * sizeof *old), *now = fresh();
    for (size_t i = 0; i < 3; i++) {
        struct ddl_bench_report *one = fresh();
        old[i] = *one;
        free(one);
    }
    bench_set(&old[2], "dtype", "bf16");
    assert_ptr_equal(ddl_bench_match(now, old, 3), &old[1]);
    strcpy(old[1].kind, "step");
    assert_ptr_equal(ddl_bench_match(now, old, 3), &old[0]);
    strcpy(old[0].setting[0].value, "baseline");
    assert_null(ddl_bench_match(now, old, 3));
    free(old);
    free(now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quartiles),
        cmocka_unit_test(repetitions),
        cmocka_unit_test(changes),
        cmocka_unit_test(matches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
