/* What commands share that run for long or use a terminal: interruption, a line of progress on standard
 * error, escape sequences. */
#ifndef DDL_CLI_TERMINAL_H
#define DDL_CLI_TERMINAL_H

#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* From here on the first SIGINT, SIGTERM or SIGUSR1 (which Slurm can send before the time limit of a job)
 * only sets what interrupted() returns; a second ends the program.
 * To be called before there are threads. */
void catch_interrupts(void);
bool interrupted(void);
/* The signal, or 0 if not interrupted. */
int interrupt_signal(void);
/* interrupted() returns false again, until the next signal. */
void clear_interrupt(void);
/* Waits until standard input can be read or is at its end; false if interrupted before. */
bool wait_for_input(void);

/* While on, the first signal ends the program with EXIT_INTERRUPTED instead: for phases in which there is
 * nothing to save. */
void exit_on_interrupt(bool on);

/* Whether the file is a terminal that understands control sequences: TERM is set and not "dumb". */
bool terminal_has_control(FILE *file);
/* Whether colors may be used there too: NO_COLOR is unset or empty. */
bool terminal_has_color(FILE *file);
/* Prints the prompt of a generated text, distinct from the text that follows: bold where terminal_has_color,
 * else in brackets. */
void print_prompt(FILE *file, const char *text, size_t n);

/* Seconds since some moment, by a clock that is never set back. */
double monotonic_seconds(void);
/* "2:03", "1:02:03", "2.5 days". */
void format_seconds(double seconds, char *out, size_t size);

/* "99999", "100k", "1.23M": three digits and a unit from 100,000 on. */
void format_count(double count, char *out, size_t size);

/* Parts of a line. Where the line is too narrow for all, those of the highest rank (0 to MAX_FIELDS) are left
 * out. */
enum { MAX_FIELDS = 8 };
struct line_fields {
    size_t n;
    struct line_field {
        int rank;
        char text[64];
    } field[MAX_FIELDS];
};
void add_field(struct line_fields *fields, int rank, const char *format, ...) DDL_PRINTF(3, 4);

/* Progress on standard error: on a terminal one line that is overwritten, as wide as the terminal; elsewhere,
 * and with TERM=dumb, a line of at most 79 columns every ten seconds. */
struct progress_line {
    bool quiet, terminal, open; /* open: the line has no newline yet */
    double shown;               /* when it was last written          */
};
struct progress_line progress_line_on_stderr(bool quiet);
/* True if it is time to write the line again. */
bool progress_line_due(const struct progress_line *line);
void progress_line_show(struct progress_line *line, const struct line_fields *fields);
/* Before other output follows: erases the line, or keeps it to be read. */
void progress_line_clear(struct progress_line *line);
void progress_line_keep(struct progress_line *line);

/* Progress in several lines, which are overwritten on a terminal. */
struct progress_block {
    struct progress_line line;
    size_t lines; /* on the screen */
};
/* Writes n lines in the place of the ones before; on a terminal at most one fewer than it has rows. */
void progress_block_show(struct progress_block *block, const struct line_fields *lines, size_t n);
/* Erases them before other output follows. */
void progress_block_clear(struct progress_block *block);

/* Progress of a known amount of work, with the time left. */
struct work_line {
    struct progress_line line;
    const char *unit;     /* "documents" */
    uint64_t done, total; /* units */
    uint64_t skipped;     /* of those done: by an earlier process */
    double start;         /* when this process began */
    /* Of several tasks: the units of the one that is worked on are shown, and the time of all. */
    size_t task, n_tasks; /* the number of the task, from 1; 0: no tasks */
    uint64_t task_done, task_total;
};
struct work_line work_line_on_stderr(const char *unit, bool quiet);
/* If it is time to, writes the line: `name` (of a model), `what` is worked on (NULL: nothing to add), units
 * and time. */
void work_line_show(struct work_line *work, const char *name, const char *what);
/* At the start of a task: on a terminal the line is written at once. */
void work_line_begin(struct work_line *work, const char *name, const char *what);

#endif
