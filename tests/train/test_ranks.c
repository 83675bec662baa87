/* Training by several ranks, which are threads here (support/thread_comm.h): the losses are those of one
 * rank, the same ranks give the same bits, a run continues with another number of ranks, and what one rank
 * meets ends all of them in the same way. */
#include "support/runs.h"
#include "support/thread_comm.h"

#include "ddl/compare.h"
#include "train/run/resume.h"
#include "train/config/train_config.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { V = 31, MAX_RANKS = 4, STEPS = 20 };

static struct ddl_train_config a_run(const char *preset, const char *backend, const char *out)
{
    struct ddl_train_config t = tiny_run(preset, V, backend, out);
    write_random_shard(scratch_path("train.bin"), 1, V, 5000);
    write_random_shard(scratch_path("val.bin"), 2, V, 700);
    snprintf(t.model, sizeof t.model, "%s", preset);
    snprintf(t.val_data, sizeof t.val_data, "%s", scratch_path("val.bin"));
    t.threads = 1;
    t.batch = 2;
    t.global_batch = 12;
    t.lr = 1e-2;
    t.warmup = 5;
    t.log_every = 1;
    t.telemetry_every = 10;
    t.val_every = 7;
    t.val_tokens = 300;
    t.comm_bucket = 4096; /* several buckets of the tiny model */
    t.comm_timeout = 60;
    return t;
}

/* ---- a run of several ranks ---- */

/* What a rank does, and what it got. */
struct rank {
    struct ddl_train_config config;
    struct ddl_train_callbacks callbacks;
    uint64_t stop_after; /* 0: never */
    size_t calls, notes;
    char note[1024]; /* the last one */
    ddl_status status;
    struct ddl_error err;
    struct ddl_train_progress last;
};

static int stop(void *user)
{
    struct rank *rank = user;
    return rank->stop_after && ++rank->calls == rank->stop_after;
}

static void count_note(void *user, const char *message)
{
    struct rank *rank = user;
    rank->notes++;
    snprintf(rank->note, sizeof rank->note, "%s", message);
}

static void body(ddl_comm *comm, void *user)
{
    struct rank *rank = (struct rank *)user + ddl_comm_rank(comm);
    rank->config.comm = comm;
    rank->status = ddl_train_run(&rank->config, &rank->callbacks, &rank->last, &rank->err);
}

/* Ranks that all have the configuration. */
static void prepare(struct rank *ranks, size_t n, const struct ddl_train_config *t)
{
    for (size_t i = 0; i < n; i++)
        ranks[i] = (struct rank){ .config = *t,
                                  .callbacks = { .user = &ranks[i], .stop = stop, .note = count_note } };
}

/* All have the same status, message and losses. */
static ddl_status run_ranks(struct rank *ranks, size_t n)
{
    thread_comm_run(n, body, ranks);
    for (size_t i = 1; i < n; i++) {
        assert_int_equal(ranks[i].status, ranks[0].status);
        if (ranks[0].status)
            assert_string_equal(ranks[i].err.text, ranks[0].err.text);
        assert_true(ranks[i].last.loss == ranks[0].last.loss || ranks[0].status);
        assert_true(ranks[i].last.val_loss == ranks[0].last.val_loss);
        assert_int_equal(ranks[i].notes, 0);
    }
    return ranks[0].status;
}

static void run_ok(const struct ddl_train_config *t, size_t n)
{
    struct rank ranks[MAX_RANKS];
    prepare(ranks, n, t);
    assert_ok(run_ranks(ranks, n), ranks[0].err);
}

/* ---- losses ---- */

/* The gradient norms of the lines of a run, one for each step but 0; their number. */
static size_t gradient_norms(const char *run, double *norms, size_t most)
{
    size_t n = 0;
    char *lines = read_file(file_in(run, "metrics.jsonl"), NULL);
    for (const char *at = lines; (at = strstr(at, "\"grad_norm\":")) && n < most; n++) {
        at += strlen("\"grad_norm\":");
        norms[n] = strtod(at, NULL);
    }
    free(lines);
    return n;
}

