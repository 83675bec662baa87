/* kill -9, SIGINT and SIGTERM at any moment of a run: the resumed run ends with the same bytes as an
 * uninterrupted one. DDL_KILLS=n: n random moments (40; 12 under sanitizers or with DDL_TEST_SAMPLE=1);
 * DDL_SEED=n: others. Every third call is tried (every 21st there; each with DDL_FAULTS=all). */
#define _POSIX_C_SOURCE 200809L
#include "support/crash_harness.h"

#include "base/rng.h"
#include "ddl/train.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <wordexp.h>

/* Long enough for a kill at any point. */
static const struct small_run long_runs[] = {
    { "every step saved",
      "--model baseline --backend ref --steps 150 --checkpoint-every 1 --val-every 5 --threads 1" },
    { "every third saved, every second logged", "--model ddl-cc-ec --steps 240 --checkpoint-every 3 "
                                                "--log-every 2 --val-every 3 --keep-best 2 --threads 2" },
    { "by time",
      "--model ddl-cc-ec --steps 160 --checkpoint-every 40 --checkpoint-seconds 0.001 --keep-last 1 "
      "--val-every 5 --threads 1" },
    { "one kept, in order", "--model ddl-tc-ec --steps 160 --checkpoint-every 2 --keep-last 1 --accumulate 2 "
                            "--order sequential --threads 2" },
};
enum { LONG_RUNS = sizeof long_runs / sizeof *long_runs };

/* Short enough to be stopped at each call. */
static const struct small_run short_run = {
    "short",
    "--model ddl-cc-ec --backend ref --steps 3 --checkpoint-every 1 --keep-last 1 --val-every 1 --threads 1"
};

static size_t number_from(const char *name, size_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void wait_seconds(double seconds);

/* Waits until the file exists in run/, or the program has ended; the limit only ends a test that hangs. */
static void wait_for_file(pid_t pid, const char *name)
{
    siginfo_t ended = { 0 };
    for (double start = now(); now() - start < 600 && !ddl_file_exists(file_in(run_folder(), name));) {
        wait_seconds(1e-3);
        if (waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid)
            return;
    }
}

static void wait_seconds(double seconds)
{
    struct timespec t = { (time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds)) };
    nanosleep(&t, NULL);
}

/* Whether a checkpoint or a replacement of a file was being written or removed. */
static bool caught_writing(void)
{
    bool found = false;
    DIR *dir = opendir(file_in(run_folder(), "r"));
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        found = found || strncmp(entry->d_name, ".checkpoint", 11) == 0 || strstr(entry->d_name, ".tmp-");
    if (dir)
        closedir(dir);
    return found;
}

struct tally {
    size_t kills, writing, before, finished;
};

/* Kills the program after a random time. */
static int kill_by_clock(const char *arguments, double longest, uint64_t key, uint64_t draw)
{
    char streams[2048];
    snprintf(streams, sizeof streams, "%s", scratch_path("streams.txt"));
    pid_t pid = start_ddl(arguments, streams);
    wait_seconds(longest * ddl_rng_uniform(key, draw));
    kill(pid, SIGKILL);
    return wait_for(pid);
}

/* Kills it inside a random one of its calls that write, rename or remove. */
static int kill_by_call(const char *arguments, uint64_t key, uint64_t draw)
{
    static char said[SAID];
    char settings[64];
    snprintf(settings, sizeof settings, "DDL_SHIM_ACT=kill DDL_SHIM_AT=%llu",
             (unsigned long long)ddl_rng_below(key, draw, 3000) + 1);
    return run_ddl(shim(settings), arguments, said);
}

/* Starts or resumes the program and kills it. True if it had finished before. */
static bool one_life(const struct small_run *run, double longest, uint64_t key, uint64_t draw,
                     struct tally *tally)
{
    char arguments[1 << 14];
    bool begun = ddl_file_exists(file_in(run_folder(), "r/recipe.yaml"));
    snprintf(arguments, sizeof arguments, "%s %s", train_arguments(run), begun ? "--resume" : "");
    int status = draw % 2 ? kill_by_call(arguments, key, draw) : kill_by_clock(arguments, longest, key, draw);
    if (status != 0 && status != 128 + SIGKILL)
        fail_msg("seed %zu, draw %llu: exit status %d", number_from("DDL_SEED", 1), (unsigned long long)draw,
                 status);
    if (status == 0)
        return true;
    tally->kills++;
    tally->writing += caught_writing();
    tally->before += assert_checkpoints_whole() == 0;
    return false;
}

