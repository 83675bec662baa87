/* The protocol of a sweep: what is read and rejected, and that ddl sweep and ddl compare print it. */
#define _POSIX_C_SOURCE 200809L
#include "support/files.h"
#include "support/runs.h"
#include "support/support.h"

#include "base/file.h"
#include "ddl/sweep.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OUTPUT = 1 << 16 };
static char out[OUTPUT];

#define BASE "base: {size: micro, vocab_size: 300, train_data: shards, steps: 4, val_data: b}\n"
#define MODELS "models: [baseline, ddl-1, scale]\n"
#define CHOICE "choose: {key: lr, values: [1e-3, 2e-3], seed: 100, set: {val_data: a}}\n"
#define PROTOCOL                                                                                             \
    "protocol:\n  question: does it help?\n  primary: ddl-1 - baseline\n  secondary: [ddl-1 - scale, scale " \
    "- baseline]\n  margin: 0.03\n  stopping: four seeds, no look before\n"

static void write_text(const char *name, const char *text)
{
    struct ddl_error err;
    assert_ok(ddl_file_replace(scratch_path(name), text, strlen(text), &err), err);
}

/* Opens the sweep of the text, in which `out` is added. */
static ddl_status open_sweep(struct ddl_sweep *sweep, const char *text, struct ddl_error *err)
{
    static char whole[8192], path[2200];
    snprintf(whole, sizeof whole, "%sout: runs\n", text);
    write_text("sweep.yaml", whole);
    snprintf(path, sizeof path, "%s", scratch_path("sweep.yaml"));
    return ddl_sweep_open(sweep, path, err);
}

static void is_read(void **state)
{
    (void)state;
    struct ddl_sweep sweep;
    struct ddl_error err;
    assert_ok(open_sweep(&sweep, BASE MODELS CHOICE PROTOCOL "seeds: [0, 1]\n", &err), err);
    assert_true(ddl_sweep_protocol_is_set(&sweep.protocol));
    assert_string_equal(sweep.protocol.question, "does it help?");
    assert_string_equal(sweep.protocol.primary, "ddl-1 - baseline");
    assert_string_equal(sweep.protocol.secondary, "ddl-1 - scale\nscale - baseline");
    assert_true(sweep.protocol.margin == 0.03 && sweep.protocol.power == 0.8 && sweep.protocol.level == 0.05);
    assert_string_equal(sweep.runs[0].config->val_data, "a");
    assert_string_equal(sweep.runs[sweep.n_runs - 1].config->val_data, "b");
    ddl_sweep_close(&sweep);
    /* Terms: a setting, a model, a pattern. */
    assert_ok(open_sweep(&sweep,
                         BASE "models: [baseline, {name: a, model: ddl-1}]\ngrid: {beta2: [0.9, 0.95]}\n"
                              "protocol: {primary: ddl-1 - base*, secondary: [a_beta2=0.9 - baseline]}\n",
                         &err),
              err);
    ddl_sweep_close(&sweep);
    assert_ok(open_sweep(&sweep, BASE MODELS, &err), err);
    assert_false(ddl_sweep_protocol_is_set(&sweep.protocol));
    ddl_sweep_close(&sweep);
}

