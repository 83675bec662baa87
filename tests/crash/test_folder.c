/* The folder of a run: what a resumed run does with files that were changed, renamed or moved in it, and with
 * limits of the file system. */
#define _POSIX_C_SOURCE 200809L
#include "support/crash_harness.h"

#include "ddl/train.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char said[SAID];

static const struct small_run saved_run = {
    "saved", "--model baseline --backend ref --steps 6 --checkpoint-every 2 --val-every 0 --threads 1"
};

/* The path of a file below run/r. */
static const char *in_run(const char *name)
{
    static char path[2][4096];
    static size_t turn;
    turn ^= 1;
    snprintf(path[turn], sizeof path[turn], "%s/r/%s", run_folder(), name);
    return path[turn];
}

/* Runs the command with flags, and with its messages; the exit status. */
static int run_with(const struct small_run *run, const char *flags)
{
    char arguments[1 << 14];
    snprintf(arguments, sizeof arguments, "%s %s", train_arguments(run), flags);
    memset(strstr(arguments, "--quiet"), ' ', strlen("--quiet"));
    return run_ddl("", arguments, said);
}

static void assert_said(const char *gist)
{
    if (!strstr(said, gist))
        fail_msg("expected '%s', found: %s", gist, said);
}

/* Makes run/r like the uninterrupted run, without its final model and the checkpoint of its last step. */
static void stopped_after_4_steps(void)
{
    remove_scratch("run");
    copy_scratch("whole", "run");
    remove_scratch("run/r/checkpoint-6");
    (void)unlink(in_run("config.json"));
    (void)unlink(in_run("model.safetensors"));
}

/* ---- what the folder contains ---- */

/* A line that is not JSON is removed; the valid ones after it are kept. */
static void a_foreign_line_in_the_log(void **state)
{
    (void)state;
    static const char *const foreign[] = { "\n",       "precious note\n", "{\"step\": 2, \"loss\": }\n",
                                           "[1, 2]\n", "{\"loss\": 1}\n", "{\"step\":-1}\n" };
    make_inputs();
    run_uninterrupted(train_arguments(&saved_run));
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        stopped_after_4_steps();
        size_t size;
        char *text = read_file(in_run("metrics.jsonl"), &size), *second = strchr(text, '\n') + 1;
        FILE *file = fopen(in_run("metrics.jsonl"), "wb");
        assert_non_null(file);
        fprintf(file, "%.*s%s%s", (int)(second - text), text, foreign[i], second);
        assert_int_equal(fclose(file), 0);
        free(text);
        if (run_with(&saved_run, "--resume") != 0)
            fail_msg("%s: %s", foreign[i], said);
        assert_said("metrics.jsonl:2: not a JSON object with a step: 1 line removed");
        assert_same_as_uninterrupted();
    }
}

/* A checkpoint that was renamed to another step is not one: the run continues from the one before. */
static void a_renamed_checkpoint(void **state)
{
    (void)state;
    char from[4096], to[4096];
    make_inputs();
    run_uninterrupted(train_arguments(&saved_run));
    stopped_after_4_steps();
    snprintf(from, sizeof from, "%s", in_run("checkpoint-4"));
    snprintf(to, sizeof to, "%s", in_run("checkpoint-5"));
    assert_int_equal(rename(from, to), 0);
    char evaluation[9000];
    snprintf(evaluation, sizeof evaluation, "eval '%s//' --val-data '%s'", to,
             scratch_path("inputs/val.bin"));
    assert_int_equal(run_ddl("", evaluation, said), 1);
    assert_said(": renamed or corrupted: expected the state of step 5, found that of step 4");
    assert_int_equal(run_with(&saved_run, "--resume"), 0);
    assert_said(": renamed or corrupted: expected the state of step 5, found that of step 4");
    assert_said("continuing from ");
    remove_scratch("run/r/checkpoint-5");
    assert_same_as_uninterrupted();
}

