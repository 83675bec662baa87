/* ddl_run_find: the model of a folder that is meant, in finished, resumed, interrupted and damaged runs. */
#define _POSIX_C_SOURCE 200809L
#include "support/runs.h"

#include "ddl/run.h"

#include <unistd.h>

static char last_warning[1024];
static int warnings;

static void keep_warning(void *user, const char *message)
{
    (void)user;
    warnings++;
    snprintf(last_warning, sizeof last_warning, "%s", message);
}

static ddl_status find(struct ddl_run_model *out, const char *folder, const char *which,
                       struct ddl_error *err)
{
    warnings = 0;
    return ddl_run_find(out, folder, which, true, keep_warning, NULL, err);
}

/* `which` finds the model `name` of that step in the run. */
static void finds(const char *folder, const char *which, const char *name, uint64_t step)
{
    struct ddl_run_model model;
    struct ddl_error err;
    struct ddl_config config;
    assert_ok(find(&model, folder, which, &err), err);
    assert_string_equal(model.name, name);
    assert_true(model.has_step);
    assert_int_equal(model.step, step);
    assert_string_equal(model.path, strcmp(name, "final") == 0 ? folder : file_in(folder, name));
    assert_ok(ddl_config_load(&config, model.path, NULL, NULL, &err), err);
    assert_ok(ddl_run_config(&config, folder, true, NULL, NULL, &err), err);
    assert_int_equal(config.d_model, 21);
}

static void fails(const char *folder, const char *which, ddl_status status, const char *says)
{
    struct ddl_run_model model;
    struct ddl_error err;
    assert_int_equal(find(&model, folder, which, &err), status);
    assert_says(&err, says);
    assert_int_equal(ddl_run_find(&model, folder, which, true, NULL, NULL, NULL), status);
}

/* Six steps with a checkpoint and a validation every two. */
static struct ddl_train_config a_run(const char *name)
{
    write_random_shard(scratch_path("train.bin"), 1, 31, 3000);
    struct ddl_train_config t = tiny_run("ddl-cc", 31, "ref", name);
    snprintf(t.val_data, sizeof t.val_data, "%s", t.train_data);
    t.steps = 6;
    t.warmup = 1;
    t.checkpoint_every = t.val_every = 2;
    t.val_tokens = 64;
    t.keep_last = 0;
    return t;
}

static struct ddl_train_config a_finished_run(const char *name)
{
    struct ddl_error err;
    struct ddl_train_config t = a_run(name);
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    return t;
}

/* Replaces the final model by one as earlier versions wrote it: without its step. */
static void forget_step(const char *folder)
{
    struct ddl_error err;
    ddl_backend *backend;
    ddl_model *model;
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    assert_ok(ddl_model_load(&model, folder, backend, NULL, NULL, &err), err);
    assert_ok(ddl_model_save(model, folder, &err), err);
    ddl_model_free(model);
    ddl_backend_free(backend);
}

static void finished(void **state)
{
    (void)state;
    struct ddl_train_config t = a_finished_run("finished");
    finds(t.out, NULL, "final", 6);
    finds(t.out, "last", "final", 6);
    finds(t.out, "final", "final", 6);
    finds(t.out, "4", "checkpoint-4", 4);
    fails(t.out, "5", DDL_E_IO,
          "finished: expected a checkpoint of step 5, found checkpoint-2, checkpoint-4, checkpoint-6, the "
          "final model (step 6)");
    fails(t.out, "newest", DDL_E_USAGE, "expected last, best, final or a step, found 'newest'");
    fails(t.out, "", DDL_E_USAGE, "found ''");
    fails(t.out, "-4", DDL_E_USAGE, "found '-4'");
    fails(t.out, "99999999999999999999", DDL_E_USAGE, "found '9999");
    /* Files of a run without a checkpoint of the last step: the final model has it. */
    remove_scratch("finished/checkpoint-6");
    finds(t.out, "6", "final", 6);
    forget_step(t.out);
    finds(t.out, "last", "final", 6);
}

static void best_is_of_lowest_loss(void **state)
{
    (void)state;
    struct ddl_train_config t = a_finished_run("best");
    struct ddl_checkpoint *list;
    struct ddl_error err;
    size_t n;
    char name[32];
    assert_ok(ddl_checkpoint_list(t.out, &list, &n, &err), err);
    size_t best = ddl_checkpoint_best(list, n);
    assert_true(best < n);
    for (size_t i = 0; i < n; i++)
        assert_true(list[i].has_val && list[best].val_loss <= list[i].val_loss);
    snprintf(name, sizeof name, "checkpoint-%d", (int)list[best].step);
    finds(t.out, "best", name, list[best].step);
    corrupt_file(file_in(file_in(t.out, name), "model.safetensors"), 0);
    struct ddl_run_model model;
    assert_ok(find(&model, t.out, "best", &err), err);
    assert_string_not_equal(model.name, name);
    assert_int_equal(warnings, 1);
    free(list);
    assert_int_equal(ddl_checkpoint_best(NULL, 0), 0);
    t = a_run("unvalidated");
    t.val_every = 0;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    fails(t.out, "best", DDL_E_IO, "expected a checkpoint with a validation loss, found checkpoint-2, ");
}