static void mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        { BASE MODELS CHOICE PROTOCOL "seeds: [99, 100]\n", "expected seeds that no choice has seen" },
        { BASE "models: [{name: baseline, model: baseline, lr: 1e-3, seeds: [100, 101]}, ddl-1]\n" CHOICE
               "protocol: {primary: ddl-1 - baseline}\nseeds: [0]\n",
          "seed 100 of choose/ddl-1_lr=1e-3 is also that of baseline_seed=100" },
        { BASE "models: [{name: a, model: ddl-1}, {name: b, model: ddl-1, threads: 1}]\n"
               "protocol: {primary: a - b}\nseeds: [0]\n",
          "protocol: a and b compute the same: expected one of them" },
        { BASE MODELS PROTOCOL "seeds: [0]\nchoose: {key: lr, values: [1e-3, 2e-3], seed: 100}\n",
          "are validated on the same data" },
        { BASE "models: [baseline, scale, {name: ddl-1, val_data: auto}]\n" PROTOCOL
               "seeds: [0]\nchoose: {key: lr, values: [1e-3, 2e-3], seed: 100, set: {val_data: shards}}\n",
          "choose/ddl-1_lr=1e-3 and ddl-1_seed=0 are validated on the same data" },
        { BASE MODELS PROTOCOL
          "seeds: [0]\nchoose: {key: lr, values: [1e-3, 2e-3], seed: 100, set: {val_data: ./x/../b}}\n",
          "are validated on the same data" },
        { BASE MODELS "protocol: {question: why}\n", "protocol: expected primary, found no primary" },
        { BASE MODELS "protocol: {primary: ddl1 - baseline}\n",
          "sweep.yaml: protocol: 'ddl1 - baseline': no such group: expected a group, such as baseline" },
        { BASE MODELS "protocol: {primary: baseline - base*}\n", "'baseline - base*': baseline is on both" },
        { BASE MODELS "protocol: {primary: ddl-1 - baseline, secondary: [scale - baseline, scale - line]}\n",
          "protocol: 'scale - line': no such group" },
        { BASE MODELS "protocol: {primary: ddl-1}\n", "protocol: 'ddl-1': expected 'A - B', found no" },
        { BASE MODELS "protocol: {primary: a - b, margin: -1}\n",
          "margin: expected a positive number in its range, found -1" },
        { BASE MODELS "protocol: {primary: a - b, power: 1.5}\n", "power: expected a positive number" },
        { BASE MODELS "protocol: {primary: a - b, level: 0.5}\n", "level: expected a positive number" },
        { BASE MODELS "protocol: {primery: a - b}\n", "did you mean 'primary'?" },
        { BASE MODELS "protocol: {primary: [a - b]}\n", "primary: expected a value, found a list" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_sweep sweep;
        struct ddl_error err;
        assert_int_equal(open_sweep(&sweep, cases[i].text, &err), DDL_E_USAGE);
        if (!strstr(err.text, cases[i].says))
            fail_msg("expected %s, found %s", cases[i].says, err.text);
    }
}

/* The data of the choice and that of the runs are sets of shards, which must not have a file in common. */
static void shared_data(void **state)
{
    (void)state;
    static const struct {
        const char *base, *choose;
        bool shared;
    } cases[] = {
        { "data/report", "data/report/*.bin", true },
        { "data/report", "data/report/../report/y.bin", true },
        { "data/select,data/report", "data/report,data/select", true },
        { "data/select,data/report", "data/report", true },
        { "data/report", "data/link.bin", true },
        { "data/report", "data/select", false },
        { "data/report/x.bin", "data/report/y.bin", false },
        { "auto", "data/train", true },
        { "auto", "data/select", false },
        { "none", "none", false },
    };
    static const char *const files[] = { "data/report/x.bin", "data/report/y.bin", "data/select/x.bin",
                                         "data/train/train_0.bin", "data/train/val_0.bin" };
    struct ddl_error err;
    remove_scratch("data");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char folder[64];
        snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(files[i], '/') - files[i]), files[i]);
        assert_ok(ddl_file_make_dir(scratch_path("data"), &err), err);
        assert_ok(ddl_file_make_dir(scratch_path(folder), &err), err);
        write_random_shard(scratch_path(files[i]), i, 260, 300);
    }
    assert_int_equal(symlink("report/x.bin", scratch_path("data/link.bin")), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2048];
        struct ddl_sweep sweep = { 0 };
        snprintf(
            text, sizeof text,
            "relative_to: recipe\nbase: {size: micro, vocab_size: 300, steps: 4, train_data: data/train, "
            "val_data: '%s'}\nmodels: [baseline, ddl-1]\nseeds: [0, 1]\nchoose: {key: lr, values: [1e-3, "
            "2e-3], seed: 100, set: {val_data: '%s'}}\nprotocol: {primary: ddl-1 - baseline}\n",
            cases[i].base, cases[i].choose);
        const bool refused = open_sweep(&sweep, text, &err) != DDL_OK;
        if (refused != cases[i].shared || (refused && !strstr(err.text, "are validated on the same data")))
            fail_msg("%s, %s: %s", cases[i].base, cases[i].choose, refused ? err.text : "accepted");
        ddl_sweep_close(&sweep);
    }
}

