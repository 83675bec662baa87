#define _XOPEN_SOURCE 700 /* sigaltstack */
#include "terminal.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t caught; /* the first signal's number */
static struct timespec caught_at;

static const int numbers[] = { SIGINT, SIGTERM };
enum { N_NUMBERS = sizeof numbers / sizeof *numbers };

/* timeout(1), shells and schedulers send a signal to a process and to its group: twice, at once. */
static bool is_echo(int number, const struct timespec *now)
{
    double seconds =
        (double)(now->tv_sec - caught_at.tv_sec) + 1e-9 * (double)(now->tv_nsec - caught_at.tv_nsec);
    return number == caught && seconds < 0.1;
}

/* The first is noted; the next one ends the program, be it of the same kind or the other. */
static void on_signal(int number)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (caught == 0) {
        caught_at = now;
        caught = number;
    } else if (!is_echo(number, &now)) {
        signal(number, SIG_DFL);
        raise(number); /* takes effect when this handler returns */
    }
}

void catch_interrupts(void)
{
    /* A stack of its own: oneDNN's products use the stack pointer for other things, and a handler's frame
     * then lies in their buffers ("corrupted size vs. prev_size", one Ctrl-C in twenty). The main thread gets
     * these signals. */
    static unsigned char frames[1 << 16];
    sigaltstack(&(stack_t){ .ss_sp = frames, .ss_size = sizeof frames }, NULL);
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK };
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < N_NUMBERS; i++)
        sigaddset(&action.sa_mask, numbers[i]);
    for (size_t i = 0; i < N_NUMBERS; i++)
        sigaction(numbers[i], &action, NULL);
}

bool interrupted(void)
{
    return caught != 0;
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
