/* study/compare.c on runs whose figures can be computed by hand, and `ddl compare` on them. */
#include "support/files.h"
#include "support/support.h"

#include "base/file.h"
#include "ddl/compare.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RUNS = 8, OUTPUT = 1 << 16 };

/* A run that is validated at steps 0, 10 and 20; `steps` of them are logged. With tasks in its recipe it has
 * a tenth of the loss as its score. A step has 100 tokens, 1000 (lr 0.001) or 3000 FLOPs, and 1 or 0.5
 * seconds. */
struct sketch {
    const char *name;
    int seed;
    const char *lr, *more; /* more: further lines of the recipe */
    double val[3];         /* validation losses; NaN: the run was not validated */
    int steps;
};

static const struct sketch study[] = {
    { "a0", 0, "0.001", "", { 5, 4, 3.0 }, 20 },
    { "a1", 1, "0.001", "threads: 2\nlog_every: 10\n", { 5, 4, 3.2 }, 20 },
    { "a2", 2, "0.001", "out: elsewhere\n", { 5, 4, 3.4 }, 20 },
    { "b0", 0, "0.003", "", { 5, 3.4, 2.8 }, 20 },
    { "b1", 1, "0.003", "", { 5, 3.4, 3.1 }, 20 },
    { "b2", 2, "0.003", "", { 5, 3.4, 3.0 }, 20 },
};
enum { N_STUDY = sizeof study / sizeof *study };

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[2200];
    struct ddl_error err;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_ok(ddl_file_replace(path, text, strlen(text), &err), err);
}

static const char *write_run(const struct sketch *s)
{
    struct ddl_error err;
    const char *folder = scratch_path(s->name);
    char recipe[1024], metrics[2048] = "";
    bool is_a = strcmp(s->lr, "0.001") == 0;
    assert_ok(ddl_file_make_dir(folder, &err), err);
    /* The last of the lines with the same key is an error: `more` has keys that are not here. */
    snprintf(recipe, sizeof recipe,
             "model: baseline\nsize: micro\ntrain_data: shards\nsteps: 20\nval_data: shards\nseed: %d\n"
             "lr: %s\n%s%s%s",
             s->seed, s->lr, strstr(s->more, "vocab_size") ? "" : "vocab_size: 300\n",
             strstr(s->more, "seq") ? "" : "seq: 16\n", s->more);
    write_text(folder, "recipe.yaml", recipe);
    for (int i = 0; 10 * i <= s->steps; i++) {
        size_t used = strlen(metrics);
        bool validated = !isnan(s->val[i]);
        char val_loss[64] = "";
        if (validated)
            snprintf(val_loss, sizeof val_loss, "\"val_loss\":%.17g,", s->val[i]);
        snprintf(metrics + used, sizeof metrics - used,
                 "{\"step\":%d,\"loss\":%.17g,%s\"tokens\":%d,\"flops\":%d,\"seconds\":%g,"
                 "\"train_seconds\":%g,\"tokens_per_s\":100,\"peak_memory\":1048576%s",
                 10 * i, validated ? s->val[i] + 1 : 5, val_loss, 1000 * i, (is_a ? 10000 : 30000) * i,
                 11.0 * i, (is_a ? 10 : 5) * (double)i, strstr(s->more, "tasks: ") ? "" : "}\n");
        used = strlen(metrics);
        if (strstr(s->more, "tasks: "))
            snprintf(metrics + used, sizeof metrics - used,
                     ",\"tasks\":{\"piqa\":{\"acc_norm\":%.17g,\"acc_norm_stderr\":0.1}}}\n", s->val[i] / 10);
    }
    write_text(folder, "metrics.jsonl", metrics);
    return folder;
}

static void write_study(void)
{
    for (size_t r = 0; r < N_STUDY; r++)
        write_run(&study[r]);
}

struct fixture {
    struct ddl_run_log logs[MAX_RUNS];
    const char *names[MAX_RUNS];
    size_t n;
    struct ddl_comparison result;
    struct ddl_error err;
    char notes[4096];
};

