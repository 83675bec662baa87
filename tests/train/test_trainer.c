/* train/run/trainer.c with checkpoint.c and metrics.c: a run that was stopped and resumed equals one that was
 * not, byte for byte; errors are reported before anything is written. */
#include "support/runs.h"

#include "ddl/compare.h"
#include "ddl/train.h"
#include "checkpoint/checkpoint.h"
#include "train/log/metrics.h"
#include "train/run/resume.h"
#include "train/config/train_config.h"

#include <dirent.h>
#include <math.h>
#include <unistd.h>

enum { V = 31 };

static struct ddl_train_config a_run(const char *preset, const char *backend, const char *out)
{
    struct ddl_train_config t = tiny_run(preset, V, backend, out);
    write_random_shard(scratch_path("train.bin"), 1, V, 5000);
    write_random_shard(scratch_path("val.bin"), 2, V, 700);
    snprintf(t.model, sizeof t.model, "%s", preset);
    snprintf(t.val_data, sizeof t.val_data, "%s", scratch_path("val.bin"));
    t.accumulate = 2;
    t.lr = 1e-2;
    t.warmup = 5;
    t.val_every = 7;
    t.val_tokens = 300;
    return t;
}

/* ---- damage ---- */

struct damage {
    const char *file;
    bool named;
};

static void keep_damage(void *user, const char *message)
{
    struct damage *damage = user;
    damage->named = damage->named || (strstr(message, damage->file) && strstr(message, "continuing from"));
}

static void keep_change(void *user, const char *message)
{
    struct damage *damage = user;
    size_t n = strlen(damage->file);
    damage->named = damage->named || (strncmp(message, damage->file, n) == 0 && strstr(message, " was '"));
}

static int at_once(void *user)
{
    (void)user;
    return 1;
}

/* 20 steps at once; and 10, stopped; and then some that are lost; and the rest. */
static void resumes_bit_for_bit(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *backend;
        int order;
    } cases[] = { { "baseline", "ref", DDL_ORDER_SEQUENTIAL },
                  { "ddl-cc-ec", "ref", DDL_ORDER_RANDOM },
                  { "ddl-cc-ec", "cpu", DDL_ORDER_RANDOM },
                  { "ddl-tc-ec", "cpu", DDL_ORDER_SEQUENTIAL },
                  { "attnres", "cpu", DDL_ORDER_RANDOM } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_error err;
        struct ddl_train_config whole = a_run(cases[i].preset, cases[i].backend, "whole");
        struct ddl_train_config parts = a_run(cases[i].preset, cases[i].backend, "parts");
        whole.order = parts.order = cases[i].order;
        whole.checkpoint_every = 20;
        assert_ok(ddl_train_run(&whole, NULL, NULL, &err), err);
        assert_int_equal(run_until(&parts, 10, NULL, &err), DDL_E_INTERRUPTED);
        assert_says(&err, "stopped after step 10 of 20");
        assert_true(ddl_file_exists(file_in(parts.out, "checkpoint-10/state.json")));
        assert_false(ddl_file_exists(file_in(parts.out, "model.safetensors")));
        /* A run that was killed: its lines reach beyond the checkpoint, and the last is torn. */
        FILE *torn = fopen(file_in(parts.out, "metrics.jsonl"), "a");
        assert_non_null(torn);
        fputs("{\"step\":11,\"loss\":1}\n{\"step\":12,\"lo", torn);
        fclose(torn);
        parts.resume = true;
        parts.checkpoint_every = 20;
        assert_ok(ddl_train_run(&parts, NULL, NULL, &err), err);
        assert_same_metrics(whole.out, parts.out);
        assert_same_file(file_in(whole.out, "model.safetensors"), file_in(parts.out, "model.safetensors"));
        assert_same_checkpoint(whole.out, parts.out, "checkpoint-20");
        assert_same_file(file_in(whole.out, "config.json"), file_in(parts.out, "config.json"));
    }
}

/* What backward recomputes has no effect on results: it may change when a run is resumed, with a note, and
 * without reversed states every byte is the same. */
static void recompute_may_change(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config whole = a_run("baseline", test_backend(0), "whole");
    struct ddl_train_config parts = a_run("baseline", test_backend(0), "parts");
    whole.recompute = DDL_RECOMPUTE_BLOCK;
    whole.checkpoint_every = parts.checkpoint_every = 20;
    assert_ok(ddl_train_run(&whole, NULL, NULL, &err), err);
    for (int recompute = 0; recompute < DDL_RECOMPUTES; recompute++) {
        int notes;
        parts.recompute = recompute;
        assert_int_equal(run_until(&parts, 6, &notes, &err), DDL_E_INTERRUPTED);
        assert_int_equal(notes, recompute ? 2 : 1); /* the change, and the checkpoint */
        parts.resume = true;
    }
    assert_ok(ddl_train_run(&parts, NULL, NULL, &err), err);
    assert_same_metrics(whole.out, parts.out);
    assert_same_file(file_in(whole.out, "model.safetensors"), file_in(parts.out, "model.safetensors"));
    assert_same_checkpoint(whole.out, parts.out, "checkpoint-20");
}

