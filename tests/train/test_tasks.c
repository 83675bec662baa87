/* Evaluation on downstream tasks during a run: its scores, intervals, interruptions and errors. */
#define _POSIX_C_SOURCE 200809L
#include "support/models.h"
#include "support/runs.h"

#include "ddl/backend.h"
#include "ddl/compare.h"
#include "ddl/tasks.h"
#include "train/run/resume.h"
#include "train/config/recipe_writer.h"
#include "train/config/train_config.h"

#include <math.h>

enum { STEPS = 20, EVERY = 8, DOCUMENTS = 5 };

static void write_tasks(void)
{
    static const char choices[] = "{\"context\": \"The\", \"choices\": [\"dog\", \"cat\"], \"gold\": 0}\n"
                                  "{\"context\": \"A\", \"choices\": [\"b\", \"cd\"], \"gold\": 1}\n"
                                  "{\"context\": \"one\", \"choices\": [\"two\", \"six\"], \"gold\": 0}\n";
    static const char words[] = "{\"context\": \"The\", \"target\": \"end\"}\n"
                                "{\"context\": \"It\", \"target\": \"is\"}\n";
    struct ddl_error err;
    assert_ok(ddl_file_replace(scratch_path("choices.jsonl"), choices, strlen(choices), &err), err);
    assert_ok(ddl_file_replace(scratch_path("words.jsonl"), words, strlen(words), &err), err);
}

/* A run on two tasks of 3 and 2 documents. */
static struct ddl_train_config a_run(const char *preset, const char *out)
{
    struct ddl_train_config t = tiny_run(preset, TINY_VOCAB, test_backend(0), out);
    struct ddl_error err;
    ddl_tokenizer *tokenizer = tiny_tokenizer();
    assert_ok(ddl_tokenizer_save(tokenizer, scratch_path("tokenizer.json"), &err), err);
    ddl_tokenizer_free(tokenizer);
    write_random_shard(scratch_path("train.bin"), 1, 200, 5000);
    write_tasks();
    snprintf(t.tokenizer, sizeof t.tokenizer, "%s", scratch_path("tokenizer.json"));
    snprintf(t.tasks, sizeof t.tasks, "%s,%s", scratch_path("choices.jsonl"), scratch_path("words.jsonl"));
    t.tasks_every = EVERY;
    t.log_every = 5;
    t.checkpoint_every = 4;
    return t;
}

static double score_of(const struct ddl_run_log *log, uint64_t step, const char *task)
{
    for (size_t i = 0; i < log->n_scores; i++) {
        if (log->scores[i].step == step && strcmp(log->scores[i].task, task) == 0)
            return log->scores[i].value;
    }
    return NAN;
}

/* Before the first step, every tasks_every steps and after the last; the scores are those of the saved
 * models, and the run itself does not change. */
static void scores_are_those_of_the_model(void **state)
{
    (void)state;
    static const char *const presets[] = { "baseline", "ddl-cc-ec" };
    for (size_t p = 0; p < 2; p++) {
        struct ddl_error err;
        struct ddl_run_log log;
        struct ddl_train_config t = a_run(presets[p], "with"), without = t;
        assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
        snprintf(without.out, sizeof without.out, "%s", scratch_path("without"));
        remove_scratch("without");
        without.tasks[0] = '\0';
        assert_ok(ddl_train_run(&without, NULL, NULL, &err), err);
        assert_same_file(file_in(t.out, "model.safetensors"), file_in(without.out, "model.safetensors"));

        assert_ok(ddl_run_log_read(&log, t.out, &err), err);
        static const uint64_t steps[] = { 0, 8, 16, STEPS };
        assert_int_equal(log.n_scores, 2 * 4);
        for (size_t i = 0; i < log.n_scores; i++) {
            assert_int_equal(log.scores[i].step, steps[i / 2]);
            assert_string_equal(log.scores[i].task, i % 2 ? "words" : "choices");
            assert_string_equal(log.scores[i].value_name, i % 2 ? "acc" : "acc_norm");
        }
        assert_ptr_equal(ddl_run_log_score(&log, "words"), &log.scores[7]);
        assert_null(ddl_run_log_score(&log, "piqa"));

        ddl_model *model;
        ddl_tokenizer *tokenizer;
        ddl_task *task;
        struct ddl_task_config config = ddl_task_defaults();
        struct ddl_task_score scores[2 * DOCUMENTS];
        ddl_backend *backend = open_test_backend(2);
        assert_ok(ddl_model_load(&model, file_in(t.out, "checkpoint-16"), backend, NULL, NULL, &err), err);
        assert_ok(ddl_tokenizer_load(&tokenizer, t.tokenizer, &err), err);
        assert_ok(ddl_task_load(&task, scratch_path("choices.jsonl"), &config, tokenizer, &err), err);
        assert_ok(ddl_task_score(task, model, NULL, NULL, scores, &err), err);
        struct ddl_task_result result = ddl_task_summarize(task, scores);
        double expected = ddl_task_main_value(&result)->value; /* thirds: nine digits are written */
        assert_true(fabs(score_of(&log, 16, "choices") - expected) <= 1e-9);
        ddl_task_free(task);
        ddl_tokenizer_free(tokenizer);
        ddl_model_free(model);
        ddl_backend_free(backend);

        assert_ok(ddl_run_log_truncate(&log, 15, t.out, &err), err);
        assert_int_equal(log.n_scores, 4);
        ddl_run_log_free(&log);
    }
}

