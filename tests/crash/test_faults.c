/* A disk that fails at one call or from a call on, or fills up: the program reports it with advice,
 * checkpoints stay valid, and the resumed run ends with the same bytes as an uninterrupted one. Faults come
 * from tests/crash/shim.c; disks of real sizes are tmpfs, where the test may mount one. Every third
 * call is tried, under sanitizers and with DDL_TEST_SAMPLE=1 every 15th, with DDL_FAULTS=all each. */
#define _POSIX_C_SOURCE 200809L
#include "support/crash_harness.h"

#include "ddl/train.h"

#include <sys/stat.h>

static size_t stride(void)
{
    return stride_of_calls(15);
}

static const struct small_run short_run = {
    "short",
    "--model ddl-cc-ec --backend ref --steps 3 --checkpoint-every 1 --keep-last 1 --val-every 1 --threads 1"
};

struct tally {
    size_t faults, ignored;
};

/* The shim's record of the first fault: "fault error at 17 fsync /path"; false: there was none. */
static bool first_fault(char *where, size_t size)
{
    const char *log = scratch_path("calls.txt");
    if (!ddl_file_exists(log))
        return false;
    char *text = read_file(log, NULL), *line = strstr(text, "fault ");
    if (line)
        snprintf(where, size, "%.*s", (int)strcspn(line, "\n"), line);
    free(text);
    return line != NULL;
}

/* The last occurrence of `wanted` in the text; NULL without one. */
static const char *last_of(const char *text, const char *wanted)
{
    const char *last = NULL;
    while ((text = strstr(text, wanted)) != NULL)
        last = text++;
    return last;
}

/* In the shim's record every file is synced between its last write and its rename, and then its folder. */
static void assert_synced(void)
{
    char *text = read_file(scratch_path("calls.txt"), NULL);
    size_t files = 0;
    for (char *call = text; (call = strstr(call, " rename ")) != NULL;) {
        char path[2048], written[2100], synced[2100];
        assert_int_equal(sscanf(call, " rename %2047[^\n]", path), 1);
        snprintf(written, sizeof written, " write %s.tmp-", path);
        snprintf(synced, sizeof synced, " fsync %s.tmp-", path);
        *call++ = '\0'; /* `text` has the calls before it */
        const char *write = last_of(text, written), *sync = last_of(text, synced);
        call[-1] = ' ';
        if (!write) /* a folder, or a file that was synced elsewhere */
            continue;
        if (!sync || sync < write)
            fail_msg("%s: renamed before it is synced", path);
        *strrchr(path, '/') = '\0';
        snprintf(synced, sizeof synced, " fsync %s\n", path);
        const char *next = strstr(call, " rename "), *folder = strstr(call, synced);
        if (!folder || (next && folder > next))
            fail_msg("%s: not synced after a rename", path);
        files++;
    }
    free(text);
    assert_true(files > 0);
}

/* Runs with a fault; the exit status. */
static int run_with(const char *act, const char *arguments, char *said)
{
    char settings[2400];
    remove_scratch("calls.txt");
    snprintf(settings, sizeof settings, "%.100s DDL_SHIM_LOG='%s'", act, scratch_path("calls.txt"));
    return run_ddl(shim(settings), arguments, said);
}

/* A failure is status 1 and a message with the file and advice. Not every call matters (closing a folder that
 * was read, removing an old checkpoint), but a failure to write a file must be reported. */
static void check_answer(int status, const char *where, const char *said, struct tally *tally)
{
    static const char *const matter[] = { " write ", " fsync ", " mkdir ", " create " };
    tally->faults++;
    if (status == 0) {
        tally->ignored++;
        for (size_t i = 0; i < sizeof matter / sizeof *matter; i++) {
            if (strstr(where, matter[i]))
                fail_msg("%s: not reported: %s", where, said);
        }
        return;
    }
    const char *line = said;
    for (const char *next; (next = strstr(line + 1, "\nddl: "));)
        line = next;
    bool advised = strstr(line, "free some space there") || strstr(line, "the device has failed");
    if (status != 1 || !advised || !strstr(line, run_folder()) || !strstr(line, ": cannot "))
        fail_msg("%s: status %d: %s", where, status, said);
}

static void prepare_nothing(void) {}