/* ---- the programs ---- */

static void program(const char *arguments, int status)
{
    char command[8192];
    snprintf(command, sizeof command, "cd '%s' && '%s' %s 2>&1", scratch_path(""), ddl_program(), arguments);
    if (run_command(command, out, sizeof out) != status)
        fail_msg("%s: expected status %d, found:\n%s", arguments, status, out);
}

static void printed(const char *text)
{
    if (!strstr(out, text))
        fail_msg("expected %s, found:\n%s", text, out);
}

/* A run of 4 steps that has logged `step`. */
static void write_run_at(const char *model, int seed, int step, double loss)
{
    char name[64], path[128], recipe[512], metrics[512];
    struct ddl_error err;
    snprintf(name, sizeof name, "runs/%s_seed=%d", model, seed);
    assert_ok(ddl_file_make_dir(scratch_path(name), &err), err);
    snprintf(recipe, sizeof recipe,
             "model: %s\nsize: micro\ntrain_data: shards\nval_data: b\nvocab_size: 300\nsteps: 4\nseed: %d\n",
             model, seed);
    snprintf(path, sizeof path, "%s/recipe.yaml", name);
    write_text(path, recipe);
    snprintf(metrics, sizeof metrics,
             "{\"step\":%d,\"loss\":5,\"val_loss\":%g,\"tokens\":10,\"flops\":10,\"seconds\":1,"
             "\"train_seconds\":1,\"tokens_per_s\":10,\"peak_memory\":1}\n",
             step, loss);
    snprintf(path, sizeof path, "%s/metrics.jsonl", name);
    write_text(path, metrics);
}

static void write_run(const char *model, int seed, double loss)
{
    write_run_at(model, seed, 4, loss);
}

/* sweep.json as the sweep writes it. */
static void write_record(const struct ddl_sweep *sweep)
{
    FILE *file = fopen(scratch_path("runs/sweep.json"), "w");
    assert_non_null(file);
    ddl_sweep_write_json(sweep, file);
    assert_int_equal(fclose(file), 0);
}

static void is_not_tested(const char *note)
{
    program("compare runs", 0);
    printed(note);
    if (strstr(out, "question:"))
        fail_msg("expected no test of the protocol, found:\n%s", out);
}