/* Of runs in float32: the first step has the same parameters, in later ones roundings have been amplified. */
static void assert_same_norms(const char *a, const char *b)
{
    enum { MOST = 1000 };
    static double x[MOST], y[MOST];
    const size_t n = gradient_norms(a, x, MOST);
    assert_true(n > 0);
    assert_int_equal(gradient_norms(b, y, MOST), n);
    for (size_t i = 0; i < n; i++) {
        if (!(fabs(x[i] - y[i]) <= (i == 0 ? 1e-5 : 1e-2) * x[i]))
            fail_msg("%s: line %zu: the gradient norm is %.9g, expected %.9g", b, i, y[i], x[i]);
    }
}

/* The losses of two runs differ by no more than this. */
static void assert_same_losses(const char *a, const char *b, double limit)
{
    struct ddl_error err;
    struct ddl_run_log x, y;
    assert_ok(ddl_run_log_read(&x, a, &err), err);
    assert_ok(ddl_run_log_read(&y, b, &err), err);
    assert_int_equal(x.n, y.n);
    for (size_t i = 0; i < x.n; i++) {
        if (fabs(x.points[i].loss - y.points[i].loss) > limit * x.points[i].loss)
            fail_msg("%s: step %llu: the loss is %.9g, expected %.9g", b,
                     (unsigned long long)x.points[i].step, y.points[i].loss, x.points[i].loss);
        assert_true(isnan(x.points[i].val_loss) == isnan(y.points[i].val_loss));
        assert_false(fabs(x.points[i].val_loss - y.points[i].val_loss) > limit * x.points[i].val_loss);
    }
    ddl_run_log_free(&x);
    ddl_run_log_free(&y);
}

static void losses_are_those_of_one_rank(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *backend;
        int precision, comm_dtype, overlap;
        uint64_t global_batch;
        double limit;
    } cases[] = { { "ddl-cc-ec", "cpu", DDL_PRECISION_F32, DDL_COMM_F32, DDL_OVERLAP_AUTO, 12, 1e-4 },
                  { "baseline", "ref", DDL_PRECISION_F32, DDL_COMM_F32, DDL_OVERLAP_OFF, 12, 1e-4 },
                  { "ddl-1", "cpu", DDL_PRECISION_F32, DDL_COMM_F32, DDL_OVERLAP_ON, 11, 1e-4 },
                  { "ddl-tc-ec", "cpu", DDL_PRECISION_BF16, DDL_COMM_F32, DDL_OVERLAP_ON, 5, 2e-2 },
                  { "attnres-block", "cpu", DDL_PRECISION_F32, DDL_COMM_F32, DDL_OVERLAP_ON, 11, 1e-4 },
                  { "ddl-cc", "cpu", DDL_PRECISION_F32, DDL_COMM_BF16, DDL_OVERLAP_ON, 12, 2e-2 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_error err;
        struct ddl_train_config one = a_run(cases[i].preset, cases[i].backend, "one");
        one.precision = cases[i].precision;
        one.comm_dtype = cases[i].comm_dtype;
        one.comm_overlap = cases[i].overlap;
        one.global_batch = cases[i].global_batch;
        assert_ok(ddl_train_run(&one, NULL, NULL, &err), err);
        for (size_t n = 1; n <= MAX_RANKS; n += test_sample_sanitized() ? 2 : 1) {
            struct ddl_train_config t = one;
            snprintf(t.out, sizeof t.out, "%s", scratch_path("ranks"));
            remove_scratch("ranks");
            run_ok(&t, n);
            if (n == 1) {
                assert_same_metrics(one.out, t.out);
                assert_same_file(file_in(one.out, "model.safetensors"), file_in(t.out, "model.safetensors"));
            }
            assert_same_losses(one.out, t.out, cases[i].limit);
            if (cases[i].precision == DDL_PRECISION_F32 && cases[i].comm_dtype == DDL_COMM_F32)
                assert_same_norms(one.out, t.out);
        }
    }
}