/* A command, what must hold after a fault in it, and how to repeat it. */
struct job {
    const char *name, *arguments;
    void (*prepare)(void); /* makes the folder's content before     */
    void (*between)(void); /* checks the folder after the fault     */
    void (*again)(void);   /* runs it again without a fault         */
};

/* A fault at each of the command's calls in turn. */
static void fault_at_every_call(const struct job *job, const char *act, size_t stride)
{
    static char said[SAID], where[SAID];
    struct tally tally = { 0 };
    for (size_t n = 1;; n += stride) {
        char settings[128];
        remove_scratch("run");
        assert_int_equal(mkdir(run_folder(), 0777), 0);
        job->prepare();
        snprintf(settings, sizeof settings, "DDL_SHIM_ACT=%s DDL_SHIM_AT=%zu", act, n);
        int status = run_with(settings, job->arguments, said);
        if (!first_fault(where, sizeof where)) {
            assert_int_equal(status, 0);
            assert_synced();
            break;
        }
        check_answer(status, where, said, &tally);
        job->between();
        job->again();
        assert_same_as_uninterrupted();
    }
    print_message("%s, %s: %zu calls in turn, %zu of them without effect on the run\n", job->name, act,
                  tally.faults, tally.ignored);
    assert_true(tally.faults * stride >= 8);
}

/* ---- train ---- */

static void checkpoints_whole(void)
{
    assert_checkpoints_whole();
}

static void train_again(void)
{
    resume_uninterrupted(&short_run);
}

static void prepare_stopped(void)
{
    copy_scratch("stopped", "run/r");
}

static void nothing_lost(void)
{
    assert_true(assert_checkpoints_whole() >= 2);
}

static void faults_in_train(void **state)
{
    (void)state;
    char arguments[1 << 14];
    snprintf(arguments, sizeof arguments, "%s", train_arguments(&short_run));
    const struct job job = { "train", arguments, prepare_nothing, checkpoints_whole, train_again };
    make_inputs();
    run_uninterrupted(arguments);
    fault_at_every_call(&job, "error", stride());
    fault_at_every_call(&job, "full", 2 * stride());
    fault_at_every_call(&job, "dead", 7 * stride());
}

/* Faults while resuming a run that was killed while it wrote its third checkpoint. No checkpoint is lost. */
static void faults_in_resume(void **state)
{
    (void)state;
    static char said[SAID];
    char arguments[1 << 14];
    struct ddl_checkpoint *list;
    size_t n = 0;
    struct ddl_error err;
    make_inputs();
    run_uninterrupted(train_arguments(&short_run));
    for (size_t call = 150; n == 0 || list[n - 1].step != 2; call++) {
        free(n ? list : NULL);
        remove_scratch("run/r");
        snprintf(arguments, sizeof arguments, "DDL_SHIM_ACT=kill DDL_SHIM_AT=%zu", call);
        assert_int_equal(run_with(arguments, train_arguments(&short_run), said), 128 + 9);
        assert_ok(ddl_checkpoint_list(file_in(run_folder(), "r"), &list, &n, &err), err);
    }
    free(list);
    remove_scratch("stopped");
    assert_int_equal(rename(file_in(run_folder(), "r"), scratch_path("stopped")), 0);
    snprintf(arguments, sizeof arguments, "%s --resume", train_arguments(&short_run));
    const struct job job = { "train --resume", arguments, prepare_stopped, nothing_lost, train_again };
    fault_at_every_call(&job, "error", stride());
    fault_at_every_call(&job, "dead", 7 * stride());
}

/* ---- other writers ---- */

/* Runs the command again if its output is absent or incomplete. */
static const char *other_arguments;

static void other_again(void)
{
    static char said[SAID];
    if (ddl_file_exists(file_in(run_folder(), "e")))
        return;
    if (run_ddl(shim(""), other_arguments, said) != 0)
        fail_msg("cannot do it again: %s", said);
}

static void whole_or_absent(void)
{
    if (ddl_file_exists(file_in(run_folder(), "e")))
        assert_same_as_uninterrupted(); /* an exported folder is complete or absent */
    static const char *const files[] = { "t.json", "s/train_000000.bin", "s/train_000001.bin" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (ddl_file_exists(file_in(run_folder(), files[i])))
            assert_same_file(file_in(scratch_path("whole"), files[i]), file_in(run_folder(), files[i]));
    }
}