/* With the states that matter here. */
static void are_printed(void **state)
{
    (void)state;
    static const char *const models[] = { "baseline", "scale", "ddl-1" };
    static const double losses[3][3] = { { 3.0, 3.2, 3.4 }, { 2.8, 3.1, 3.0 }, { 3.05, 3.24, 3.41 } };
    struct ddl_sweep sweep;
    struct ddl_error err;
    assert_ok(open_sweep(&sweep, BASE "models: [baseline, scale, ddl-1]\nseeds: [0, 1, 2]\n" PROTOCOL, &err),
              err);
    assert_ok(ddl_file_make_dir(scratch_path("runs"), &err), err);
    write_record(&sweep);
    for (size_t m = 0; m < 3; m++) {
        for (int seed = 0; seed < 3; seed++)
            write_run(models[m], seed, losses[m][seed]);
    }
    program("sweep sweep.yaml --status", 0);
    printed("question: does it help?\nprimary contrast: ddl-1 - baseline\nsecondary contrast: ddl-1 - scale\n"
            "secondary contrast: scale - baseline\nmargin of equivalence: 0.03\nlevel: 0.05\npower: "
            "0.8\nstopping rule: four "
            "seeds, no look before\n");
    /* No look before all runs have ended. */
    is_not_tested("0 of 9 runs have ended: the contrasts of the protocol are tested when all have");
    for (size_t r = 0; r < sweep.n_runs; r++)
        sweep.runs[r].state = r ? DDL_SWEEP_FINISHED : DDL_SWEEP_FAILED;
    write_record(&sweep);
    ddl_sweep_close(&sweep);
    program("compare runs", 0);
    printed("question: does it help?\n");
    printed("stopping rule: four seeds, no look before\n");
    printed("The first contrast is the primary one of the protocol, tested alone;");
    /* The primary p-value is not corrected; the secondary ones are, by 2 x 0.0766. */
    printed("ddl-1 - baseline                 val       3     0.0333   -0.0184    0.0850   0.1091   0.1091");
    printed("ddl-1 - scale                    val       3     0.2667   -0.0706    0.6039   0.0766   0.1532");
    printed("scale - baseline                 val       3    -0.2333   -0.6128    0.1461   0.1181   0.1532");
    program("compare runs --json", 0);
    printed("\"margin\":0.03,\"detect\":0,\"power\":0.8,\"level\":0.05,\"question\":\"does it help?\",");
    printed("{\"contrast\":\"ddl-1 - scale\",\"role\":\"secondary\",");
    program("compare runs --contrast 'ddl-1 - scale'", 0); /* in the place of the protocol's */
    printed("ddl-1 - scale                    val       3     0.2667   -0.0706    0.6039   0.0766   0.0766");
    if (strstr(out, "question:"))
        fail_msg("the protocol is printed with other contrasts:\n%s", out);
    /* Options do not replace what the protocol has decided. */
    program("compare runs --margin 0.1", 2);
    printed("compare: --margin: the protocol of the sweep has decided it: expected --contrast as well");
    program("compare runs --level 0.01", 2);
    program("compare runs --correction none", 2);
    program("compare runs --power 0.9", 2);
    program("compare runs --which final", 2);
    printed("compare: --which: the protocol of the sweep has decided it: expected --contrast as well");
    program("compare runs --any", 2);
    printed("compare: --any: the protocol of the sweep has decided it: expected --contrast as well");
    program("compare runs --any --contrast 'ddl-1 - scale'", 0);
    program("compare runs --contrast 'ddl-1 - scale' --margin 0.1 --level 0.01", 0);
    printed("99 % low");
    printed("98 % low");
    /* A secondary contrast of which a group is not found leaves the primary one: each run without a readable
     * recipe is a group of its own. */
    for (int seed = 0; seed < 3; seed++) {
        char name[64];
        snprintf(name, sizeof name, "runs/scale_seed=%d/recipe.yaml", seed);
        write_text(name, "unknown: 1\n");
    }
    program("compare runs", 0);
    printed("ddl-1 - baseline                 val       3     0.0333   -0.0184    0.0850   0.1091   0.1091");
    printed("note: the secondary contrasts of the protocol are not tested");
    /* A run that failed earlier than at its last step does not move the comparison. */
    write_run_at("baseline", 0, 3, 3.0);
    is_not_tested("note: baseline_seed=0: the run ends early: expected step 4, found step 3: the contrasts "
                  "of the protocol are tested when all runs are complete");
    write_run("baseline", 0, 3.0);
    /* Neither one that failed before it logged a step nor one that is missing is left out. */
    write_text("runs/ddl-1_seed=2/metrics.jsonl", "");
    is_not_tested("note: 8 of 9 runs have logged a step: the contrasts of the protocol are tested when all "
                  "runs are complete; 'ddl sweep --retry' trains the others");
    remove_scratch("runs/ddl-1_seed=2");
    is_not_tested("note: 8 of 9 runs have logged a step");
}

