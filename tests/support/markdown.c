#include "support/markdown.h"

#include "support/files.h"

char *formats;

int open_formats(void **state)
{
    (void)state;
    formats = read_file(source_path("docs/formats.md"), NULL);
    return 0;
}

int close_formats(void **state)
{
    (void)state;
    free(formats);
    return 0;
}

/* The line after the one that is exactly `wanted`, or NULL; *again is set if there is another such line. */
static const char *after_line(const char *text, const char *wanted, bool *again)
{
    size_t n = strlen(wanted);
    const char *found = NULL;
    *again = false;
    for (const char *at = text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, wanted, n) != 0 || at[n] != '\n')
            continue;
        *again = found != NULL;
        found = found ? found : at + n + 1;
    }
    return found;
}

static const char *find(const char *document, const char *wanted)
{
    bool again;
    const char *found = after_line(document, wanted, &again);
    if (!found)
        fail_msg("the document has no line '%s'", wanted);
    if (again)
        fail_msg("the document has two lines '%s'", wanted);
    return found;
}

char *markdown_block(const char *document, const char *info)
{
    char fence[256];
    snprintf(fence, sizeof fence, "```%s", info);
    const char *body = find(document, fence), *end = strstr(body, "\n```");
    if (!end)
        fail_msg("the block '%s' does not end", fence);
    size_t n = (size_t)(end - body) + 1;
    char *copy = calloc(1, n + 1);
    assert_non_null(copy);
    memcpy(copy, body, n);
    return copy;
}

/* One cell of a row: the text before the next bar that is not escaped. Returns what follows, or NULL. */
static const char *take_cell(const char *at, char *out)
{
    size_t n = 0;
    at += strspn(at, " ");
    for (; *at != '|'; at++) {
        if (*at == '\n' || *at == '\0' || n + 1 >= MARKDOWN_CELL)
            return NULL;
        if (at[0] == '\\' && at[1] == '|')
            at++;
        out[n++] = *at;
    }
    while (n > 0 && out[n - 1] == ' ')
        n--;
    out[n] = '\0';
    return at + 1;
}

static void take_row(const char *line, struct markdown_row *row)
{
    *row = (struct markdown_row){ 0 };
    const char *at = line + 1;
    for (size_t i = 0; at && *at != '\n' && i < MARKDOWN_CELLS; i++)
        at = take_cell(at, row->cell[i]);
    if (!at || *at != '\n')
        fail_msg("not a row of a table: %.60s", line);
}

struct markdown_table markdown_table(const char *document, const char *name)
{
    char mark[256];
    struct markdown_table table = { 0 };
    snprintf(mark, sizeof mark, "<!-- table: %s -->", name);
    const char *at = find(document, mark);
    at += *at == '\n';
    for (size_t line = 0; *at == '|'; line++) {
        if (line >= 2) { /* below the heading and its rule */
            table.row = realloc(table.row, (table.n + 1) * sizeof *table.row);
            assert_non_null(table.row);
            take_row(at, &table.row[table.n++]);
        }
        at = strchr(at, '\n');
        assert_non_null(at);
        at++;
    }
    if (table.n == 0)
        fail_msg("no table behind '%s'", mark);
    return table;
}

void markdown_table_free(struct markdown_table *table)
{
    free(table->row);
    *table = (struct markdown_table){ 0 };
}
