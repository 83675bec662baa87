/* A program on a pseudo-terminal, driven by keys. */
#ifndef DDL_TEST_PTY_H
#define DDL_TEST_PTY_H

#include "support/support.h"

/* Starts argv[0] (a path) in the folder of the sources with a terminal as its three streams and as its
 * controlling terminal; both lists end with NULL. `environment` has "NAME=value", added to the test's. One
 * program at a time. Skips the test, with a message, where there are no pseudo-terminals. */
void pty_start(const char *const *argv, const char *const *environment);
/* Columns of the terminals of the programs that are started from here on; 0, as at first: unknown. */
void pty_set_columns(unsigned short columns);
/* Types the keys: "\x03" is Ctrl-C, "\x04" Ctrl-D. */
void pty_send(const char *keys);
/* Waits until `text` is printed after what earlier calls found; fails after ten minutes or at the program's
 * end. Returns what was printed before it. */
const char *pty_expect(const char *text);
/* The same for n bytes, whatever they are. */
void pty_expect_bytes(size_t n);
void pty_signal(int number);
/* Closes the terminal, as its window or a connection: the program gets SIGHUP. Returns as pty_finish. */
int pty_hang_up(void);
/* Waits for the end of the program; returns its exit status, or 128 and the signal. */
int pty_finish(void);
/* All that it printed, NUL-terminated. */
const char *pty_output(void);

#endif