static void faults_in_other_writers(void **state)
{
    (void)state;
    char tokenizer[1 << 13], data[1 << 13], export[1 << 13];
    make_inputs();
    snprintf(tokenizer, sizeof tokenizer,
             "tokenizer train '%s' --vocab-size 300 --overwrite --out '%s/t.json'",
             scratch_path("inputs/text.txt"), run_folder());
    make_documents();
    snprintf(data, sizeof data, "%s", data_arguments("--shard-tokens 500"));
    snprintf(export, sizeof export, "export '%s' --out '%s/e' --dtype bf16 --max-shard-size 3000",
             scratch_path("model"), run_folder());
    const struct job jobs[] = {
        { "export", export, prepare_nothing, whole_or_absent, other_again },
        { "tokenizer train", tokenizer, prepare_nothing, whole_or_absent, other_again },
        { "data build", data, prepare_nothing, whole_or_absent, other_again },
    };
    run_uninterrupted(train_arguments(&short_run));
    remove_scratch("model");
    assert_int_equal(rename(scratch_path("whole/r"), scratch_path("model")), 0);
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        other_arguments = jobs[i].arguments;
        run_uninterrupted(jobs[i].arguments);
        fault_at_every_call(&jobs[i], "error", stride());
        fault_at_every_call(&jobs[i], "full", stride());
    }
}

/* ---- disks of a size ---- */

/* ENOSPC after a number of bytes, in the middle of a write. */
static void disk_of_so_many_bytes(void **state)
{
    (void)state;
    static char said[SAID], where[SAID];
    struct tally tally = { 0 };
    make_inputs();
    run_uninterrupted(train_arguments(&short_run));
    for (size_t bytes = 0;; bytes += 1777 * stride()) {
        char settings[64];
        remove_scratch("run/r");
        snprintf(settings, sizeof settings, "DDL_SHIM_BYTES=%zu", bytes);
        int status = run_with(settings, train_arguments(&short_run), said);
        if (!first_fault(where, sizeof where)) {
            assert_int_equal(status, 0);
            break;
        }
        assert_int_equal(status, 1);
        check_answer(status, where, said, &tally);
        assert_checkpoints_whole();
        resume_uninterrupted(&short_run);
        assert_same_as_uninterrupted();
    }
    print_message("%zu disks too small for the run\n", tally.faults);
    assert_true(tally.faults * stride() > 40);
}

/* The same on a real file system that is full, until it is made larger. */
static void full_file_system(void **state)
{
    (void)state;
    static char said[SAID];
    char command[1 << 14];
    struct tally tally = { 0 };
    make_inputs();
    snprintf(command, sizeof command, "unshare -m mount -t tmpfs -o size=64k none '%s' 2>&1",
             scratch_path("inputs"));
    if (run_command(command, said, sizeof said) != 0) {
        print_message("skipped: this user may not mount a tmpfs\n");
        skip();
    }
    run_uninterrupted(train_arguments(&short_run));
    for (size_t kib = 24; kib <= 160; kib += 8) {
        remove_scratch("run/r");
        remove_scratch("kept");
        /* In a mount namespace of its own; the content is copied out at the end. */
        snprintf(
            command, sizeof command,
            "unshare -m sh -c 'mount -t tmpfs -o size=%zuk none \"$0\" || exit 9; cd \"$0\"; ddl=$1; shift; "
            "\"$ddl\" \"$@\"; echo \"status $?\"; cp -a r ../kept' '%s' '%s' %s 2>&1",
            kib, run_folder(), ddl_program(), train_arguments(&short_run));
        assert_int_equal(run_command(command, said, sizeof said), 0);
        assert_int_equal(rename(scratch_path("kept"), file_in(run_folder(), "r")), 0);
        assert_checkpoints_whole();
        if (!strstr(said, "status 0"))
            check_answer(strstr(said, "status 1") ? 1 : -1, "tmpfs", said, &tally);
        resume_uninterrupted(&short_run);
        assert_same_as_uninterrupted();
    }
    print_message("%zu file systems filled up\n", tally.faults);
    assert_true(tally.faults > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_in_train),         cmocka_unit_test(faults_in_resume),
        cmocka_unit_test(faults_in_other_writers), cmocka_unit_test(disk_of_so_many_bytes),
        cmocka_unit_test(full_file_system),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
