/* base/process.h, by starting this program again. */
#define _POSIX_C_SOURCE 200809L
#include "support/files.h"

#include "base/process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What the started process does: reads its input, which is empty, and writes to both outputs. */
static int child(void)
{
    char byte;
    if (read(STDIN_FILENO, &byte, 1) != 0)
        return 2;
    return write(STDOUT_FILENO, "out\n", 4) == 4 && write(STDERR_FILENO, "err\n", 4) == 4 ? 0 : 3;
}

/* Starts it from a process with the given standard streams closed (bits). */
static int start_with_closed(unsigned closed, const char *output)
{
    const char *const argv[] = { "child", "child", NULL };
    const struct ddl_process_options options = { .argv = argv, .output = output };
    struct ddl_process_end end;
    long pid;
    for (int fd = 0; fd < 3; fd++) {
        if (closed >> fd & 1)
            close(fd);
    }
    if (ddl_process_start(&pid, &options, NULL) != DDL_OK)
        return 4;
    while (!ddl_process_poll(pid, &end))
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    return end.signal ? 5 : end.status;
}

static void streams_that_are_closed(void **state)
{
    (void)state;
    char output[4096];
    snprintf(output, sizeof output, "%s", scratch_path("log.txt"));
    for (unsigned closed = 0; closed < 8; closed++) {
        int status;
        remove_scratch("log.txt");
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0)
            _exit(start_with_closed(closed, output));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (status != 0)
            fail_msg("closed: %u, status %d", closed, WEXITSTATUS(status));
        char *text = read_file(output, NULL);
        assert_string_equal(text, "out\nerr\n");
        free(text);
    }
}

static void output_that_is_a_link(void **state)
{
    (void)state;
    const char *const argv[] = { "child", "child", NULL };
    struct ddl_error err;
    char link[4096];
    long pid;
    snprintf(link, sizeof link, "%s", scratch_path("link.txt"));
    (void)unlink(link);
    write_file(scratch_path("victim.txt"), "precious", 8);
    assert_int_equal(symlink("victim.txt", link), 0);
    const struct ddl_process_options options = { .argv = argv, .output = link };
    assert_int_equal(ddl_process_start(&pid, &options, &err), DDL_E_IO);
    assert_says(&err, "link.txt: is a symbolic link");
    char *text = read_file(scratch_path("victim.txt"), NULL);
    assert_string_equal(text, "precious");
    free(text);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "child") == 0)
        return child();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_that_are_closed),
        cmocka_unit_test(output_that_is_a_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
