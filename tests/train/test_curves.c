/* The golden curves (tests/golden/curve-*), trained by one to four ranks: the losses of all 150 steps are
 * those of the reference implementation; with bfloat16 on the wire they differ by no more than the rounding
 * of the gradients accounts for. Under a sanitizer, the first steps. */
#include "support/runs.h"
#include "support/thread_comm.h"

#include "ddl/compare.h"
#include "ddl/run.h"
#include "train/config/train_config.h"

#include <jansson.h>
#include <math.h>

enum {
    MAX_RANKS = 4,
    STEPS = 150,
    BATCH = 8,
#ifdef DDL_SANITIZED
    FOLLOWED = 10
#else
    FOLLOWED = STEPS
#endif
};

static const char *const curves[] = { "curve-baseline", "curve-ddl-cc-ec" };
enum { CURVES = sizeof curves / sizeof *curves };

/* A sample has the second curve and one or four ranks. */
static size_t first_curve(void)
{
    return test_sample_sanitized() ? 1 : 0;
}

static size_t next_ranks(size_t n)
{
    return n + (test_sample_sanitized() ? 3 : 1);
}

/* The recipe of the curves. */
static struct ddl_train_config a_run(const char *curve)
{
    struct ddl_train_config t = ddl_train_defaults();
    struct ddl_error err;
    char folder[256];
    snprintf(folder, sizeof folder, "tests/golden/%s", curve);
    snprintf(t.init_from, sizeof t.init_from, "%s", source_path(folder));
    assert_ok(ddl_run_config(&t.config, t.init_from, true, NULL, NULL, &err), err);
    snprintf(t.train_data, sizeof t.train_data, "%s/tokens.bin", t.init_from);
    *t.val_data = '\0';
    snprintf(t.out, sizeof t.out, "%s", scratch_path("run"));
    t.steps = STEPS;
    t.seq = 64;
    t.global_batch = BATCH;
    t.lr = 2e-3;
    t.warmup = 20;
    t.order = DDL_ORDER_SEQUENTIAL;
    t.log_every = 1;
    t.telemetry_every = t.val_every = t.checkpoint_every = 0;
    t.threads = 1;
    t.comm_bucket = 65536; /* several buckets */
    return t;
}

/* ---- ranks ---- */

struct rank {
    struct ddl_train_config config;
    size_t steps;
    ddl_status status;
    struct ddl_error err;
};

static int stop(void *user)
{
    struct rank *rank = user;
    return ++rank->steps == FOLLOWED && FOLLOWED < STEPS;
}

static void body(ddl_comm *comm, void *user)
{
    struct rank *rank = (struct rank *)user + ddl_comm_rank(comm);
    const struct ddl_train_callbacks callbacks = { .user = rank, .stop = stop };
    rank->config.comm = comm;
    rank->status = ddl_train_run(&rank->config, &callbacks, NULL, &rank->err);
}

/* The losses of the steps of a run by n ranks. */
static void train(const struct ddl_train_config *t, size_t n, double losses[STEPS])
{
    struct rank ranks[MAX_RANKS];
    struct ddl_error err;
    struct ddl_run_log log;
    remove_scratch("run");
    for (size_t r = 0; r < n; r++)
        ranks[r] = (struct rank){ .config = *t };
    thread_comm_run(n, body, ranks);
    if (ranks[0].status != DDL_E_INTERRUPTED || FOLLOWED == STEPS)
        assert_ok(ranks[0].status, ranks[0].err);
    assert_ok(ddl_run_log_read(&log, t->out, &err), err);
    for (size_t i = 0, step = 0; i < log.n && step < FOLLOWED; i++) {
        if (log.points[i].step == step + 1)
            losses[step++] = log.points[i].loss;
        assert_true(log.points[i].step <= step + 1);
    }
    assert_true(log.n >= FOLLOWED);
    ddl_run_log_free(&log);
}

