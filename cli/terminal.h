/* What commands share that run for long or use a terminal: interruption, a line of progress on standard
 * error, escape sequences. */
#ifndef DDL_CLI_TERMINAL_H
#define DDL_CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* From here on the first SIGINT or SIGTERM only sets what interrupted() tells; a second ends the program. To
 * be called before there are threads. */
void catch_interrupts(void);
bool interrupted(void);
/* SIGINT or SIGTERM, or 0 if not interrupted. */
int interrupt_signal(void);
/* interrupted() returns false again, until the next signal. */
void clear_interrupt(void);
/* Waits until standard input can be read or is at its end; false if interrupted before. */
bool wait_for_input(void);

/* Whether escape sequences may be written: a terminal, TERM is not "dumb", NO_COLOR is unset or empty. */
bool terminal_has_color(FILE *file);
/* Prints the prompt of a generated text, distinct from the text that follows: bold where terminal_has_color,
 * else in brackets. */
void print_prompt(FILE *file, const char *text, size_t n);

/* "1:02:03", "2:03". */
void format_seconds(double seconds, char *out, size_t size);

/* On a terminal one line that is written over, elsewhere a line every ten seconds. */
struct progress_line {
    bool quiet, terminal, open; /* open: the line has no newline yet */
    double shown;               /* when it was last written, in the caller's seconds */
};
struct progress_line progress_line_on_stderr(bool quiet);
/* True if it is time to write the line again; then print to standard error between begin and end. */
bool progress_line_due(const struct progress_line *line, double seconds);
void progress_line_begin(struct progress_line *line, double seconds);
void progress_line_end(struct progress_line *line);
/* Before other output follows: wipes the line, or leaves it to be read. */
void progress_line_clear(struct progress_line *line);
void progress_line_keep(struct progress_line *line);

#endif