static void metrics_have_every_step(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run("ddl-1", "ref", "metrics");
    struct ddl_train_progress last;
    t.log_every = 3;
    t.telemetry_every = 0;
    assert_ok(ddl_train_run(&t, NULL, &last, &err), err);
    char *text = repeatable_metrics(t.out);
    static const int steps[] = { 0, 3, 6, 7, 9, 12, 14, 15, 18, 20 };
    const char *line = text;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        char start[32];
        snprintf(start, sizeof start, "{\"step\":%d,\"loss\":", steps[i]);
        assert_memory_equal(line, start, strlen(start));
        const char *end = strchr(line, '\n'), *val = strstr(line, "\"val_loss\":");
        assert_int_equal(val && val < end, steps[i] % 7 == 0 || steps[i] == 20);
        line = end + 1;
    }
    assert_int_equal(*line, '\0');
    free(text);
    assert_int_equal(last.step, 20);
    assert_int_equal(last.tokens, 20 * 2 * 2 * 16);
    assert_true(last.flops == 20.0 * 64 * ddl_config_flops_per_token(&t.config, 16, true));
    assert_true(last.has_val && last.loss < log(V) && last.peak_memory > 0);
}

/* The line of step 0: the loss of the first batch before any update, and the validation loss of the initial
 * parameters. It has no effect on the run. */
static void logs_the_loss_before_the_first_step(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config with = a_run("ddl-cc", "ref", "with"),
                            without = a_run("ddl-cc", "ref", "without");
    struct ddl_run_log read;
    with.lr = without.lr = 0; /* so that the validation after step 20 is that of the initial parameters */
    without.val_every = 0;
    assert_ok(ddl_train_run(&with, NULL, NULL, &err), err);
    assert_ok(ddl_train_run(&without, NULL, NULL, &err), err);
    assert_same_file(file_in(with.out, "model.safetensors"), file_in(without.out, "model.safetensors"));
    assert_ok(ddl_run_log_read(&read, with.out, &err), err);
    assert_int_equal(read.n, 21);
    assert_true(read.points[0].step == 0 && read.points[0].tokens == 0 && read.points[0].flops == 0);
    assert_true(read.points[0].loss == read.points[1].loss && isnan(read.points[0].tokens_per_s));
    assert_true(read.points[0].val_loss == read.points[20].val_loss);
    ddl_run_log_free(&read);
    char *text = read_file(file_in(without.out, "metrics.jsonl"), NULL);
    static const char start[] = "{\"step\":0,\"loss\":";
    assert_memory_equal(text, start, sizeof start - 1);
    *strchr(text, '\n') = '\0';
    assert_null(strstr(text, "val_loss"));
    assert_null(strstr(text, "\"lr\""));
    free(text);
}

/* A resumed run with another number of steps keeps the intervals and the warmup that it started with. */
static void keeps_automatic_values_when_resumed(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run("baseline", "ref", "automatic"), again;
    t.steps = 100;
    t.warmup = t.val_every = t.checkpoint_every = DDL_OPTION_AUTO;
    assert_int_equal(run_until(&t, 11, NULL, &err), DDL_E_INTERRUPTED);
    char *text = read_file(file_in(t.out, "recipe.yaml"), NULL);
    assert_non_null(strstr(text, "\nwarmup: 2\n"));
    assert_non_null(strstr(text, "\nval_every: 10\n"));
    assert_non_null(strstr(text, "\ncheckpoint_every: 10\n"));
    free(text);
    struct ddl_run_state at;
    again = t;
    again.steps = 1000;
    assert_ok(ddl_run_open(scratch_path("automatic/checkpoint-11"), &again, &at, NULL, NULL, &err), err);
    assert_true(again.warmup == 2 && again.val_every == 10 && again.checkpoint_every == 10);
    again = t;
    again.steps = 12;
    again.resume = true;
    int notes;
    assert_ok(run_until(&again, 0, &notes, &err), err);
    assert_int_equal(notes, 2); /* steps, and the checkpoint of step 12 */
    text = read_file(file_in(t.out, "recipe.yaml"), NULL);
    assert_non_null(strstr(text, "\nsteps: 12\n"));
    assert_non_null(strstr(text, "\nwarmup: 2\n"));
    free(text);
    /* Fewer steps than the warmup of the run. */
    t.warmup = 100;
    t.overwrite = true;
    assert_int_equal(run_until(&t, 3, NULL, &err), DDL_E_INTERRUPTED);
    t.warmup = DDL_OPTION_AUTO;
    t.overwrite = false;
    t.resume = true;
    t.steps = 50;
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "warmup is 100, more than steps 50");
}

static void keep_out(void *user, const struct ddl_train_summary *summary)
{
    snprintf(user, sizeof summary->config->out, "%s", summary->config->out);
}

/* Without `out`: the first free number, created by one run only. */
static void chooses_a_folder(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run("ddl-1", "ref", "unused");
    char out[sizeof t.out], home[4096];
    const struct ddl_train_callbacks callbacks = { .user = out, .begin = keep_out };
    assert_non_null(getcwd(home, sizeof home));
    remove_scratch("cwd");
    assert_ok(ddl_file_make_dir(scratch_path("cwd/runs/ddl-1-custom-2"), &err), err);
    assert_int_equal(chdir(scratch_path("cwd")), 0);
    t.out[0] = '\0';
    t.steps = 6;
    static const char *const expected[] = { "runs/ddl-1-custom-1", "runs/ddl-1-custom-3", "runs/ddl-1-tiny-1",
                                            "runs/baseline-micro-1" };
    for (size_t i = 0; i < 4; i++) {
        if (i == 2)
            strcpy(t.size, "tiny");
        if (i == 3) { /* the names of the shape and of the residual rule */
            t.size[0] = t.model[0] = '\0';
            t.config = ddl_config_defaults();
            assert_ok(ddl_config_set_size(&t.config, "micro", &err), err);
            t.config.block_size = 16;
            t.config.vocab_size = V;
        }
        assert_ok(ddl_train_run(&t, &callbacks, NULL, &err), err);
        assert_string_equal(out, expected[i]);
        assert_true(ddl_file_exists(file_in(expected[i], "model.safetensors")));
        char *recipe = read_file(file_in(expected[i], "recipe.yaml"), NULL);
        assert_non_null(strstr(recipe, "\nout: \".\"\n"));
        free(recipe);
    }
    assert_int_equal(chdir(home), 0);
}