/* ---- finished runs ---- */

/* A finished run is not trained again, whatever checkpoints it has: nothing in the folder changes. */
static void a_finished_run(void **state)
{
    (void)state;
    static const char *const removed[] = { NULL, "run/r/checkpoint-6", "run/r/checkpoint-4",
                                           "run/r/checkpoint-2" };
    make_inputs();
    run_uninterrupted(train_arguments(&saved_run));
    remove_scratch("run");
    copy_scratch("whole", "run");
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++) {
        char command[1 << 13], before[128], after[128];
        if (removed[i])
            remove_scratch(removed[i]);
        snprintf(command, sizeof command,
                 "cd '%s' && find . -type f -exec stat -c '%%n %%y %%s' {} + | sort | cksum", run_folder());
        assert_int_equal(run_command(command, before, sizeof before), 0);
        assert_int_equal(run_with(&saved_run, "--resume"), 0);
        assert_said("r: the run is finished: it ended on 20");
        assert_said(" UTC after step 6 of 6; its final model is ");
        assert_said("r: 6 steps, loss ");
        assert_int_equal(!strstr(said, "a larger --steps continues"), i == 3);
        assert_int_equal(run_command(command, after, sizeof after), 0);
        assert_string_equal(after, before);
    }
    assert_int_equal(run_with(&saved_run, "--resume --steps 5"), 2);
    assert_said("r: the run has done 6 of 5 steps already");
    assert_int_equal(run_with(&saved_run, "--resume --steps 8"), 1);
    assert_said("r: no checkpoint to resume from; --init-from with this folder starts a new run");
}

/* With more steps it continues from its newest checkpoint, and is finished again. */
static void a_finished_run_with_more_steps(void **state)
{
    (void)state;
    make_inputs();
    run_uninterrupted(train_arguments(&saved_run));
    remove_scratch("run");
    copy_scratch("whole", "run");
    assert_int_equal(run_with(&saved_run, "--resume --steps 8"), 0);
    assert_said("r: 8 steps, loss ");
    assert_true(ddl_file_exists(in_run("checkpoint-8/state.json")));
    assert_int_equal(run_with(&saved_run, "--resume --steps 8"), 0);
    assert_said(" after step 8 of 8; ");
}

/* ---- moved and removed folders ---- */

static const struct small_run short_run = {
    "short", "--model baseline --backend ref --steps 2 --checkpoint-every 1 --keep-last 1 --val-every 0 "
             "--sample-every 1 --sample-tokens 2 --threads 1"
};

/* The calls of the short run on files below run/r, of those that the preloaded library counts below `under`.
 */
static size_t calls_below(const char *under)
{
    char environment[1 << 13], settings[4096], below[2200];
    size_t n = 0;
    remove_scratch("calls.txt");
    remove_scratch("run");
    assert_int_equal(mkdir(run_folder(), 0777), 0);
    snprintf(settings, sizeof settings, "DDL_SHIM_UNDER='%s' DDL_SHIM_LOG='%s'", under,
             scratch_path("calls.txt"));
    snprintf(environment, sizeof environment, "%s", shim(settings));
    assert_int_equal(run_ddl(environment, train_arguments(&short_run), said), 0);
    char *log = read_file(scratch_path("calls.txt"), NULL);
    snprintf(below, sizeof below, " %s/r/", run_folder());
    for (const char *at = log; (at = strstr(at, below)); at++)
        n++;
    free(log);
    return n;
}

/* Calls relative to a folder's descriptor are counted, whether or not that folder itself is watched: the
 * tests here try nothing if they are not. */
static void calls_relative_to_a_descriptor(void **state)
{
    (void)state;
    char below[2200];
    make_inputs();
    size_t n = calls_below(run_folder());
    print_message("%zu calls\n", n);
    assert_true(n > 100);
    snprintf(below, sizeof below, "%s/r/", run_folder());
    assert_int_equal(calls_below(below), n);
}

