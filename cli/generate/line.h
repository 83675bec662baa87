/* Lines typed at a terminal. line_libedit.c edits them and has a history; line_plain.c is built instead where
 * libedit is not available. */
#ifndef DDL_CLI_LINE_H
#define DDL_CLI_LINE_H

#include <stddef.h>

struct line_reader;
enum line_status { LINE_READ, LINE_CANCELLED, LINE_END };

/* Reads from standard input, a terminal; prints to standard error. NULL if out of memory. `prompt` is
 * borrowed until the reader is closed. catch_interrupts() is called before. */
struct line_reader *line_reader_open(const char *prompt);
/* Prints the prompt and reads a line. LINE_READ: `line` (n bytes, without the newline) is valid until the
 * next call. LINE_CANCELLED: interrupted() became true. LINE_END: Ctrl-D, or standard input is closed. */
enum line_status line_read(struct line_reader *reader, const char **line, size_t *n);
void line_reader_close(struct line_reader *reader);

#endif
