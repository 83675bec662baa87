/* train/run/trainer_nonfinite.c, and what a run keeps after non-finite values or spikes: the error message
 * has the step, and the run resumes from the state before it. */
#include "support/models.h"
#include "support/runs.h"
#include "support/thread_comm.h"

#include "ddl/train.h"
#include "train/nonfinite/nonfinite.h"
#include "train/run/resume.h"
#include "train/config/train_config.h"
#include "train/run/trainer.h"
#include "model/files/sums.h"

#include <jansson.h>
#include <math.h>

enum { V = 31, RARE = V - 1 };

static struct ddl_train_config a_run(const char *start, const char *backend, const char *out)
{
    struct ddl_train_config t = tiny_run(start ? "ddl-cc-ec" : "baseline", V, backend, out);
    write_random_shard(scratch_path("train.bin"), 1, RARE, 5000);
    if (start)
        snprintf(t.init_from, sizeof t.init_from, "%s", start);
    t.accumulate = 3;
    t.warmup = 0;
    t.lr = 1e-3;
    t.order = DDL_ORDER_SEQUENTIAL;
    return t;
}

/* Tokens from `start` on become `id`, every third one. */
static void put_token(const char *path, size_t start, size_t n, int id)
{
    size_t size;
    char *bytes = read_file(path, &size);
    for (size_t i = start; i < start + n; i += 3)
        bytes[1024 + 2 * i] = (char)id;
    assert_int_equal(remove(path), 0);
    write_file(path, bytes, size);
    free(bytes);
}

static const char *folder_of(ddl_model *model, const char *name)
{
    struct ddl_error err;
    const char *folder = scratch_path(name);
    assert_ok(ddl_file_make_dir(folder, &err), err);
    assert_ok(ddl_model_save(model, folder, &err), err);
    return folder;
}

/* A model that is finite for every token but RARE. Feature 0 of the embeddings is zero but for that token's,
 * the convolution multiplies it beyond the largest float, and the head does not read it. */
static const char *brittle_folder(void)
{
    struct ddl_error err;
    struct ddl_config config = tiny_config("ddl-cc-ec", V);
    size_t d = config.d_model;
    ddl_backend *backend;
    assert_ok(ddl_backend_create(&backend, "ref", 1, &err), err);
    ddl_model *model = tiny_model("ddl-cc-ec", V, 3, backend);
    size_t wte = param_row(model, "transformer.wte.weight"),
           conv = param_row(model, "input_embed.conv.weight");
    for (size_t id = 0; id < V; id++)
        change_param(model, wte, id * d, id * d + 1, 0, id == RARE ? 1e4f : 0);
    change_param(model, conv, 0, config.channels * config.embed_kernel, 0, 1e35f);
    change_param(model, param_row(model, "ln_f.weight"), 0, 1, 0, 0);
    const char *folder = folder_of(model, "brittle");
    ddl_model_free(model);
    ddl_backend_free(backend);
    return folder;
}

static bool exists(const char *folder, const char *name)
{
    return ddl_file_exists(file_in(folder, name));
}

static void names_the_micro_batch(void **state)
{
    (void)state;
    for (size_t i = 0; test_backend(i); i++) {
        struct ddl_error err;
        struct ddl_train_config t = a_run(brittle_folder(), test_backend(i), "second");
        t.lr = 0;
        t.telemetry_every = 0;
        put_token(t.train_data, (6 * 3 + 2) * 16 + 1, 30, RARE); /* step 4, micro-batch 2 of its 3 */
        put_token(t.train_data, (6 * 4 + 2) * 16 + 1, 30, RARE); /* and the batch after it */
        assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
        assert_says(&err,
                    "step 4: the loss of micro-batch 2 of 3 is not finite: first in embed: X, sequence ");
        assert_says(&err, "trouble-4, 'ddl verify' replays it");
        assert_says(&err, "checkpoint-3, the state before it: --resume --skip 1 skips its data");
        assert_null(strstr(err.text, "was not finite before"));
        assert_true(exists(t.out, "trouble-4/trouble.json") && exists(t.out, "trouble-4/recipe.yaml"));
        assert_true(exists(t.out, "checkpoint-3/state.json"));
        /* Again, it ends at the same place; past the data it goes on, and no step is missing. */
        struct ddl_error again;
        t.resume = true;
        assert_int_equal(ddl_train_run(&t, NULL, NULL, &again), DDL_E_NUMERIC);
        assert_string_equal(err.text, again.text);
        t.skip = 1; /* each time one batch */
        assert_int_equal(ddl_train_run(&t, NULL, NULL, &again), DDL_E_NUMERIC);
        assert_says(&again, "step 4: the loss of micro-batch 2 of 3 is not finite");
        assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
        char *lines = read_file(scratch_path("second/metrics.jsonl"), NULL), *at = lines;
        for (int step = 0; step <= 20; step++) {
            char start[32];
            snprintf(start, sizeof start, "{\"step\":%d,", step);
            assert_memory_equal(at, start, strlen(start));
            at = strchr(at, '\n') + 1;
        }
        assert_int_equal(*at, '\0');
        free(lines);
        t.resume = false;
        assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_USAGE);
        assert_says(&err, "skip: only a resumed run skips data");
    }
}