/* Runs the short run; before its n-th call, run/r is renamed to run/m and another folder put in its place. */
static int run_and_move(size_t n, const char *more)
{
    char settings[4096], environment[1 << 13];
    remove_scratch("calls.txt");
    remove_scratch("run");
    assert_int_equal(mkdir(run_folder(), 0777), 0);
    snprintf(settings, sizeof settings,
             "DDL_SHIM_ACT=move DDL_SHIM_AT=%zu DDL_SHIM_FROM='%s/r' DDL_SHIM_TO='%s/m' %s DDL_SHIM_LOG='%s'",
             n, run_folder(), run_folder(), more, scratch_path("calls.txt"));
    snprintf(environment, sizeof environment, "%s", shim(settings));
    return run_ddl(environment, train_arguments(&short_run), said);
}

/* Whether the folder was moved. */
static bool was_moved(void)
{
    char *log = read_file(scratch_path("calls.txt"), NULL);
    bool moved = strstr(log, "fault move\n") && ddl_file_is_dir(file_in(run_folder(), "m"));
    free(log);
    return moved;
}

/* A run whose folder is moved at any of its calls goes on in it, and never writes into the folder of another
 * run that is put in its place. */
static void moved_at_every_call(void **state)
{
    (void)state;
    char put[2200], before[128], after[128], command[1 << 13];
    size_t moves = 0, finished = 0, stride = test_sample_sanitized() ? 25 : 7;
    make_inputs();
    run_uninterrupted(train_arguments(&short_run));
    for (size_t n = 1;; n += stride) {
        remove_scratch("other");
        copy_scratch("whole/r", "other");
        snprintf(command, sizeof command, "find . -type f -exec stat -c '%%n %%y %%s' {} + | sort | cksum");
        char in_other[1 << 14];
        snprintf(in_other, sizeof in_other, "cd '%s' && %s", scratch_path("other"), command);
        assert_int_equal(run_command(in_other, before, sizeof before), 0);
        snprintf(put, sizeof put, "DDL_SHIM_PUT='%s'", scratch_path("other"));
        int status = run_and_move(n, put);
        char *log = read_file(scratch_path("calls.txt"), NULL);
        bool reached = strstr(log, "fault move\n") != NULL;
        free(log);
        if (!reached) {
            assert_int_equal(status, 0);
            break;
        }
        if (!was_moved()) /* there was no folder yet */
            continue;
        snprintf(in_other, sizeof in_other, "cd '%s/r' && %s", run_folder(), command);
        assert_int_equal(run_command(in_other, after, sizeof after), 0);
        assert_string_equal(after, before);
        moves++;
        finished += ddl_file_exists(file_in(run_folder(), "m/config.json"));
        if (status == 0) /* it was moved after the run's last look */
            assert_true(ddl_file_exists(file_in(run_folder(), "m/config.json")));
        else
            assert_int_equal(status, strstr(said, "there is a run already") ? 2 : 1);
        if (strstr(said, "all its files are there")) {
            remove_scratch("run/r");
            assert_int_equal(rename(file_in(run_folder(), "m"), file_in(run_folder(), "r")), 0);
            assert_same_as_uninterrupted();
        }
    }
    print_message("%zu moves, %zu runs finished in the moved folder\n", moves, finished);
    assert_true(moves * stride > 100 && finished > moves / 2);
}

