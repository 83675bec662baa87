/* Lines edited with libedit, with a history that lasts as long as the reader; ~/.editrc configures it. */
#define _POSIX_C_SOURCE 200809L
#include "cli/generate/line.h"
#include "cli/output/terminal.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

enum { HISTORY_LINES = 1000 };

struct line_reader {
    char *prompt;
    EditLine *edit;
    History *history;
};

static char *prompt_of(EditLine *edit)
{
    struct line_reader *reader = NULL;
    el_get(edit, EL_CLIENTDATA, &reader);
    return reader->prompt;
}

/* Reads a character: 1, or 0 at the end of the input or if interrupted. Signals are blocked in this thread
 * (terminal.c), so that libedit's own read() would not return. Bytes that are no character are skipped. */
static int read_char(EditLine *edit, wchar_t *out)
{
    mbstate_t state = { 0 };
    (void)edit;
    while (wait_for_input()) {
        char byte;
        ssize_t got = read(STDIN_FILENO, &byte, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return 0;
        size_t length = mbrtowc(out, &byte, 1, &state);
        if (length == (size_t)-1)
            state = (mbstate_t){ 0 };
        else if (length != (size_t)-2)
            return 1;
    }
    return 0;
}

struct line_reader *line_reader_open(const char *prompt)
{
    struct line_reader *reader = calloc(1, sizeof *reader);
    if (!reader)
        return NULL;
    /* Characters are the locale's; without one, UTF-8. */
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1)
        setlocale(LC_CTYPE, "C.UTF-8");
    reader->prompt = strdup(prompt);
    reader->edit = el_init("ddl", stdin, stderr, stderr);
    reader->history = history_init();
    if (!reader->prompt || !reader->edit || !reader->history) {
        line_reader_close(reader);
        return NULL;
    }
    HistEvent event;
    history(reader->history, &event, H_SETSIZE, HISTORY_LINES);
    history(reader->history, &event, H_SETUNIQUE, 1);
    el_set(reader->edit, EL_CLIENTDATA, reader);
    el_set(reader->edit, EL_PROMPT, prompt_of);
    el_set(reader->edit, EL_EDITOR, "emacs");
    el_set(reader->edit, EL_HIST, history, reader->history);
    el_set(reader->edit, EL_GETCFN, read_char);
    el_set(reader->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(reader->edit, NULL);
    return reader;
}

enum line_status line_read(struct line_reader *reader, const char **line, size_t *n)
{
    int length = 0;
    HistEvent event;
    el_set(reader->edit, EL_PREP_TERM,
           1); /* before the prompt: keys typed from then on are not the driver's */
    *line = el_gets(reader->edit, &length);
    if (!*line || length <= 0) {
        fputs(interrupted() ? "^C\n" : "\n", stderr);
        return interrupted() ? LINE_CANCELLED : LINE_END;
    }
    *n = strcspn(*line, "\n");
    if (*n)
        history(reader->history, &event, H_ENTER, *line);
    return LINE_READ;
}

void line_reader_close(struct line_reader *reader)
{
    if (!reader)
        return;
    if (reader->edit)
        el_end(reader->edit);
    if (reader->history)
        history_end(reader->history);
    free(reader->prompt);
    free(reader);
}