/* Also before the first step: the position of checkpoint-0 is that of the data which is left. */
static void skips_from_the_start(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run(brittle_folder(), "ref", "from-0");
    t.lr = 0;
    t.telemetry_every = 0;
    put_token(t.train_data, 1, 6 * 3 * 16, RARE); /* the first three batches */
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
    t.resume = true;
    t.skip = 1;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
        assert_says(&err, "checkpoint-0, the state before it: --resume --skip 1 skips its data");
    }
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
}

/* ---- several ranks ---- */

enum { RANKS = 3 };

struct ranked_run {
    struct ddl_train_config config;
    ddl_status status[RANKS];
    struct ddl_error err[RANKS];
};

static void train_rank(ddl_comm *comm, void *user)
{
    struct ranked_run *run = user;
    size_t rank = ddl_comm_rank(comm);
    struct ddl_train_config t = run->config;
    t.comm = comm;
    run->status[rank] = ddl_train_run(&t, NULL, NULL, &run->err[rank]);
}

/* All ranks end with the message of rank 0. */
static const char *ends_not_finite(struct ranked_run *run)
{
    thread_comm_run(RANKS, train_rank, run);
    for (size_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(run->status[rank], DDL_E_NUMERIC);
        assert_string_equal(run->err[rank].text, run->err[0].text);
    }
    return run->err[0].text;
}

/* One rank reads a token for which the model is not finite, in training or in validation. Rank 0 writes the
 * dump with its data; the run continues past it. */
static void names_the_rank(void **state)
{
    (void)state;
    for (size_t bad = 0; bad < RANKS; bad++) {
        struct ddl_error err;
        struct ddl_nonfinite_record record;
        struct ranked_run run = { .config = a_run(brittle_folder(), test_backend(0), "rank") };
        struct ddl_train_config *t = &run.config;
        char rank[64];
        t->lr = 0;
        t->telemetry_every = 0;
        t->global_batch = 3 * RANKS; /* three sequences for each rank: micro-batches of two and one */
        put_token(t->train_data, (size_t)(3 * 9 + 3 * bad + 2) * 16 + 1, 14, RARE);
        (void)ends_not_finite(&run);
        snprintf(rank, sizeof rank, "step 4: rank %zu of 3 (host host%zu): ", bad, bad);
        assert_says(&run.err[0], rank);
        snprintf(rank, sizeof rank, "on rank %zu, first in embed: X, sequence 0, ", bad);
        assert_says(&run.err[0], rank);
        assert_says(&run.err[0], "the loss of micro-batch 2 of 2 is not finite");
        assert_says(&run.err[0], "checkpoint-3, the state before it");
        assert_ok(ddl_nonfinite_read(&record, file_in(t->out, "trouble-4"), &err), err);
        assert_true(record.nonfinite.finding.found);
        assert_true(record.nonfinite.rank == bad && record.nonfinite.ranks == RANKS);
        t->resume = true;
        t->skip = 1;
        thread_comm_run(RANKS, train_rank, &run);
        assert_ok(run.status[RANKS - 1], run.err[RANKS - 1]);
    }
}

static void names_the_rank_of_a_validation(void **state)
{
    (void)state;
    struct ranked_run run = { .config = a_run(brittle_folder(), test_backend(0), "val-rank") };
    struct ddl_train_config *t = &run.config;
    write_random_shard(scratch_path("val.bin"), 2, RARE, 16 * 12 + 1);
    put_token(scratch_path("val.bin"), 16 * 7 + 1, 14, RARE); /* batch 4 of 6: rank 0 of the second round */
    snprintf(t->val_data, sizeof t->val_data, "%s", scratch_path("val.bin"));
    t->val_every = 5;
    t->val_tokens = 16 * 12;
    t->global_batch = 2 * RANKS;
    t->lr = 0;
    (void)ends_not_finite(&run);
    assert_says(&run.err[0], "the validation loss is not finite: on rank 0, first in embed: X");
}

/* The replay needs what the step needed; where it fails for another reason, here the size of a workspace,
 * dump and checkpoint are written all the same. */