/* A run whose folder is removed ends with an error, and makes no new one. */
static void a_removed_folder(void **state)
{
    (void)state;
    static const struct small_run endless = {
        "endless", "--model baseline --steps 1000000000 --checkpoint-every 20 --val-every 0 --threads 1"
    };
    char streams[2048], command[4096];
    make_inputs();
    remove_scratch("run");
    assert_int_equal(mkdir(run_folder(), 0777), 0);
    snprintf(streams, sizeof streams, "%s", scratch_path("streams.txt"));
    pid_t pid = start_ddl(train_arguments(&endless), streams);
    for (int i = 0; i < 60000 && !ddl_file_exists(in_run("checkpoint-20")); i++)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    snprintf(
        command, sizeof command,
        "cd '%s' && mv r gone && i=0; until rm -rf gone 2>/dev/null || [ $i = 1000 ]; do i=$((i + 1)); done",
        run_folder());
    assert_int_equal(run_command(command, said, sizeof said), 0);
    assert_int_equal(wait_for(pid), 1);
    char *text = read_file(streams, NULL);
    assert_non_null(strstr(text, "was removed or replaced while it was in use: nothing more is written"));
    free(text);
    assert_false(ddl_file_exists(in_run("")));
}

/* kill -9 after the first checkpoint of README's recipe, with its own intervals and a smaller model: the
 * resumed run ends like one that was never killed. */
static void the_recipe_of_readme(void **state)
{
    (void)state;
    char recipe[512];
    snprintf(recipe, sizeof recipe, "--seq 8 --backend cpu --threads 1 '%s'",
             source_path("recipes/demo.yaml"));
    const struct small_run run = { "recipe", recipe };
    make_inputs();
    run_uninterrupted(train_arguments(&run));
    int status = run_ddl(shim("DDL_SHIM_ACT=kill DDL_SHIM_AT=400"), train_arguments(&run), said);
    assert_int_equal(status, 128 + 9);
    assert_true(assert_checkpoints_whole() >= 50);
    resume_uninterrupted(&run);
    assert_same_as_uninterrupted();
}

/* ---- limits ---- */

/* A path is refused before anything is written, or the run is complete. */
static void long_paths(void **state)
{
    (void)state;
    char out[1200], arguments[1 << 14];
    make_inputs();
    for (size_t length = 930; length <= 1030; length += length >= 950 && length < 970 ? 1 : 10) {
        remove_scratch("long");
        snprintf(out, sizeof out, "%s", scratch_path("long"));
        for (size_t n = strlen(out); n < length; n++)
            out[n] = n % 50 == strlen(scratch_path("long")) % 50 && n + 1 < length ? '/' : 'x';
        out[length] = '\0';
        snprintf(arguments, sizeof arguments, "%s --out '%s'", train_arguments(&saved_run), out);
        int status = run_ddl("", arguments, said);
        if (status == 0)
            assert_true(ddl_file_exists(file_in(out, "checkpoint-6/optimizer.safetensors")));
        else
            assert_false(ddl_file_exists(scratch_path("long")));
        assert_int_equal(status, length <= 959 ? 0 : 2);
        if (status)
            assert_said("out: ");
    }
    remove_scratch("long");
}

/* Beyond the limit on file sizes a write fails, with a message; SIGXFSZ does not end the program. */
static void a_limit_on_file_sizes(void **state)
{
    (void)state;
    make_inputs();
    remove_scratch("run");
    assert_int_equal(mkdir(run_folder(), 0777), 0);
    char command[1 << 15];
    snprintf(command, sizeof command, "ulimit -f 1; exec '%s' %s 2>&1", ddl_program(),
             train_arguments(&saved_run));
    assert_int_equal(run_command(command, said, sizeof said), 1);
    assert_said("ulimit -f");
    assert_said(": cannot write: File too large");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_foreign_line_in_the_log),
        cmocka_unit_test(a_renamed_checkpoint),
        cmocka_unit_test(a_finished_run),
        cmocka_unit_test(a_finished_run_with_more_steps),
        cmocka_unit_test(calls_relative_to_a_descriptor),
        cmocka_unit_test(moved_at_every_call),
        cmocka_unit_test(a_removed_folder),
        cmocka_unit_test(the_recipe_of_readme),
        cmocka_unit_test(long_paths),
        cmocka_unit_test(a_limit_on_file_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