static size_t count_checkpoints(const char *out)
{
    size_t n = 0;
    DIR *dir = opendir(out);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        n += strncmp(e->d_name, "checkpoint-", 11) == 0;
        assert_int_not_equal(strncmp(e->d_name, ".checkpoint", 11), 0);
    }
    closedir(dir);
    return n;
}

static void keeps_the_newest(void **state)
{
    (void)state;
    static const size_t keep[] = { 0, 1, 3 }, left[] = { 7, 1, 3 };
    for (size_t i = 0; i < 3; i++) {
        struct ddl_error err;
        char path[2400];
        struct ddl_train_config t = a_run("baseline", "ref", "keep");
        t.checkpoint_every = 3;
        t.keep_last = keep[i];
        /* What a killed save leaves. */
        assert_ok(ddl_file_make_dir(scratch_path("keep/.checkpoint-2"), &err), err);
        write_file(scratch_path("keep/.checkpoint-2/model.safetensors"), "x", 1);
        assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
        assert_int_equal(count_checkpoints(t.out), left[i]);
        assert_true(ddl_checkpoint_newest(t.out, UINT64_MAX, NULL, path, sizeof path));
        assert_non_null(strstr(path, "checkpoint-20"));
        /* A checkpoint is a model folder. */
        ddl_backend *backend;
        ddl_model *model;
        assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
        assert_ok(ddl_model_load(&model, path, backend, NULL, NULL, &err), err);
        ddl_model_free(model);
        ddl_backend_free(backend);
    }
}

/* The steps of the checkpoints in `out`, as "3 6 9", and the one of lowest validation loss. */
static void steps_left(const char *out, char *steps, size_t size, uint64_t *best)
{
    struct ddl_error err;
    struct ddl_checkpoint *list;
    size_t n, used = 0;
    double lowest = INFINITY;
    assert_ok(ddl_checkpoint_list(out, &list, &n, &err), err);
    *best = 0;
    for (size_t i = 0; i < n; i++) {
        used += (size_t)snprintf(steps + used, size - used, "%s%llu", i ? " " : "",
                                 (unsigned long long)list[i].step);
        assert_true(list[i].readable && list[i].loss > 0);
        if (list[i].has_val && list[i].val_loss < lowest) {
            lowest = list[i].val_loss;
            *best = list[i].step;
        }
    }
    free(list);
}

/* With a learning rate at which the model soon diverges the best checkpoint is an early one. It is kept
 * beyond keep_last, also if the run was stopped and resumed after it; not with keep_best 0. */
static void keeps_the_best(void **state)
{
    (void)state;
    char all[256], steps[256], wanted[256];
    uint64_t best, kept;
    struct ddl_error err;
    struct ddl_train_config t = a_run("baseline", "ref", "best");
    t.val_every = 2;
    t.checkpoint_every = 2;
    t.warmup = 20;
    t.lr = 5;
    t.keep_last = 0;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    steps_left(t.out, all, sizeof all, &best);
    assert_string_equal(all, "2 4 6 8 10 12 14 16 18 20");
    assert_true(best < 14);
    for (size_t keep_best = 0; keep_best < 2; keep_best++) {
        t.overwrite = true;
        t.resume = false;
        t.keep_last = 2;
        t.keep_best = keep_best;
        assert_int_equal(run_until(&t, 15, NULL, &err), DDL_E_INTERRUPTED);
        t.overwrite = false;
        t.resume = true;
        assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
        steps_left(t.out, steps, sizeof steps, &kept);
        snprintf(wanted, sizeof wanted, keep_best ? "%llu 18 20" : "18 20", (unsigned long long)best);
        assert_string_equal(steps, wanted);
        assert_true(!keep_best || kept == best);
    }
}

static void keep_last_note(void *user, const char *message)
{
    snprintf(user, 1024, "%s", message);
}

/* Killed after its last checkpoint and before the model; before its first; with metrics.jsonl cut. */
static void resumes_at_the_edges(void **state)
{
    (void)state;
    struct ddl_error err;
    char said[1024] = "", *cut;
    const struct ddl_train_callbacks callbacks = { .user = said, .note = keep_last_note };
    struct ddl_train_progress last, again;
    struct ddl_train_config t = a_run("ddl-1", "ref", "edges");
    t.steps = 6;
    t.checkpoint_every = 3;
    assert_ok(ddl_train_run(&t, NULL, &last, &err), err);
    assert_int_equal(rename(file_in(t.out, "model.safetensors"), file_in(t.out, "first")), 0);
    t.resume = true;
    assert_ok(ddl_train_run(&t, &callbacks, &again, &err), err);
    assert_same_file(file_in(t.out, "model.safetensors"), file_in(t.out, "first"));
    assert_true(again.step == 6 && again.loss == last.loss && again.val_loss == last.val_loss);
    assert_string_equal(said, "");
    /* Lost lines are reported. */
    size_t size;
    cut = read_file(file_in(t.out, "metrics.jsonl"), &size);
    write_file(file_in(t.out, "metrics.jsonl"), cut, (size_t)(strstr(cut, "{\"step\":5") - cut));
    assert_ok(ddl_train_run(&t, &callbacks, NULL, &err), err);
    assert_non_null(strstr(said, "metrics.jsonl: the lines from step 5 to 6 are lost"));
    /* Nothing but its beginning: from step 0. */
    remove_scratch("edges");
    assert_ok(ddl_file_make_dir(t.out, &err), err);
    write_file(file_in(t.out, "recipe.yaml"), "", 0);
    write_file(file_in(t.out, "metrics.jsonl"), cut, 40);
    t.checkpoint_every = 0;
    assert_ok(ddl_train_run(&t, &callbacks, &again, &err), err);
    assert_non_null(strstr(said, "no checkpoint yet, starting again"));
    assert_true(again.step == 6 && again.loss == last.loss);
    /* And a finished model without checkpoints is not trained once more. */
    assert_ok(ddl_train_run(&t, &callbacks, &again, &err), err);
    assert_non_null(strstr(said, "edges: the run is finished: it ended on "));
    assert_true(again.step == 6 && fabs(again.loss - last.loss) < 1e-8 * last.loss);
    free(cut);
}