static void the_replay_fails(void **state)
{
    (void)state;
    static const struct ddl_workspace_options too_small = { .batch = 1, .tokens = 2, .train = true };
    for (size_t failed = 1; failed <= 3; failed += 2) { /* a loss; the gradient, of all three */
        struct ddl_error err;
        ddl_workspace *small;
        struct ddl_nonfinite_record record;
        struct ddl_train_config t = a_run(NULL, "ref", "replay");
        t = ddl_train_resolved(&t);
        struct run *run = trainer_new(&t, NULL);
        assert_ok(trainer_open(run, &err), err);
        ddl_loader_next(&run->loader, t.accumulate * t.batch, run->tokens, run->targets);
        assert_ok(ddl_workspace_create(&small, run->model, &too_small, &err), err);
        run->step.ws = small;
        const struct ddl_step_result result = { .loss = (double)NAN, .failed = failed };
        ddl_error_set(&err, DDL_E_NUMERIC, "not finite");
        assert_int_equal(trainer_nonfinite_step(run, &result, &err), DDL_E_NUMERIC);
        assert_says(&err, "step 1: not finite: it could not be replayed: a batch of ");
        assert_says(&err, "replay/trouble-1, 'ddl verify' replays it");
        assert_says(&err, "replay/checkpoint-0, the state before it");
        assert_true(exists(t.out, "trouble-1/batch.safetensors") && exists(t.out, "checkpoint-0/state.json"));
        assert_ok(ddl_nonfinite_read(&record, file_in(t.out, "trouble-1"), &err), err);
        assert_int_equal(record.nonfinite.micro_batch, failed == 1 ? 2 : 3);
        assert_false(record.nonfinite.finding.found);
        assert_non_null(strstr(record.nonfinite.replay_error.text, "a batch of "));
        ddl_workspace_free(small);
        trainer_free(run);
    }
}

/* What a run says of spikes. */
struct reported {
    size_t skipped, shifted;
};

static void listen(void *user, const char *message)
{
    struct reported *reported = user;
    reported->skipped +=
        strstr(message, "deviations above the mean") && strstr(message, ": skipped (") ? 1 : 0;
    reported->shifted += strstr(message, "has shifted from") ? 1 : 0;
}

/* Lines of metrics.jsonl that say so. */
static size_t skips_reported(const char *out)
{
    size_t n = 0;
    char *lines = read_file(file_in(out, "metrics.jsonl"), NULL);
    for (const char *at = lines; (at = strstr(at, ",\"skipped\":true")); at++)
        n++;
    free(lines);
    return n;
}

/* The last line of metrics.jsonl is of the step that the validation followed, without a loss that is none. */
static void names_a_validation(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run(brittle_folder(), test_backend(0), "validation");
    write_random_shard(scratch_path("val.bin"), 2, RARE, 700);
    put_token(scratch_path("val.bin"), 300, 30, RARE);
    snprintf(t.val_data, sizeof t.val_data, "%s", scratch_path("val.bin"));
    t.lr = 0;
    t.val_every = 2;
    t.val_tokens = 700;
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
    assert_says(&err, "step 0: the validation loss is not finite: first in embed: X");
    assert_says(&err, "trouble-0, 'ddl verify' replays it");
    assert_says(&err, "checkpoint-0, the state that was validated");
    t.val_every = 0;
    t.overwrite = true;
    assert_int_equal(run_until(&t, 1, NULL, &err), DDL_E_INTERRUPTED);
    t.val_every = 2;
    t.overwrite = false;
    t.resume = true;
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
    assert_says(&err, "step 2: the validation loss is not finite: first in embed: X");
    assert_says(&err, "trouble-2, 'ddl verify' replays it");
    assert_says(&err, "checkpoint-2, the state that was validated");
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC); /* it validates again */
    assert_says(&err, "step 2: the validation loss is not finite: first in embed: X");
    char *lines = read_file(scratch_path("validation/metrics.jsonl"), NULL);
    assert_non_null(strstr(lines, "{\"step\":2,"));
    assert_null(strstr(lines, "val_loss"));
    free(lines);
    t.val_every = 0;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
}