/* Kills and resumes runs until they finish, until there have been `kills` kills. */
static void kill_runs(const struct small_run *run, size_t kills, uint64_t key, struct tally *tally)
{
    uint64_t draw = 0;
    double start = now();
    run_uninterrupted(train_arguments(run));
    double longest = 0.7 * (now() - start); /* mostly shorter than the whole run */
    for (size_t done = tally->kills;
         tally->kills < done + kills || ddl_file_exists(file_in(run_folder(), "r"));) {
        if (!one_life(run, longest, key, draw++, tally))
            continue;
        assert_same_as_uninterrupted();
        remove_scratch("run/r");
        tally->finished++;
    }
}

static void killed_at_random_moments(void **state)
{
    (void)state;
    size_t kills = number_from("DDL_KILLS", test_sample_sanitized() ? 12 : 40),
           seed = number_from("DDL_SEED", 1);
    struct tally tally = { 0 };
    make_inputs();
    for (size_t i = 0; i < LONG_RUNS; i++)
        kill_runs(&long_runs[i], (kills + i) / LONG_RUNS, ddl_rng_key(seed + i, "kill"), &tally);
    /* How many kills fall into a write depends on the machine; some must. */
    for (size_t more = 0; tally.writing == 0 && more < 100; more++)
        kill_runs(&long_runs[0], 2, ddl_rng_key(seed + LONG_RUNS + more, "kill"), &tally);
    print_message("seed %zu: %zu kills, %zu of them while a file was written, %zu before a first checkpoint; "
                  "%zu runs finished, each byte for byte as uninterrupted\n",
                  seed, tally.kills, tally.writing, tally.before, tally.finished);
    assert_true(tally.kills >= kills);
    assert_true(tally.writing > 0);
}

/* ---- at every call ---- */

/* A run with samples and telemetry. */
static const struct small_run sampling_run = {
    "sampling",
    "--model ddl-cc-ec --backend ref --steps 1 --warmup 0 --checkpoint-every 1 --keep-last 1 --val-every 0 "
    "--sample-every 1 --sample-tokens 3 --telemetry-every 1 --threads 1"
};

/* At calls that touch the run's folder, in turn, in place of each (a write: after half of it). */
static void kill_at_calls(const struct small_run *run)
{
    static char said[SAID];
    size_t points = 0, stride = stride_of_calls(21);
    make_inputs();
    run_uninterrupted(train_arguments(run));
    for (size_t n = 1;; n += stride) {
        char settings[64];
        remove_scratch("run/r");
        snprintf(settings, sizeof settings, "DDL_SHIM_ACT=kill DDL_SHIM_AT=%zu", n);
        int status = run_ddl(shim(settings), train_arguments(run), said);
        if (status == 0) /* the run has fewer calls */
            break;
        assert_int_equal(status, 128 + SIGKILL);
        assert_checkpoints_whole();
        resume_uninterrupted(run);
        assert_same_as_uninterrupted();
        points++;
    }
    print_message("%s: killed at %zu calls in turn\n", run->name, points);
    assert_true(points * stride > 80);
}

static void killed_at_every_call(void **state)
{
    (void)state;
    kill_at_calls(&short_run);
}

/* samples.jsonl too is that of the uninterrupted run. */
static void killed_at_every_call_with_samples(void **state)
{
    (void)state;
    kill_at_calls(&sampling_run);
}

/* The checkpoint of the first step is by time, and the next one replaces it. */
static void killed_with_checkpoints_by_time(void **state)
{
    (void)state;
    static const struct small_run run = {
        "by time",
        "--model ddl-cc-ec --backend ref --steps 3 --checkpoint-every 2 --keep-last 1 --val-every 1 "
        "--checkpoint-seconds 1e-9 --threads 1"
    };
    kill_at_calls(&run);
}

/* ---- data build ---- */

/* Whether a shard in run/s differs from that of the same name in a folder, or has none there. */
static bool has_other_shards(const char *folder)
{
    char command[1 << 14], found[256];
    snprintf(command, sizeof command,
             "cd '%s' && for f in *.bin; do [ ! -e \"$f\" ] || cmp -s \"$f\" '%s'/\"$f\" || echo other; done",
             file_in(run_folder(), "s"), folder);
    assert_int_equal(run_command(command, found, sizeof found), 0);
    return *found != '\0';
}

