/* `ddl bench`: its four benchmarks, JSON that can be read back, comparisons. */
#include "support/files.h"
#include "support/program.h"

#include "ddl/bench.h"

#include <math.h>

static void says(const char *arguments, int status, const char *gist)
{
    assert_int_equal(ddl("bench %s", arguments), status);
    if (!strstr(printed, gist))
        fail_msg("ddl bench %s: '%s', wanted '%s'", arguments, printed, gist);
}

#define TINY " --size micro --batch 2 --seq 16 --steps 2 --warmup 1 --no-roofline"

static void tables(void **state)
{
    (void)state;
    says("op --filter rmsnorm --seconds 0" TINY, 0, "rmsnorm_bwd");
    assert_printed("checked: 3 ops agree with ref");
    says("step --model ddl-tc --ops --gemm" TINY, 0, "step_over_products");
    assert_printed("delta_bwd");
    assert_printed("tokens/s");
    says("step --dtype bf16 --threads 1" TINY, 0, "dtype bf16");
    says("step --recompute block --model ddl-cc" TINY, 0, "recompute block");
    says("step --model ddl-2step --match-parameters ddl-cc-ec" TINY, 0, ", mlp ");
    says("decode --model ddl-cc-ec" TINY, 0, "decode 2");
    char arguments[2048];
    snprintf(arguments, sizeof arguments, "tokenizer --steps 1 --warmup 0 --vocab-size 300 --text '%s'",
             source_path("data/text/tinyshakespeare.txt"));
    says(arguments, 0, "train_mb_per_s");
}

static void usage(void **state)
{
    (void)state;
    static const struct refusal cases[] = {
        { "bench stop", 2, "bench: unknown action 'stop', did you mean 'step'?" },
        { "bench", 2, "bench: missing argument: expected op, step, decode, tokenizer or comm" },
        { "bench step now", 2, "bench step takes options only, found 'now'" },
        { "bench op --filter frobnicate" TINY, 2, "no op's name contains 'frobnicate'" },
        { "bench step --model ddl-cd" TINY, 2, "did you mean" },
        { "bench step --match-parameters ddl-cd" TINY, 2, "unknown model 'ddl-cd', did you mean" },
        { "bench step --recompute all" TINY, 2, "none of elementwise, none, block" },
        { "bench tokenizer --text /nonexistent/text", 1, "/nonexistent/text" },
        { "bench comm", 2, "expected several ranks, found one" },
    };
    assert_refused(cases, sizeof cases / sizeof *cases);
    says("step --save /nonexistent/file" TINY, 1, "/nonexistent/file: cannot open");
    char arguments[2048], *left;
    write_file(scratch_path("notes"), "precious", 8);
    snprintf(arguments, sizeof arguments, "step --save '%s'" TINY, scratch_path("notes"));
    says(arguments, 1, "--save: expected a new file or one of earlier reports: ");
    left = read_file(scratch_path("notes"), NULL);
    assert_string_equal(left, "precious");
    free(left);
    says("--help", 0, "decode");
    says("op --help", 0, "--filter");
    says("tokenizer --help", 0, "--vocab-size");
}

/* What --json prints and --save adds is one report each, the same schema for all. */
static void reports(void **state)
{
    (void)state;
    static const char *const runs[] = { "op --filter bias_fwd --seconds 0" TINY, "step --ops" TINY,
                                        "decode" TINY };
    enum { RUNS = sizeof runs / sizeof *runs };
    char arguments[2048], path[1024];
    struct ddl_bench_report *report;
    struct ddl_error err;
    size_t n;
    remove_scratch("bench.json");
    snprintf(path, sizeof path, "%s", scratch_path("bench.json"));
    for (size_t i = 0; i < RUNS; i++) {
        snprintf(arguments, sizeof arguments, "%s --json --save '%s'", runs[i], path);
        assert_int_equal(ddl("bench %s", arguments), 0);
        write_file(scratch_path("one.json"), printed, strlen(printed));
        assert_ok(ddl_bench_reports_read(&report, &n, scratch_path("one.json"), &err), err);
        assert_int_equal(n, 1);
        free(report);
    }
    assert_ok(ddl_bench_reports_read(&report, &n, path, &err), err);
    assert_int_equal(n, RUNS);
    assert_string_equal(report[0].kind, "op");
    assert_string_equal(report[2].kind, "decode");
    assert_true(ddl_bench_find(&report[1], "step")->median > 0 && report[1].n_shares > 10);
    free(report);
}

/* The report in bench.json with its times multiplied. */
static void save_scaled(const char *from, const char *to, double factor)
{
    struct ddl_bench_report *report;
    struct ddl_error err;
    char *line;
    size_t n;
    assert_ok(ddl_bench_reports_read(&report, &n, from, &err), err);
    struct ddl_bench_row *row = &report[0].row[0];
    row->median *= factor;
    row->q1 = row->q3 = row->median;
    assert_ok(ddl_bench_report_json(report, &line, &err), err);
    write_file(to, line, strlen(line));
    free(line);
    free(report);
}

static void comparisons(void **state)
{
    (void)state;
    static const char run[] =
        "op --filter gelu_fwd --seconds 0 --size micro --batch 2 --seq 64 --steps 9 --no-roofline";
    char arguments[2048], old[1024], slow[1024], empty[1024];
    remove_scratch("old.json");
    snprintf(old, sizeof old, "%s", scratch_path("old.json"));
    snprintf(slow, sizeof slow, "%s", scratch_path("slow.json"));
    snprintf(empty, sizeof empty, "%s", scratch_path("empty.json"));
    snprintf(arguments, sizeof arguments, "%s --save '%s'", run, old);
    says(arguments, 0, "gelu_fwd");
    save_scaled(old, slow, 1e6); /* beyond what a busy machine can do to this run */
    snprintf(arguments, sizeof arguments, "%s --compare '%s'", run, slow);
    says(arguments, 0, "faster: 0.00 x the time");
    assert_printed("0 of 1 within noise");
    snprintf(arguments, sizeof arguments, "step --compare '%s'" TINY, old);
    says(arguments, 0, "has no report of step at these settings");
    write_file(empty, "{}", 2);
    snprintf(arguments, sizeof arguments, "step --compare '%s'" TINY, empty);
    says(arguments, 1, "report 1: no report of ddl bench");
    says("step --compare /nonexistent/report" TINY, 1, "/nonexistent/report: cannot open");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables),
        cmocka_unit_test(usage),
        cmocka_unit_test(reports),
        cmocka_unit_test(comparisons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
