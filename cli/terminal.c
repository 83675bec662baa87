#define _POSIX_C_SOURCE 200809L
#include "terminal.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static atomic_int caught; /* the signal, or 0 */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The first is noted; the next one ends the program, be it of the same kind or the other. But timeout(1),
 * shells and schedulers send a signal to a process and to its group: twice, at once. */
static void *listen(void *user)
{
    const sigset_t *signals = user;
    int number = 0;
    for (double first_at = 0; sigwait(signals, &number) == 0;) {
        if (caught == 0) {
            first_at = now();
            caught = number;
        } else if (number != caught || now() - first_at >= 0.1) {
            break;
        }
    }
    pthread_sigmask(SIG_UNBLOCK, signals, NULL);
    raise(number);
    return NULL;
}

/* A thread waits for them, and no other takes any: oneDNN's products use the stack pointer for other things,
 * and a handler's frame then lies in their buffers ("corrupted size vs. prev_size", one Ctrl-C in twenty). A
 * stack for handlers would do for this thread, but the system gives a signal to any that does not block it.
 */
void catch_interrupts(void)
{
    static const int numbers[] = { SIGINT, SIGTERM };
    static sigset_t signals;
    pthread_t listener;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        sigaddset(&signals, numbers[i]);
        signal(numbers[i], SIG_DFL); /* a shell's background jobs begin with SIGINT ignored */
    }
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* threads inherit it */
    if (pthread_create(&listener, NULL, listen, &signals) == 0)
        pthread_detach(listener);
    else
        pthread_sigmask(SIG_UNBLOCK, &signals, NULL); /* then the first one ends the program */
}

bool interrupted(void)
{
    return caught != 0;
}

int interrupt_signal(void)
{
    return caught;
}

void clear_interrupt(void)
{
    caught = 0;
}

bool wait_for_input(void)
{
    struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
    while (!interrupted()) {
        int n = poll(&input, 1, 100);
        if (n > 0 || (n < 0 && errno != EINTR))
            return true;
    }
    return false;
}

bool terminal_has_color(FILE *file)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    return isatty(fileno(file)) == 1 && !(term && strcmp(term, "dumb") == 0) && !(no_color && *no_color);
}

void print_prompt(FILE *file, const char *text, size_t n)
{
    bool color = terminal_has_color(file);
    if (n == 0)
        return;
    fputs(color ? "\033[1m" : "[", file);
    fwrite(text, 1, n, file);
    fputs(color ? "\033[0m" : "]", file);
}

void format_seconds(double seconds, char *out, size_t size)
{
    unsigned long long s = (unsigned long long)(seconds + 0.5);
    if (s >= 3600)
        snprintf(out, size, "%llu:%02llu:%02llu", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, size, "%llu:%02llu", s / 60, s % 60);
}

struct progress_line progress_line_on_stderr(bool quiet)
{
    return (struct progress_line){ .quiet = quiet, .terminal = isatty(STDERR_FILENO) == 1 };
}

bool progress_line_due(const struct progress_line *line, double seconds)
{
    return !line->quiet && seconds >= line->shown + (line->terminal ? 0.2 : 10);
}

void progress_line_begin(struct progress_line *line, double seconds)
{
    line->shown = seconds;
    if (line->terminal)
        fputc('\r', stderr);
}

void progress_line_end(struct progress_line *line)
{
    fputs(line->terminal ? "\033[K" : "\n", stderr);
    fflush(stderr);
    line->open = line->terminal;
}

void progress_line_clear(struct progress_line *line)
{
    if (line->open)
        fputs("\r\033[K", stderr);
    line->open = false;
}

void progress_line_keep(struct progress_line *line)
{
    if (line->open)
        fputc('\n', stderr);
    line->open = false;
}