/* Killed at each of its calls in turn, also in place of a part's last write and between the removal of an
 * earlier build and the last of the new shards, the build continues with the same command and ends with the
 * same bytes. */
static void data_build_killed_at_every_call(void **state)
{
    (void)state;
    static char said[SAID];
    char arguments[1 << 13], earlier[2048];
    size_t points = 0, stride = stride_of_calls(21);
    make_inputs();
    make_documents();
    run_uninterrupted(data_arguments("--shard-tokens 300"));
    remove_scratch("earlier");
    assert_int_equal(rename(scratch_path("whole"), scratch_path("earlier")), 0);
    snprintf(arguments, sizeof arguments, "%s", data_arguments("--shard-tokens 200"));
    run_uninterrupted(arguments);
    snprintf(earlier, sizeof earlier, "%s", scratch_path("earlier/s"));
    for (size_t n = 1;; n += stride) {
        char settings[64];
        copy_scratch("earlier", "run");
        snprintf(settings, sizeof settings, "DDL_SHIM_ACT=kill DDL_SHIM_AT=%zu", n);
        int status = run_ddl(shim(settings), arguments, said);
        if (status == 0) /* the build has fewer calls */
            break;
        assert_int_equal(status, 128 + SIGKILL);
        assert_false(has_other_shards(earlier) && has_other_shards(scratch_path("whole/s")));
        if (run_ddl(shim(""), arguments, said) != 0)
            fail_msg("call %zu: %s", n, said);
        assert_same_as_uninterrupted();
        points++;
    }
    print_message("%zu calls, killed at each of them in turn\n", points);
    assert_true(points * stride > 100);
}

/* ---- a stop during a validation ---- */

static int stop_at_second_step(void *user, const struct ddl_train_progress *p, uint64_t done, uint64_t total)
{
    (void)user, (void)total;
    return p->step == 2 && done > 0;
}

/* The run of train_arguments, in this process, stopped during the validation of its second step; in run/r. */
static void stop_in_validation(const struct small_run *run)
{
    wordexp_t words;
    struct ddl_train_config t;
    struct ddl_error err;
    int argc = 0, n;
    assert_int_equal(wordexp(train_arguments(run), &words, WRDE_NOCMD), 0);
    char **argv = calloc(words.we_wordc + 1, sizeof *argv);
    assert_non_null(argv);
    for (size_t i = 0; i < words.we_wordc; i++) {
        if (strcmp(words.we_wordv[i], "--quiet") != 0)
            argv[argc++] = words.we_wordv[i];
    }
    assert_ok(ddl_train_configure(&t, NULL, argc, argv, NULL, NULL, &n, &err), err);
    free(argv);
    wordfree(&words);
    const struct ddl_train_callbacks callbacks = { .validation = stop_at_second_step };
    assert_int_equal(ddl_train_run(&t, &callbacks, NULL, &err), DDL_E_INTERRUPTED);
    assert_int_equal(assert_checkpoints_whole(), 2);
}

/* The resumed run, killed at each of its calls in turn, never loses the checkpoint that waits for its
 * validation, and ends like one that was never stopped. */
static void killed_after_a_stop_in_validation(void **state)
{
    (void)state;
    static const struct small_run run = { "validation",
                                          "--model ddl-cc-ec --backend ref --steps 3 --checkpoint-every 1 "
                                          "--keep-last 1 --val-every 1 --val-tokens 64 --threads 1" };
    static char said[SAID], arguments[1 << 14];
    size_t points = 0, stride = stride_of_calls(21);
    make_inputs();
    run_uninterrupted(train_arguments(&run));
    snprintf(arguments, sizeof arguments, "%s --resume", train_arguments(&run));
    for (size_t n = 1;; n += stride) {
        char settings[64];
        remove_scratch("run/r");
        stop_in_validation(&run);
        snprintf(settings, sizeof settings, "DDL_SHIM_ACT=kill DDL_SHIM_AT=%zu", n);
        int status = run_ddl(shim(settings), arguments, said);
        if (status == 0) /* the run has fewer calls */
            break;
        assert_int_equal(status, 128 + SIGKILL);
        assert_true(assert_checkpoints_whole() >= 2);
        resume_uninterrupted(&run);
        assert_same_as_uninterrupted();
        points++;
    }
    assert_same_as_uninterrupted();
    print_message("%zu calls, killed at each of them in turn\n", points);
    assert_true(points * stride > 100);
}

