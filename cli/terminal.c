#define _POSIX_C_SOURCE 200809L
#include "terminal.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t caught;

static const int numbers[] = { SIGINT, SIGTERM };
enum { N_NUMBERS = sizeof numbers / sizeof *numbers };

/* The next one ends the program, be it of the same kind or the other. */
static void on_signal(int number)
{
    (void)number;
    caught = 1;
    for (size_t i = 0; i < N_NUMBERS; i++)
        signal(numbers[i], SIG_DFL);
}

void catch_interrupts(void)
{
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
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

void progress_line_end(const struct progress_line *line)
{
    fputs(line->terminal ? "\033[K" : "\n", stderr);
    fflush(stderr);
}

void progress_line_clear(const struct progress_line *line)
{
    if (line->terminal && line->shown > 0)
        fputs("\r\033[K", stderr);
}
