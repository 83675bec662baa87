/* A run that is stopped while it checks its data or validates; its times; what it says before the first step;
 * a dry run. */
#define _POSIX_C_SOURCE 200809L
#include "support/runs.h"

#include "checkpoint/checkpoint.h"
#include "model/files/sums.h"
#include "train/run/resume.h"

#include <math.h>
#include <time.h>

enum { V = 31, STEPS = 20, VAL_EVERY = 7 };

static struct ddl_train_config a_run(const char *preset, const char *out)
{
    struct ddl_train_config t = tiny_run(preset, V, test_backend(0), out);
    write_random_shard(scratch_path("train.bin"), 1, V, 5000);
    write_random_shard(scratch_path("val.bin"), 2, V, 700);
    snprintf(t.val_data, sizeof t.val_data, "%s", scratch_path("val.bin"));
    t.warmup = 5;
    t.val_every = VAL_EVERY;
    t.val_tokens = 300;
    t.checkpoint_every = VAL_EVERY;
    return t;
}

/* Stopped at each batch of the first validation and of that after the last step; with a step that is logged,
 * or not, by log_every. */
static void resumes_with_the_validation(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        uint64_t log_every, checkpoint_every, val_every;
    } cases[] = { { "baseline", 1, 7, 7 }, { "ddl-cc-ec", 3, 7, 7 }, { "ddl-tc", 1, 5, 1 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_error err;
        struct ddl_train_config whole = a_run(cases[i].preset, "whole");
        whole.log_every = cases[i].log_every;
        whole.checkpoint_every = cases[i].checkpoint_every;
        whole.val_every = cases[i].val_every;
        const uint64_t steps[] = { cases[i].val_every, STEPS };
        assert_ok(ddl_train_run(&whole, NULL, NULL, &err), err);
        for (size_t at = 0; at < 2; at++) {
            for (uint64_t done = 0; done < 300; done += 96) {
                char name[64];
                struct ddl_run_state reached;
                struct validation_stop stop = { .step = steps[at], .done = done };
                const struct ddl_train_callbacks callbacks = { .user = &stop, .validation = stop_validation };
                struct ddl_train_config parts = whole;
                remove_scratch("parts");
                snprintf(parts.out, sizeof parts.out, "%s", scratch_path("parts"));
                assert_int_equal(ddl_train_run(&parts, &callbacks, NULL, &err), DDL_E_INTERRUPTED);
                assert_int_equal(stop.last, done);
                snprintf(name, sizeof name, "checkpoint-%llu", (unsigned long long)steps[at]);
                assert_says(&err, name);
                assert_ok(ddl_run_read_state(file_in(parts.out, name), &reached, &err), err);
                assert_true(reached.pending.validation && !reached.has_val && reached.logged < steps[at]);
                parts.resume = true;
                assert_ok(ddl_train_run(&parts, NULL, NULL, &err), err);
                assert_same_metrics(whole.out, parts.out);
                assert_same_file(file_in(whole.out, "model.safetensors"),
                                 file_in(parts.out, "model.safetensors"));
                assert_same_checkpoint(whole.out, parts.out, "checkpoint-20");
                assert_ok(ddl_run_read_state(file_in(parts.out, "checkpoint-20"), &reached, &err), err);
                assert_true(!reached.pending.validation && reached.has_val && reached.step == STEPS);
            }
        }
    }
}

/* A stop during the repeated validation leaves the same state; a validation that is no longer wanted is not
 * repeated, and the step is logged. */
static void a_pending_validation_stays(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_run_state reached;
    struct validation_stop stop = { .step = VAL_EVERY, .done = 64 };
    const struct ddl_train_callbacks callbacks = { .user = &stop, .validation = stop_validation };
    struct ddl_train_config t = a_run("baseline", "pending");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ddl_train_run(&t, &callbacks, NULL, &err), DDL_E_INTERRUPTED);
        assert_ok(ddl_run_read_state(file_in(t.out, "checkpoint-7"), &reached, &err), err);
        assert_true(reached.pending.validation && reached.step == VAL_EVERY &&
                    reached.logged == VAL_EVERY - 1);
        t.resume = true;
    }
    t.val_every = 0;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    char *lines = repeatable_metrics(t.out);
    assert_non_null(strstr(lines, "{\"step\":6,"));
    assert_non_null(strstr(lines, "\n{\"step\":7,"));
    assert_null(strstr(strstr(lines, "\n{\"step\":1,"), "val_loss"));
    free(lines);
}

/* The polls within a batch come from inside of the pass: many more than there are batches. */
static void polls_within_a_batch(void **state)
{
    (void)state;
    struct ddl_error err;
    struct validation_stop stop = { .step = UINT64_MAX }; /* never */
    const struct ddl_train_callbacks callbacks = { .user = &stop, .validation = stop_validation };
    struct ddl_train_config t = a_run("ddl-tc-ec", "polls");
    t.steps = t.warmup = 1;
    assert_ok(ddl_train_run(&t, &callbacks, NULL, &err), err);
    size_t batches = (300 + 31) / 32;
    assert_int_equal(stop.total, (300 + 15) / 16 * 16);
    assert_true(stop.calls > 3 * 2 * batches); /* at least once for each of the sublayers */
}

