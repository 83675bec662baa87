/* Lines as the terminal driver edits them, without a history. */
#define _POSIX_C_SOURCE 200809L
#include "cli/generate/line.h"
#include "cli/output/terminal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct line_reader {
    const char *prompt;
    char line[4096]; /* the limit of Linux's terminal driver */
};

struct line_reader *line_reader_open(const char *prompt)
{
    struct line_reader *reader = calloc(1, sizeof *reader);
    if (reader)
        reader->prompt = prompt;
    return reader;
}

enum line_status line_read(struct line_reader *reader, const char **line, size_t *n)
{
    size_t used = 0;
    ssize_t got = 0;
    fputs(reader->prompt, stderr);
    *line = reader->line;
    do {
        if (!wait_for_input()) {
            fputs("\n", stderr);
            return LINE_CANCELLED;
        }
        got = read(STDIN_FILENO, reader->line + used, sizeof reader->line - used);
        used += got > 0 ? (size_t)got : 0;
        *n = used;
        if (used && reader->line[used - 1] == '\n') {
            *n = used - 1;
            return LINE_READ;
        }
    } while (used < sizeof reader->line && (got > 0 || (got < 0 && errno == EINTR)));
    return used ? LINE_READ : LINE_END;
}

void line_reader_close(struct line_reader *reader)
{
    free(reader);
}
