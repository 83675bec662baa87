/* `ddl data`: what it prints, its exit statuses, and that an interruption leaves nothing. */
#define _POSIX_C_SOURCE 200809L
#include "support/files.h"

#include <jansson.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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
        fail_msg("'%s' is not one line that says '%s'", text, gist);
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
    remove_scratch("piped");
    snprintf(command, sizeof command, "printf 'some text' | '%s' data %s --out '%s' --quiet 2>&1",
             ddl_program(), build_arguments("-"), scratch_path("piped"));
    assert_int_equal(run_command(command, out, sizeof out), 0);
    assert_non_null(strstr(out, "1 documents"));
}

static void statuses(void **state)
{
    (void)state;
    static const struct {
        const char *arguments;
        int status;
        const char *gist;
    } cases[] = {
        { "", 2, "wanted build or info" },
        { "bild", 2, "did you mean 'build'?" },
        { "build in.txt", 2, "--out is missing" },
        { "build --out o", 2, "no input" },
        { "build in.txt --out o --val-fraktion 1", 2, "did you mean" },
        { "build in.txt --out o --val-fraction 2", 2, "--val-fraction" },
        { "build none.txt --out o", 1, "none.txt: cannot open" },
        { "build in.txt --out o --tokenizer none", 1, "none" },
        { "info", 2, "found 0 paths, wanted one" },
        { "info a b", 2, "found 2 paths" },
        { "info none.bin", 1, "none.bin: cannot open" },
        { "info in.txt", 1, "in.txt: 1 bytes, a shard has a header" },
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
    assert_error("seven.bin: token 6 at position 6, the vocabulary has 6 tokens");
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
        char work[128];
        snprintf(work, sizeof work, "stopped/.build-%ld/train_000000.bin.tmp-%ld", (long)child, (long)child);
        for (int wait = 0; wait < 1000 && !ddl_file_exists(scratch_path(work)); wait++)
            nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
        assert_true(ddl_file_exists(scratch_path(work)));
        assert_int_equal(kill(child, signals[i]), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        close(text);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 3);
        assert_error("stopped; nothing was written to");
        assert_false(ddl_file_exists(scratch_path("stopped")));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(build_and_info), cmocka_unit_test(piped),        cmocka_unit_test(statuses),
        cmocka_unit_test(help),           cmocka_unit_test(interruption),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