static void the_same_ranks_give_the_same_bits(void **state)
{
    (void)state;
    for (size_t n = 2; n <= MAX_RANKS; n += test_sample_sanitized() ? 2 : 1) {
        struct ddl_train_config a = a_run("ddl-cc-ec", test_backend(0), "a"),
                                b = a_run("ddl-cc-ec", test_backend(0), "b");
        a.checkpoint_every = b.checkpoint_every = STEPS;
        b.comm_overlap = DDL_OVERLAP_OFF; /* without effect on the bits */
        run_ok(&a, n);
        run_ok(&b, n);
        assert_same_metrics(a.out, b.out);
        assert_same_checkpoint(a.out, b.out, "checkpoint-20");
    }
}

/* The validation loss of the same parameters has the same bits for any number of ranks. */
static void validation_does_not_depend_on_ranks(void **state)
{
    (void)state;
    double expected = 0;
    for (size_t n = 1; n <= MAX_RANKS; n++) {
        struct ddl_train_config t = a_run("ddl-cc", test_backend(0), "validation");
        struct rank ranks[MAX_RANKS];
        t.lr = 0;
        t.steps = 1;
        t.warmup = 0;
        prepare(ranks, n, &t);
        assert_ok(run_ranks(ranks, n), ranks[0].err);
        expected = n == 1 ? ranks[0].last.val_loss : expected;
        assert_true(ranks[0].last.has_val && ranks[0].last.val_loss == expected);
    }
}

/* A mask that counts every fifth token, and none for long stretches: ranks and micro-batches have different
 * numbers of targets, and some have none. */
static void masks_are_means_over_all_ranks(void **state)
{
    (void)state;
    enum { TOKENS = 5000, VAL_TOKENS = 700 };
    unsigned char mask[TOKENS];
    for (size_t i = 0; i < TOKENS; i++)
        mask[i] = i % 5 == 0 && i / 100 % 3 == 0;
    struct ddl_train_config plain = a_run("ddl-cc", test_backend(0), "plain");
    struct ddl_error err;
    assert_ok(ddl_train_run(&plain, NULL, NULL, &err), err);
    struct ddl_train_config one = a_run("ddl-cc", test_backend(0), "one"),
                            parts = a_run("ddl-cc", test_backend(0), "parts");
    write_file(scratch_path("train.mask"), mask, TOKENS);
    write_file(scratch_path("val.mask"), mask, VAL_TOKENS);
    assert_ok(ddl_train_run(&one, NULL, NULL, &err), err);
    parts.batch = 1;
    assert_ok(ddl_train_run(&parts, NULL, NULL, &err), err);
    assert_same_losses(one.out, parts.out, 1e-4);
    for (size_t n = 2; n <= MAX_RANKS; n += 2) {
        struct ddl_train_config t = one;
        snprintf(t.out, sizeof t.out, "%s", scratch_path("ranks"));
        remove_scratch("ranks");
        run_ok(&t, n);
        assert_same_losses(one.out, t.out, 1e-4);
    }
    struct ddl_run_log x, y;
    assert_ok(ddl_run_log_read(&x, one.out, &err), err);
    assert_ok(ddl_run_log_read(&y, plain.out, &err), err);
    assert_true(x.points[0].loss != y.points[0].loss);
    ddl_run_log_free(&x);
    ddl_run_log_free(&y);
    assert_int_equal(unlink(scratch_path("train.mask")) | unlink(scratch_path("val.mask")), 0);
}