static int stop_check(void *user, uint64_t done, uint64_t total)
{
    uint64_t *seen = user;
    assert_true(done <= total);
    seen[0] = done;
    seen[1] = total;
    return 1;
}

static void stops_while_checking(void **state)
{
    (void)state;
    struct ddl_error err;
    uint64_t seen[2];
    const struct ddl_train_callbacks callbacks = { .user = seen, .check = stop_check };
    struct ddl_train_config t = a_run("baseline", "unchecked");
    write_random_shard(scratch_path("train.bin"), 1, V, 10000000);
    assert_int_equal(ddl_train_run(&t, &callbacks, NULL, &err), DDL_E_INTERRUPTED);
    assert_says(&err, "train_data: ");
    assert_says(&err, "interrupted after checking");
    assert_true(seen[0] < seen[1] && seen[1] == 10000000);
    assert_false(ddl_file_exists(t.out));
}

/* ---- times ---- */

static int slow_validation(void *user, const struct ddl_train_progress *p, uint64_t done, uint64_t total)
{
    (void)user, (void)p, (void)done, (void)total;
    nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    return 0;
}

/* A validation, a checkpoint and a sample count for the wall time and not for the training time. */
static void wall_time_includes_all(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_progress last, resumed;
    const struct ddl_train_callbacks callbacks = { .validation = slow_validation };
    struct ddl_train_config t = a_run("baseline", "times");
    t.val_every = 1;
    t.steps = t.warmup = 4;
    t.checkpoint_every = 2;
    assert_ok(ddl_train_run(&t, &callbacks, &last, &err), err);
    assert_true(last.seconds - last.train_seconds > 4 * 10 * 3 * 1e-3); /* validations, batches, layers */
    assert_true(last.train_seconds > 0 && last.seconds_left == 0);
    t.resume = true;
    t.steps = 6;
    assert_ok(ddl_train_run(&t, NULL, &resumed, &err), err);
    struct ddl_run_state saved;
    assert_ok(ddl_run_read_state(file_in(t.out, "checkpoint-4"), &saved, &err), err);
    assert_true(resumed.seconds > saved.seconds && resumed.train_seconds > last.train_seconds);
    char *text = read_file(file_in(t.out, "metrics.jsonl"), NULL);
    double wall = 0, training = 0;
    for (char *at = text; (at = strstr(at, "\"seconds\":")); at++) {
        double seconds = 0, steps = 0;
        assert_int_equal(sscanf(at, "\"seconds\":%lf,\"train_seconds\":%lf", &seconds, &steps), 2);
        assert_true(seconds > wall && steps >= training && steps < seconds);
        wall = seconds;
        training = steps;
    }
    assert_true(wall > 0);
    free(text);
}

/* state.json of an earlier version has one time, of the steps. */
static void reads_earlier_states(void **state)
{
    (void)state;
    struct ddl_error err;
    json_t *root;
    struct ddl_run_state at;
    struct ddl_train_config t = a_run("baseline", "earlier");
    t.steps = t.warmup = t.checkpoint_every = 2;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    const char *folder = file_in(t.out, "checkpoint-2");
    assert_ok(ddl_checkpoint_read_state(folder, &root, &err), err);
    assert_true(json_real_value(json_object_get(root, "train_seconds")) > 0);
    assert_null(json_object_get(root, "pending"));
    json_object_del(root, "train_seconds");
    json_object_del(root, "crc32");
    char *text = ddl_sums_seal(root);
    assert_non_null(text);
    write_file(file_in(folder, "state.json"), text, strlen(text));
    free(text);
    json_decref(root);
    assert_ok(ddl_run_read_state(folder, &at, &err), err);
    assert_true(at.seconds > 0 && at.train_seconds == at.seconds && !at.pending.validation);
}

/* ---- before the first step ---- */

struct seen {
    struct ddl_train_summary summary;
    int begins;
    uint64_t steps; /* reported since */
};

static void see_begin(void *user, const struct ddl_train_summary *summary)
{
    struct seen *seen = user;
    seen->summary = *summary;
    seen->begins++;
    assert_int_equal(seen->steps, 0);
}

static void see_progress(void *user, const struct ddl_train_progress *p)
{
    struct seen *seen = user;
    seen->steps++;
    assert_true(p->step <= p->steps && p->seconds >= p->train_seconds && p->seconds_left >= 0);
}

