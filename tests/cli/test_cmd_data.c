/* `ddl data`: what it prints, its exit statuses, and that an interruption leaves nothing. */
#define _POSIX_C_SOURCE 200809L
#include "support/files.h"
#include "support/memory.h"

#include <jansson.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

/* Runs `ddl data ARGUMENTS` in the scratch folder through the shell; standard error goes to `err.txt`. */
static int ddl_data(const char *arguments, char *out, size_t size)
{
    char command[8192];
    snprintf(command, sizeof command, "cd '%s' && '%s' data %s 2>err.txt", scratch_path("."), ddl_program(),
             arguments);
    return run_command(command, out, size);
}

static void assert_error(const char *gist)
{
    size_t size;
    char *text = read_file(scratch_path("err.txt"), &size);
    if (!strstr(text, gist) || strncmp(text, "ddl: ", 5) != 0 || strchr(text, '\n') != text + size - 1)
        fail_msg("'%s' is not one line with '%s'", text, gist);
    free(text);
}

static const char *build_arguments(const char *rest)
{
    static char arguments[4096];
    snprintf(arguments, sizeof arguments, "build --tokenizer '%s' %s", source_path("data/tokenizer"), rest);
    return arguments;
}

static void build_and_info(void **state)
{
    (void)state;
    char out[8192];
    remove_scratch("out");
    write_file(scratch_path("in.txt"), "one two three\n<|endoftext|>\nfour", 32);
    assert_int_equal(ddl_data(build_arguments("in.txt --out out --json"), out, sizeof out), 0);
    json_t *root = json_loads(out, 0, NULL);
    assert_non_null(root);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "train"), "documents")), 2);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "train"), "tokens")), 7);
    json_decref(root);

    assert_int_equal(ddl_data("info out", out, sizeof out), 0);
    assert_non_null(strstr(out, "7 tokens  uint16"));
    assert_non_null(strstr(out, "2 documents  mean length      2.5"));
    assert_non_null(strstr(out, "50257 tokens, SHA-256 "));
    assert_non_null(strstr(out, "documents are counted by token 50256\n"));
    char arguments[2200];
    snprintf(arguments, sizeof arguments, "info 'out/train_*.bin' --json --tokenizer '%s'",
             source_path("data/tokenizer"));
    assert_int_equal(ddl_data(arguments, out, sizeof out), 0);
    root = json_loads(out, 0, NULL);
    assert_non_null(root);
    assert_int_equal(json_integer_value(json_object_get(root, "documents")), 2);
    assert_int_equal(json_integer_value(json_object_get(root, "largest_token")), 50256);
    assert_int_equal(json_array_size(json_object_get(root, "files")), 1);
    json_decref(root);
}

static void piped(void **state)
{
    (void)state;
    char out[8192], command[8192];
    for (int quiet = 0; quiet < 2; quiet++) {
        remove_scratch("piped");
        snprintf(command, sizeof command, "printf 'some text' | '%s' data %s --out '%s' %s 2>&1",
                 ddl_program(), build_arguments("-"), scratch_path("piped"), quiet ? "--quiet" : "");
        assert_int_equal(run_command(command, out, sizeof out), 0);
        assert_int_equal(strstr(out, "1 documents") != NULL, !quiet);
        assert_int_equal(*out == '\0', quiet);
    }
    /* The end of a single text is held out, which a message reports. */
    remove_scratch("piped");
    snprintf(command, sizeof command,
             "printf 'one\\ntwo\\nthree\\nfour\\n' | '%s' data %s --out '%s' --val-fraction 0.5 2>&1",
             ddl_program(), build_arguments("-"), scratch_path("piped"));
    assert_int_equal(run_command(command, out, sizeof out), 0);
    assert_non_null(strstr(out,
                           "ddl: too few documents to hold out 0.5 of them: validation is the end of the "
                           "text, 50 % of its tokens, from the start of a line"));
    assert_non_null(strstr(out, "val             1 documents"));
    /* JSON lines. */
    remove_scratch("piped");
    snprintf(command, sizeof command,
             "printf '{\"body\": \"one\"}\\n{\"body\": \"two\"}\\n' | '%s' data %s --out '%s' "
             "--stdin-format jsonl --text-key body 2>&1",
             ddl_program(), build_arguments("-"), scratch_path("piped"));
    assert_int_equal(run_command(command, out, sizeof out), 0);
    assert_non_null(strstr(out, "2 documents               6 bytes"));
}