/* A batch without counted targets is skipped, with a note; a validation without any is an error. */
static void batches_without_targets(void **state)
{
    (void)state;
    struct ddl_train_config t = a_run("ddl-cc", test_backend(0), "few");
    unsigned char mask[5000] = { [4000] = 1 };
    struct rank ranks[2];
    write_file(scratch_path("train.mask"), mask, sizeof mask);
    t.order = DDL_ORDER_SEQUENTIAL;
    t.steps = 1;
    t.warmup = 0;
    prepare(ranks, 2, &t);
    assert_ok(run_ranks(ranks, 2), ranks[0].err);
    assert_true(ranks[0].last.skipped && ranks[0].last.loss == 0);
    assert_non_null(strstr(ranks[0].note, "step 1: the masks count no target of its batch: skipped"));
    memset(mask, 0, sizeof mask);
    mask[699] = 1;
    write_file(scratch_path("val.mask"), mask, 700);
    t.val_tokens = 16;
    remove_scratch("few");
    prepare(ranks, 2, &t);
    assert_int_equal(run_ranks(ranks, 2), DDL_E_FORMAT);
    assert_says(&ranks[0].err, "val_data: the masks count none of the 16 validation tokens");
    assert_int_equal(unlink(scratch_path("train.mask")) | unlink(scratch_path("val.mask")), 0);
}

/* ---- checkpoints ---- */

/* Stopped at 10 of 20 steps by the last rank, and continued with as many ranks: the bits of a run that was
 * not stopped. */
static void resumes_bit_for_bit(void **state)
{
    (void)state;
    for (size_t n = 2; n <= MAX_RANKS; n++) {
        struct rank ranks[MAX_RANKS];
        struct ddl_train_config whole = a_run("ddl-cc-ec", test_backend(0), "whole");
        struct ddl_train_config parts = a_run("ddl-cc-ec", test_backend(0), "parts");
        whole.checkpoint_every = parts.checkpoint_every = STEPS;
        run_ok(&whole, n);
        prepare(ranks, n, &parts);
        ranks[n - 1].stop_after = 10;
        assert_int_equal(run_ranks(ranks, n), DDL_E_INTERRUPTED);
        assert_says(&ranks[0].err, "stopped after step 10 of 20");
        parts.resume = true;
        run_ok(&parts, n);
        assert_same_metrics(whole.out, parts.out);
        assert_same_checkpoint(whole.out, parts.out, "checkpoint-20");
    }
}

/* Steps without targets update nothing: the optimizer of a resumed run has not counted them either. */
static void resumes_after_batches_without_targets(void **state)
{
    (void)state;
    struct rank ranks[2];
    struct ddl_train_config whole = a_run("ddl-1", test_backend(0), "whole");
    struct ddl_train_config parts = a_run("ddl-1", test_backend(0), "parts");
    unsigned char mask[5000];
    memset(mask, 1, sizeof mask);
    memset(mask, 0, 3 * 12 * 16); /* of the first three steps */
    write_file(scratch_path("train.mask"), mask, sizeof mask);
    whole.order = parts.order = DDL_ORDER_SEQUENTIAL;
    whole.checkpoint_every = parts.checkpoint_every = STEPS;
    run_ok(&whole, 2);
    prepare(ranks, 2, &parts);
    ranks[0].stop_after = 10;
    assert_int_equal(run_ranks(ranks, 2), DDL_E_INTERRUPTED);
    parts.resume = true;
    run_ok(&parts, 2);
    assert_same_metrics(whole.out, parts.out);
    assert_same_checkpoint(whole.out, parts.out, "checkpoint-20");
    assert_int_equal(unlink(scratch_path("train.mask")), 0);
}

