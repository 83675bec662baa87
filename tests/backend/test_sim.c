/* Whole programs on the simulated device that the plugin backend/sim.c provides: what they print and write is
 * what they do on "cpu", with which the device computes. A plugin for a real device is tested in this way
 * too.
 */
#define _POSIX_C_SOURCE 200809L
#include "support/crash_harness.h"
#include "support/program.h"
#include "support/thread_comm.h"

#include <stdio.h>
#include <stdlib.h>

static char said[SAID];

/* ---- training ---- */

static struct ddl_train_config a_run(const char *preset, enum ddl_precision precision, const char *backend,
                                     const char *out)
{
    struct ddl_train_config t = tiny_run(preset, TINY_VOCAB, backend, out);
    snprintf(t.val_data, sizeof t.val_data, "%s", scratch_path("val.bin"));
    t.precision = (int)precision;
    t.steps = 6;
    t.accumulate = 2;
    t.log_every = 1;
    t.telemetry_every = 2;
    t.val_every = 3;
    t.val_tokens = 64;
    t.checkpoint_every = 3;
    t.spike_z = 6;
    return t;
}

static void assert_same_runs(void)
{
    assert_same_metrics(scratch_path("cpu"), scratch_path("sim"));
    assert_same_checkpoint(scratch_path("cpu"), scratch_path("sim"), "checkpoint-6");
}

static void a_run_is_that_of_cpu(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        enum ddl_precision precision;
    } cases[] = { { "ddl-cc-ec", DDL_PRECISION_F32 },
                  { "ddl-tc-ec", DDL_PRECISION_BF16 },
                  { "attnres", DDL_PRECISION_F32 } };
    write_random_shard(scratch_path("train.bin"), 1, TINY_VOCAB, 3000);
    write_random_shard(scratch_path("val.bin"), 2, TINY_VOCAB, 300);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_train_config on_cpu = a_run(cases[i].preset, cases[i].precision, "cpu", "cpu");
        struct ddl_train_config on_sim = a_run(cases[i].preset, cases[i].precision, "sim:1", "sim");
        struct ddl_error err;
        assert_ok(ddl_train_run(&on_cpu, NULL, NULL, &err), err);
        assert_ok(ddl_train_run(&on_sim, NULL, NULL, &err), err);
        assert_same_runs();
    }
}

/* ---- ranks ---- */

enum { RANKS = 2 };

struct rank {
    struct ddl_train_config config;
    ddl_status status;
    struct ddl_error err;
};

static void train_rank(ddl_comm *comm, void *user)
{
    struct rank *rank = (struct rank *)user + ddl_comm_rank(comm);
    rank->config.comm = comm;
    rank->status = ddl_train_run(&rank->config, NULL, NULL, &rank->err);
}

static void train_ranks(const char *backend, const char *out)
{
    struct rank ranks[RANKS];
    for (size_t i = 0; i < RANKS; i++) {
        ranks[i] = (struct rank){ .config = a_run("ddl-cc-ec", DDL_PRECISION_F32, backend, out) };
        ranks[i].config.threads = 1;
        ranks[i].config.comm_bucket = 4096;
        ranks[i].config.comm_timeout = 60;
    }
    thread_comm_run(RANKS, train_rank, ranks);
    for (size_t i = 0; i < RANKS; i++)
        assert_ok(ranks[i].status, ranks[i].err);
}

static void ranks_are_those_of_cpu(void **state)
{
    (void)state;
    write_random_shard(scratch_path("train.bin"), 1, TINY_VOCAB, 3000);
    write_random_shard(scratch_path("val.bin"), 2, TINY_VOCAB, 300);
    train_ranks("cpu", "cpu");
    train_ranks("sim", "sim");
    assert_same_runs();
}

/* ---- runs that end ---- */

static const struct small_run short_run = {
    "short",
    "--model ddl-cc-ec --backend sim --steps 4 --checkpoint-every 1 --keep-last 1 --val-every 2 --threads 1"
};

static void a_killed_run_is_resumed(void **state)
{
    (void)state;
    enum { STRIDE = 29 };
    size_t points = 0;
    make_inputs();
    run_uninterrupted(train_arguments(&short_run));
    for (size_t n = 1;; n += STRIDE) {
        char settings[64];
        remove_scratch("run/r");
        snprintf(settings, sizeof settings, "DDL_SHIM_ACT=kill DDL_SHIM_AT=%zu", n);
        int status = run_ddl(shim(settings), train_arguments(&short_run), said);
        if (status == 0) /* the run has fewer calls */
            break;
        assert_int_equal(status, 128 + 9);
        assert_checkpoints_whole();
        resume_uninterrupted(&short_run);
        assert_same_as_uninterrupted();
        points++;
    }
    assert_true(points >= 3);
}