/* What a killed writer leaves goes when the run goes on; what others have put there stays. */
static void removes_what_is_left_over(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool ours;
    } cases[] = { { "model.safetensors.tmp-123", true },        { "metrics.jsonl.tmp-1", true },
                  { "recipe.yaml.tmp-00ff00ff00ff00ff", true }, { "notes.tmp-1", false },
                  { "model.safetensors.tmp-x", false },         { "model.safetensors.bak", false } };
    struct ddl_error err;
    struct ddl_train_config t = a_run("baseline", "ref", "left");
    assert_int_equal(run_until(&t, 4, NULL, &err), DDL_E_INTERRUPTED);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        write_file(file_in(t.out, cases[i].name), "x", 1);
    t.resume = true;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(ddl_file_exists(file_in(t.out, cases[i].name)), !cases[i].ours);
}

/* A run does not remove a model unasked, and never the one that it begins with. */
static void does_not_run_over_a_model(void **state)
{
    (void)state;
    struct ddl_error err;
    const char *start = tiny_folder("start", "ddl-cc");
    struct ddl_train_config t = a_run("ddl-cc", "ref", "text");
    t.config.vocab_size = TINY_VOCAB;
    snprintf(t.out, sizeof t.out, "%s", start);
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "start: there is a model.safetensors already: --overwrite removes it");
    t.model[0] = '\0';
    snprintf(t.init_from, sizeof t.init_from, "%s", start);
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        t.overwrite = overwrite;
        assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_USAGE);
        assert_says(&err, "out: expected another folder than that of init_from");
    }
    assert_true(ddl_file_exists(file_in(start, "model.safetensors")));
    assert_true(ddl_file_exists(file_in(start, "config.json")));
    /* Nor the one of a run that it begins with. */
    struct ddl_train_config run = a_run("ddl-cc", "ref", "begun");
    run.config.vocab_size = TINY_VOCAB;
    assert_int_equal(run_until(&run, 2, NULL, &err), DDL_E_INTERRUPTED);
    snprintf(t.init_from, sizeof t.init_from, "%s", run.out);
    snprintf(t.out, sizeof t.out, "%s", file_in(run.out, "checkpoint-2"));
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "out: expected another folder than that of init_from");
    assert_true(ddl_file_exists(file_in(t.out, "model.safetensors")));
}

/* A tokenizer that was made in the run's folder is the run's: it stays until the model has its copy. */
static void keeps_its_own_tokenizer(void **state)
{
    (void)state;
    static const char *const paths[] = { "own", "own/tokenizer.json" };
    struct ddl_error err;
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        struct ddl_train_config t = a_run("ddl-cc", "ref", "own");
        ddl_tokenizer *tokenizer = tiny_tokenizer();
        t.config.vocab_size = TINY_VOCAB;
        t.overwrite = overwrite;
        snprintf(t.tokenizer, sizeof t.tokenizer, "%s", scratch_path(paths[overwrite]));
        assert_ok(ddl_file_make_dir(t.out, &err), err);
        assert_ok(ddl_tokenizer_save(tokenizer, t.out, &err), err);
        ddl_tokenizer_free(tokenizer);
        assert_int_equal(run_until(&t, 1, NULL, &err), DDL_E_INTERRUPTED);
        assert_true(ddl_file_exists(file_in(t.out, "tokenizer.json")));
        /* One that goes with the checkpoints is refused, another one needs --overwrite. */
        t.overwrite = true;
        snprintf(t.tokenizer, sizeof t.tokenizer, "%s", file_in(t.out, "checkpoint-1"));
        assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_USAGE);
        assert_says(&err, "out: expected another folder than that of tokenizer");
        assert_true(ddl_file_exists(file_in(t.out, "checkpoint-1/tokenizer.json")));
    }
    struct ddl_train_config t = a_run("ddl-cc", "ref", "other");
    assert_ok(ddl_file_make_dir(t.out, &err), err);
    write_file(file_in(t.out, "tokenizer.json"), "{}", 2);
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "other: there is a tokenizer.json already: --overwrite removes it");
}

static void collect(void *user, const char *message)
{
    char *said = user;
    (void)strncat(said, message, 4095 - strlen(said));
}