/* Stops the run while the tasks are scored after a step. */
struct tasks_stop {
    uint64_t step, done, last, total;
};

static int stop_tasks(void *user, const struct ddl_train_progress *p, uint64_t done, uint64_t total)
{
    struct tasks_stop *s = user;
    s->last = done;
    s->total = total;
    return p->step == s->step && done >= s->done;
}

static void resumes_with_the_tasks(void **state)
{
    (void)state;
    static const uint64_t steps[] = { EVERY, STEPS };
    struct ddl_error err;
    struct ddl_train_config whole = a_run("ddl-tc", "whole");
    assert_ok(ddl_train_run(&whole, NULL, NULL, &err), err);
    for (size_t i = 0; i < 2; i++) {
        for (uint64_t done = 0; done <= DOCUMENTS; done++) {
            struct ddl_run_state reached;
            struct tasks_stop stop = { .step = steps[i], .done = done };
            const struct ddl_train_callbacks callbacks = { .user = &stop, .tasks = stop_tasks };
            struct ddl_train_config parts = whole;
            remove_scratch("parts");
            snprintf(parts.out, sizeof parts.out, "%s", scratch_path("parts"));
            assert_int_equal(ddl_train_run(&parts, &callbacks, NULL, &err), DDL_E_INTERRUPTED);
            assert_true(stop.last == done && stop.total == DOCUMENTS);
            assert_ok(
                ddl_run_read_state(file_in(parts.out, i ? "checkpoint-20" : "checkpoint-8"), &reached, &err),
                err);
            assert_true(reached.pending.validation);
            parts.resume = true;
            assert_ok(ddl_train_run(&parts, NULL, NULL, &err), err);
            assert_same_metrics(whole.out, parts.out);
            assert_same_checkpoint(whole.out, parts.out, "checkpoint-20");
        }
    }
}

static void stops_before_the_first_step(void **state)
{
    (void)state;
    struct ddl_error err;
    struct tasks_stop stop = { .step = 0, .done = 2 };
    const struct ddl_train_callbacks callbacks = { .user = &stop, .tasks = stop_tasks };
    struct ddl_train_config t = a_run("baseline", "before");
    assert_int_equal(ddl_train_run(&t, &callbacks, NULL, &err), DDL_E_INTERRUPTED);
    assert_says(&err, "stopped before the first step");
}

static void keep_first_note(void *user, const char *message)
{
    char *first = user;
    if (!*first)
        snprintf(first, 512, "%s", message);
}

/* Weights that are not finite: the tasks have no scores, and the loss of the first step ends the run. */
static void no_scores_of_a_corrupted_model(void **state)
{
    (void)state;
    struct ddl_error err;
    char note[512] = "";
    const struct ddl_train_callbacks callbacks = { .user = note, .note = keep_first_note };
    struct ddl_train_config t = a_run("baseline", "corrupted");
    ddl_backend *backend = open_test_backend(1);
    ddl_model *model = tiny_model("baseline", TINY_VOCAB, 3, backend);
    change_param(model, param_row(model, "transformer.h.0.mlp.c_fc1.weight"), 40, 41, 0, NAN);
    remove_scratch("nan");
    assert_ok(ddl_file_make_dir(scratch_path("nan"), &err), err);
    assert_ok(ddl_model_save(model, scratch_path("nan"), &err), err);
    ddl_model_free(model);
    ddl_backend_free(backend);
    snprintf(t.init_from, sizeof t.init_from, "%s", scratch_path("nan"));
    assert_int_equal(ddl_train_run(&t, &callbacks, NULL, &err), DDL_E_NUMERIC);
    assert_says(&err, "step 1: the loss of micro-batch 1 of ");
    assert_non_null(strstr(note, "step 0: no task scores: task choices: document "));
}