/* A protocol is written before its runs start. */
static void changes_are_rejected(void **state)
{
    (void)state;
    static const struct {
        const char *protocol, *says;
    } cases[] = {
        { "protocol: {primary: ddl-1 - baseline, margin: 0.02}\n",
          "protocol: margin was changed after runs have started: expected 0.03, found 0.02; choose another "
          "out" },
        { "protocol: {primary: baseline - ddl-1, margin: 0.03}\n",
          "protocol: primary was changed after runs have started: expected 'ddl-1 - baseline', found "
          "'baseline - "
          "ddl-1'" },
        { "protocol: {primary: ddl-1 - baseline, margin: 0.03, stopping: later}\n", "stopping was changed" },
        { "protocol: {primary: ddl-1 - baseline, margin: 0.03, level: 0.029}\n",
          "level was changed after runs have started: expected 0.05, found 0.029" },
        { "", "protocol: it was removed after runs have started" },
    };
    static const char sweep_text[] = BASE MODELS "seeds: [0]\n", protocol[] =
                                                                     "protocol: {primary: ddl-1 - baseline, "
                                                                     "margin: 0.03}\n";
    struct ddl_sweep sweep;
    struct ddl_error err;
    char text[4096];
    snprintf(text, sizeof text, "%s%s", sweep_text, protocol);
    remove_scratch("runs");
    assert_ok(ddl_file_make_dir(scratch_path("runs"), &err), err);
    assert_ok(open_sweep(&sweep, text, &err), err);
    write_record(&sweep);
    ddl_sweep_close(&sweep);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "%s%s", sweep_text, cases[i].protocol);
        assert_ok(open_sweep(&sweep, text, &err), err); /* writes the file */
        ddl_sweep_close(&sweep);
        program("sweep sweep.yaml --status", 0); /* no run has started */
    }
    write_run("ddl-1", 0, 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "%s%s", sweep_text, cases[i].protocol);
        assert_ok(open_sweep(&sweep, text, &err), err);
        ddl_sweep_close(&sweep);
        program("sweep sweep.yaml", 2);
        printed(cases[i].says);
    }
    snprintf(text, sizeof text, "%s%s", sweep_text, protocol);
    assert_ok(open_sweep(&sweep, text, &err), err);
    ddl_sweep_close(&sweep);
    program("sweep sweep.yaml --status", 0);
    /* A sweep without one gets none later. */
    assert_ok(open_sweep(&sweep, sweep_text, &err), err);
    write_record(&sweep);
    ddl_sweep_close(&sweep);
    assert_ok(open_sweep(&sweep, text, &err), err);
    ddl_sweep_close(&sweep);
    program("sweep sweep.yaml", 2);
    printed("protocol: it was added after runs have started");
}

/* Each term of a contrast is one of the sweep's models. */
static void check_contrasts(const char *path, const struct ddl_sweep *sweep)
{
    char text[8192];
    snprintf(text, sizeof text, "%s\n%s", sweep->protocol.primary, sweep->protocol.secondary);
    for (const char *at = text; *at;) {
        size_t n = 0, found = 0;
        while (at[n] && at[n] != '\n' && strncmp(at + n, " - ", 3) != 0 && strncmp(at + n, " + ", 3) != 0)
            n++;
        for (size_t s = 0; s < sweep->n_settings; s++)
            found += strlen(sweep->settings[s].name) == n && memcmp(sweep->settings[s].name, at, n) == 0;
        if (found != 1)
            fail_msg("%s: no model of the name at %s", path, at);
        at += n + (at[n] == '\n' ? 1 : at[n] ? 3 : 0);
    }
}

static void recipes(void **state)
{
    (void)state;
    glob_t found;
    size_t protocols = 0;
    assert_int_equal(glob(source_path("recipes/e[0-9]/*.yaml"), 0, NULL, &found), 0);
    assert_int_equal(glob(source_path("recipes/paper/*.yaml"), GLOB_APPEND, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct ddl_sweep sweep;
        struct ddl_error err;
        assert_ok(ddl_sweep_open(&sweep, found.gl_pathv[i], &err), err);
        if (ddl_sweep_protocol_is_set(&sweep.protocol)) {
            protocols++;
            check_contrasts(found.gl_pathv[i], &sweep);
        }
        ddl_sweep_close(&sweep);
    }
    assert_true(protocols >= 6);
    globfree(&found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_read),     cmocka_unit_test(mistakes),
        cmocka_unit_test(are_printed), cmocka_unit_test(changes_are_rejected),
        cmocka_unit_test(recipes),     cmocka_unit_test(shared_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