/* What a user has put into a checkpoint keeps its folder: the run goes on, and can be resumed. */
static void goes_on_with_what_cannot_be_removed(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run("ddl-cc", "ref", "stuck");
    char said[4096] = "";
    const struct ddl_train_callbacks callbacks = { .user = said, .note = collect };
    t.checkpoint_every = 2;
    t.keep_last = 1;
    assert_int_equal(run_until(&t, 4, NULL, &err), DDL_E_INTERRUPTED);
    assert_ok(ddl_file_make_dir(file_in(t.out, "checkpoint-4/mine"), &err), err);
    static const char *const others[] = { ".checkpoint-2.old", ".checkpoint-4.old", ".checkpoint-6" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char mine[64];
        snprintf(mine, sizeof mine, "%s/mine", others[i]);
        assert_ok(ddl_file_make_dir(file_in(t.out, others[i]), &err), err);
        assert_ok(ddl_file_make_dir(file_in(t.out, mine), &err), err);
    }
    t.resume = true;
    assert_ok(ddl_train_run(&t, &callbacks, NULL, &err), err);
    assert_non_null(strstr(said, "could not remove what an earlier process has left: "));
    assert_non_null(strstr(said, "could not remove an older checkpoint: "));
    static const char *const stay[] = { ".checkpoint-2.old/mine", ".checkpoint-4.old/mine",
                                        ".checkpoint-4.old1/mine", ".checkpoint-6.old/mine" };
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++)
        assert_true(ddl_file_exists(file_in(t.out, stay[i])));
    for (int step = 4; step < 20; step += 2) { /* all others are removed */
        char name[32];
        snprintf(name, sizeof name, "checkpoint-%d", step);
        assert_false(ddl_file_exists(file_in(t.out, name)));
    }
    assert_true(ddl_file_exists(file_in(t.out, "model.safetensors")));
}

static void does_not_run_over_a_run(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run("baseline", "ref", "over");
    t.resume = true;
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_IO);
    assert_says(&err, "no checkpoint to resume from");
    assert_false(ddl_file_exists(t.out));
    t.resume = false;
    assert_int_equal(run_until(&t, 4, NULL, &err), DDL_E_INTERRUPTED);
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "there is a run already: --resume continues it, --overwrite removes it");
    struct ddl_train_config changed = t;
    changed.resume = true;
    changed.seed = 12;
    assert_int_equal(ddl_train_run(&changed, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "checkpoint-4/state.json: the run has seed 11, now it is 12; a resumed run keeps it");
    changed = t;
    changed.resume = true;
    changed.config.d_model = 24;
    assert_int_equal(ddl_train_run(&changed, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "config.json: the run has hidden_size 21, now it is 24");
    changed = t;
    changed.resume = true;
    changed.steps = 6;
    changed.lr = 2e-2;
    int notes;
    assert_ok(run_until(&changed, 0, &notes, &err), err);
    assert_int_equal(notes, 2);                                          /* steps, lr */
    assert_int_equal(ddl_train_run(&changed, NULL, NULL, &err), DDL_OK); /* from step 4 once more */
    t.overwrite = true;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    assert_int_equal(count_checkpoints(t.out), 0);
}

/* Begins a run in the folder of the calling run; each kind must fail and change nothing. */
static int intrude(void *user)
{
    struct ddl_train_config t = *(const struct ddl_train_config *)user;
    struct ddl_error err;
    for (int kind = 0; kind < 3; kind++) {
        t.resume = kind == 1;
        t.overwrite = kind == 2;
        assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_IO);
        assert_says(&err, "two-in-one: in use by process ");
        assert_says(&err, "in use by process ");
    }
    return 0;
}

static void one_run_at_a_time(void **state)
{
    (void)state;
    struct ddl_error err;
    remove_scratch("two-in-one");
    struct ddl_train_config t = a_run("baseline", "ref", "alone");
    t.checkpoint_every = 3;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    snprintf(t.out, sizeof t.out, "%s", scratch_path("two-in-one"));
    assert_ok(ddl_train_run(&t, &(struct ddl_train_callbacks){ .user = &t, .stop = intrude }, NULL, &err),
              err);
    assert_same_metrics(scratch_path("alone"), scratch_path("two-in-one"));
    assert_same_file(scratch_path("alone/model.safetensors"), scratch_path("two-in-one/model.safetensors"));
    assert_int_equal(count_checkpoints(t.out), count_checkpoints(scratch_path("alone")));
    assert_false(ddl_file_exists(scratch_path("two-in-one/.lock")));
    t.overwrite = true;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
}

static void says_what_is_wrong_first(void **state)
{
    (void)state;
    struct ddl_train_config base = a_run("baseline", "ref", "never"), t;
    struct ddl_error err;
    ddl_tokenizer *tokenizer = tiny_tokenizer();
    assert_ok(ddl_tokenizer_save(tokenizer, scratch_path("tokenizer.json"), &err), err);
    ddl_tokenizer_free(tokenizer);
    write_random_shard(scratch_path("wide.bin"), 1, 40, 3000);
#define REFUSED(change, status, gist) ASSERT_REFUSED(t, base, change, status, gist)
    REFUSED(t.train_data[0] = '\0', DDL_E_USAGE, "train: missing argument: expected --train-data PATH");
    REFUSED((t.out[0] = '\0', t.resume = true), DDL_E_USAGE,
            "train --resume: missing argument: expected --out DIR");
    REFUSED(strcpy(t.train_data, "/nowhere/x.bin"), DDL_E_IO, "train_data: /nowhere/x.bin");
    REFUSED(strcpy(t.val_data, scratch_path("wide.bin")), DDL_E_FORMAT,
            "exceeds the vocabulary of 31 tokens");
    REFUSED(strcpy(t.tokenizer, "/nowhere"), DDL_E_IO, "/nowhere");
    REFUSED(strcpy(t.tokenizer, scratch_path("tokenizer.json")), DDL_E_FORMAT,
            "vocab_size is 31: expected at least the ");
    REFUSED(t.seq = 17, DDL_E_USAGE, "seq is 17, the model's context (block_size) 16");
    REFUSED(t.warmup = 21, DDL_E_USAGE, "warmup is 21, more than steps 20");
    REFUSED(t.sample_every = 1, DDL_E_USAGE, "sample_every is 1, but no tokenizer is set");
    REFUSED(t.config.n_heads = 0, DDL_E_USAGE, "num_attention_heads: 0 is out of range");
    REFUSED(t.lr = -1, DDL_E_USAGE, "lr: -1 is out of range");
    REFUSED(strcpy(t.backend, "gpu"), DDL_E_USAGE, "gpu");
    REFUSED(strcpy(t.init_from, "/nowhere"), DDL_E_IO, "/nowhere");
#undef REFUSED
}