/* A state that is bad itself is not kept: the checkpoints that are there stay, and stay the newest. */
static void keeps_no_bad_state(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run(NULL, "ref", "bad");
    ddl_backend *backend;
    assert_ok(ddl_backend_create(&backend, "ref", 1, &err), err);
    ddl_model *model = tiny_model("baseline", V, 3, backend);
    change_param(model, param_row(model, "transformer.h.1.mlp.c_fc1.weight"), 40, 41, 0, NAN);
    snprintf(t.init_from, sizeof t.init_from, "%s", folder_of(model, "nan"));
    ddl_model_free(model);
    ddl_backend_free(backend);
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
    assert_says(&err, "step 1: the loss of micro-batch 1 of 3 is not finite: first in layer 1, mlp: ug, "
                      "sequence 0, token 0 (32 NaN");
    assert_says(&err, "parameter transformer.h.1.mlp.c_fc1.weight was not finite before the step (1 NaN");
    assert_says(&err, "there is no checkpoint yet");
    assert_true(exists(t.out, "trouble-1"));
    assert_false(exists(t.out, "checkpoint-0"));
}

/* What was finite when the loss was last taken and is infinite after the update: no checkpoint, no model. */
static void an_update_that_overflows(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run(brittle_folder(), test_backend(0), "overflow");
    t.steps = 1;
    t.lr = 1000;
    t.weight_decay = 10;
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
    assert_says(&err, "step 1: left the parameter input_embed.conv.weight non-finite (");
    assert_says(&err, "it is not saved; there is no checkpoint yet");
    assert_false(exists(t.out, "checkpoint-1"));
    assert_false(exists(t.out, "model.safetensors"));
}

/* A rate that is far too high. The state before the last step is that of a run that was stopped there, byte
 * for byte; it is kept beside the older one, from which the run goes on with a rate that is not. */
static void a_rate_too_high(void **state)
{
    (void)state;
    for (size_t i = 0; test_backend(i); i++) {
        struct ddl_error err;
        struct ddl_train_config t = a_run(NULL, test_backend(i), "high"),
                                stopped = a_run(NULL, test_backend(i), "stopped");
        t.keep_last = 1;
        assert_int_equal(run_until(&t, 1, NULL, &err), DDL_E_INTERRUPTED);
        t.lr = stopped.lr = 1000;
        t.weight_decay = stopped.weight_decay = 10;
        t.resume = true;
        assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
        unsigned long long step = 0;
        assert_int_equal(sscanf(err.text, "step %llu: the ", &step), 1);
        assert_in_range(step, 3, 10);
        assert_says(&err, "is not finite");
        assert_says(&err, " first in ");
        char before[64], dump[64];
        snprintf(before, sizeof before, "checkpoint-%llu", step - 1);
        snprintf(dump, sizeof dump, "trouble-%llu", step);
        assert_true(exists(t.out, before) && exists(t.out, dump) && exists(t.out, "checkpoint-1"));
        /* The same run, stopped of its own will. */
        copy_scratch("high", "stopped");
        stopped.resume = true;
        remove_scratch(file_in("stopped", before));
        assert_int_equal(run_until(&stopped, (int)step - 2, NULL, &err), DDL_E_INTERRUPTED);
        assert_same_checkpoint(t.out, stopped.out, before);
        remove_scratch(file_in("high", before));
        t.lr = 1e-3;
        t.weight_decay = 0.1f;
        assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    }
}

static struct ddl_train_config spiky_run(const char *backend, const char *out)
{
    struct ddl_train_config t = a_run(NULL, backend, out);
    t.spike_z = 0.2;
    t.spike_window = 4;
    t.spike_max_skip = 2;
    t.lr = 3e-3;
    t.log_every = 5;
    t.checkpoint_every = 20;
    return t;
}

/* Skips and shifts of the level, with a bound so low that there are both: the run that was stopped between
 * them and resumed is the one that was not. */
static void spikes_resume_bit_for_bit(void **state)
{
    (void)state;
    static const struct {
        const char *backend;
        int first, last;
    } cases[] = { { "cpu", 7, 14 }, { "ref", 11, 12 } };
    for (size_t i = 0; i < 2; i++) {
        struct ddl_error err;
        struct reported reported = { 0 };
        struct ddl_train_callbacks watch = { .user = &reported, .note = listen };
        struct ddl_train_config whole = spiky_run(cases[i].backend, "whole");
        assert_ok(ddl_train_run(&whole, &watch, NULL, &err), err);
        assert_true(reported.skipped >= 3 && reported.shifted >= 1);
        for (int stop = cases[i].first; stop < cases[i].last; stop++) {
            struct ddl_train_config parts = spiky_run(cases[i].backend, "parts");
            assert_int_equal(run_until(&parts, stop, NULL, &err), DDL_E_INTERRUPTED);
            parts.resume = true;
            assert_ok(ddl_train_run(&parts, NULL, NULL, &err), err);
            assert_same_checkpoint(whole.out, parts.out, "checkpoint-20");
            assert_int_equal(skips_reported(whole.out),
                             reported.skipped); /* on lines of their own, logged or not */
            assert_int_equal(skips_reported(parts.out), reported.skipped);
        }
    }
}

