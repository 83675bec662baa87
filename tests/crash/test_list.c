/* A folder that fails while it is listed, for each list of a command in turn: the command ends with status 1
 * and a message that names the folder and the reason. Never does it continue on a part of the folder. Only
 * src/base/file_list.c reads folders. Faults come from tests/crash/shim.c. */
#define _POSIX_C_SOURCE 200809L
#include "support/crash_harness.h"

#include "ddl/train.h"

#include <sys/stat.h>

static const struct small_run run = {
    "listed",
    "--model ddl-1 --backend ref --steps 3 --checkpoint-every 1 --keep-last 2 --keep-best 1 --val-every 1 "
    "--threads 1 --tensorboard"
};

/* What a command finds before it runs, and its arguments. */
struct job {
    const char *name;
    void (*prepare)(void);
    const char *(*arguments)(void);
    size_t n; /* folders that it lists at least */
};

static void prepare_nothing(void) {}

static const char run_log[] = "run/sweep/baseline_seed=1/log.txt";

/* The folder whose list failed, into folder; false: none did. */
static bool failed_folder(char *folder, size_t size)
{
    static const char mark[] = "fault list ";
    const char *log = scratch_path("calls.txt");
    char *calls = ddl_file_exists(log) ? read_file(log, NULL) : NULL,
         *line = calls ? strstr(calls, mark) : NULL;
    if (line)
        snprintf(folder, size, "%.*s", (int)strcspn(line + sizeof mark - 1, "\n"), line + sizeof mark - 1);
    free(calls);
    return line != NULL;
}

/* Runs the command with a fault in the n-th list. Returns false if it has fewer. */
static bool fails_at(const struct job *job, size_t n)
{
    static char said[SAID];
    char settings[3 * 4096], folder[4096], log[4096];
    snprintf(log, sizeof log, "%s", scratch_path("calls.txt"));
    remove_scratch("calls.txt");
    remove_scratch("run");
    assert_int_equal(mkdir(run_folder(), 0777), 0);
    job->prepare();
    snprintf(settings, sizeof settings, "DDL_SHIM_UNDER='%s' DDL_SHIM_LIST=%zu DDL_SHIM_LOG='%s'",
             scratch_path(""), n, log);
    int status = run_ddl(shim(settings), job->arguments(), said);
    if (!failed_folder(folder, sizeof folder)) {
        if (status != 0)
            fail_msg("%s, %zu lists: status %d: %s", job->name, n - 1, status, said);
        return false;
    }
    /* An older checkpoint that cannot be removed remains. */
    if (status == 0 && strstr(folder, "/.checkpoint-"))
        return true;
    if (ddl_file_exists(scratch_path(run_log))) { /* of a process that a sweep has started */
        char *text = read_file(scratch_path(run_log), NULL);
        snprintf(said, sizeof said, "%s", text);
        free(text);
    }
    if (status != 1 || !strstr(said, ": cannot list: Input/output error") || !strstr(said, folder))
        fail_msg("%s, list %zu: %s: status %d: %s", job->name, n, folder, status, said);
    return true;
}

static void fail_at_every_list(const struct job *job)
{
    size_t n = 1;
    while (fails_at(job, n))
        n++;
    print_message("%s: %zu lists\n", job->name, n - 1);
    assert_true(n > job->n);
}

/* ---- the commands ---- */

static char arguments[1 << 14];

static const char *train(void)
{
    snprintf(arguments, sizeof arguments, "%s", train_arguments(&run));
    return arguments;
}

static void prepare_stopped(void)
{
    copy_scratch("stopped", "run/r");
}

static const char *resume(void)
{
    snprintf(arguments, sizeof arguments, "%s --steps 4 --resume", train_arguments(&run));
    return arguments;
}

static const char *build(void)
{
    return data_arguments("");
}

static const char *build_from_folder(void)
{
    snprintf(arguments, sizeof arguments, "data build '%s' --tokenizer '%s' --quiet --out '%s/s'",
             scratch_path("documents"), scratch_path("inputs/tokenizer.json"), run_folder());
    return arguments;
}

static void prepare_unfinished(void)
{
    shell("mkdir -p '%s/s/.build' && cp -r '%s/.' '%s/s/.build'", run_folder(), scratch_path("unfinished"),
          run_folder());
}

static const char *data_info(void)
{
    snprintf(arguments, sizeof arguments, "data info '%s'", scratch_path("shards"));
    return arguments;
}

static const char *train_tokenizer(void)
{
    snprintf(arguments, sizeof arguments,
             "tokenizer train '%s' --vocab-size 260 --overwrite --out '%s/t.json' --quiet",
             scratch_path("documents"), run_folder());
    return arguments;
}

static const char *data_info_of_pattern(void)
{
    snprintf(arguments, sizeof arguments, "data info '%s'", scratch_path("s*s/*.bin"));
    return arguments;
}

