#define _DEFAULT_SOURCE
#include "cli/output/terminal.h"
#include "cli/output/escape.h"

#include "cli/cli.h"
#include "ddl/comm.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static atomic_int caught; /* the signal, or 0 */
static atomic_bool exits, line_open;
static bool is_silent; /* of several processes that a launcher started, only the first one prints */

double monotonic_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Not through stdio, whose locks another thread may hold. */
static void exit_interrupted(void)
{
    static const char text[] = "\nddl: interrupted\n";
    size_t skipped = line_open ? 0 : 1;
    ssize_t written = is_silent ? 0 : write(STDERR_FILENO, text + skipped, sizeof text - 1 - skipped);
    (void)written;
    _exit(EXIT_INTERRUPTED);
}

/* Whether `number` belongs to the request that `first` made, a moment ago: timeout(1), shells and schedulers
 * send a signal to a process and to its group, systemd and the kernel send SIGHUP with SIGTERM, and a job
 * script that gets SIGTERM as well may pass it on as SIGUSR1 (recipes/slurm/requeue.sh). */
static bool is_same_request(int first, int number, double seconds)
{
    if ((first == SIGTERM && number == SIGUSR1) || (first == SIGUSR1 && number == SIGTERM))
        return seconds < 1;
    return seconds < 0.1 && (number == first || number == SIGHUP || first == SIGHUP);
}

/* The first is noted; the next one ends the program, be it the same signal or another. */
static void *listen(void *user)
{
    const sigset_t *signals = user;
    int number = 0;
    for (double first_at = 0; sigwait(signals, &number) == 0;) {
        const bool is_first = caught == 0;
        if (is_first) {
            first_at = monotonic_seconds();
            caught = number;
        }
        if (exits) /* after `caught` is set: exit_on_interrupt may be looking at it */
            exit_interrupted();
        if (!is_first && !is_same_request(caught, number, monotonic_seconds() - first_at))
            break;
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
    static const int numbers[] = { SIGINT, SIGTERM, SIGUSR1, SIGHUP };
    static sigset_t signals;
    pthread_t listener;
    struct sigaction before;
    const bool keeps_running =
        sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN; /* nohup(1) */
    is_silent = ddl_comm_launched().rank > 0;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i] == SIGHUP && keeps_running)
            continue;
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

void exit_on_interrupt(bool on)
{
    exits = on;
    if (on && interrupted()) /* by a signal that came before the call */
        exit_interrupted();
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

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value;
}

bool terminal_has_control(FILE *file)
{
    return isatty(fileno(file)) == 1 && is_set("TERM") && strcmp(getenv("TERM"), "dumb") != 0;
}

bool terminal_has_color(FILE *file)
{
    return terminal_has_control(file) && !is_set("NO_COLOR");
}

void print_prompt(FILE *file, const char *text, size_t n)
{
    bool color = terminal_has_color(file);
    if (n == 0)
        return;
    fputs(color ? "\033[1m" : "[", file);
    print_generated(file, text, n);
    fputs(color ? "\033[0m" : "]", file);
}

void format_seconds(double seconds, char *out, size_t size)
{
    unsigned long long s = (unsigned long long)(seconds + 0.5);
    if (s >= 48 * 3600)
        snprintf(out, size, "%.1f days", seconds / 86400);
    else if (s >= 3600)
        snprintf(out, size, "%llu:%02llu:%02llu", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, size, "%llu:%02llu", s / 60, s % 60);
}

void format_count(double count, char *out, size_t size)
{
    static const char *const units[] = { "", "k", "M", "G", "T", "P" };
    size_t unit = 0;
    for (; count >= 99999.5 && unit == 0; unit++)
        count /= 1000;
    for (; count >= 999.5 && unit > 0 && unit < 5; unit++)
        count /= 1000;
    snprintf(out, size, "%.*f%s",
             unit == 0 || count >= 99.95 ? 0
             : count >= 9.995            ? 1
                                         : 2,
             count, units[unit]);
}

/* The size of the terminal; 0 rows and columns where it is unknown. */
static struct winsize window_of(const struct progress_line *line)
{
    struct winsize window = { 0 };
    if (!line->terminal || ioctl(STDERR_FILENO, TIOCGWINSZ, &window) != 0)
        return (struct winsize){ 0 };
    return window;
}

/* Columns that a line may take: the last one stays free, because some terminals wrap there. */
static size_t usable_columns(const struct progress_line *line)
{
    enum { USUAL = 80, FEWEST = 20 };
    size_t columns = window_of(line).ws_col;
    columns = columns ? columns : USUAL;
    return (columns < FEWEST ? FEWEST : columns) - 1;
}

/* ---- fields ---- */

void add_field(struct line_fields *fields, int rank, const char *format, ...)
{
    va_list args;
    if (fields->n == MAX_FIELDS)
        return;
    struct line_field *field = &fields->field[fields->n++];
    field->rank = rank;
    char text[sizeof field->text];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(field->text, sizeof field->text, "%s", printable(text));
}