/* Any byte of any file of the newest checkpoint turned, or any file cut or lost: the one before it is taken,
 * and the note names the damaged file. Where both are damaged, so is the run. */
static void skips_damage(void **state)
{
    (void)state;
    static const char *const files[] = { "state.json", "config.json", "model.safetensors",
                                         "optimizer.safetensors" };
    struct ddl_error err;
    struct ddl_train_config t = a_run("ddl-cc-ec", "ref", "damage");
    t.steps = 8;
    t.checkpoint_every = 2;
    t.keep_last = 2;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    t.steps = 20;
    t.resume = true;
    for (size_t i = 0; i < 3 * (sizeof files / sizeof *files); i++) {
        struct ddl_train_config again = t;
        struct damage damage = { .file = files[i / 3] };
        const struct ddl_train_callbacks callbacks = { .user = &damage,
                                                       .note = keep_damage,
                                                       .stop = at_once };
        copy_scratch("damage", "copy");
        snprintf(again.out, sizeof again.out, "%s", scratch_path("copy"));
        corrupt_file(file_in(file_in(again.out, "checkpoint-8"), files[i / 3]), i % 3);
        assert_int_equal(ddl_train_run(&again, &callbacks, NULL, &err), DDL_E_INTERRUPTED);
        assert_says(&err, "stopped after step 7 of 20");
        assert_true(damage.named);
    }
    corrupt_file(file_in(file_in(t.out, "checkpoint-6"), files[0]), 1);
    corrupt_file(file_in(file_in(t.out, "checkpoint-8"), files[2]), 0);
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_FORMAT);
    assert_says(&err, "checkpoint-8/model.safetensors: corrupted: expected checksum");
}

/* A damaged later checkpoint neither counts among the last nor makes the next one go. */
static void damage_does_not_count(void **state)
{
    (void)state;
    struct ddl_error err;
    char path[1280];
    struct ddl_train_config t = a_run("ddl-1", "ref", "uncounted");
    t.steps = 8;
    t.checkpoint_every = 2;
    t.keep_last = 2;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    corrupt_file(file_in(t.out, "checkpoint-8/model.safetensors"), 0);
    t.steps = 20;
    t.keep_last = 1;
    t.resume = true;
    struct damage damage = { .file = "model.safetensors" };
    const struct ddl_train_callbacks callbacks = { .user = &damage, .note = keep_damage, .stop = at_once };
    assert_int_equal(ddl_train_run(&t, &callbacks, NULL, &err), DDL_E_INTERRUPTED);
    snprintf(path, sizeof path, "%s/checkpoint-7/model.safetensors", t.out);
    assert_true(ddl_file_exists(path));
    assert_int_equal(ddl_train_run(&t, &callbacks, NULL, &err), DDL_E_INTERRUPTED);
    assert_says(&err, "stopped after step 8 of 20");
}

/* Heads wider than everything else, as wide as a configuration allows: in the cpu backend's scratch, on ref's
 * stack. */
static void heads_wider_than_the_model(void **state)
{
    (void)state;
    static const char *const backends[] = { "cpu", "ref" };
    for (size_t i = 0; i < 2; i++) {
        struct ddl_error err;
        struct ddl_train_config t = a_run("baseline", backends[i], "wide");
        t.config.d_model = 4;
        t.config.head_dim = DDL_MAX_HEAD_DIM;
        t.config.n_heads = 1;
        t.steps = t.warmup = 1;
        assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    }
}

static void says_what_does_not_fit(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run("ddl-tc-ec", "cpu", "never");
    t.config.d_model = 1 << 16;
    t.config.n_layers = 256;
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_MEMORY);
    assert_says(&err, "the run needs");
    assert_says(&err, "GiB of memory, backend cpu has");
    assert_says(&err, "it does not fit with any --batch, --dtype and --recompute");
    assert_false(ddl_file_exists(t.out));
}

static void stops_where_numbers_end(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run("baseline", "ref", "nan");
    t.checkpoint_every = 1;
    t.keep_last = 1;
    t.warmup = 0;
    t.clip = 0;
    t.lr = 1000; /* with a decay of 10 a step: p (1 - 10000) */
    t.weight_decay = 10;
    t.weight_decay_group[DDL_GROUP_NORM] = 10;
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
    assert_says(&err, "is not finite");
    assert_says(&err, "the newest checkpoint is");
    char path[2400];
    assert_true(ddl_checkpoint_newest(t.out, UINT64_MAX, NULL, path, sizeof path));
    assert_says(&err, path);
    assert_true(ddl_file_exists(file_in(path, "model.safetensors")));
}