/* The run ends with a message, keeps the checkpoints of the steps before, and can be resumed. */
static void a_device_fails_in_a_step(void **state)
{
    (void)state;
    static const size_t at[] = { 1, 100, 150, 200, 250, 300 };
    size_t failed = 0, with_checkpoint = 0;
    make_inputs();
    run_uninterrupted(train_arguments(&short_run));
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        char settings[64];
        remove_scratch("run/r");
        snprintf(settings, sizeof settings, "DDL_SIM_FAIL=%zu", at[i]);
        int status = run_ddl(shim(settings), train_arguments(&short_run), said);
        if (status == 0)
            continue;
        assert_int_equal(status, 1);
        if (!strstr(said, "the device failed in op"))
            fail_msg("op %zu: %s", at[i], said);
        failed++;
        with_checkpoint += assert_checkpoints_whole() > 0;
        resume_uninterrupted(&short_run);
        assert_same_as_uninterrupted();
    }
    print_message("%zu runs failed, %zu of them with a checkpoint\n", failed, with_checkpoint);
    assert_true(failed >= 3 && with_checkpoint >= 1);
}

/* From little memory to enough: each command that fails says why. */
static void assert_needs_memory(const char *arguments)
{
    size_t refused = 0;
    int status = 1;
    for (size_t bytes = 1 << 10; status; bytes *= 4) {
        char settings[64];
        remove_scratch("run");
        shell("mkdir '%s'", run_folder());
        snprintf(settings, sizeof settings, "DDL_SIM_MEMORY=%zu", bytes);
        status = run_ddl(settings, arguments, said);
        refused += status != 0;
        if (status && (status != 1 || !strstr(said, "memory")))
            fail_msg("%zu bytes: status %d: %s", bytes, status, said);
    }
    assert_true(refused > 0);
}

static void a_device_has_too_little_memory(void **state)
{
    (void)state;
    char command[4096];
    make_inputs();
    assert_needs_memory(train_arguments(&short_run));
    snprintf(command, sizeof command, "generate '%s' --backend sim --prompt a --max-tokens 4",
             tiny_folder("model", "ddl-cc-ec"));
    assert_needs_memory(command);
}

/* ---- other programs ---- */

/* Prints the same on both. */
static void assert_same_output(const char *format, const char *folder)
{
    static char expected[sizeof printed];
    char command[4096];
    for (int sim = 0; sim < 2; sim++) {
        snprintf(command, sizeof command, format, folder);
        if (ddl_stream(STANDARD_OUTPUT, "%s --backend %s", command, sim ? "sim" : "cpu"))
            fail_msg("ddl %s: %s", command, printed);
        if (sim)
            assert_string_equal(printed, expected);
        memcpy(expected, printed, sizeof expected);
    }
}

static double eval_loss(const char *backend)
{
    json_t *results =
        ddl_json("eval '%s' --text LICENSE --backend %s --json", scratch_path("model"), backend);
    double loss = number_of(json_array_get(json_object_get(results, "models"), 0), "loss");
    json_decref(results);
    return loss;
}

static void programs_print_what_they_print_on_cpu(void **state)
{
    (void)state;
    static const char *const commands[] = {
        "generate '%s' --prompt 'Permission is' --max-tokens 20 --seed 3 --echo",
        "generate '%s' --prompt 'Permission is' --max-tokens 8 --seed 3 --dtype int8",
        "logprobs '%s' LICENSE",
    };
    static const char *const presets[] = { "ddl-cc-ec", "hyper" };
    for (size_t i = 0; i < 2; i++) {
        for (size_t j = 0; j < sizeof commands / sizeof *commands; j++)
            assert_same_output(commands[j], tiny_folder("model", presets[i]));
    }
    assert_true(eval_loss("cpu") == eval_loss("sim"));
}

static void golden_cases_pass(void **state)
{
    (void)state;
    assert_int_equal(ddl("verify tests/golden/ddl-cc-ec tests/golden/ddl-mix-ec tests/golden/hyper "
                         "tests/golden/attnres tests/golden/value tests/golden/block tests/golden/operator "
                         "tests/golden/inspect --backend sim"),
                     0);
    assert_printed("0 failed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_is_that_of_cpu),
        cmocka_unit_test(ranks_are_those_of_cpu),
        cmocka_unit_test(a_killed_run_is_resumed),
        cmocka_unit_test(a_device_fails_in_a_step),
        cmocka_unit_test(a_device_has_too_little_memory),
        cmocka_unit_test(programs_print_what_they_print_on_cpu),
        cmocka_unit_test(golden_cases_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