/* A finished run is resumed with more steps and stopped: the final model is no longer the newest. */
static void resumed(void **state)
{
    (void)state;
    struct ddl_train_config t = a_finished_run("resumed");
    struct ddl_run_model model;
    struct ddl_error err;
    char about[128];
    t.resume = true;
    t.steps = 20;
    assert_int_equal(run_until(&t, 1, NULL, &err), DDL_E_INTERRUPTED);
    finds(t.out, "last", "checkpoint-7", 7);
    finds(t.out, "final", "final", 6);
    finds(t.out, "6", "checkpoint-6", 6);
    assert_ok(find(&model, t.out, "last", &err), err);
    ddl_run_describe(&model, about, sizeof about);
    assert_string_equal(about, "checkpoint-7 (the final model is older)");
    forget_step(t.out); /* a run of an earlier version: its log ends before the last step */
    finds(t.out, "last", "checkpoint-7", 7);
    assert_ok(find(&model, t.out, "final", &err), err);
    assert_false(model.has_step);
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    finds(t.out, "last", "final", 20);
}

/* A run that is resumed from before its final model: what the model learned later is no longer of the run. */
static void resumed_from_before_the_end(void **state)
{
    (void)state;
    struct ddl_train_config t = a_run("before");
    struct ddl_error err;
    t.checkpoint_every = 0;
    assert_int_equal(run_until(&t, 2, NULL, &err), DDL_E_INTERRUPTED);
    t.resume = true;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    finds(t.out, "last", "final", 6);
    t.steps = 20;
    assert_int_equal(run_until(&t, 1, NULL, &err), DDL_E_INTERRUPTED);
    finds(t.out, "last", "checkpoint-3", 3);
    finds(t.out, "final", "final", 6);
}

static void interrupted(void **state)
{
    (void)state;
    struct ddl_train_config t = a_run("interrupted");
    struct ddl_error err;
    assert_int_equal(run_until(&t, 5, NULL, &err), DDL_E_INTERRUPTED);
    finds(t.out, "last", "checkpoint-5", 5);
    finds(t.out, "4", "checkpoint-4", 4);
    fails(t.out, "final", DDL_E_IO, "expected a final model, found checkpoint-2, checkpoint-4, checkpoint-5");
    /* Before the first checkpoint there is nothing. */
    remove_scratch("interrupted/checkpoint-2");
    remove_scratch("interrupted/checkpoint-4");
    remove_scratch("interrupted/checkpoint-5");
    fails(t.out, "last", DDL_E_IO, "interrupted: expected a checkpoint or a final model, found no model");
}

/* Copies of checkpoints that have not ended: without a state, or without anything. */
static void incomplete(void **state)
{
    (void)state;
    struct ddl_train_config t = a_run("incomplete");
    struct ddl_error err;
    assert_int_equal(run_until(&t, 5, NULL, &err), DDL_E_INTERRUPTED);
    remove_scratch("incomplete/checkpoint-5/state.json");
    assert_ok(ddl_file_make_dir(file_in(t.out, "checkpoint-20"), &err), err);
    finds(t.out, "last", "checkpoint-4", 4);
    assert_int_equal(warnings, 2);
    assert_non_null(strstr(last_warning, "checkpoint-5/state.json: "));
    fails(t.out, "5", DDL_E_IO, "checkpoint-5/state.json: ");
}

static void corrupted(void **state)
{
    (void)state;
    struct ddl_train_config t = a_run("corrupted");
    struct ddl_error err;
    assert_int_equal(run_until(&t, 5, NULL, &err), DDL_E_INTERRUPTED);
    corrupt_file(file_in(t.out, "checkpoint-5/model.safetensors"), 0);
    finds(t.out, "last", "checkpoint-4", 4);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(last_warning, "checkpoint-5/model.safetensors: corrupted: "));
    assert_non_null(strstr(last_warning, "; skipped"));
    fails(t.out, "5", DDL_E_FORMAT, "checkpoint-5/model.safetensors: corrupted: ");
    corrupt_file(file_in(t.out, "checkpoint-4/state.json"), 1);
    corrupt_file(file_in(t.out, "checkpoint-2/config.json"), 0);
    fails(t.out, "last", DDL_E_FORMAT, "checkpoint-5/model.safetensors: corrupted: ");
    /* Of a finished run the final model is older, and there. */
    t = a_finished_run("corrupted2");
    t.resume = true;
    t.steps = 20;
    assert_int_equal(run_until(&t, 1, NULL, &err), DDL_E_INTERRUPTED);
    corrupt_file(file_in(t.out, "checkpoint-7/model.safetensors"), 1);
    finds(t.out, "last", "final", 6);
    assert_int_equal(warnings, 1);
}