static void a_run_is_summarized(void **state)
{
    (void)state;
    struct ddl_error err;
    struct seen seen = { 0 }, resumed = { 0 };
    struct ddl_train_callbacks callbacks = { .user = &seen, .begin = see_begin, .progress = see_progress };
    struct ddl_train_config t = a_run("ddl-cc", "begin");
    t.log_every = 5; /* progress is reported after every step all the same */
    assert_ok(ddl_train_run(&t, &callbacks, NULL, &err), err);
    assert_int_equal(seen.begins, 1);
    assert_int_equal(seen.steps, 1 + STEPS); /* step 0 too */
    const struct ddl_train_summary *s = &seen.summary;
    assert_string_equal(s->model, "ddl-cc");
    assert_non_null(strstr(s->backend, "cpu ("));
    assert_non_null(strstr(s->backend, "2 threads"));
    assert_true(s->train_tokens == 5000 && s->val_tokens == 700 && s->step == 0);
    assert_true(s->epochs == 20.0 * 2 * 16 / 5000 && s->plan.bytes_total > s->plan.bytes_params);
    callbacks.user = &resumed;
    t.resume = true;
    t.steps = 22;
    assert_ok(ddl_train_run(&t, &callbacks, NULL, &err), err);
    assert_true(resumed.summary.step == STEPS && resumed.summary.train_seconds > 0 && resumed.steps == 2);
}

static void a_dry_run_writes_nothing(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_preview preview;
    struct ddl_train_config t = a_run("ddl-tc", "dry");
    t.steps = 1000;
    assert_ok(ddl_train_dry_run(&t, NULL, &preview, &err), err);
    assert_true(preview.seconds > 0 && isfinite(preview.seconds));
    assert_true(preview.measured_tokens == 2 * 16 && preview.measured_layers == 3);
    assert_true(preview.summary.train_tokens == 5000 && preview.summary.plan.params_total > 0);
    assert_null(preview.not_measured);
    assert_false(ddl_file_exists(t.out));
    /* without data, or folder, what can be known is known */
    t.train_data[0] = t.out[0] = '\0';
    assert_ok(ddl_train_dry_run(&t, NULL, &preview, &err), err);
    assert_true(isnan(preview.seconds) && preview.measured_tokens == 0);
    assert_string_equal(preview.not_measured, "train_data is not set");
    assert_non_null(strstr(preview.summary.backend, "cpu ("));
}

/* What a run refuses a dry run refuses, after its plan. */
static void a_dry_run_checks_its_inputs(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_preview preview;
    struct ddl_train_config t = a_run("baseline", "wrong");
    struct ddl_train_config other = t;
    other.config.vocab_size = V - 1;
    assert_int_equal(ddl_train_dry_run(&other, NULL, &preview, &err), DDL_E_FORMAT);
    assert_says(&err, "train_data: ");
    assert_says(&err, "exceeds the vocabulary of 30 tokens");
    assert_true(preview.summary.plan.params_total > 0 && isnan(preview.seconds));
    other = t;
    snprintf(other.tokenizer, sizeof other.tokenizer, "%s", tiny_folder("tok", "baseline"));
    assert_int_equal(ddl_train_dry_run(&other, NULL, &preview, &err), DDL_E_FORMAT);
    assert_says(&err, "vocab_size");
    other = t;
    snprintf(other.val_data, sizeof other.val_data, "%s", scratch_path("nowhere"));
    assert_int_equal(ddl_train_dry_run(&other, NULL, &preview, &err), DDL_E_IO);
    assert_says(&err, "val_data: ");
    other = a_run("ddl-cc", "wrong");
    snprintf(other.init_from, sizeof other.init_from, "%s", tiny_folder("source", "ddl-cc"));
    other.config.vocab_size = TINY_VOCAB;
    assert_ok(ddl_train_dry_run(&other, NULL, &preview, &err), err);
    other.config.n_layers--;
    assert_int_equal(ddl_train_dry_run(&other, NULL, &preview, &err), DDL_E_FORMAT);
    assert_says(&err, " are not parameters of this model");
    assert_int_equal(ddl_train_check_inputs(&other, NULL, &err), DDL_E_FORMAT);
}

/* A model that is too large to be set up quickly is measured with fewer layers. */
static void a_dry_run_limits_the_layers(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_preview preview;
    struct ddl_train_config t = a_run("baseline", "large");
    t.config.d_model = 512;
    t.config.head_dim = 64;
    t.config.n_heads = 8;
    t.config.n_layers = 40;
    assert_ok(ddl_train_dry_run(&t, NULL, &preview, &err), err);
    assert_true(preview.measured_layers < 40 && preview.measured_layers >= 10);
    assert_true(preview.seconds > 0 && isfinite(preview.seconds));
    t.config.f_norm = t.config.by_layer = true; /* used by the last layer only */
    memset(t.config.residual_by_layer, DDL_RESIDUAL_DELTA, 39);
    assert_ok(ddl_train_dry_run(&t, NULL, &preview, &err), err);
    assert_true(preview.measured_layers < 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumes_with_the_validation), cmocka_unit_test(a_pending_validation_stays),
        cmocka_unit_test(polls_within_a_batch),        cmocka_unit_test(stops_while_checking),
        cmocka_unit_test(wall_time_includes_all),      cmocka_unit_test(reads_earlier_states),
        cmocka_unit_test(a_run_is_summarized),         cmocka_unit_test(a_dry_run_writes_nothing),
        cmocka_unit_test(a_dry_run_checks_its_inputs), cmocka_unit_test(a_dry_run_limits_the_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