/* A checkpoint has the same layout for any number of ranks: each part of a run has another number. */
static void continues_with_another_number_of_ranks(void **state)
{
    (void)state;
    static const size_t orders[][4] = { { 1, 2, 3, 4 }, { 4, 1, 2, 1 }, { 3, 4, 1, 2 } };
    struct ddl_error err;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        struct ddl_train_config whole = a_run("ddl-cc-ec", test_backend(0), "whole");
        struct ddl_train_config parts = a_run("ddl-cc-ec", test_backend(0), "parts");
        assert_ok(ddl_train_run(&whole, NULL, NULL, &err), err);
        for (size_t k = 0; k < 4; k++) {
            struct rank ranks[MAX_RANKS];
            prepare(ranks, orders[i][k], &parts);
            ranks[0].stop_after = k < 3 ? 5 : 0;
            assert_int_equal(run_ranks(ranks, orders[i][k]), k < 3 ? DDL_E_INTERRUPTED : DDL_OK);
            parts.resume = true;
        }
        assert_same_losses(whole.out, parts.out, 1e-4);
    }
}

/* Without global_batch the size of a step is that of the ranks with which the run started. */
static void a_resumed_run_keeps_its_global_batch(void **state)
{
    (void)state;
    struct rank ranks[MAX_RANKS];
    struct ddl_error err;
    struct ddl_train_config t = a_run("baseline", test_backend(0), "global");
    t.global_batch = 0;
    t.accumulate = 2;
    prepare(ranks, 3, &t);
    ranks[1].stop_after = 4;
    assert_int_equal(run_ranks(ranks, 3), DDL_E_INTERRUPTED);
    t.resume = true;
    struct ddl_train_progress last;
    assert_ok(ddl_train_run(&t, NULL, &last, &err), err);
    assert_int_equal(last.tokens, STEPS * 3 * 2 * 2 * 16);
    char *recipe = read_file(file_in(t.out, "recipe.yaml"), NULL);
    assert_non_null(strstr(recipe, "\nglobal_batch: 12\n"));
    free(recipe);
    t.steps = 2 * STEPS;
    t.accumulate = 3;
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "accumulate");
    t.global_batch = 12;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    t.global_batch = 24;
    t.steps = 3 * STEPS;
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "the run has global_batch 12, now it is 24");
}

/* ---- rank 0 alone ---- */

static int stop_in_validation(void *user, const struct ddl_train_progress *p, uint64_t done, uint64_t total)
{
    struct rank *rank = user;
    return p->step == rank->stop_after && 2 * done >= total;
}

/* All ranks end a validation that rank 0 is to stop; the resumed run begins with it. */
static void a_validation_is_stopped(void **state)
{
    (void)state;
    struct rank ranks[MAX_RANKS];
    struct ddl_train_config whole = a_run("ddl-cc", test_backend(0), "whole"),
                            parts = a_run("ddl-cc", test_backend(0), "parts");
    whole.checkpoint_every = parts.checkpoint_every = STEPS;
    run_ok(&whole, 3);
    for (uint64_t step = 7; step <= 14; step += 7) {
        prepare(ranks, 3, &parts);
        ranks[0].callbacks.validation = stop_in_validation;
        ranks[0].callbacks.stop = NULL;
        ranks[0].stop_after = step;
        assert_int_equal(run_ranks(ranks, 3), DDL_E_INTERRUPTED);
        assert_says(&ranks[0].err, step == 7 ? "stopped after step 7 of 20" : "stopped after step 14 of 20");
        parts.resume = true;
    }
    run_ok(&parts, 3);
    assert_same_metrics(whole.out, parts.out);
    assert_same_checkpoint(whole.out, parts.out, "checkpoint-20");
}

/* After step 8 a file is where the run folder was. It is not made by the library, for which paths of the
 * folder lead into it wherever it is. */
static void move_folder(void *user, const struct ddl_train_progress *p)
{
    struct rank *rank = user;
    if (p->step != 8)
        return;
    assert_int_equal(rename(rank->config.out, scratch_path("moved")), 0);
    FILE *file = fopen(rank->config.out, "w");
    assert_non_null(file);
    fclose(file);
}

