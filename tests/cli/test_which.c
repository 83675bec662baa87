/* --which: every command that reads a model of a run uses the newest or the chosen one, and prints which. */
#define _POSIX_C_SOURCE 200809L
#include "support/http.h"
#include "support/program.h"
#include "support/runs.h"

#include <jansson.h>
#include <stdlib.h>

static char run[2048], shard[2048];

/* A run that is stopped after five steps, or one that finished after six and is stopped after five more. Both
 * have a checkpoint every three steps. */
static void make_run(const char *name, bool finish_first)
{
    struct ddl_error err;
    snprintf(shard, sizeof shard, "%s", scratch_path("train.bin"));
    write_random_shard(shard, 1, 260, 3000);
    struct ddl_train_config t = tiny_run("baseline", TINY_VOCAB, "ref", name);
    snprintf(run, sizeof run, "%s", t.out);
    snprintf(t.val_data, sizeof t.val_data, "%s", t.train_data);
    snprintf(t.tokenizer, sizeof t.tokenizer, "%s", tiny_folder("tok", "baseline"));
    t.steps = 6;
    t.warmup = 1;
    t.lr = 0.01;
    t.val_every = t.checkpoint_every = 3;
    t.val_tokens = 64;
    t.keep_last = 0;
    if (finish_first) {
        assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
        t.resume = true;
        t.steps = 30;
    }
    assert_int_equal(run_until(&t, 5, NULL, &err), DDL_E_INTERRUPTED);
}

static double loss_of(const char *folder, const char *flags)
{
    json_t *root = ddl_json("eval '%s' --shard '%s' --backend ref --json %s", folder, shard, flags);
    const json_t *model = json_array_get(json_object_get(root, "models"), 0);
    double loss = json_number_value(json_object_get(model, "loss"));
    assert_true(loss > 0);
    json_decref(root);
    return loss;
}

/* Commands that read a model: those with --json, others, and those of others_use. The words in capitals are
 * variables. */
static const char *const lines[] = {
    "eval \"$RUN\" --shard \"$SHARD\" --backend ref",
    "generate \"$RUN\" --prompt a --max-tokens 2 --backend ref",
    "info \"$RUN\"",
    "inspect \"$RUN\" --shard \"$SHARD\" --tokens 16 --backend ref",
    "ablate \"$RUN\" --shard \"$SHARD\" --max-tokens 16 --backend ref",
    "graft \"$RUN\" --layers 0 --rule delta --out \"$GRAFTED\"",
    "logprobs \"$RUN\" \"$TEXT\" --backend ref",
    "export \"$RUN\" --out \"$EXPORTED\"",
    "serve",
    "train",
};
enum { WITH_JSON = 6, LINES = 8 };

static void set_variables(void)
{
    setenv("RUN", run, 1);
    setenv("SHARD", shard, 1);
    setenv("TEXT", tiny_text("text.txt", 20), 1);
    setenv("GRAFTED", scratch_path("grafted"), 1);
    setenv("EXPORTED", scratch_path("exported"), 1);
    remove_scratch("exported");
}

/* `ddl serve` and `ddl train --init-from`. */
static void others_use(const char *flags, const char *gist)
{
    struct http_server server;
    http_start(&server, NULL, "'%s' --backend ref %s", run, flags);
    http_stop(&server);
    if (!strstr(server.printed, gist))
        fail_msg("serve: '%s' is not in: %s", gist, server.printed);
    remove_scratch("tuned");
    assert_int_equal(
        ddl("train --init-from '%s' --train-data '%s' --val-data none --steps 1 --seq 8 --batch 1 "
            "--warmup 0 --backend ref --out '%s' %s%s",
            run, shard, scratch_path("tuned"), *flags ? "--init" : "", *flags ? flags + 1 : ""),
        0);
    assert_printed(gist);
}

/* Every command uses the model `name` of the run and reports it: `says` on standard error, or, with --json,
 * the name in the object. */