static void read_expected(const char *curve, double losses[STEPS])
{
    char name[256];
    snprintf(name, sizeof name, "tests/golden/%s/loss.json", curve);
    json_t *root = json_load_file(source_path(name), 0, NULL);
    const json_t *list = json_object_get(root, "loss");
    assert_int_equal(json_array_size(list), STEPS);
    for (size_t i = 0; i < STEPS; i++)
        losses[i] = json_number_value(json_array_get(list, i));
    json_decref(root);
}

/* ---- tests ---- */

static double exact[CURVES][MAX_RANKS + 1][STEPS]; /* losses of each number of ranks, with float32 messages */

static int train_all(void **state)
{
    (void)state;
    for (size_t i = first_curve(); i < CURVES; i++) {
        struct ddl_train_config t = a_run(curves[i]);
        for (size_t n = 1; n <= MAX_RANKS; n = next_ranks(n)) {
            t.batch = (BATCH + n - 1) / n;
            train(&t, n, exact[i][n]);
        }
    }
    return 0;
}

static void losses_are_those_of_the_reference(void **state)
{
    (void)state;
    const double limit = 1e-4; /* as of ddl verify */
    for (size_t i = first_curve(); i < CURVES; i++) {
        double expected[STEPS];
        read_expected(curves[i], expected);
        for (size_t n = 1; n <= MAX_RANKS; n = next_ranks(n)) {
            const double *found = exact[i][n];
            double most = 0;
            for (size_t s = 0; s < FOLLOWED; s++) {
                most = fmax(most, fabs(found[s] - expected[s]));
                if (fabs(found[s] - expected[s]) > limit * fmax(1, fabs(expected[s])))
                    fail_msg("%s, %zu ranks, step %zu: the loss is %.9g, expected %.9g", curves[i], n, s + 1,
                             found[s], expected[s]);
            }
            print_message("%s, %zu ranks: largest difference %.2g\n", curves[i], n, most);
        }
    }
}

/* Rounding a gradient to bfloat16 changes each element by at most 2^-9 of it. The update of AdamW is a ratio
 * of two means of gradients: it changes by at most 2^-8, and so, to first order, does the decrease of the
 * loss that the updates cause. Updates that overshoot increase the loss: hence the sum of the magnitudes. */
static void bf16_on_the_wire(void **state)
{
    (void)state;
    enum { LAST = 10 };
    for (size_t i = first_curve(); i < CURVES; i++) {
        struct ddl_train_config t = a_run(curves[i]);
        for (size_t n = test_sample_sanitized() ? 4 : 2; n <= MAX_RANKS; n += 2) {
            const double *f32 = exact[i][n];
            double rounded[STEPS], change = 0, most = 0, means[2] = { 0 };
            t.batch = (BATCH + n - 1) / n;
            t.comm_dtype = DDL_COMM_BF16;
            train(&t, n, rounded);
            assert_true(fabs(rounded[0] - f32[0]) <= 1e-9 * f32[0]); /* before the first update */
            for (size_t s = 1; s < FOLLOWED; s++) {
                change += fabs(f32[s] - f32[s - 1]);
                most = fmax(most, fabs(rounded[s] - f32[s]));
                if (fabs(rounded[s] - f32[s]) > change / 256)
                    fail_msg("%s, %zu ranks, step %zu: the loss is %.9g with bf16, %.9g with f32: more than "
                             "%.2g apart",
                             curves[i], n, s + 1, rounded[s], f32[s], change / 256);
            }
            for (size_t s = FOLLOWED - LAST; s < FOLLOWED; s++) {
                means[0] += f32[s] / LAST;
                means[1] += rounded[s] / LAST;
            }
            print_message("%s, %zu ranks: mean of the last %d losses %.5f with f32, %.5f with bf16, largest "
                          "difference of a step %.2g\n",
                          curves[i], n, LAST, means[0], means[1], most);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_the_reference),
        cmocka_unit_test(bf16_on_the_wire),
    };
    return cmocka_run_group_tests(tests, train_all, NULL);
}