static void intervals(void **state)
{
    (void)state;
    struct ddl_train_config t = a_run("baseline", "never"), r;
    t.tasks_every = DDL_OPTION_AUTO;
    r = ddl_train_resolved(&t);
    assert_int_equal(r.tasks_every, 2);
    t.steps = 1000000;
    r = ddl_train_resolved(&t);
    assert_int_equal(r.tasks_every, 1000);
    t.tasks_every = 0;
    t.steps = 2;
    t.warmup = 0;
    struct ddl_error err;
    struct ddl_run_log log;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    assert_ok(ddl_run_log_read(&log, t.out, &err), err);
    assert_int_equal(log.n_scores, 0);
    ddl_run_log_free(&log);
}

/* Reported before anything is written. */
static void errors(void **state)
{
    (void)state;
    struct ddl_train_config base = a_run("baseline", "none"), t;
    struct ddl_error err;
    static const char wide[] =
        "{\"context\": \"x\", \"target\": \"a b c d e f g h i j k l m n o p q r s\"}\n";
    assert_ok(ddl_file_replace(scratch_path("wide.jsonl"), wide, strlen(wide), &err), err);
#define REFUSED(change, status, gist) ASSERT_REFUSED(t, base, change, status, gist)
    REFUSED(t.tokenizer[0] = '\0', DDL_E_USAGE, "tasks are set, but no tokenizer is set");
    REFUSED(strcpy(t.tasks, "arc_medium"), DDL_E_USAGE, "arc_medium");
    REFUSED(strcpy(t.tasks, ","), DDL_E_USAGE, "expected at least one task");
    REFUSED(strcpy(t.tasks, "piqa"), DDL_E_USAGE, "tasks_data");
    REFUSED((strcpy(t.tasks, "piqa"), strcpy(t.tasks_data, "/nowhere")), DDL_E_IO, "piqa/valid.jsonl");
    REFUSED(strcpy(t.tasks, scratch_path("absent.jsonl")), DDL_E_IO, "absent.jsonl");
    REFUSED(strcpy(t.tasks, scratch_path("wide.jsonl")), DDL_E_FORMAT, "continuation too long");
    REFUSED(t.tasks_shots = 3, DDL_E_USAGE, "choices");
#undef REFUSED
}

/* Paths of own files are stored relative to the run's folder; names of tasks are kept. */
static void paths_are_stored(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run("baseline", "paths"), stored;
    int n = 0;
    char *argv[] = { "train" };
    remove_scratch("paths");
    assert_ok(ddl_file_make_dir(scratch_path("paths"), &err), err);
    strcpy(t.tasks, "piqa,own/words.jsonl,all");
    strcpy(t.tasks_data, "own");
    assert_ok(ddl_train_save_recipe(&t, scratch_path("paths/recipe.yaml"), &err), err);
    char *recipe;
    size_t size;
    assert_ok(ddl_file_read(scratch_path("paths/recipe.yaml"), 1 << 20, &recipe, &size, &err), err);
    assert_non_null(strstr(recipe, "tasks: \"piqa,../"));
    assert_non_null(strstr(recipe, "own/words.jsonl,all\""));
    free(recipe);
    assert_ok(ddl_train_configure(&stored, scratch_path("paths/recipe.yaml"), 1, argv, NULL, NULL, &n, &err),
              err);
    assert_string_equal(stored.tasks, t.tasks);
    assert_string_equal(stored.tasks_data, t.tasks_data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_those_of_the_model),
        cmocka_unit_test(resumes_with_the_tasks),
        cmocka_unit_test(stops_before_the_first_step),
        cmocka_unit_test(no_scores_of_a_corrupted_model),
        cmocka_unit_test(intervals),
        cmocka_unit_test(errors),
        cmocka_unit_test(paths_are_stored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