/* Each key as its row says: refused, noted or free. */
static void compares_keys_by_their_rows(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_run_state at;
    struct ddl_train_config t = a_run("baseline", "ref", "rows");
    int n = 0;
    assert_int_equal(run_until(&t, 2, NULL, &err), DDL_E_INTERRUPTED);
    t = ddl_train_resolved(&t);
    for (const struct ddl_option *row = ddl_train_options(); row->name; row++) {
        static const char *const values[] = { "0.5",    "3", "ref", "true",    "sequential", "none", "bf16",
                                              "random", "7", "wsd", "nanogpt", "65536",      "false" };
        struct ddl_train_config other = t;
        struct damage damage = { .file = row->name };
        char was[8192], now[8192] = "";
        ddl_option_format(row, &t, was, sizeof was);
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            if (ddl_option_set(row, &other, values[i], "", NULL) == DDL_OK) {
                ddl_option_format(row, &other, now, sizeof now);
                if (strcmp(was, now) != 0)
                    break;
            }
        }
        assert_string_not_equal(was, now);
        if (strcmp(row->name, "accumulate") == 0) /* with global_batch it has no effect */
            other.global_batch = 0;
        ddl_status status =
            ddl_run_open(scratch_path("rows/checkpoint-2"), &other, &at, keep_change, &damage, &err);
        enum ddl_on_resume rule = ddl_train_on_resume(row);
        assert_int_equal(status, rule == DDL_RESUME_SAME ? DDL_E_USAGE : DDL_OK);
        assert_int_equal(damage.named, rule == DDL_RESUME_NOTED);
        n += rule == DDL_RESUME_SAME;
    }
    assert_int_equal(n, 6); /* batch, accumulate, global_batch, seq, seed, order */
}

/* A warmup that was computed does not prevent a shorter run. */
static void a_computed_warmup_fits_fewer_steps(void **state)
{
    (void)state;
    struct ddl_train_config t = a_run("baseline", "ref", "warmup"), other;
    struct ddl_run_state at;
    struct ddl_error err;
    t.warmup = DDL_OPTION_AUTO;
    t.checkpoint_every = 1;
    t.keep_last = 0;
    t.steps = 100; /* warmup 2 */
    t.val_every = 0;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    other = t;
    other.steps = 1;
    assert_ok(ddl_run_open(file_in(t.out, "checkpoint-1"), &other, &at, NULL, NULL, &err), err);
    assert_true(other.warmup == DDL_OPTION_AUTO);
    other = t;
    other.steps = 50;
    assert_ok(ddl_run_open(file_in(t.out, "checkpoint-1"), &other, &at, NULL, NULL, &err), err);
    assert_true(other.warmup == 2);
}

/* A resumed run keeps its head_dim where the configuration has a computed one. */
static void a_computed_head_dim_is_the_runs(void **state)
{
    (void)state;
    struct ddl_train_config t = a_run("baseline", "ref", "heads"), other;
    struct ddl_run_state at;
    struct ddl_error err;
    t.steps = t.checkpoint_every = 2;
    t.warmup = 0;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    other = t;
    other.config.head_dim = t.config.head_dim + 2;
    assert_int_equal(ddl_run_open(file_in(t.out, "checkpoint-2"), &other, &at, NULL, NULL, &err),
                     DDL_E_USAGE);
    assert_says(&err, "the run has head_dim ");
    other.head_dim_automatic = true;
    assert_ok(ddl_run_open(file_in(t.out, "checkpoint-2"), &other, &at, NULL, NULL, &err), err);
    assert_int_equal(other.config.head_dim, t.config.head_dim);
}

/* The value's former name in a recipe and in a checkpoint. */
static void reads_former_names(void **state)
{
    (void)state;
    assert_string_equal(ddl_train_current_value("recompute", "cheap"), "elementwise");
    assert_string_equal(ddl_train_current_value("recompute", "none"), "none");
    assert_string_equal(ddl_train_current_value("size", "cheap"), "cheap");
    static const char recipe[] = "recompute: cheap\n";
    struct ddl_train_config t;
    struct ddl_error err;
    char *argv[] = { "train", NULL };
    int n;
    write_file(scratch_path("former.yaml"), recipe, sizeof recipe - 1);
    assert_ok(ddl_train_configure(&t, scratch_path("former.yaml"), 1, argv, NULL, NULL, &n, &err), err);
    assert_int_equal(t.recompute, DDL_RECOMPUTE_ELEMENTWISE);
}

