#include "cli/cli.h"
#include "cli/output/escape.h"
#include "ddl/file.h"
#include "ddl/run.h"
#include "ddl/verify.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct output {
    bool json, ops;
};

static const struct ddl_option output_options[] = {
    { "json", DDL_OPTION_BOOL, offsetof(struct output, json), 0, 0, 0, NULL, NULL,
      "one JSON object instead of lines: cases, passed, failed, skipped" },
    { "ops", DDL_OPTION_BOOL, offsetof(struct output, ops), 0, 0, 0, NULL, NULL,
      "instead of test cases, compare every op of the backend with ref" },
    { 0 },
};

static const char *const outcomes[] = {
    [DDL_VERIFY_PASS] = "PASS", [DDL_VERIFY_FAIL] = "FAIL", [DDL_VERIFY_SKIP] = "SKIP"
};

/* "path  cpu  model  logits 1.2e-07/5e-06 ...  PASS"; after FAIL the quantities over their limits. */
static void print_case(void *user, const struct ddl_verify_case *r)
{
    (void)user;
    printf("%-44s %-4s %-11s", printable(r->path), r->backend ? r->backend : "-", r->kind);
    for (size_t i = 0; i < r->n_measures; i++)
        printf(" %s %.1e/%.0e", printable(r->measures[i].quantity), r->measures[i].error,
               r->measures[i].limit);
    printf("%s%s", r->n_measures ? "  " : " ", outcomes[r->outcome]);
    const char *before = ": ";
    for (size_t i = 0; i < r->n_measures; i++) {
        const struct ddl_verify_measure *m = &r->measures[i];
        if (!(m->error <= m->limit)) {
            printf("%s%s of %s is %.3g, limit %.0e", before, m->quantity, printable(m->tensor), m->error,
                   m->limit);
            before = "; ";
        }
    }
    if (*r->message)
        printf("%s%s", before, printable(r->message));
    printf("\n");
    fflush(stdout);
}

/* A number as JSON; null where it is not finite. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *text(const char *x)
{
    json_t *value = x ? json_string(x) : json_null();
    return value ? value : json_string(printable(x)); /* not UTF-8 */
}

static void collect_case(void *user, const struct ddl_verify_case *r)
{
    static const char *const names[] = {
        [DDL_VERIFY_PASS] = "pass", [DDL_VERIFY_FAIL] = "fail", [DDL_VERIFY_SKIP] = "skip"
    };
    json_t *row = json_object(), *measures = json_object();
    for (size_t i = 0; i < r->n_measures; i++) {
        const struct ddl_verify_measure *m = &r->measures[i];
        json_t *one = json_object();
        json_object_set_new(one, "error", number(m->error));
        json_object_set_new(one, "limit", number(m->limit));
        json_object_set_new(one, "tensor", text(m->tensor));
        json_object_set_new(measures, m->quantity, one);
    }
    json_object_set_new(row, "path", text(r->path));
    json_object_set_new(row, "kind", text(r->kind));
    json_object_set_new(row, "backend", text(r->backend));
    json_object_set_new(row, "outcome", text(names[r->outcome]));
    json_object_set_new(row, "errors", measures);
    json_object_set_new(row, "sentence", text(*r->message ? r->message : NULL));
    json_object_set_new(row, "seconds", number(r->seconds));
    json_array_append_new(user, row);
}

/* Takes ownership of `cases`. */
static void print_json(json_t *cases, const struct ddl_verify_totals *totals)
{
    json_t *all = json_object();
    json_object_set_new(all, "cases", cases);
    json_object_set_new(all, "passed", json_integer((json_int_t)totals->passed));
    json_object_set_new(all, "failed", json_integer((json_int_t)totals->failed));
    json_object_set_new(all, "skipped", json_integer((json_int_t)totals->skipped));
    json_dumpf(all, stdout, JSON_INDENT(1) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
    printf("\n");
    json_decref(all);
}

static int run(const struct ddl_verify_config *config, const struct output *output, const char *const *paths,
               size_t n)
{
    struct ddl_error err = { 0 };
    struct ddl_verify_totals totals;
    json_t *cases = output->json ? json_array() : NULL;
    ddl_verify_fn *each = cases ? collect_case : print_case;
    ddl_status status = output->ops ? ddl_verify_ops(config, paths, n, each, cases, &totals, &err)
                                    : ddl_verify_run(config, paths, n, each, cases, &totals, &err);
    if (cases)
        print_json(cases, &totals);
    else if (!status || totals.passed + totals.failed + totals.skipped > 0)
        printf("%zu passed, %zu failed, %zu skipped\n", totals.passed, totals.failed, totals.skipped);
    if (status)
        return report_error(&err);
    return totals.failed ? EXIT_FAILED : EXIT_OK;
}

static int cmd_verify(int argc, char **argv)
{
    struct ddl_verify_config config = ddl_verify_defaults();
    struct output output = { 0 };
    struct ddl_error err = { 0 };
    int n = 0;
    ddl_file_find_shipped("tokenizer", config.tokenizer, sizeof config.tokenizer);
    /* Paths in files.json begin with text/. */
    if (ddl_file_find_shipped("text", config.data, sizeof config.data))
        config.data[strlen(config.data) - strlen("/text")] = '\0';
    if (ddl_option_parse(ddl_verify_options(), &config, output_options, &output, argc, argv, &n, &err))
        return report_error(&err);
    if (check_arguments("verify", n, argv, output.ops ? 0 : 1, INT_MAX, "test cases (PATH)", &err))
        return report_error(&err);
    if (*config.tokenizer && ddl_run_check_tokenizer(config.tokenizer, &err))
        return report_error(&err);
    return run(&config, &output, (const char *const *)(argv + 1), (size_t)n);
}

static const void *verify_defaults(void)
{
    static struct ddl_verify_config defaults;
    defaults = ddl_verify_defaults();
    return &defaults;
}

const struct command verify_command = {
    .name = "verify",
    .usage = "DIR... | --ops [NAME...] [--option value ...]",
    .about = "compare the backends with test vectors; report which cases pass",
    .text =
        (const char *const[]){
            "Each DIR (or file) is searched for cases: models with their gradients and optimizer steps, the",
            "operator, the generic block, the tokenizer, training curves, downstream tasks, the figures of",
            "ddl inspect, and dumps of training steps. One line per case and backend gives the largest",
            "errors, their limits, and PASS or FAIL. The exit status is 1 if a case fails.",
            "With --dtype bf16 models are compared with the backend ref in bfloat16. Errors are relative to",
            "the distance of ref in bfloat16 from ref in float32, and every bfloat16 op is compared with its",
            "exact result. The dump of a training step with a non-finite loss or gradient (trouble-STEP in",
            "the run folder) is replayed: PASS if the values are non-finite again; the first such tensor is",
            "printed.",
            "With --ops every op of the backend is compared with ref at awkward sizes, or those whose names",
            "contain a NAME: results, bits in a second call, memory around operands, operands that share",
            "memory, and rows that do not depend on others. Errors are shares of their limits.", NULL },
    .options = { { .table = ddl_verify_options, .defaults = verify_defaults }, { .rows = output_options } },
    .examples =
        (const struct note[]){
            { "ddl verify tests/golden --backend cpu", "the test vectors in the source tree" },
            { "ddl verify tests/golden --dtype bf16", "the models among them in bfloat16" },
            { "ddl verify --ops --backend cpu", "the ops of this machine" },
            { "ddl verify --ops matmul delta_bwd", "some of them" },
            { 0 } },
    .run = cmd_verify,
};