static void every_command_uses(const char *flags, const char *name, const char *says)
{
    char gist[256], saved[256];
    snprintf(gist, sizeof gist, "using %s\n", says);
    snprintf(saved, sizeof saved, "\"saved_model\":{\"name\":\"%s\"", name);
    set_variables();
    assert_commands_listed(lines, sizeof lines / sizeof *lines, commands_without_model);
    for (size_t i = 0; i < LINES; i++) {
        remove_scratch("grafted");
        if (ddl_stream(STANDARD_ERROR, "%s %s", lines[i], flags) != 0)
            fail_msg("%s %s: %s", lines[i], flags, printed);
        assert_printed(gist);
    }
    for (size_t i = 0; i < WITH_JSON; i++) {
        remove_scratch("grafted");
        if (ddl("%s %s --json", lines[i], flags) != 0)
            fail_msg("%s %s --json: %s", lines[i], flags, printed);
        assert_printed(saved);
        assert_null(strstr(printed, "using "));
    }
    others_use(flags, gist);
    assert_int_equal(ddl("compare '%s' %s", run, flags), 0);
    snprintf(gist, sizeof gist, "  %s\n", name);
    assert_printed(gist);
    assert_int_equal(ddl("compare '%s' %s --json", run, flags), 0);
    assert_printed(saved);
    /* The same numbers as from the folder itself. */
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/%s", run, name);
    if (strcmp(name, "final") != 0)
        assert_true(loss_of(run, flags) == loss_of(folder, ""));
    assert_true(loss_of(scratch_path("exported"), "") == loss_of(run, flags));
}

static void finished_run_resumed_and_stopped(void **state)
{
    (void)state;
    make_run("resumed", true);
    every_command_uses("", "checkpoint-11", "checkpoint-11 (the final model is older)");
    every_command_uses("--which final", "final", "the final model (step 6)");
    assert_true(loss_of(run, "--which last") == loss_of(run, ""));
    assert_true(loss_of(run, "--which 9") == loss_of(file_in(run, "checkpoint-9"), ""));
    assert_true(loss_of(run, "") < loss_of(run, "--which final"));
    assert_true(loss_of(run, "--which best") <= loss_of(run, "--which 3"));
    assert_int_equal(ddl("compare '%s' --which 9 --json", run), 0);
    assert_printed("\"steps\":9,");
    assert_int_equal(ddl("compare '%s' --json", run), 0);
    assert_printed("\"steps\":11,");
}

static void interrupted_run(void **state)
{
    (void)state;
    make_run("stopped", false);
    every_command_uses("", "checkpoint-5", "checkpoint-5");
    every_command_uses("--which best", "checkpoint-3", "checkpoint-3");
    assert_int_equal(ddl("eval '%s' --shard '%s' --which final", run, shard), 1);
    assert_printed("stopped: expected a final model, found checkpoint-3, checkpoint-5\n");
    corrupt_file(file_in(run, "checkpoint-5/model.safetensors"), 0);
    assert_int_equal(ddl("eval '%s' --shard '%s'", run, shard), 0);
    assert_printed("ddl: warning: ");
    assert_printed("checkpoint-5/model.safetensors: corrupted: ");
    every_command_uses("", "checkpoint-3", "checkpoint-3");
    /* Before the first checkpoint: the curve can be drawn, and nothing else. */
    remove_scratch("stopped/checkpoint-3");
    remove_scratch("stopped/checkpoint-5");
    assert_int_equal(ddl("compare '%s'", run), 0);
    assert_printed("  -\n");
    assert_int_equal(ddl("compare '%s' --which last --json", run), 0);
    assert_null(strstr(printed, "saved_model"));
    assert_int_equal(ddl("compare '%s' --which best", run), 1);
    assert_int_equal(ddl("info '%s'", run), 1);
    assert_printed("stopped: expected a checkpoint or a final model, found no model\n");
}

static void model_folder(void **state)
{
    (void)state;
    const char *folder = tiny_folder("plain", "baseline");
    assert_int_equal(ddl("info '%s'", folder), 0);
    assert_null(strstr(printed, "using "));
    assert_int_equal(ddl("info '%s' --json", folder), 0);
    assert_null(strstr(printed, "saved_model"));
    assert_int_equal(ddl("info '%s' --which best", folder), 1);
    assert_printed("plain: no model 'best': expected a run folder");
    assert_int_equal(ddl("info '%s' --which newest", folder), 2);
    assert_printed("--which: expected last, best, final or a step, found 'newest'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finished_run_resumed_and_stopped),
        cmocka_unit_test(interrupted_run),
        cmocka_unit_test(model_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
