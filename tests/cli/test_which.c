/* --which: every command that reads a model of a run uses the newest or the chosen one, and prints which. */
#define _POSIX_C_SOURCE 200809L
#include "support/program.h"
#include "support/runs.h"

#include <jansson.h>

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

/* Every command uses the model `name` of the run and reports it: `says` on standard error, or, with --json,
 * the name in the object. */
static void every_command_uses(const char *flags, const char *name, const char *says)
{
    char lines[4][7000], gist[256], saved[256];
    snprintf(lines[0], sizeof lines[0], "eval '%s' --shard '%s' --backend ref %s", run, shard, flags);
    snprintf(lines[1], sizeof lines[1], "generate '%s' --prompt a --max-tokens 2 --backend ref %s", run,
             flags);
    snprintf(lines[2], sizeof lines[2], "info '%s' %s", run, flags);
    snprintf(lines[3], sizeof lines[3], "export '%s' --out '%s' %s", run, scratch_path("exported"), flags);
    snprintf(gist, sizeof gist, "using %s\n", says);
    snprintf(saved, sizeof saved, "\"saved_model\":{\"name\":\"%s\"", name);
    remove_scratch("exported");
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ddl_stream(STANDARD_ERROR, "%s", lines[i]), 0);
        assert_printed(gist);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ddl("%s --json", lines[i]), 0);
        assert_printed(saved);
        assert_null(strstr(printed, "using "));
    }
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