/* A folder in noroom that cannot be removed. */
static void occupy(const char *name)
{
    struct ddl_error err;
    char path[128];
    snprintf(path, sizeof path, "noroom/%s", name);
    assert_ok(ddl_file_make_dir(scratch_path(path), &err), err);
    snprintf(path, sizeof path, "noroom/%s/mine", name);
    assert_ok(ddl_file_make_dir(scratch_path(path), &err), err);
}

/* If the dump cannot be written, the error message has the reason, and the state is saved. */
static void no_space_for_a_dump(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run(brittle_folder(), test_backend(0), "noroom");
    t.lr = 0;
    put_token(t.train_data, 1, 30, RARE);
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
    remove_scratch("noroom/trouble-1");
    write_file(scratch_path("noroom/trouble-1"), "x", 1); /* replaced, though it is no folder */
    t.resume = true;
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
    assert_true(exists(t.out, "trouble-1/trouble.json"));
    assert_false(exists(t.out, ".trouble-1"));
    occupy(".trouble-1");
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
    assert_true(exists(t.out, "trouble-1/trouble.json"));
    assert_true(exists(t.out, ".trouble-1.old/mine"));
    /* No name is left for what has the dump's: the state is saved all the same. */
    occupy(".trouble-1");
    for (int i = 0; i < 1000; i++) {
        char name[64];
        snprintf(name, sizeof name, i ? ".trouble-1.old%d" : ".trouble-1.old", i);
        occupy(name);
    }
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_NUMERIC);
    assert_says(&err, "first in embed: X, sequence 0, token ");
    assert_says(&err, "; no dump: ");
    assert_says(&err, "checkpoint-0, the state before it");
    assert_true(exists(t.out, "checkpoint-0/state.json"));
}

/* The spike's share of a state.json whose seal is right: refused by key. */
static void a_window_is_not_trusted(void **state)
{
    (void)state;
    static const struct {
        const char *spike, *says;
    } cases[] = {
        { "{\"skipped\":2,\"in_a_row\":1,\"norms\":[1,0.5]}", NULL },
        { "{\"skipped\":9,\"in_a_row\":1,\"norms\":[]}", "of 3 steps 9 were skipped, 1 in a row" },
        { "{\"skipped\":1,\"in_a_row\":2,\"norms\":[]}", "of 3 steps 1 were skipped, 2 in a row" },
        { "{\"skipped\":-1,\"in_a_row\":0,\"norms\":[]}", "skipped is missing or not a whole number" },
        { "{\"skipped\":1,\"in_a_row\":0}", "norms is missing or has more than 1024 numbers" },
        { "{\"skipped\":1,\"in_a_row\":0,\"norms\":[1,-1]}",
          "norm 1: expected a finite number of at least 0" },
        { "{\"skipped\":1,\"in_a_row\":0,\"norms\":[\"1\"]}",
          "norm 0: expected a finite number of at least 0" },
        { "[]", "skipped is missing" },
    };
    struct ddl_error err;
    struct ddl_train_config t = a_run(NULL, "ref", "window");
    struct ddl_run_state found;
    assert_int_equal(run_until(&t, 3, NULL, &err), DDL_E_INTERRUPTED);
    const char *folder = scratch_path("window/checkpoint-3"),
               *path = scratch_path("window/checkpoint-3/state.json");
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    json_object_del(root, "crc32"); /* the seal */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_object_set_new(root, "spike", json_loads(cases[i].spike, 0, NULL));
        char *text = ddl_sums_seal(root);
        assert_non_null(text);
        write_file(path, text, strlen(text));
        free(text);
        assert_int_equal(ddl_run_read_state(folder, &found, &err), cases[i].says ? DDL_E_FORMAT : DDL_OK);
        if (cases[i].says)
            assert_says(&err, cases[i].says);
        else
            assert_true(found.spike.skipped == 2 && found.spike.n == 2 && found.spike.norms[1] == 0.5);
    }
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_the_micro_batch), cmocka_unit_test(skips_from_the_start),
        cmocka_unit_test(names_the_rank),        cmocka_unit_test(names_the_rank_of_a_validation),
        cmocka_unit_test(the_replay_fails),      cmocka_unit_test(names_a_validation),
        cmocka_unit_test(keeps_no_bad_state),    cmocka_unit_test(an_update_that_overflows),
        cmocka_unit_test(a_rate_too_high),       cmocka_unit_test(spikes_resume_bit_for_bit),
        cmocka_unit_test(no_space_for_a_dump),   cmocka_unit_test(a_window_is_not_trusted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