/* The numbers of the calls that rename a checkpoint, in the order of a log of the shim. */
static size_t find_renames(const char *log, size_t numbers[], size_t most)
{
    size_t n = 0;
    char *text = read_file(log, NULL);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned long call;
        if (strstr(line, "checkpoint-2") && sscanf(line, "%lu rename ", &call) == 1 &&
            strstr(line, " rename ")) {
            assert_true(n < most);
            numbers[n++] = call;
        }
    }
    free(text);
    return n;
}

/* Where names cannot be exchanged, a process that is killed while it replaces the only checkpoint leaves the
 * earlier one or the new one. */
static void killed_while_a_checkpoint_is_replaced(void **state)
{
    (void)state;
    static const struct small_run run = { "replaced",
                                          "--model ddl-cc-ec --backend ref --steps 3 --checkpoint-every 2 "
                                          "--keep-last 1 --val-every 1 --val-tokens 64 --threads 1" };
    static char said[SAID], arguments[1 << 14], settings[4096];
    size_t numbers[16], left = 0;
    make_inputs();
    run_uninterrupted(train_arguments(&run));
    snprintf(arguments, sizeof arguments, "%s --resume", train_arguments(&run));
    stop_in_validation(&run);
    remove_scratch("log");
    snprintf(settings, sizeof settings, "DDL_SHIM_EXCHANGE=none DDL_SHIM_LOG=%s", scratch_path("log"));
    assert_int_equal(run_ddl(shim(settings), arguments, said), 0);
    const size_t n = find_renames(scratch_path("log"), numbers, 16);
    assert_true(n >= 2); /* the earlier one, the new one */
    for (size_t i = 0; i < 2 * n; i++) {
        remove_scratch("run/r");
        stop_in_validation(&run);
        snprintf(settings, sizeof settings, "DDL_SHIM_EXCHANGE=none DDL_SHIM_ACT=kill DDL_SHIM_AT=%zu",
                 numbers[i / 2] + i % 2);
        assert_int_equal(run_ddl(shim(settings), arguments, said), 128 + SIGKILL);
        left += ddl_file_exists(file_in(run_folder(), "r/.checkpoint-2.replaced")) &&
                !ddl_file_exists(file_in(run_folder(), "r/checkpoint-2"));
        assert_int_equal(run_ddl(shim("DDL_SHIM_EXCHANGE=none"), arguments, said), 0);
        assert_null(strstr(said, "starting again"));
        assert_same_as_uninterrupted();
    }
    assert_true(left > 0);
}

/* SIGINT at a call: a checkpoint and status 3. SIGTERM two calls later: immediate end. Neither loses a
 * checkpoint. */
static void signals_at_every_call(void **state)
{
    (void)state;
    static char said[SAID];
    size_t stopped = 0, ended = 0, finished = 0, stride = test_sample_sanitized() ? 21 : 2;
    make_inputs();
    run_uninterrupted(train_arguments(&short_run));
    for (size_t n = 1; finished < 3; n += 3 * stride) {
        char settings[256];
        remove_scratch("run/r");
        snprintf(settings, sizeof settings, "DDL_SHIM_ACT=stop DDL_SHIM_AT=%zu", n);
        int status = run_ddl(shim(settings), train_arguments(&short_run), said);
        stopped += status == 3;
        ended += status == 128 + SIGTERM;
        finished += status == 0; /* no check for signals after the last step */
        if (status != 0 && status != 3 && status != 128 + SIGTERM)
            fail_msg("call %zu: exit status %d: %s", n, status, said);
        assert_checkpoints_whole();
        resume_uninterrupted(&short_run);
        assert_same_as_uninterrupted();
    }
    print_message("%zu runs ended by a second signal, %zu stopped with a checkpoint\n", ended, stopped);
    assert_true(ended > 0);
}

