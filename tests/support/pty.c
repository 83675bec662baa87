#define _DEFAULT_SOURCE
#define _XOPEN_SOURCE 600
#include "support/pty.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_S = 600 }; /* ends a test that hangs; no machine is this slow */

static struct {
    int terminal;
    pid_t program;
    char output[1 << 18], before[1 << 16];
    size_t n, found; /* printed; of it up to the last text that was expected */
} pty;

static struct winsize window;

void pty_set_columns(unsigned short columns)
{
    window.ws_col = columns;
}

static void become(const char *const *argv, const char *const *environment, const char *slave)
{
    setsid();
    int fd = open(slave, O_RDWR); /* becomes the controlling terminal */
    (void)ioctl(fd, TIOCSWINSZ, &window);
    for (int stream = 0; stream < 3; stream++)
        dup2(fd, stream);
    close(fd);
    signal(SIGHUP, SIG_DFL); /* the test may run under nohup */
    for (; *environment; environment++)
        putenv((char *)*environment);
    if (chdir(source_path(".")) == 0)
        execv(argv[0], (char *const *)argv);
    _exit(127);
}

/* The name of the other side of a new terminal; NULL without /dev/ptmx or /dev/pts. */
static const char *open_terminal(void)
{
    pty.terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC); /* no child keeps it open */
    if (pty.terminal < 0 || grantpt(pty.terminal) != 0 || unlockpt(pty.terminal) != 0)
        return NULL;
    const char *slave = ptsname(pty.terminal);
    return slave && access(slave, R_OK | W_OK) == 0 ? slave : NULL;
}

void pty_start(const char *const *argv, const char *const *environment)
{
    memset(&pty, 0, sizeof pty);
    const char *slave = open_terminal();
    if (!slave) {
        print_message("skipped: no pseudo-terminal here: expected /dev/ptmx and /dev/pts\n");
        skip();
    }
    pty.program = fork();
    assert_true(pty.program >= 0);
    if (pty.program == 0)
        become(argv, environment, slave);
}

void pty_send(const char *keys)
{
    assert_int_equal(write(pty.terminal, keys, strlen(keys)), strlen(keys));
}

/* Reads what has been printed, waiting a while for it; false at the end. */
static bool pump(void)
{
    struct pollfd p = { .fd = pty.terminal, .events = POLLIN };
    if (poll(&p, 1, 100) == 0)
        return true;
    assert_true(pty.n + 1 < sizeof pty.output);
    ssize_t got = read(pty.terminal, pty.output + pty.n, sizeof pty.output - 1 - pty.n);
    pty.n += got > 0 ? (size_t)got : 0;
    return got > 0; /* EIO: the other side is closed */
}

/* Fails at the program's end, or when it has printed nothing new for too long. */
static void wait_for_more(bool more, time_t start, const char *expected)
{
    if (!more || time(NULL) - start > WAIT_S)
        fail_msg("%s: not printed after '%s'", expected, pty.output + pty.found);
}

const char *pty_expect(const char *text)
{
    time_t start = time(NULL);
    for (bool more = true;; more = pump()) {
        const char *from = pty.output + pty.found, *at = strstr(from, text);
        if (at) {
            snprintf(pty.before, sizeof pty.before, "%.*s", (int)(at - from), from);
            pty.found += (size_t)(at - from) + strlen(text);
            return pty.before;
        }
        wait_for_more(more, start, text);
    }
}

void pty_expect_bytes(size_t n)
{
    time_t start = time(NULL);
    for (bool more = true; pty.n < pty.found + n; more = pump())
        wait_for_more(more, start, "bytes");
    pty.found += n;
}

void pty_signal(int number)
{
    assert_int_equal(kill(pty.program, number), 0);
}

static int wait_for_end(void)
{
    int status = 0;
    assert_int_equal(waitpid(pty.program, &status, 0), pty.program);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int pty_hang_up(void)
{
    close(pty.terminal);
    return wait_for_end();
}

int pty_finish(void)
{
    time_t start = time(NULL);
    while (pump()) {
        if (time(NULL) - start > WAIT_S)
            fail_msg("still running after '%s'", pty.output + pty.found);
    }
    close(pty.terminal);
    return wait_for_end();
}

const char *pty_output(void)
{
    return pty.output;
}