static void statuses(void **state)
{
    (void)state;
    static const struct {
        const char *arguments;
        int status;
        const char *gist;
    } cases[] = {
        { "", 2, "data: missing argument: expected build, info or synthetic" },
        { "bild", 2, "did you mean 'build'?" },
        { "build in.txt", 2, "data build: missing argument: expected --out DIR" },
        { "build --out o", 2, "input: missing argument: expected files, folders, or - for standard input" },
        { "build in.txt --out o --val-fraktion 1", 2, "did you mean" },
        { "build in.txt --out o --val-fraction 2", 2, "--val-fraction" },
        { "build none.txt --out o", 1, "none.txt: cannot open" },
        { "build in.txt --out o --shard 2/2", 2,
          "--shard: expected I/N with I from 0 to N - 1, such as 0/4, found 2/2" },
        { "build - --out o --shard 0/2", 2, "--shard: standard input cannot be divided: expected files" },
        { "build in.txt --out o --part-bytes 0", 2, "--part-bytes" },
        { "build in.txt --out o --tokenizer none", 1, "none" },
        { "info", 2, "data info: missing argument: expected shards, a folder or a pattern" },
        { "info a b", 1, "a: cannot open" },
        { "info none.bin", 1, "none.bin: cannot open" },
        { "info in.txt", 1, "in.txt: 1 bytes, less than the shard header" },
    };
    char out[8192];
    write_file(scratch_path("in.txt"), "x", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ddl_data(cases[i].arguments, out, sizeof out), cases[i].status);
        assert_error(cases[i].gist);
        assert_string_equal(out, "");
        assert_false(ddl_file_exists(scratch_path("o")));
    }
    write_shard(scratch_path("seven.bin"), 4, 0, 7);
    assert_int_equal(ddl_data("info seven.bin --vocab 7", out, sizeof out), 0);
    assert_int_equal(ddl_data("info seven.bin --vocab 6", out, sizeof out), 1);
    assert_error("seven.bin: token 6 at position 6 exceeds the vocabulary of 6 tokens");
}

static int64_t number_of(const char *out, const char *key)
{
    json_t *root = json_loads(out, 0, NULL), *value = json_object_get(root, key);
    assert_non_null(value);
    int64_t number = json_is_boolean(value) ? json_is_true(value) : json_integer_value(value);
    json_decref(root);
    return number;
}

/* Two processes, one after the other; the errors of a third that does not fit to them. */
static void shards(void **state)
{
    (void)state;
    static const char lines[] = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n{\"text\": \"three\"}\n";
    static const char common[] = "lines.jsonl --out parts --part-bytes 20";
    char out[8192], arguments[256];
    remove_scratch("parts");
    write_file(scratch_path("lines.jsonl"), lines, sizeof lines - 1);
    snprintf(arguments, sizeof arguments, "%s --shard 1/2", common);
    assert_int_equal(ddl_data(build_arguments(arguments), out, sizeof out), 0);
    assert_string_equal(out, "1 of 3 parts are finished; the process that ends last writes the shards\n");
    snprintf(arguments, sizeof arguments, "%s --shard 0/2 --seed 1", common);
    assert_int_equal(ddl_data(build_arguments(arguments), out, sizeof out), 2);
    assert_error(
        "parts/.build: has an unfinished build with another --seed: expected 0, found 1; run that build "
        "again, or remove the folder to start again");
    write_file(scratch_path("lines.jsonl"), lines, sizeof lines - 2);
    snprintf(arguments, sizeof arguments, "%s --shard 1/2", common);
    assert_int_equal(ddl_data(build_arguments(arguments), out, sizeof out), 1);
    assert_error("lines.jsonl: changed since a part of the build was made from it");
    write_file(scratch_path("lines.jsonl"), lines, sizeof lines - 1);
    snprintf(arguments, sizeof arguments, "%s --shard 0/2 --json", common);
    assert_int_equal(ddl_data(build_arguments(arguments), out, sizeof out), 0);
    assert_int_equal(number_of(out, "complete"), 1);
    assert_int_equal(number_of(out, "parts"), 3);
    assert_int_equal(number_of(out, "parts_encoded"), 2);
    assert_int_equal(number_of(out, "parts_kept"), 0);
    assert_int_equal(number_of(out, "parts_finished"), 3);
    /* Started again after the end, it has nothing to do. */
    assert_int_equal(ddl_data(build_arguments(arguments), out, sizeof out), 0);
    assert_int_equal(number_of(out, "complete"), 1);
    assert_int_equal(number_of(out, "parts_encoded"), 0);
}

static void help(void **state)
{
    (void)state;
    static const char *const cases[][2] = { { "--help", "usage: ddl data build | info" },
                                            { "build --help", "--shard-tokens N" },
                                            { "info --help", "--vocab N" } };
    char out[8192];
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ddl_data(cases[i][0], out, sizeof out), 0);
        assert_non_null(strstr(out, cases[i][1]));
    }
}

