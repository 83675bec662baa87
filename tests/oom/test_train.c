/* Training with every request for memory failing in turn: a run from nothing, and one that is resumed; each
 * with validation, a sample, checkpoints, the model in the end. */
#include "oom/allocator.h"
#include "oom/sweep.h"
#include "support/runs.h"

#include "ddl/train.h"
#include "checkpoint/checkpoint.h"
#include "train/run/resume.h"

static struct ddl_train_config run_config(const char *out)
{
    struct ddl_train_config t = ddl_train_defaults();
    snprintf(t.model, sizeof t.model, "ddl-cc-ec");
    snprintf(t.backend, sizeof t.backend, "cpu");
    snprintf(t.train_data, sizeof t.train_data, "%s", scratch_path("train.bin"));
    snprintf(t.val_data, sizeof t.val_data, "%s", scratch_path("val.bin"));
    snprintf(t.tokenizer, sizeof t.tokenizer, "%s", scratch_path("tokenizer"));
    snprintf(t.out, sizeof t.out, "%s", scratch_path(out));
    t.config = tiny_config("ddl-cc-ec", TINY_VOCAB);
    t.config.n_layers = 1;
    t.steps = 2;
    t.batch = 2;
    t.accumulate = 2;
    t.seq = 8;
    t.warmup = 1;
    t.seed = 11;
    t.val_every = 1;
    t.val_tokens = 16;
    t.sample_every = 2;
    t.sample_tokens = 3;
    t.checkpoint_every = 1;
    t.keep_last = 0;
    t.threads = 2;
    return t;
}

static double loss; /* of the last run */

/* Samples of the present run. One that fails is reported, and the run goes on. */
static struct {
    uint64_t digest; /* of the last one that was made */
    int made, failed, failed_ever;
} samples;

static void keep_sample(void *user, uint64_t step, const char *prompt, const char *text, size_t size)
{
    (void)user, (void)prompt;
    samples.digest = digest_add(step, text, size);
    samples.made++;
}

static void count_failed(void *user, const char *message)
{
    (void)user;
    samples.failed += strncmp(message, "step 2: no sample of text: ", 27) == 0;
}

static ddl_status train(void *user, uint64_t *digest, struct ddl_error *err)
{
    struct ddl_train_callbacks callbacks = { .sample = keep_sample, .note = count_failed };
    struct ddl_train_progress last = { 0 };
    samples.made = samples.failed = 0;
    ddl_status status = ddl_train_run(user, &callbacks, &last, err);
    loss = last.val_loss;
    if (!status) {
        const struct ddl_train_config *t = user;
        assert_int_equal(samples.made + samples.failed, t->sample_every ? 1 : 0);
        samples.failed_ever += samples.failed;
        *digest = t->sample_every ? samples.digest : 0;
        const double figures[] = { last.loss, last.val_loss, last.grad_norm, (double)last.tokens };
        *digest = digest_add(*digest, figures, sizeof figures);
    }
    return status;
}

/* Every checkpoint that bears its name is whole. */
static void checkpoints_load(void *user)
{
    const struct ddl_train_config *t = user;
    struct ddl_error err;
    uint64_t step = UINT64_MAX;
    char path[4096];
    while (ddl_checkpoint_newest(t->out, step, &step, path, sizeof path)) {
        struct ddl_run_state state;
        struct ddl_train_config copy = *t;
        assert_ok(ddl_run_open(path, &copy, &state, NULL, NULL, &err), err);
        assert_int_equal(state.step, step);
    }
}

static long tokenizer_requests; /* of loading and identifying it */

static void from_nothing(void **state)
{
    (void)state;
    struct ddl_train_config t = run_config("fresh");
    struct sweep plain = { .name = "train",
                           .run = train,
                           .user = &t,
                           .folder = t.out,
                           .figure = &loss,
                           .all = 400,
                           .check = checkpoints_load };
    *t.tokenizer = 0;
    t.sample_every = 0;
    sweep(&plain);
    t = run_config("fresh");
    t.val_every = t.checkpoint_every = 0;
    plain.name = "train with samples";
    plain.first = tokenizer_requests;
    sweep(&plain);
    /* of few requests none may fall into the sampling of text */
    assert_true(samples.failed_ever > 0 || test_sample());
}

static int stop_at_once(void *user)
{
    (void)user;
    return 1;
}

/* The checkpoint of step 1 stays until that of step 2 is whole. */
static void resumed(void **state)
{
    (void)state;
    char stopped[4096];
    struct ddl_error err;
    remove_scratch("stopped");
    struct ddl_train_config t = run_config("stopped");
    snprintf(stopped, sizeof stopped, "%s", t.out);
    struct ddl_train_callbacks callbacks = { .stop = stop_at_once };
    assert_int_equal(ddl_train_run(&t, &callbacks, NULL, &err), DDL_E_INTERRUPTED);
    t = run_config("resumed");
    t.resume = true;
    t.keep_last = 1;
    *t.tokenizer = 0;
    t.sample_every = 0;
    sweep(&(struct sweep){ .name = "train --resume",
                           .run = train,
                           .user = &t,
                           .folder = t.out,
                           .source = stopped,
                           .figure = &loss,
                           .all = 400,
                           .check = checkpoints_load });
}

/* How many requests ddl_tokenizer_identify makes. */
static long identify_tokenizer(void)
{
    struct ddl_error err;
    struct ddl_tokenizer_identity identity;
    ddl_tokenizer *tokenizer;
    assert_ok(ddl_tokenizer_load(&tokenizer, scratch_path("tokenizer"), &err), err);
    faults_arm(FAULT_NEVER, false);
    assert_ok(ddl_tokenizer_identify(tokenizer, "", &identity, &err), err);
    long requests = faults_requests();
    faults_disarm();
    ddl_tokenizer_free(tokenizer);
    return requests;
}

static int set_up(void **state)
{
    (void)state;
    write_random_shard(scratch_path("train.bin"), 1, TINY_VOCAB, 500);
    write_random_shard(scratch_path("val.bin"), 2, TINY_VOCAB, 100);
    tokenizer_requests = make_tokenizer() + identify_tokenizer();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(from_nothing), cmocka_unit_test(resumed) };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