static const char *evaluate(void)
{
    snprintf(arguments, sizeof arguments,
             "eval '%s' --which best --backend ref --val-data '%s' --val-tokens 16 --quiet",
             scratch_path("stopped"), scratch_path("inputs"));
    return arguments;
}

static const char *evaluate_newest(void)
{
    snprintf(arguments, sizeof arguments, "eval '%s' --backend ref --val-data '%s' --val-tokens 16 --quiet",
             scratch_path("stopped"), scratch_path("inputs"));
    return arguments;
}

static const char *evaluate_task(void)
{
    snprintf(arguments, sizeof arguments, "eval '%s' --backend ref --tasks '%s' --quiet",
             scratch_path("stopped"), scratch_path("task.jsonl"));
    return arguments;
}

static const char *info(void)
{
    snprintf(arguments, sizeof arguments, "info '%s'", scratch_path("stopped"));
    return arguments;
}

static const char *report(void)
{
    snprintf(arguments, sizeof arguments, "report '%s/r' --json", run_folder());
    return arguments;
}

static const char *compare(void)
{
    snprintf(arguments, sizeof arguments, "compare '%s'", scratch_path("runs"));
    return arguments;
}

static const char *export(void)
{
    snprintf(arguments, sizeof arguments, "export '%s' --out '%s/e'", scratch_path("stopped"), run_folder());
    return arguments;
}

static const char *sweep(void)
{
    FILE *file = fopen(scratch_path("run/sweep.yaml"), "w");
    assert_non_null(file);
    fprintf(file,
            "out: %s/sweep\nseeds: [1]\nmodels: [baseline]\nbase: {train_data: '%s', val_data: '%s', "
            "vocab_size: %d, num_hidden_layers: 1, num_attention_heads: 1, hidden_size: 4, head_dim: 4, "
            "block_size: 8, batch: 2, steps: 2, val_tokens: 16, backend: ref, threads: 1, warmup: 1}\n",
            run_folder(), scratch_path("inputs/train.bin"), scratch_path("inputs/val.bin"), TINY_VOCAB);
    assert_int_equal(fclose(file), 0);
    snprintf(arguments, sizeof arguments, "sweep '%s/sweep.yaml' --quiet", run_folder());
    return arguments;
}

/* A run, shards, documents, a task and a build that was killed, for the commands that read them. */
static void make_folders(void)
{
    static const char task[] = "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"gold\": 0}\n";
    static char said[SAID];
    make_inputs();
    make_documents();
    run_uninterrupted(train());
    remove_scratch("stopped");
    copy_scratch("whole/r", "stopped");
    shell(
        "cd '%s' && rm -rf shards documents runs && mkdir shards documents runs && cp inputs/*.bin shards && "
        "cp inputs/*.jsonl documents && cp -r stopped runs/a && cp -r stopped runs/b",
        scratch_path(""));
    write_file(scratch_path("task.jsonl"), task, sizeof task - 1);
    (void)run_ddl(shim("DDL_SHIM_ACT=kill DDL_SHIM_AT=60"), build(), said);
    remove_scratch("unfinished");
    copy_scratch("run/s/.build", "unfinished");
}

static void every_list_of_every_command(void **state)
{
    (void)state;
    static const struct job jobs[] = {
        { "train", prepare_nothing, train, 1 },
        { "train --resume", prepare_stopped, resume, 1 },
        { "data build", prepare_nothing, build, 1 },
        { "data build, continued", prepare_unfinished, build, 1 },
        { "data build of a folder", prepare_nothing, build_from_folder, 1 },
        { "data info", prepare_nothing, data_info, 1 },
        { "data info of a pattern", prepare_nothing, data_info_of_pattern, 1 },
        { "tokenizer train", prepare_nothing, train_tokenizer, 1 },
        { "eval of the best", prepare_nothing, evaluate, 1 },
        { "eval of the newest", prepare_nothing, evaluate_newest, 1 },
        { "eval on a task", prepare_nothing, evaluate_task, 1 },
        { "info", prepare_nothing, info, 1 },
        { "report", prepare_stopped, report, 1 },
        { "compare", prepare_nothing, compare, 1 },
        { "export", prepare_nothing, export, 1 },
        { "sweep", prepare_nothing, sweep, 1 },
    };
    make_folders();
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        fail_at_every_list(&jobs[i]);
}

/* One function reads folders. */
static void one_reader(void **state)
{
    (void)state;
    static char said[SAID];
    char command[4096];
    snprintf(command, sizeof command,
             "cd '%s' && grep -rlE --include=*.c '\\b(readdir|scandir|nftw|glob)\\(' src cli",
             source_path("."));
    assert_int_equal(run_command(command, said, sizeof said), 0);
    assert_string_equal(said, "src/base/file_list.c\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(one_reader),
                                        cmocka_unit_test(every_list_of_every_command) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