/* Starts the run and sends it the signal. True if that stopped it: on a busy machine it may have finished. */
static bool is_stopped_by(int number, const struct small_run *run)
{
    char streams[2048];
    remove_scratch("run/r");
    snprintf(streams, sizeof streams, "%s", scratch_path("streams.txt"));
    pid_t pid = start_ddl(train_arguments(run), streams);
    wait_for_file(pid, "r/checkpoint-3");
    kill(pid, number);
    int status = wait_for(pid);
    char *said = read_file(streams, NULL);
    if (status != 0) {
        assert_int_equal(status, 3);
        assert_non_null(strstr(said, "--resume continues"));
    }
    free(said);
    assert_true(assert_checkpoints_whole() > 0);
    resume_uninterrupted(run);
    assert_same_as_uninterrupted();
    return status == 3;
}

/* One signal: status 3 and a checkpoint of the current step. */
static void one_signal_stops(void **state)
{
    (void)state;
    enum { MOST_RUNS = 30 };
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
    const struct small_run *run = &long_runs[1];
    signal(SIGHUP, SIG_DFL); /* the test may run under nohup */
    make_inputs();
    run_uninterrupted(train_arguments(run));
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        size_t runs = 1;
        while (!is_stopped_by(signals[i], run)) {
            if (runs++ == MOST_RUNS)
                fail_msg("signal %d: all of %d runs finished", signals[i], MOST_RUNS);
        }
    }
}

/* Wide enough to spend nearly all its time in matrix products. */
static const struct small_run wide_run = {
    "wide",
    "--model baseline --num-hidden-layers 3 --num-attention-heads 4 --hidden-size 256 --head-dim 64 "
    "--block-size 128 --batch 8 --steps 3 --checkpoint-every 1 --keep-last 1 --val-every 0 --threads 2"
};

/* Sends the program `n` SIGINTs in quick succession: on an idle machine in less time than repeats of the
 * first are ignored. */
static void shower(pid_t pid, size_t n, uint64_t key, uint64_t draw)
{
    wait_seconds(0.1 * ddl_rng_uniform(key, draw));
    for (size_t i = 0; i < n; i++) {
        kill(pid, SIGINT);
        wait_seconds(3e-5 * ddl_rng_uniform(key, draw + i));
    }
}

/* oneDNN's kernels use the stack pointer as a data pointer: a signal handler in one of their threads corrupts
 * their buffers. With a handler on the normal stack more than half of these runs abort; with an alternate
 * stack, which only the main thread has, one in thirty. */
static void signals_during_products(void **state)
{
    (void)state;
    enum { MOST_RUNS = 100 };
    const size_t least = test_sample_sanitized() ? 2 : 8;
    size_t signals = 300, sent = 0, stopped = 0, runs = 0;
    uint64_t key = ddl_rng_key(number_from("DDL_SEED", 1), "shower");
    make_inputs();
    run_uninterrupted(train_arguments(&wide_run));
    for (; runs < least || (stopped == 0 && runs < MOST_RUNS); runs++) {
        char streams[2048];
        remove_scratch("run/r");
        snprintf(streams, sizeof streams, "%s", scratch_path("streams.txt"));
        pid_t pid = start_ddl(train_arguments(&wide_run), streams);
        wait_for_file(pid, "r/metrics.jsonl");
        shower(pid, signals, key, runs << 32);
        sent += signals;
        int status = wait_for(pid);
        char *said = read_file(streams, NULL);
        stopped += status == 3;
        /* On a busy machine the last of many repeats are too late to be ignored: fewer are sent. All may come
         * after the end. */
        if (status == 128 + SIGINT)
            signals = signals > 1 ? signals / 2 : 1;
        else if (status != 3 && status != 0)
            fail_msg("run %zu: exit status %d: %s", runs, status, said);
        free(said);
        assert_checkpoints_whole();
        resume_uninterrupted(&wide_run);
        assert_same_as_uninterrupted();
    }
    print_message("%zu signals during products, %zu of %zu runs stopped with a checkpoint\n", sent, stopped,
                  runs);
    assert_true(stopped > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_random_moments),
        cmocka_unit_test(killed_at_every_call),
        cmocka_unit_test(killed_at_every_call_with_samples),
        cmocka_unit_test(killed_with_checkpoints_by_time),
        cmocka_unit_test(data_build_killed_at_every_call),
        cmocka_unit_test(killed_while_a_checkpoint_is_replaced),
        cmocka_unit_test(killed_after_a_stop_in_validation),
        cmocka_unit_test(signals_at_every_call),
        cmocka_unit_test(one_signal_stops),
        cmocka_unit_test(signals_during_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