/* From step 8 on no file can grow. */
static void limit_files(void *user, const struct ddl_train_progress *p)
{
    (void)user;
    struct rlimit limit;
    if (p->step != 8)
        return;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* A write that fails on rank 0 ends all ranks, with the checkpoint from which they continue. */
static void a_write_fails(void **state)
{
    (void)state;
    struct rank ranks[MAX_RANKS];
    struct ddl_train_config whole = a_run("ddl-cc", test_backend(0), "whole"),
                            t = a_run("ddl-cc", test_backend(0), "blocked");
    struct rlimit limit;
    whole.checkpoint_every = t.checkpoint_every = 5;
    run_ok(&whole, 2);
    prepare(ranks, 2, &t);
    ranks[0].callbacks.progress = limit_files;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    ddl_status status = run_ranks(ranks, 2);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, before);
    assert_int_equal(status, DDL_E_IO);
    assert_says(&ranks[0].err, "--resume continues from ");
    assert_says(&ranks[0].err, "checkpoint-5");
    t.resume = true;
    run_ok(&t, 2);
    assert_same_metrics(whole.out, t.out);
    assert_same_checkpoint(whole.out, t.out, "checkpoint-20");
}

/* The run goes on in its folder; all ranks end with an error that has the new place. */
static void the_folder_is_moved(void **state)
{
    (void)state;
    struct rank ranks[MAX_RANKS];
    struct ddl_train_config whole = a_run("ddl-cc", test_backend(0), "whole"),
                            t = a_run("ddl-cc", test_backend(0), "left");
    whole.checkpoint_every = t.checkpoint_every = 5;
    remove_scratch("moved");
    run_ok(&whole, 2);
    prepare(ranks, 2, &t);
    ranks[0].callbacks.progress = move_folder;
    assert_int_equal(run_ranks(ranks, 2), DDL_E_IO);
    assert_says(&ranks[0].err, "the folder was moved to ");
    assert_says(&ranks[0].err, "the run is finished");
    assert_null(strstr(ranks[0].err.text, "--resume"));
    assert_same_metrics(whole.out, scratch_path("moved"));
    assert_same_checkpoint(whole.out, scratch_path("moved"), "checkpoint-20");
    assert_int_equal(remove(t.out), 0);
}

/* Samples and task scores are computed by rank 0, and are those of one rank. */
static void samples_and_tasks(void **state)
{
    (void)state;
    static const char task[] = "{\"context\": \"The\", \"choices\": [\"dog\", \"cat\"], \"gold\": 0}\n"
                               "{\"context\": \"A\", \"choices\": [\"b\", \"cd\"], \"gold\": 1}\n";
    struct ddl_error err;
    struct ddl_train_config one = tiny_run("ddl-cc", TINY_VOCAB, test_backend(0), "one"), t;
    ddl_tokenizer *tokenizer = tiny_tokenizer();
    assert_ok(ddl_tokenizer_save(tokenizer, scratch_path("tokenizer.json"), &err), err);
    ddl_tokenizer_free(tokenizer);
    write_random_shard(scratch_path("train.bin"), 1, 200, 5000);
    write_file(scratch_path("choices.jsonl"), task, sizeof task - 1);
    snprintf(one.tokenizer, sizeof one.tokenizer, "%s", scratch_path("tokenizer.json"));
    snprintf(one.tasks, sizeof one.tasks, "%s", scratch_path("choices.jsonl"));
    one.threads = 1;
    one.global_batch = 6;
    one.lr = 0; /* the same parameters on any number of ranks */
    one.tasks_every = one.sample_every = 8;
    one.telemetry_every = 0;
    t = one;
    snprintf(t.out, sizeof t.out, "%s", scratch_path("ranks"));
    remove_scratch("ranks");
    assert_ok(ddl_train_run(&one, NULL, NULL, &err), err);
    run_ok(&t, 3);
    struct ddl_run_log x, y;
    assert_ok(ddl_run_log_read(&x, one.out, &err), err);
    assert_ok(ddl_run_log_read(&y, t.out, &err), err);
    assert_true(x.n_scores > 0);
    assert_int_equal(x.n_scores, y.n_scores);
    for (size_t i = 0; i < x.n_scores; i++)
        assert_true(x.scores[i].step == y.scores[i].step && x.scores[i].value == y.scores[i].value);
    ddl_run_log_free(&x);
    ddl_run_log_free(&y);
    char *a = read_file(file_in(one.out, "samples.jsonl"), NULL),
         *b = read_file(file_in(t.out, "samples.jsonl"), NULL);
    assert_string_equal(a, b);
    free(a);
    free(b);
}