static void model_folder(void **state)
{
    (void)state;
    struct ddl_run_model model;
    struct ddl_error err;
    const char *folder = tiny_folder("plain", "ddl-cc");
    static const char *const same[] = { NULL, "last", "final" };
    for (size_t i = 0; i < 3; i++) {
        assert_ok(find(&model, folder, same[i], &err), err);
        assert_string_equal(model.path, folder);
        assert_string_equal(model.name, "");
        assert_false(model.has_step);
    }
    fails(folder, "best", DDL_E_IO, "plain: no model 'best': expected a run folder");
    fails(folder, "4", DDL_E_IO, "plain: no model '4': expected a run folder");
    /* A checkpoint is a model folder with checksums. */
    struct ddl_train_config t = a_finished_run("checked");
    assert_ok(find(&model, file_in(t.out, "checkpoint-4"), "last", &err), err);
    assert_string_equal(model.name, "");
    corrupt_file(file_in(t.out, "checkpoint-4/model.safetensors"), 0);
    fails(file_in(t.out, "checkpoint-4"), "last", DDL_E_FORMAT, "corrupted: ");
}

/* The weights of a run start from a model of another one, and its recipe says from which. */
static void starts_from_a_run(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config from = a_run("from"), t = a_run("derived");
    char *recipe;
    assert_int_equal(run_until(&from, 5, NULL, &err), DDL_E_INTERRUPTED);
    snprintf(t.init_from, sizeof t.init_from, "%s", from.out);
    int notes;
    assert_ok(run_until(&t, 0, &notes, &err), err);
    recipe = read_file(file_in(t.out, "recipe.yaml"), NULL);
    assert_non_null(strstr(recipe, "\ninit_which: \"5\"\n"));
    free(recipe);
    struct ddl_train_config same = a_run("same");
    snprintf(same.init_from, sizeof same.init_from, "%s", scratch_path("from/checkpoint-5"));
    assert_ok(ddl_train_run(&same, NULL, NULL, &err), err);
    assert_same_file(file_in(t.out, "model.safetensors"), file_in(same.out, "model.safetensors"));
    t.overwrite = true;
    snprintf(t.init_which, sizeof t.init_which, "2");
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    snprintf(t.init_which, sizeof t.init_which, "3");
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_IO);
    assert_says(&err, "expected a checkpoint of step 3, found ");
    snprintf(t.init_which, sizeof t.init_which, "newest");
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "init_which: expected last, best, final or a step, found 'newest'");
}

/* A run needs the model that it started from at its start only. */
static void resumes_without_its_source(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config source = a_finished_run("source"), t = a_run("apart"), whole = a_run("whole"),
                            stored;
    char *argv[] = { NULL };
    int n;
    snprintf(t.init_from, sizeof t.init_from, "%s", source.out);
    snprintf(whole.init_from, sizeof whole.init_from, "%s", source.out);
    assert_ok(ddl_train_run(&whole, NULL, NULL, &err), err);
    assert_int_equal(run_until(&t, 3, NULL, &err), DDL_E_INTERRUPTED);
    remove_scratch("source");
    assert_ok(ddl_train_configure(&stored, file_in(t.out, "recipe.yaml"), 0, argv, NULL, NULL, &n, &err),
              err);
    assert_int_equal(ddl_train_run(&stored, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "--resume");
    stored.resume = true;
    assert_ok(ddl_train_run(&stored, NULL, NULL, &err), err);
    assert_same_file(file_in(t.out, "model.safetensors"), file_in(whole.out, "model.safetensors"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finished),          cmocka_unit_test(best_is_of_lowest_loss),
        cmocka_unit_test(resumed),           cmocka_unit_test(resumed_from_before_the_end),
        cmocka_unit_test(interrupted),       cmocka_unit_test(incomplete),
        cmocka_unit_test(corrupted),         cmocka_unit_test(model_folder),
        cmocka_unit_test(starts_from_a_run), cmocka_unit_test(resumes_without_its_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