static void take_note(void *user, const char *text)
{
    struct fixture *f = user;
    size_t used = strlen(f->notes);
    snprintf(f->notes + used, sizeof f->notes - used, "%s\n", text);
}

/* Compares the runs; `status` is expected. */
static void compare(struct fixture *f, const struct sketch *runs, size_t n, size_t baseline, bool any,
                    ddl_status status)
{
    memset(f, 0, sizeof *f);
    f->n = n;
    for (size_t r = 0; r < n; r++) {
        assert_ok(ddl_run_log_read(&f->logs[r], write_run(&runs[r]), &f->err), f->err);
        assert_non_null(f->logs[r].recipe);
        f->names[r] = runs[r].name;
    }
    const struct ddl_compare_options options = { baseline, any, take_note, f };
    ddl_status found = ddl_compare(&f->result, f->logs, f->names, n, &options, &f->err);
    if (found != status)
        fail_msg("expected status %d, found %d: %s", (int)status, (int)found, f->err.text);
}

static void discard(struct fixture *f)
{
    for (size_t r = 0; r < f->n; r++)
        ddl_run_log_free(&f->logs[r]);
    ddl_comparison_free(&f->result);
}

static void near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-9 * fabs(expected)))
        fail_msg("expected %.15g, found %.15g", expected, found);
}

static void groups_and_tests(void **state)
{
    (void)state;
    struct fixture f;
    compare(&f, study, N_STUDY, 0, false, DDL_OK);
    assert_string_equal(f.notes, "");
    assert_int_equal(f.result.n_groups, 2);
    assert_int_equal(f.result.baseline, 0);
    const struct ddl_compare_group *a = &f.result.groups[0], *b = &f.result.groups[1];
    assert_int_equal(a->n, 3);
    assert_int_equal(a->runs[2], 2);
    assert_int_equal(b->runs[0], 3);
    assert_int_equal(a->val_step, 20);
    near(a->val_loss.mean, 3.2);
    near(a->val_loss.sd, 0.2);
    near(a->val_loss.high, 3.2 + 4.302652729749462 * 0.2 / sqrt(3));
    near(b->val_loss.mean, 8.9 / 3);
    near(b->val_loss.sd, 0.1527525231651948);
    near(b->train_loss.mean, 8.9 / 3 + 1);
    near(b->val_test.difference, 8.9 / 3 - 3.2);
    near(b->val_test.welch_p, 0.1884510542084304); /* scipy.stats.ttest_ind(equal_var=False) */
    assert_int_equal(b->val_test.n_pairs, 3);
    near(b->val_test.paired_p, 0.11808289631180295); /* scipy.stats.ttest_rel */
    assert_true(isnan(a->val_test.welch_p) && isnan(a->val_test.difference));
    discard(&f);
    /* The other way round. */
    compare(&f, study, N_STUDY, 4, false, DDL_OK);
    assert_int_equal(f.result.baseline, 1);
    near(f.result.groups[0].val_test.difference, 3.2 - 8.9 / 3);
    near(f.result.groups[0].val_test.welch_p, 0.1884510542084304);
    discard(&f);
}

/* The mean curve of b is 5, 3.4, 8.9/3: it is 3.2 at 6/13 of the way from step 10 to step 20. */
static void cost_to_reach(void **state)
{
    (void)state;
    struct fixture f;
    compare(&f, study, N_STUDY, 0, false, DDL_OK);
    near(f.result.target, 3.2);
    const struct ddl_reach *a = &f.result.groups[0].reach, *b = &f.result.groups[1].reach;
    near(a->tokens, 2000);
    near(a->tokens_ratio, 1);
    near(a->seconds_ratio, 1);
    near(b->tokens, 19000.0 / 13);
    near(b->tokens_ratio, 19.0 / 26);
    near(b->flops_ratio, 57.0 / 26);
    near(b->seconds_ratio, 19.0 / 52);
    near(f.result.reach[0].tokens, 1800); /* a0: from 4 to 3 */
    assert_true(isnan(f.result.reach[2].tokens) && isnan(f.result.reach[2].seconds_ratio));
    const struct ddl_compare_group *group = &f.result.groups[1];
    assert_int_equal(group->n_points, 3);
    near(group->curve[2].val_loss, 8.9 / 3);
    near(group->band[2].val_low, 2.8);
    near(group->band[2].val_high, 3.1);
    discard(&f);
}