static void takes_text_along(void **state)
{
    (void)state;
    struct ddl_error err;
    const char *start = tiny_folder("start", "ddl-cc");
    struct ddl_train_config t = a_run("ddl-cc", "ref", "text");
    t.config.vocab_size = TINY_VOCAB;
    snprintf(t.model, sizeof t.model, "%s", "");
    snprintf(t.init_from, sizeof t.init_from, "%s", start);
    snprintf(t.tokenizer, sizeof t.tokenizer, "%s", start);
    t.steps = 4;
    t.warmup = 1;
    t.sample_every = 2;
    t.sample_tokens = 5;
    t.checkpoint_every = 4;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    assert_same_file(file_in(start, "tokenizer.json"), file_in(t.out, "tokenizer.json"));
    assert_true(ddl_file_exists(file_in(t.out, "checkpoint-4/tokenizer.json")));
    /* recipe.yaml gives the run once more. */
    struct ddl_train_config again;
    char program[] = "train", *argv[] = { program, NULL };
    int n;
    assert_ok(ddl_train_configure(&again, file_in(t.out, "recipe.yaml"), 1, argv, NULL, NULL, &n, &err), err);
    snprintf(again.out, sizeof again.out, "%s", scratch_path("text2"));
    remove_scratch("text2");
    assert_ok(ddl_train_run(&again, NULL, NULL, &err), err);
    assert_same_file(file_in(t.out, "model.safetensors"), file_in(again.out, "model.safetensors"));
    assert_same_metrics(t.out, again.out);
    /* samples.jsonl has the two samples, and the same ones again. */
    char *samples = read_file(file_in(t.out, "samples.jsonl"), NULL);
    const char *second = strstr(samples, "}\n{\"step\":4,\"prompt\":\"\",\"text\":\"");
    assert_int_equal(strncmp(samples, "{\"step\":2,\"prompt\":\"\",\"text\":\"", 30), 0);
    assert_non_null(second);
    assert_string_equal(strchr(second + 2, '\n'), "\n");
    free(samples);
    assert_same_file(file_in(t.out, "samples.jsonl"), file_in(again.out, "samples.jsonl"));
    /* A resumed run removes those of later steps; one without samples removes the file. */
    FILE *later = fopen(file_in(again.out, "samples.jsonl"), "a");
    assert_non_null(later);
    fputs("{\"step\":5,\"prompt\":\"\",\"text\":\"lost\"}\n", later);
    assert_int_equal(fclose(later), 0);
    assert_int_equal(unlink(file_in(again.out, "config.json")), 0); /* killed before its end */
    again.resume = true;
    assert_ok(ddl_train_run(&again, NULL, NULL, &err), err);
    assert_same_file(file_in(t.out, "samples.jsonl"), file_in(again.out, "samples.jsonl"));
    again.resume = false;
    again.overwrite = true;
    again.sample_every = 0;
    assert_ok(ddl_train_run(&again, NULL, NULL, &err), err);
    assert_false(ddl_file_exists(file_in(again.out, "samples.jsonl")));
}

/* The first line of each process has the key "start". */
static void lines_of_starts(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run("baseline", "ref", "starts");
    assert_int_equal(run_until(&t, 3, NULL, &err), DDL_E_INTERRUPTED);
    t.resume = true;
    assert_ok(run_until(&t, 0, NULL, &err), err);
    char *text = read_file(file_in(t.out, "metrics.jsonl"), NULL);
    const char *first = strstr(text, ",\"start\":{\"step\":0,\"time\":\"20"),
               *line_1 = strstr(text, "\n{\"step\":1,");
    const char *second = strstr(text, ",\"start\":{\"step\":3,\"time\":\"20"),
               *line_4 = strstr(text, "\n{\"step\":4,");
    assert_true(first && line_1 && first < line_1);
    assert_true(second && line_4 && line_4 < second && second < strchr(line_4 + 1, '\n'));
    assert_null(strstr(second + 2, "\"start\""));
    assert_non_null(strstr(first, "\"backend\":\""));
    free(text);
}

/* A sample of text may contain any character, U+0000 too. */
static void keeps_samples_of_any_text(void **state)
{
    (void)state;
    static const char lines[] = "{\"step\":2,\"text\":\"a\\u0000b\"}\n{\"step\":4,\"text\":\"c\"}\n";
    struct ddl_metrics samples;
    struct ddl_metrics_kept kept;
    struct ddl_error err;
    write_file(scratch_path("samples.jsonl"), lines, sizeof lines - 1);
    assert_ok(ddl_metrics_open(&samples, scratch_path("samples.jsonl"), 5, 5, &kept, &err), err);
    ddl_metrics_close(&samples);
    char *text = read_file(scratch_path("samples.jsonl"), NULL);
    assert_string_equal(text, lines);
    assert_int_equal(kept.removed, 0);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumes_bit_for_bit),
        cmocka_unit_test(lines_of_starts),
        cmocka_unit_test(keeps_samples_of_any_text),
        cmocka_unit_test(recompute_may_change),
        cmocka_unit_test(metrics_have_every_step),
        cmocka_unit_test(logs_the_loss_before_the_first_step),
        cmocka_unit_test(keeps_automatic_values_when_resumed),
        cmocka_unit_test(chooses_a_folder),
        cmocka_unit_test(keeps_the_newest),
        cmocka_unit_test(does_not_run_over_a_model),
        cmocka_unit_test(keeps_its_own_tokenizer),
        cmocka_unit_test(goes_on_with_what_cannot_be_removed),
        cmocka_unit_test(does_not_run_over_a_run),
        cmocka_unit_test(one_run_at_a_time),
        cmocka_unit_test(says_what_is_wrong_first),
        cmocka_unit_test(stops_where_numbers_end),
        cmocka_unit_test(compares_keys_by_their_rows),
        cmocka_unit_test(a_computed_warmup_fits_fewer_steps),
        cmocka_unit_test(a_computed_head_dim_is_the_runs),
        cmocka_unit_test(reads_former_names),
        cmocka_unit_test(takes_text_along),
        cmocka_unit_test(skips_damage),
        cmocka_unit_test(damage_does_not_count),
        cmocka_unit_test(heads_wider_than_the_model),
        cmocka_unit_test(says_what_does_not_fit),
        cmocka_unit_test(keeps_the_best),
        cmocka_unit_test(resumes_at_the_edges),
        cmocka_unit_test(removes_what_is_left_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
