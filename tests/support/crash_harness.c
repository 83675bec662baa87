#define _XOPEN_SOURCE 700
#include "support/crash_harness.h"

#include "ddl/train.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COMMAND = 1 << 14 };

const char *run_folder(void)
{
    static char path[2048];
    snprintf(path, sizeof path, "%s", scratch_path("run"));
    return path;
}

/* A shell command that must succeed. */
void shell(const char *format, ...)
{
    char command[COMMAND], said[256];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    if (run_command(command, said, sizeof said) != 0)
        fail_msg("failed: %s", command);
}

void make_inputs(void)
{
    struct ddl_error err;
    ddl_tokenizer *tokenizer = tiny_tokenizer();
    assert_ok(ddl_file_make_dir(scratch_path("inputs"), &err), err);
    assert_ok(ddl_tokenizer_save(tokenizer, scratch_path("inputs/tokenizer.json"), &err), err);
    ddl_tokenizer_free(tokenizer);
    write_random_shard(scratch_path("inputs/train.bin"), 1, TINY_VOCAB, 3000);
    write_random_shard(scratch_path("inputs/val.bin"), 2, TINY_VOCAB, 300);
    shell("cp '%s' '%s'", source_path("LICENSE"), scratch_path("inputs/text.txt"));
}

void make_documents(void)
{
    static const char *const names[] = { "inputs/first.jsonl", "inputs/second.jsonl" };
    for (size_t i = 0; i < 2; i++) {
        FILE *file = fopen(scratch_path(names[i]), "wb");
        assert_non_null(file);
        for (size_t line = 0; line < 16; line++)
            fprintf(file, "{\"text\": \"Document %zu of file %zu, with some words in it.\"}\n", line, i);
        assert_int_equal(fclose(file), 0);
    }
}

const char *data_arguments(const char *flags)
{
    static char arguments[COMMAND / 2];
    snprintf(
        arguments, sizeof arguments,
        "data build '%s' '%s' --tokenizer '%s' --part-bytes 500 --val-fraction 0.2 --threads 1 --overwrite "
        "--quiet --out '%s/s' %s",
        scratch_path("inputs/first.jsonl"), scratch_path("inputs/second.jsonl"),
        scratch_path("inputs/tokenizer.json"), run_folder(), flags);
    return arguments;
}

const char *train_arguments(const struct small_run *run)
{
    static char arguments[COMMAND / 2];
    snprintf(
        arguments, sizeof arguments,
        "train --train-data '%s' --val-data '%s' --tokenizer '%s' --out '%s/r' --quiet --vocab-size %d "
        "--num-hidden-layers 1 --num-attention-heads 1 --hidden-size 4 --head-dim 4 --block-size 8 --batch 2 "
        "--val-tokens 16 --warmup 2 --lr 1e-2 %s",
        scratch_path("inputs/train.bin"), scratch_path("inputs/val.bin"),
        scratch_path("inputs/tokenizer.json"), run_folder(), TINY_VOCAB, run->flags);
    return arguments;
}

/* ---- running ---- */

static const char sanitizers[] = "ASAN_OPTIONS=exitcode=99:verify_asan_link_order=0 LSAN_OPTIONS=exitcode=99";

const char *shim(const char *settings)
{
    static char environment[COMMAND / 2];
    const char *library = getenv("DDL_SHIM");
    assert_non_null(library);
    snprintf(environment, sizeof environment, "LD_PRELOAD='%s' DDL_SHIM_NOSYNC=1 DDL_SHIM_UNDER='%s' %s",
             library, run_folder(), settings);
    return environment;
}

int run_ddl(const char *environment, const char *arguments, char *said)
{
    char command[3 * COMMAND];
    snprintf(command, sizeof command, "exec env %s %s timeout -s KILL 600 '%s' %s 2>&1", sanitizers,
             environment, ddl_program(), arguments);
    return run_command(command, said, SAID);
}