/* ---- one rank differs ---- */

static void ranks_that_differ_are_named(void **state)
{
    (void)state;
    struct rank ranks[MAX_RANKS];
    struct ddl_train_config t = a_run("baseline", test_backend(0), "differ");
    prepare(ranks, 3, &t);
    ranks[2].config.lr = 2e-2;
    assert_int_equal(run_ranks(ranks, 3), DDL_E_USAGE);
    assert_string_equal(ranks[0].err.text,
                        "rank 2 of 3 (host host2): lr: the ranks differ: expected 0.01 as on "
                        "rank 0, found 0.02");
    assert_false(ddl_file_exists(t.out));

    /* Other data of the same size under the same name cannot be on one machine: another path is an error. */
    write_random_shard(scratch_path("other.bin"), 5, V, 5000);
    prepare(ranks, 2, &t);
    snprintf(ranks[1].config.train_data, sizeof t.train_data, "%s", scratch_path("other.bin"));
    assert_int_equal(run_ranks(ranks, 2), DDL_E_USAGE);
    assert_says(&ranks[0].err, "rank 1 of 2 (host host1): train_data: ");

    prepare(ranks, 2, &t);
    snprintf(ranks[1].config.train_data, sizeof t.train_data, "%s", scratch_path("none.bin"));
    assert_int_equal(run_ranks(ranks, 2), DDL_E_USAGE);

    prepare(ranks, 2, &t);
    ranks[1].config.train_data[0] = '\0';
    assert_int_equal(run_ranks(ranks, 2), DDL_E_USAGE);
    assert_says(&ranks[0].err, "rank 1 of 2 (host host1): train_data: ");

    /* Threads change rounding only. */
    prepare(ranks, 2, &t);
    ranks[1].config.threads = 2;
    ranks[0].config.steps = ranks[1].config.steps = 2;
    ranks[0].config.warmup = ranks[1].config.warmup = 0;
    assert_ok(run_ranks(ranks, 2), ranks[0].err);
    assert_int_equal(ranks[0].notes > 0, 1);

    prepare(ranks, 3, &t);
    for (size_t i = 0; i < 3; i++)
        ranks[i].config.global_batch = 2;
    assert_int_equal(run_ranks(ranks, 3), DDL_E_USAGE);
    assert_says(&ranks[0].err, "global_batch: expected at least one sequence for each of 3 ranks, found 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_one_rank),
        cmocka_unit_test(the_same_ranks_give_the_same_bits),
        cmocka_unit_test(validation_does_not_depend_on_ranks),
        cmocka_unit_test(resumes_bit_for_bit),
        cmocka_unit_test(resumes_after_batches_without_targets),
        cmocka_unit_test(continues_with_another_number_of_ranks),
        cmocka_unit_test(a_resumed_run_keeps_its_global_batch),
        cmocka_unit_test(a_validation_is_stopped),
        cmocka_unit_test(a_write_fails),
        cmocka_unit_test(masks_are_means_over_all_ranks),
        cmocka_unit_test(batches_without_targets),
        cmocka_unit_test(the_folder_is_moved),
        cmocka_unit_test(samples_and_tasks),
        cmocka_unit_test(ranks_that_differ_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
