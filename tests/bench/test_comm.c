/* bench/comm.c: exchanges between ranks, which are threads, are timed. */
#include "bench/bench.h"
#include "support/support.h"
#include "support/thread_comm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 3 };
static struct ddl_bench_report reports[MAX_RANKS];

static void measure(ddl_comm *comm, void *user)
{
    struct ddl_bench_comm_config config = *(const struct ddl_bench_comm_config *)user;
    struct ddl_error err;
    config.comm = comm;
    assert_ok(ddl_bench_comm(&config, &reports[ddl_comm_rank(comm)], &err), err);
}

static void exchanges_are_timed(void **state)
{
    (void)state;
    static const char *const names[] = { "sum",
                                         "reduce_scatter 1 KiB",
                                         "reduce_scatter 4 KiB",
                                         "reduce_scatter 16 KiB",
                                         "all_gather 1 KiB",
                                         "all_gather 4 KiB",
                                         "all_gather 16 KiB" };
    static const char *const figures[] = { "sum_us",
                                           "reduce_scatter_latency_us",
                                           "reduce_scatter_mb_per_s",
                                           "reduce_scatter_fit_error",
                                           "all_gather_latency_us",
                                           "all_gather_mb_per_s",
                                           "all_gather_fit_error" };
    struct ddl_bench_comm_config config = { .bytes = 20000, .warmup = 1, .steps = 5 };
    for (size_t ranks = 2; ranks <= MAX_RANKS; ranks++) {
        config.bf16 = ranks == MAX_RANKS;
        thread_comm_run(ranks, measure, &config);
        const struct ddl_bench_report *r = &reports[0];
        assert_int_equal(r->n_rows, sizeof names / sizeof *names);
        for (size_t i = 0; i < r->n_rows; i++) {
            assert_string_equal(r->row[i].name, names[i]);
            assert_true(r->row[i].repetitions == 5 && r->row[i].best > 0);
            for (size_t rank = 1; rank < ranks; rank++)
                assert_true(reports[rank].row[i].median == r->row[i].median);
        }
        for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
            assert_true(isfinite(ddl_bench_figure(r, figures[i])));
        const char *values[] = { ranks == 2 ? "2" : "3", ranks == 2 ? "2" : "3",
                                 config.bf16 ? "bf16" : "f32" };
        for (size_t i = 0; i < 3; i++)
            assert_string_equal(r->setting[i].value, values[i]);
    }
    /* 4096 floats in three pieces: 2736 are sent, in bfloat16 to be summed, in float32 as the result. */
    assert_true(ddl_bench_find(&reports[0], "reduce_scatter 16 KiB")->bytes == 2736 * 2);
    assert_true(ddl_bench_find(&reports[0], "all_gather 16 KiB")->bytes == 2736 * 4);
}

struct refusal {
    struct ddl_bench_comm_config config;
    const char *message;
};

static void refuse(ddl_comm *comm, void *user)
{
    const struct refusal *refusal = user;
    struct ddl_bench_comm_config config = refusal->config;
    struct ddl_error err;
    config.comm = comm;
    assert_int_equal(ddl_bench_comm(&config, &reports[ddl_comm_rank(comm)], &err), DDL_E_USAGE);
    assert_non_null(strstr(err.text, refusal->message));
}

static void wrong_settings_are_refused(void **state)
{
    (void)state;
    struct refusal small = { { .bytes = 4095, .steps = 1 }, "bytes: expected at least 4096, found 4095" };
    struct refusal none = { { .bytes = 4096, .steps = 0 }, "repetitions: expected 1 to" };
    struct refusal single = { { .bytes = 4096, .steps = 1 }, "expected several ranks, found one" };
    thread_comm_run(2, refuse, &small);
    thread_comm_run(2, refuse, &none);
    thread_comm_run(1, refuse, &single);
    refuse(NULL, &single);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exchanges_are_timed),
        cmocka_unit_test(wrong_settings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