/* `ddl data build -` with a pipe as standard input, whose writing end is returned. */
static int start_build(const char *folder, pid_t *child)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    *child = fork();
    assert_true(*child >= 0);
    if (*child == 0) {
        dup2(ends[0], STDIN_FILENO);
        close(ends[0]);
        close(ends[1]);
        if (freopen(scratch_path("err.txt"), "wb", stderr))
            execl(ddl_program(), "ddl", "data", "build", "-", "--out", folder, "--tokenizer",
                  source_path("data/tokenizer"), (char *)NULL);
        _exit(127);
    }
    close(ends[0]);
    return ends[1];
}

static bool is_of_part(void *user, const char *name)
{
    (void)user;
    return ddl_file_is_temporary(name, "part-000000.ids");
}

/* Whether the first part is being written. */
static bool is_building(const char *folder)
{
    struct ddl_file_names list;
    bool found = ddl_file_list(&list, folder, is_of_part, NULL, NULL) == DDL_OK && list.n > 0;
    ddl_file_names_free(&list);
    return found;
}

static void synthetic(void **state)
{
    (void)state;
    char out[8192];
    remove_scratch("syn");
    assert_int_equal(
        ddl_data("synthetic pointer --pairs 3 --queries 2 --hops 1 --sequences 5 --out syn", out, sizeof out),
        0);
    assert_non_null(
        strstr(out, "train           5 sequences           5 problems            10 tokens counted\n"));
    assert_non_null(strstr(out, "--order aligned --seq 14 --block-size 14\n"));
    assert_int_equal(ddl_data("info syn/train_000000.bin", out, sizeof out), 0);
    assert_non_null(strstr(out, "           10 tokens counted by the mask, by group: 1: 10\n"));
    assert_int_equal(ddl_data("info syn --json", out, sizeof out), 0);
    assert_non_null(strstr(out, "\"groups\": {\n"));
    assert_int_equal(ddl_data("synthetic parity --overwrite --out syn", out, sizeof out), 0);
    assert_non_null(strstr(out, "val has no answers of group 1, 2, 3\n"));
    assert_int_equal(ddl_data("synthetic pointers --out syn", out, sizeof out), 2);
    assert_error("task: expected pointer, mqar, permutation, parity, modular or reverse, found pointers");
    assert_int_equal(ddl_data("synthetic parity", out, sizeof out), 2);
    assert_error("data synthetic: missing argument: expected --out DIR");
}

/* Standard input stays open and silent after some text; then comes the signal. */
static void interruption(void **state)
{
    (void)state;
    static const int signals[] = { SIGINT, SIGTERM };
    for (size_t i = 0; i < 2; i++) {
        remove_scratch("stopped");
        pid_t child;
        int text = start_build(scratch_path("stopped"), &child), status = 0;
        for (int line = 0; line < 50000; line++)
            assert_int_equal(write(text, "some words in a line of text\n", 29), 29);
        for (int wait = 0; wait < 60000 && !is_building(scratch_path("stopped/.build")); wait++)
            nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
        assert_true(is_building(scratch_path("stopped/.build")));
        assert_int_equal(kill(child, signals[i]), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        close(text);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 3);
        assert_error("interrupted; nothing was written to");
        assert_false(ddl_file_exists(scratch_path("stopped")));
    }
}

