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

/* The end of the group in braces that begins at `open` if it is a list, else NULL. */
static const char *end_of_list(const char *open)
{
    size_t depth = 0;
    bool list = false;
    for (const char *at = open; *at; at++) {
        depth += *at == '{';
        list = list || (*at == ',' && depth == 1);
        if (*at == '}' && --depth == 0)
            return list ? at : NULL;
    }
    return NULL;
}

/* Appends a copy of the row for each name that the lists in braces in `name` expand to. */
static void append_names(struct markdown_table *out, const struct markdown_row *row, const char *name)
{
    const char *open = strchr(name, '{'), *close = NULL;
    while (open && !(close = end_of_list(open)))
        open = strchr(open + 1, '{');
    if (!open) {
        out->row = realloc(out->row, (out->n + 1) * sizeof *out->row);
        assert_non_null(out->row);
        out->row[out->n] = *row;
        snprintf(out->row[out->n++].cell[0], MARKDOWN_CELL, "%s", name);
        return;
    }
    for (const char *from = open + 1, *to = from; to < close; from = to + 1) {
        char one[MARKDOWN_CELL];
        size_t depth = 0;
        for (to = from; to < close && (depth || *to != ','); to++)
            depth += (size_t)(*to == '{') - (size_t)(*to == '}');
        snprintf(one, sizeof one, "%.*s%.*s%s", (int)(open - name), name, (int)(to - from), from, close + 1);
        append_names(out, row, one);
    }
}

/* Divides a cell of n rows between them if it has n parts. */
static void divide_cell(struct markdown_row *row, size_t n, size_t cell)
{
    size_t parts = 1;
    const char *at = row[0].cell[cell];
    for (const char *next = at; (next = strstr(next, "; ")); next += 2)
        parts++;
    if (parts != n || n == 1)
        return;
    char whole[MARKDOWN_CELL];
    snprintf(whole, sizeof whole, "%s", at);
    at = whole;
    for (size_t i = 0; i < n; i++) {
        const char *end = strstr(at, "; ");
        size_t length = end ? (size_t)(end - at) : strlen(at);
        snprintf(row[i].cell[cell], MARKDOWN_CELL, "%.*s", (int)length, at);
        at += length + 2;
    }
}

/* Replaces each row for several names by one for each. */
static struct markdown_table expand(struct markdown_table table)
{
    struct markdown_table out = { 0 };
    for (size_t i = 0; i < table.n; i++) {
        size_t first = out.n;
        append_names(&out, &table.row[i], table.row[i].cell[0]);
        for (size_t cell = 1; cell < MARKDOWN_CELLS; cell++)
            divide_cell(&out.row[first], out.n - first, cell);
    }
    markdown_table_free(&table);
    return out;
}

/* Joins the lines of the item at `at` to one in `out`. Returns the line after it, or NULL if there is no
 * item. */
static const char *take_item(const char *at, char *out, size_t size)
{
    size_t n = 0;
    if (strncmp(at, "- ", 2) != 0)
        return NULL;
    do {
        at += 2;
        const char *end = strchr(at, '\n');
        assert_non_null(end);
        n += (size_t)snprintf(out + n, size - n, "%s%.*s", n ? " " : "", (int)(end - at), at);
        assert_true(n < size);
        at = end + 1;
    } while (strncmp(at, "  ", 2) == 0);
    return at;
}

/* Divides an item into the cells of a row; several keys become one list in braces. */
static void divide_item(const char *at, struct markdown_row *row)
{
    const char *start = at;
    char keys[MARKDOWN_CELL] = "";
    size_t n = 0, used = 0;
    do {
        at += n ? 2 : 0;
        const char *end = *at == '`' ? strchr(at + 1, '`') : NULL;
        if (!end)
            fail_msg("not an item of keys: %.60s", start);
        used += (size_t)snprintf(keys + used, sizeof keys - used, "%s%.*s", n++ ? "," : "",
                                 (int)(end - at - 1), at + 1);
        assert_true(used < sizeof keys);
        at = end + 1;
    } while (strncmp(at, ", `", 3) == 0);
    *row = (struct markdown_row){ 0 };
    snprintf(row->cell[0], MARKDOWN_CELL, n > 1 ? "`{%.*s}`" : "`%.*s`", (int)(MARKDOWN_CELL - 5), keys);
    at += *at == ' ';
    const char *colon = strstr(at, ": ");
    size_t length = colon ? (size_t)(colon - at) : strlen(at);
    snprintf(row->cell[1], MARKDOWN_CELL, "%.*s", (int)length, at);
    snprintf(row->cell[2], MARKDOWN_CELL, "%s", colon ? colon + 2 : "");
}

struct markdown_table markdown_keys(const char *document, const char *name)
{
    char mark[256], item[4 * MARKDOWN_CELL];
    struct markdown_table table = { 0 };
    bool again;
    snprintf(mark, sizeof mark, "<!-- keys: %s -->", name);
    const char *at = after_line(document, mark, &again);
    if (!at) {
        snprintf(mark, sizeof mark, "```json %s", name);
        at = strstr(find(document, mark), "\n```\n");
        assert_non_null(at);
        at += strlen("\n```\n");
    }
    for (at += *at == '\n'; (at = take_item(at, item, sizeof item));) {
        table.row = realloc(table.row, (table.n + 1) * sizeof *table.row);
        assert_non_null(table.row);
        divide_item(item, &table.row[table.n++]);
    }
    if (table.n == 0)
        fail_msg("no list after '%s'", mark);
    table = expand(table);
    for (size_t i = 0; i < table.n; i++) {
        char *end = strstr(table.row[i].cell[0], "?`"), *type = table.row[i].cell[1];
        if (!end)
            continue;
        memcpy(end, "`", 2);
        snprintf(type + strlen(type), MARKDOWN_CELL - strlen(type), ", optional");
    }
    return table;
}