/* A validation before the first step is none: a run that has just started leaves no loss to reach. */
static void no_cost_to_reach_an_initial_loss(void **state)
{
    (void)state;
    struct fixture f;
    const struct sketch runs[] = { study[0], { "b0", 0, "0.003", "", { 6 }, 0 } };
    compare(&f, runs, 2, 0, false, DDL_OK);
    assert_int_equal(f.result.groups[0].val_step, 0);
    assert_true(isnan(f.result.target));
    assert_true(isnan(f.result.groups[0].reach.tokens) && isnan(f.result.reach[0].tokens));
    discard(&f);
}

static void single_runs_have_no_tests(void **state)
{
    (void)state;
    struct fixture f;
    const struct sketch runs[] = { study[0], study[4] };
    compare(&f, runs, 2, 0, false, DDL_OK);
    assert_int_equal(f.result.n_groups, 2);
    const struct ddl_compare_group *b = &f.result.groups[1];
    near(b->val_loss.mean, 3.1);
    near(b->val_test.difference, 0.1);
    assert_true(isnan(b->val_loss.sd) && isnan(b->val_test.welch_p) && isnan(b->val_test.paired_p));
    assert_int_equal(b->val_test.n_pairs, 0); /* seeds 0 and 1 */
    discard(&f);
    compare(&f, runs, 1, 0, false, DDL_OK);
    near(f.result.groups[0].reach.tokens_ratio, 1);
    discard(&f);
}

/* A run that has not finished: all groups at step 10; with `any` only its own group. */
static void common_step(void **state)
{
    (void)state;
    struct fixture f;
    struct sketch runs[N_STUDY];
    memcpy(runs, study, sizeof runs);
    runs[4].steps = 10;
    compare(&f, runs, N_STUDY, 0, false, DDL_OK);
    assert_non_null(strstr(f.notes, "all groups are compared at step 10"));
    assert_int_equal(f.result.groups[0].step, 10);
    assert_int_equal(f.result.groups[0].val_step, 10);
    near(f.result.groups[0].val_loss.mean, 4);
    near(f.result.groups[1].val_loss.mean, 3.4);
    near(f.result.groups[1].train_loss.mean, 4.4);
    discard(&f);
    compare(&f, runs, N_STUDY, 0, true, DDL_OK);
    assert_int_equal(f.result.groups[0].val_step, 20);
    assert_int_equal(f.result.groups[1].val_step, 10);
    near(f.result.groups[0].val_loss.mean, 3.2);
    near(f.result.groups[1].val_loss.mean, 3.4);
    discard(&f);
}

static void other_data_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *more, *says;
    } cases[] = {
        { "vocab_size: 400\n", "x: vocab_size differs from a0: expected 300, found 400" },
        { "seq: 32\n", "x: seq differs from a0: expected 16, found 32" },
        { "val_tokens: 64\n", "x: val_tokens differs from a0: expected auto, found 64" },
    };
    struct fixture f;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct sketch runs[] = { study[0], { "x", 1, "0.001", cases[i].more, { 5, 4, 3 }, 20 } };
        compare(&f, runs, 2, 0, false, DDL_E_FORMAT);
        assert_string_equal(f.err.text, cases[i].says);
        discard(&f);
        compare(&f, runs, 2, 0, true, DDL_OK);
        assert_non_null(strstr(f.notes, cases[i].says));
        assert_int_equal(f.result.n_groups, 2); /* never averaged */
        discard(&f);
    }
}

