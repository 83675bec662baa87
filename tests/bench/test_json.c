/* bench/json.c: what is written is what is read; what is no report is refused. */
#include "support/files.h"

#include "bench/bench.h"

static struct ddl_bench_report *sample(void)
{
    struct ddl_bench_report *report = malloc(sizeof *report);
    double seconds[] = { 0.125, 0.25, 0.5 };
    bench_begin(report, "step", NULL);
    strcpy(report->check, "all is \"well\"");
    bench_set(report, "model", "ddl-%s", "tc");
    bench_set(report, "batch", "%d", 2);
    bench_figure(report, "tokens_per_s", 4096.5);
    struct ddl_bench_row *row = bench_row(report, "step", seconds, 3);
    row->flops = 1.5e12;
    row->bytes = 3;
    row->units = 1024;
    strcpy(row->unit, "tokens");
    report->roofline = (struct ddl_bench_roofline){ 1e11, 2e12, 1e10, 2e10 };
    report->share[report->n_shares++] = (struct ddl_bench_share){ "matmul", 0.125, 51, 1e9, 2e6 };
    return report;
}

/* The sample's file, with the first `from` replaced by `to`. */
static const char *doctored(const char *from, const char *to)
{
    static char path[1024];
    struct ddl_bench_report *report = sample();
    struct ddl_error err;
    char *line, text[16384];
    assert_ok(ddl_bench_report_json(report, &line, &err), err);
    char *at = strstr(line, from);
    assert_non_null(at);
    *at = '\0';
    snprintf(text, sizeof text, "%s%s%s", line, to, at + strlen(from));
    snprintf(path, sizeof path, "%s", scratch_path("doctored.json"));
    write_file(path, text, strlen(text));
    free(line);
    free(report);
    return path;
}

static void round_trip(void **state)
{
    (void)state;
    struct ddl_bench_report *report = sample(), *back;
    struct ddl_error err;
    char *line, twice[16384];
    size_t n;
    assert_ok(ddl_bench_report_json(report, &line, &err), err);
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    int size = snprintf(twice, sizeof twice, "%s\n  %s", line, line);
    write_file(scratch_path("two.json"), twice, (size_t)size);
    assert_ok(ddl_bench_reports_read(&back, &n, scratch_path("two.json"), &err), err);
    assert_int_equal(n, 2);
    for (size_t i = 0; i < n; i++) {
        char *again;
        assert_ok(ddl_bench_report_json(&back[i], &again, &err), err);
        assert_string_equal(again, line);
        assert_true(back[i].row[0].median == 0.25 && back[i].share[0].calls == 51);
        assert_ptr_equal(ddl_bench_match(report, &back[i], 1), &back[i]);
        free(again);
    }
    free(back);
    free(line);
    free(report);
}

static void refused(const char *from, const char *to, const char *gist)
{
    struct ddl_bench_report *back;
    struct ddl_error err;
    size_t n = 7;
    assert_int_equal(ddl_bench_reports_read(&back, &n, doctored(from, to), &err), DDL_E_FORMAT);
    assert_says(&err, gist);
    assert_null(back);
    assert_int_equal(n, 0);
}

static void doctored_files(void **state)
{
    (void)state;
    refused("\"ddl_bench\": 1", "\"ddl_bench\": 2", "report 1: no report of ddl bench");
    refused("\"median\": 0.25", "\"median\": \"soon\"", "rows: ");
    refused("\"median\": 0.25", "\"median\": 0", "row 'step' has no times");
    refused("\"repetitions\": 3", "\"repetitions\": -3", "no whole number 'repetitions'");
    refused("\"tokens_per_s\": 4096.5", "\"tokens_per_s\": null", "figure 'tokens_per_s' is not a number");
    refused("\"model\": \"ddl-tc\"", "\"model\": 4", "setting 'model' is not a short text");
    refused("\"rows\": [", "\"lines\": [", "no list 'rows'");
    refused("\"kind\": \"step\"", "\"kind\": \"a kind that is far too long\"",
            "no text of fitting length 'kind'");
    refused("\"copy\"", "\"copying\"", "no number 'copy'");
    refused("}\n", "", "not JSON");
    refused("}\n", "}, 5\n", "report 2: not JSON");
    struct ddl_bench_report *back;
    struct ddl_error err;
    size_t n;
    write_file(scratch_path("empty.json"), " \n", 2);
    assert_int_equal(ddl_bench_reports_read(&back, &n, scratch_path("empty.json"), &err), DDL_E_FORMAT);
    assert_says(&err, "no report of ddl bench in it");
    assert_int_equal(ddl_bench_reports_read(&back, &n, scratch_path("absent.json"), &err), DDL_E_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(doctored_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