enum { SEPARATOR = 2 }; /* columns between fields */

/* Columns of the fields of rank `most` or less. */
static size_t width_of(const struct line_fields *fields, int most)
{
    size_t width = 0;
    for (size_t i = 0; i < fields->n; i++) {
        if (fields->field[i].rank <= most)
            width += (width ? SEPARATOR : 0) + strlen(fields->field[i].text);
    }
    return width;
}

/* The fields that fit, and of the first as much as fits. */
static void print_fields(const struct line_fields *fields, size_t columns)
{
    int most = MAX_FIELDS;
    while (most > 0 && width_of(fields, most) > columns)
        most--;
    for (size_t i = 0, used = 0; i < fields->n; i++) {
        const struct line_field *field = &fields->field[i];
        if (field->rank > most)
            continue;
        size_t gap = used ? SEPARATOR : 0, length = strlen(field->text);
        if (used + gap >= columns)
            break;
        used += gap;
        length = length < columns - used ? length : columns - used;
        fprintf(stderr, "%*s%.*s", (int)gap, "", (int)length, field->text);
        used += length;
    }
}

/* ---- the line ---- */

struct progress_line progress_line_on_stderr(bool quiet)
{
    return (struct progress_line){ .quiet = quiet,
                                   .terminal = terminal_has_control(stderr),
                                   .shown = monotonic_seconds() };
}

bool progress_line_due(const struct progress_line *line)
{
    return !line->quiet && monotonic_seconds() >= line->shown + (line->terminal ? 0.2 : 10);
}

static void set_open(struct progress_line *line, bool open)
{
    line->open = open;
    line_open = open;
}

void progress_line_show(struct progress_line *line, const struct line_fields *fields)
{
    if (line->quiet)
        return;
    line->shown = monotonic_seconds();
    set_open(line, line->terminal);
    if (line->terminal)
        fputc('\r', stderr);
    print_fields(fields, usable_columns(line));
    fputs(line->terminal ? "\033[K" : "\n", stderr);
    fflush(stderr);
}

void progress_line_clear(struct progress_line *line)
{
    if (line->open)
        fputs("\r\033[K", stderr);
    set_open(line, false);
}

void progress_line_keep(struct progress_line *line)
{
    if (line->open)
        fputc('\n', stderr);
    set_open(line, false);
}

/* ---- several lines ---- */

/* To the beginning of the first line. */
static void rewind_block(const struct progress_block *block)
{
    if (block->lines)
        fprintf(stderr, "\033[%zuA\r", block->lines);
}

void progress_block_show(struct progress_block *block, const struct line_fields *lines, size_t n)
{
    struct progress_line *line = &block->line;
    size_t rows = window_of(line).ws_row;
    if (line->quiet)
        return;
    line->shown = monotonic_seconds();
    if (line->terminal)
        rewind_block(block);
    if (line->terminal && rows > 1 && n > rows - 1)
        n = rows - 1;
    for (size_t i = 0; i < n; i++) {
        print_fields(&lines[i], usable_columns(line));
        fputs(line->terminal ? "\033[K\n" : "\n", stderr);
    }
    if (line->terminal)
        fputs("\033[J", stderr);
    fflush(stderr);
    block->lines = line->terminal ? n : 0;
}

void progress_block_clear(struct progress_block *block)
{
    if (!block->lines)
        return;
    rewind_block(block);
    fputs("\033[J", stderr);
    fflush(stderr);
    block->lines = 0;
}

/* ---- work ---- */

struct work_line work_line_on_stderr(const char *unit, bool quiet)
{
    return (struct work_line){ .line = progress_line_on_stderr(quiet),
                               .unit = unit,
                               .start = monotonic_seconds() };
}

void work_line_begin(struct work_line *work, const char *name, const char *what)
{
    if (work->line.terminal)
        work->line.shown = -INFINITY;
    work_line_show(work, name, what);
}

void work_line_show(struct work_line *work, const char *name, const char *what)
{
    enum { NAME = 24 }; /* columns of the name: its end, which tells runs apart */
    uint64_t computed = work->done - work->skipped;
    char left[32] = "?";
    if (!progress_line_due(&work->line))
        return;
    if (computed)
        format_seconds((monotonic_seconds() - work->start) / (double)computed *
                           (double)(work->total - work->done),
                       left, sizeof left);
    struct line_fields fields = { 0 };
    size_t length = strlen(name);
    add_field(&fields, 2, "%s%s", length > NAME ? "..." : "", name + (length > NAME ? length - NAME + 3 : 0));
    if (what)
        add_field(&fields, 0, "%.20s", what);
    uint64_t shown = work->task ? work->task_done : work->done,
             of = work->task ? work->task_total : work->total;
    add_field(&fields, 0, "%llu/%llu %s", (unsigned long long)shown, (unsigned long long)of, work->unit);
    if (work->n_tasks > 1)
        add_field(&fields, 3, "task %zu of %zu", work->task, work->n_tasks);
    add_field(&fields, 1, "%s left", left);
    progress_line_show(&work->line, &fields);
}