/* The validation data of runs after one that was not validated. */
static void other_validation_is_refused_behind_a_run_without(void **state)
{
    (void)state;
    struct fixture f;
    const struct sketch runs[] = { { "none", 0, "0.001", "", { NAN, NAN, NAN }, 20 },
                                   study[1],
                                   { "x", 2, "0.001", "val_tokens: 64\n", { 5, 4, 3 }, 20 } };
    compare(&f, runs, 3, 0, false, DDL_E_FORMAT);
    assert_string_equal(f.err.text, "x: val_tokens differs from a1: expected auto, found 64");
    discard(&f);
}

/* The note says why the recipe is not used. */
static void recipes_that_are_not_used(void **state)
{
    (void)state;
    static const struct {
        const char *recipe, *says;
    } cases[] = {
        { NULL, "x: no recipe.yaml: a group of its own, data not checked\n" },
        { "model: baseline\nnosuch: 3\n", "x/recipe.yaml:2: unknown key 'nosuch'" },
        { "model: [\n", "x/recipe.yaml:" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f = { .n = 2, .names = { "a0", "x" } };
        const struct sketch x = { "x", 1, "0.001", "", { 5, 4, 3 }, 20 };
        const char *folder = write_run(&study[0]);
        assert_ok(ddl_run_log_read(&f.logs[0], folder, &f.err), f.err);
        folder = write_run(&x);
        if (cases[i].recipe)
            write_text(folder, "recipe.yaml", cases[i].recipe);
        else
            remove_scratch("x/recipe.yaml");
        assert_ok(ddl_run_log_read(&f.logs[1], folder, &f.err), f.err);
        assert_null(f.logs[1].recipe);
        const struct ddl_compare_options options = { 0, false, take_note, &f };
        assert_ok(ddl_compare(&f.result, f.logs, f.names, 2, &options, &f.err), f.err);
        assert_non_null(strstr(f.notes, cases[i].says));
        assert_non_null(strstr(f.notes, ": a group of its own, data not checked\n"));
        assert_int_equal(f.result.n_groups, 2);
        discard(&f);
    }
}

static void repeated_seed_counts_once(void **state)
{
    (void)state;
    struct fixture f;
    const struct sketch runs[] = { study[0], study[1], { "again", 1, "0.001", "", { 5, 4, 3.2 }, 20 } };
    compare(&f, runs, 3, 0, false, DDL_OK);
    assert_non_null(strstr(f.notes, "again: same options and seed as a1: left out of the statistics\n"));
    assert_int_equal(f.result.n_groups, 1);
    assert_int_equal(f.result.groups[0].n, 2);
    assert_true(f.result.repeats[2] && !f.result.repeats[1]);
    near(f.result.groups[0].val_loss.mean, 3.1);
    discard(&f);
}

/* ---- the program ---- */

static char out[OUTPUT];

static void program(const char *arguments, int status)
{
    char command[8192];
    snprintf(command, sizeof command, "cd '%s' && '%s' compare %s 2>&1", scratch_path(""), ddl_program(),
             arguments);
    assert_int_equal(run_command(command, out, sizeof out), status);
}

static void printed(const char *text)
{
    if (!strstr(out, text))
        fail_msg("expected %s, found:\n%s", text, out);
}

#define ALL "a0 a1 a2 b0 b1 b2"

static void program_tests_groups(void **state)
{
    (void)state;
    write_study();
    program(ALL, 0);
    printed("b0                   val       3    2.9667   0.1528    2.5872    3.3461    -0.2333   0.1885   "
            "0.1181\n");
    printed("group b0: b0, b1, b2\n");
    printed("to reach the validation loss 3.2000 of a0");
    printed("b0                             1462     0.731");
    /* A difference that rounds to zero has no sign. */
    write_run(&(struct sketch){ "c0", 0, "0.002", "", { 5, 4, 3.09999 }, 20 });
    program("a0 a1 c0", 0);
    printed("c0                   val       1    3.1000        -         -         -     0.0000");
    program("a0 a1 c0 --markdown", 0);
    printed("| c0 | val | 1 | 3.1000 | - | - | - | 0.0000 | - | - |\n");
    program(ALL " --baseline b1 --json", 0);
    json_t *root = json_loads(out, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_int_equal(json_integer_value(json_object_get(root, "baseline")), 1);
    const json_t *group = json_array_get(json_object_get(root, "groups"), 0);
    near(json_number_value(json_object_get(json_object_get(group, "val_loss"), "welch_p")), 0.1884510542);
    assert_true(json_is_null(json_object_get(json_object_get(group, "reach"), "tokens")));
    assert_int_equal(json_array_size(json_object_get(group, "runs")), 3);
    json_decref(root);
    program("./a0/ b0 --baseline a9", 2);
    printed("--baseline: not among the runs: expected one of a0 to b0, found a9");
    /* More runs than marks, and a run of other data. */
    program("a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 a0 "
            "a0 a0 a0 a0",
            0);
    printed("same options and seed as a0");
    write_run(&(struct sketch){ "x", 1, "0.001", "vocab_size: 400\n", { 5, 4, 3 }, 20 });
    program("a0 x", 1);
    printed("ddl: note: --any compares them anyway\n"
            "ddl: x: vocab_size differs from a0: expected 300, found 400\n");
    program("a0 x --any", 0);
    printed("ddl: note: x: vocab_size differs");
}

static size_t fields_of(const char *line)
{
    size_t n = 1;
    for (; *line && *line != '\n'; line++)
        n += *line == ',';
    return n;
}

static void program_prints_csv_and_markdown(void **state)
{
    (void)state;
    write_study();
    program(ALL " --csv", 0);
    size_t lines = 0, fields = fields_of(out);
    for (const char *at = out; *at; at = strchr(at, '\n') + 1, lines++)
        assert_int_equal(fields_of(at), fields);
    assert_int_equal(lines, 1 + N_STUDY);
    printed("run,group,repeats,seed,model,saved_model,parameters,steps,train_loss,");
    printed("\nb1,b0,false,1,-,,0,20,4.1,3.1,100,2000,60000,22,10,1048576,");
    program(ALL " --markdown", 0);
    printed("| run | model | parameters |");
    printed("|---|---|---|---|---|---|---|---|---|---|\n| a0 | - | - | 20 |");
    printed("| b0 | val | 3 | 2.9667 | 0.1528 | 2.5872 | 3.3461 | -0.2333 | 0.1885 | 0.1181 |\n");
    program(ALL " --csv --json", 2);
    printed("compare: expected one of --json, --csv and --markdown, found several");
}

/* The axes are 560 x 360 pixels from (64, 16): 0 to 2000 tokens, 5 down to 3 nats. */
static void program_writes_svg(void **state)
{
    (void)state;
    char *svg;
    write_study();
    write_run(&(struct sketch){ "<c&>", 0, "0.002", "", { 5, 4, 3 }, 20 });
    program("a0 a1 a2 '<c&>' --val --svg loss.svg", 0);
    svg = read_file(scratch_path("loss.svg"), NULL);
    assert_non_null(strstr(svg, "stroke=\"#0072B2\" stroke-dasharray=\"\" points=\"64.0,16.0 344.0,196.0 "
                                "624.0,340.0 \"/>"));
    assert_non_null(strstr(svg, "fill-opacity=\"0.18\" points=\"64.0,16.0 344.0,196.0 624.0,304.0 "
                                "624.0,376.0 344.0,196.0 64.0,16.0 \"/>"));
    assert_non_null(strstr(svg, ">a0 (3 seeds)</text>"));
    assert_non_null(strstr(svg, ">&#60;c&#38;&#62;</text>"));
    assert_non_null(strstr(svg, ">validation loss (nats)</text>"));
    assert_non_null(strstr(svg, "text-anchor=\"middle\">0</text>"));
    free(svg);
    char command[2200];
    snprintf(command, sizeof command, "! command -v xmllint >/dev/null || xmllint --noout '%s'",
             scratch_path("loss.svg"));
    assert_int_equal(run_command(command, out, sizeof out), 0);
    /* Only what is at most 4.5: the axis is from 10 to 20 steps. */
    program("a0 a1 a2 --val --x steps --max-loss 4.5 --svg loss.svg", 0);
    printed("   4.000 |");
    svg = read_file(scratch_path("loss.svg"), NULL);
    assert_non_null(strstr(svg, "points=\"64.0,16.0 624.0,304.0 \"/>"));
    free(svg);
    program("a0 --svg nowhere/loss.svg", 1);
    printed("nowhere/loss.svg: cannot create: No such file or directory");
    program("a0 --val --max-loss 1 --svg loss.svg", 1);
    printed("ddl: loss.svg: nothing to draw: expected a validation loss of at most 1, found none");
}

/* The figure of validation losses up to 4, which has one point. Limits of the file's size and of processor
 * time end the program where the figure does not end. */
static void draws_one_point(const char *arguments)
{
    char command[8192];
    snprintf(
        command, sizeof command,
        "cd '%s' && ulimit -f 100 && ulimit -t 20 && '%s' compare %s --val --max-loss 4 --svg loss.svg 2>&1",
        scratch_path(""), ddl_program(), arguments);
    if (run_command(command, out, sizeof out) != 0)
        fail_msg("%s: %s", command, out);
    char *svg = read_file(scratch_path("loss.svg"), NULL);
    assert_non_null(strstr(svg, "cx=\"344.0\" cy=\"196.0\" r=\"2.5\"/>"));
    free(svg);
}

/* The axes of points that are equal, or equal but for rounding, have a range around them. */
static void program_draws_equal_points(void **state)
{
    (void)state;
    char name[16];
    struct sketch run = { name, 0, "0.001", "", { 5, 4.5, 3 }, 20 };
    for (; run.seed < 7; run.seed++) {
        snprintf(name, sizeof name, "s%d", run.seed);
        write_run(&run);
    }
    write_run(&(struct sketch){ "t0", 0, "0.003", "", { 5, 4.5, 3 }, 20 });
    draws_one_point("s0 s1 s2 s3 s4 s5 s6 t0"); /* the mean of seven times 2000 is 2000.0000000000002 */
    write_text(scratch_path("t0"), "metrics.jsonl",
               "{\"step\":20,\"loss\":4,\"val_loss\":3,\"tokens\":10,\"flops\":1e18,\"seconds\":1,"
               "\"train_seconds\":1,\"tokens_per_s\":10,\"peak_memory\":1}\n");
    draws_one_point("t0 --x flops"); /* the next numbers in double precision are 128 away */
}

/* Rows of 28 pixels from 16; 400 pixels per nat from 2.4 nats at 24 pixels + 7 per character of the longest
 * name. */
static void program_draws_final_losses(void **state)
{
    (void)state;
    char *svg;
    write_study();
    program(ALL " --baseline b1 --val --svg final.svg --figure final", 0);
    svg = read_file(scratch_path("final.svg"), NULL);
    /* The mean 3.2 of a, its interval 2.7032 to 3.6968 and the run 3.4; the mean 2.9667 of the baseline. */
    assert_non_null(strstr(svg, "x=\"355.5\" y=\"24\" width=\"5\" height=\"12\"/>"));
    assert_non_null(strstr(svg, "stroke=\"#0072B2\" d=\"M159.3 30 H556.7\"/>"));
    assert_non_null(strstr(svg, "cx=\"438.0\" cy=\"30\" r=\"4\"/>"));
    assert_non_null(strstr(svg, "stroke=\"#D55E00\" stroke-dasharray=\"4 4\" d=\"M264.7 16 V72\"/>"));
    assert_non_null(strstr(svg, ">validation loss (nats): runs, mean, 95 % interval</text>"));
    free(svg);
    program("a0 --svg final.svg --figure final", 0); /* one run: no interval */
    svg = read_file(scratch_path("final.svg"), NULL);
    assert_null(strstr(svg, "<path class=\"line\" stroke=\"#D55E00\" d="));
    free(svg);
}

/* The seed that ddl sweep appends is not part of the name of a group. */
static void program_names_groups(void **state)
{
    (void)state;
    static const struct sketch runs[] = { { "g_seed=0", 0, "0.001", "", { 5, 4, 3 }, 20 },
                                          { "g_seed=1", 1, "0.001", "", { 5, 4, 3.5 }, 20 },
                                          { "h_lr=1_seed=0", 0, "0.003", "", { 5, 4, 3 }, 20 } };
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++)
        write_run(&runs[r]);
    program("g_seed=0 g_seed=1 h_lr=1_seed=0 --baseline h_lr=1 --json", 0);
    printed("\"baseline\":1,");
    printed("\"name\":\"g\",\"runs\":[\"g_seed=0\",\"g_seed=1\"]");
    printed("\"val_loss\":{\"values\":[3,3.5],\"mean\":3.25,");
    printed("\"name\":\"h_lr=1\",\"runs\":[\"h_lr=1_seed=0\"]");
    program("g_seed=0 --baseline g_seed", 2);
    printed("--baseline: not among the runs: expected one of g_seed=0 to g_seed=0, found g_seed");
}

/* Scores have the statistics of losses, here a tenth of them; only where all runs of a group have scores. */
static void statistics_of_scores(void **state)
{
    (void)state;
    static const char tasks[] = "tasks: piqa\ntokenizer: t\n";
    struct fixture f;
    struct sketch runs[N_STUDY];
    memcpy(runs, study, sizeof runs);
    for (size_t r = 0; r < N_STUDY; r++)
        runs[r].more = tasks;
    compare(&f, runs, N_STUDY, 0, false, DDL_OK);
    const struct ddl_compare_group *a = &f.result.groups[0], *b = &f.result.groups[1];
    assert_int_equal(a->n_scores, 1);
    assert_int_equal(b->n_scores, 1);
    assert_string_equal(b->scores[0].task, "piqa");
    assert_string_equal(b->scores[0].value_name, "acc_norm");
    near(b->scores[0].values[1], 0.31);
    near(b->scores[0].mean.mean, b->val_loss.mean / 10);
    near(b->scores[0].mean.sd, b->val_loss.sd / 10);
    near(b->scores[0].test.difference, b->val_test.difference / 10);
    near(b->scores[0].test.welch_p, b->val_test.welch_p);
    near(b->scores[0].test.paired_p, b->val_test.paired_p);
    assert_true(isnan(a->scores[0].test.difference));
    discard(&f);
    program(ALL, 0);
    printed("piqa                 b0                   acc_norm      3    0.2967   0.0153");
    program(ALL " --json", 0);
    printed("\"tasks\":{\"piqa\":{\"metric\":\"acc_norm\",\"values\":[0.28,0.31,0.3],\"mean\":0.2966666667,");
    runs[5].more = ""; /* b2 has none */
    compare(&f, runs, N_STUDY, 0, false, DDL_OK);
    assert_int_equal(f.result.groups[0].n_scores, 1);
    assert_int_equal(f.result.groups[1].n_scores, 0);
    discard(&f);
    for (size_t r = 0; r < 3; r++)
        runs[r].more = "";
    runs[5].more = tasks; /* the baseline has none */
    compare(&f, runs, N_STUDY, 0, false, DDL_OK);
    assert_true(isnan(f.result.groups[1].scores[0].test.difference));
    near(f.result.groups[1].scores[0].mean.mean, 0.89 / 3);
    discard(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_and_tests),
        cmocka_unit_test(cost_to_reach),
        cmocka_unit_test(no_cost_to_reach_an_initial_loss),
        cmocka_unit_test(program_draws_equal_points),
        cmocka_unit_test(single_runs_have_no_tests),
        cmocka_unit_test(common_step),
        cmocka_unit_test(other_data_is_refused),
        cmocka_unit_test(other_validation_is_refused_behind_a_run_without),
        cmocka_unit_test(recipes_that_are_not_used),
        cmocka_unit_test(repeated_seed_counts_once),
        cmocka_unit_test(program_tests_groups),
        cmocka_unit_test(program_prints_csv_and_markdown),
        cmocka_unit_test(program_writes_svg),
        cmocka_unit_test(program_draws_final_losses),
        cmocka_unit_test(program_names_groups),
        cmocka_unit_test(statistics_of_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