pid_t start_ddl(const char *arguments, const char *streams)
{
    char command[3 * COMMAND];
    snprintf(command, sizeof command, "exec env %s %s '%s' %s", sanitizers, shim(""), ddl_program(),
             arguments);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    int fd = open(streams, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd >= 0 && dup2(fd, STDOUT_FILENO) >= 0 && dup2(fd, STDERR_FILENO) >= 0)
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

int wait_for(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void run_uninterrupted(const char *arguments)
{
    static char said[SAID];
    remove_scratch("run");
    remove_scratch("whole");
    shell("mkdir '%s'", run_folder());
    if (run_ddl(shim(""), arguments, said) != 0)
        fail_msg("uninterrupted run failed: %s", said);
    shell("mv '%s' '%s' && mkdir '%s'", run_folder(), scratch_path("whole"), run_folder());
}

void resume_uninterrupted(const struct small_run *run)
{
    static char said[SAID], arguments[COMMAND];
    bool begun = ddl_file_exists(file_in(run_folder(), "r/recipe.yaml"));
    snprintf(arguments, sizeof arguments, "%s %s", train_arguments(run), begun ? "--resume" : "");
    if (run_ddl(shim(""), arguments, said) != 0)
        fail_msg("cannot resume: %s", said);
}

/* ---- what is left ---- */

unsigned long long assert_checkpoints_whole(void)
{
    struct ddl_error err;
    struct ddl_checkpoint *list;
    size_t n;
    const char *out = file_in(run_folder(), "r");
    if (!ddl_file_is_dir(out))
        return 0;
    assert_ok(ddl_checkpoint_list(out, &list, &n, &err), err);
    unsigned long long newest = n ? list[n - 1].step : 0;
    for (size_t i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "r/checkpoint-%llu", (unsigned long long)list[i].step);
        assert_ok(ddl_checkpoint_check(file_in(run_folder(), name), &err), err);
    }
    free(list);
    return newest;
}

/* Removes the lines that begin (after blanks) with one of the strings. */
static void drop_lines(char *text, const char *const *begin)
{
    char *to = text;
    for (char *line = text, *end; *line; line = end) {
        end = strchr(line, '\n') ? strchr(line, '\n') + 1 : line + strlen(line);
        const char *word = line + strspn(line, " ");
        bool dropped = false;
        for (size_t i = 0; begin[i]; i++)
            dropped = dropped || strncmp(word, begin[i], strlen(begin[i])) == 0;
        if (!dropped) {
            memmove(to, line, (size_t)(end - line));
            to += end - line;
        }
    }
    *to = '\0';
}

static void assert_same_state(const char *a, const char *b)
{
    static const char *const clock[] = { "\"seconds\":", "\"train_seconds\":", "\"crc32\": \"", NULL };
    char *x = read_file(a, NULL), *y = read_file(b, NULL);
    drop_lines(x, clock);
    drop_lines(y, clock);
    assert_string_equal(x, y);
    free(x);
    free(y);
}

enum { MAX_NAMES = 256 };

/* The files below a folder, by name. */
static struct names {
    size_t n, skip;
    char *name[MAX_NAMES];
} found;

static int take_name(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)at;
    if (type != FTW_D && found.n < MAX_NAMES)
        found.name[found.n++] = strdup(path + found.skip);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static struct names names_below(const char *folder)
{
    found = (struct names){ .skip = strlen(folder) + 1 };
    assert_int_equal(nftw(folder, take_name, 16, FTW_PHYS), 0);
    qsort(found.name, found.n, sizeof *found.name, by_name);
    return found;
}

/* Every name of the first set is in the second. */
static void assert_all_in(const struct names *some, const struct names *all, const char *where)
{
    for (size_t i = 0; i < some->n; i++) {
        if (!bsearch(&some->name[i], all->name, all->n, sizeof *all->name, by_name))
            fail_msg("%s is %s", some->name[i], where);
    }
}

static void assert_same_by_name(const char *name, const char *a, const char *b)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    if (strcmp(base, "state.json") == 0)
        assert_same_state(file_in(a, name), file_in(b, name));
    else if (strcmp(base, "metrics.jsonl") == 0)
        assert_same_metrics(file_in(a, "r"), file_in(b, "r"));
    else
        assert_same_file(file_in(a, name), file_in(b, name));
}

void assert_same_as_uninterrupted(void)
{
    char whole[2048], run[2048];
    snprintf(whole, sizeof whole, "%s", scratch_path("whole"));
    snprintf(run, sizeof run, "%s", run_folder());
    struct names a = names_below(whole), b = names_below(run);
    assert_all_in(&a, &b, "missing");
    assert_all_in(&b, &a, "left over");
    for (size_t i = 0; i < a.n; i++) {
        assert_same_by_name(a.name[i], whole, run);
        free(a.name[i]);
        free(b.name[i]);
    }
}

size_t stride_of_calls(size_t sampled)
{
    const char *faults = getenv("DDL_FAULTS");
    return faults && strcmp(faults, "all") == 0 ? 1 : test_sample_sanitized() ? sampled : 3;
}