/* ---- memory ---- */

enum { MEBI = 1 << 20, INPUT = 160 * MEBI, MOST = 64 * MEBI };

/* INPUT bytes of text, packed; `separator` (may be "") is a line between documents. */
static void write_large(const char *path, const char *separator)
{
    static const char line[] = "a line of the text that is the same again and again, 0123456789\n";
    char *text = malloc(INPUT), *packed = malloc(MEBI);
    size_t n = 0, length = sizeof line - 1;
    assert_non_null(text);
    assert_non_null(packed);
    for (size_t i = 0; n + length + 64 < INPUT; i++) {
        memcpy(text + n, line, length);
        n += length;
        if (*separator && i % 100 == 99)
            n += (size_t)sprintf(text + n, "%s\n", separator);
    }
    size_t size = ZSTD_compress(packed, MEBI, text, n, 1);
    assert_false(ZSTD_isError(size));
    write_file(path, packed, size);
    free(packed);
    free(text);
}

/* The largest resident memory of `ddl data build` of the file, in bytes. */
static size_t memory_of_build(const char *path)
{
    char out[4096], tokenizer[4096];
    snprintf(out, sizeof out, "%s", scratch_path("large"));
    snprintf(tokenizer, sizeof tokenizer, "%s", source_path("data/tokenizer"));
    remove_scratch("large");
    const char *const arguments[] = { ddl_program(),    "data",  "build",   path,        "--tokenizer",
                                      tokenizer,        "--out", out,       "--threads", "2",
                                      "--val-fraction", "0.3",   "--quiet", NULL };
    size_t used = peak_memory_of(ddl_program(), arguments);
    remove_scratch("large");
    return used;
}

/* Far less than the input, in many documents or one. (The sanitizers' memory is not the program's.) */
static void memory_is_bounded(void **state)
{
    (void)state;
#ifdef DDL_SANITIZED
    skip();
#endif
    static const char *const separators[] = { "<|endoftext|>", "" };
    for (size_t i = 0; i < 2; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s", scratch_path("large.txt.zst"));
        write_large(path, separators[i]);
        size_t used = memory_of_build(path);
        print_message("%d MiB of text: %zu MiB of memory\n", INPUT / MEBI, used / MEBI);
        assert_true(used < MOST);
        assert_int_equal(unlink(path), 0);
    }
}

/* Memory in proportion to the longest line, whatever the values in it are. */
static void memory_of_json_lines(void **state)
{
    (void)state;
#ifdef DDL_SANITIZED
    skip();
#endif
    enum { LINE = 16 << 20 };
    char path[4096];
    snprintf(path, sizeof path, "%s", scratch_path("large.jsonl"));
    for (int other = 0; other < 2; other++) { /* lines of text; of values in a key that is not read */
        const char *unit = other ? "{},1," : "some ", *after = other ? "0],\"text\":\"a\"}\n" : "\"}\n";
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        for (int line = 0; line < 2; line++) {
            fputs(other ? "{\"x\":[" : "{\"text\":\"", f);
            for (size_t n = 0; n < LINE; n += 5)
                fputs(unit, f);
            fputs(after, f);
        }
        assert_int_equal(fclose(f), 0);
        size_t used = memory_of_build(path);
        print_message("lines of %d MiB: %zu MiB of memory\n", LINE / MEBI, used / MEBI);
        assert_true(used < 10 * (size_t)LINE); /* the tree of one took 900 MiB */
        assert_int_equal(unlink(path), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(build_and_info),
        cmocka_unit_test(piped),
        cmocka_unit_test(statuses),
        cmocka_unit_test(help),
        cmocka_unit_test(shards),
        cmocka_unit_test(synthetic),
        cmocka_unit_test(interruption),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(memory_of_json_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
