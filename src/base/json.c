#include "base/json.h"

#include "base/file.h"
#include "base/json_scan.h"
#include "base/locale.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* jansson (2.14) does not check the allocation for a long word: without memory it continues with a truncated
 * key or value and reports no error. malloc's errno does, until jansson clears it to convert the next number.
 * So the text is passed in pieces that end where a number ends, and errno is checked between them. */
struct feed {
    const char *at, *end;
    bool no_memory;
};

static bool in_number(char c)
{
    return (c >= '0' && c <= '9') || c == '.' || c == 'e' || c == 'E';
}

static size_t next_piece(void *buffer, size_t size, void *user)
{
    struct feed *feed = user;
    size_t n = 0;
    feed->no_memory = feed->no_memory || errno == ENOMEM;
    while (n < size && feed->at + n < feed->end) {
        bool number_ends = n > 0 && in_number(feed->at[n - 1]) && !in_number(feed->at[n]);
        if (number_ends)
            break;
        n++;
    }
    memcpy(buffer, feed->at, n);
    feed->at += n;
    return n;
}

enum { LEAST_TREE = 1 << 20, TREE_OF_TEXT = 64 << 20 }; /* limits of trees in bytes */

/* As ddl_json_parse; a tree of more than `limit` bytes is an error. */
static ddl_status parse(json_t **out, const char *text, size_t size, size_t flags, size_t limit,
                        json_error_t *why)
{
    *out = NULL;
    if (ddl_json_tree_bytes(text, size, limit) > limit) {
        *why = (json_error_t){ .line = 1 };
        snprintf(why->text, sizeof why->text, "its values need more than the limit of %zu MiB of memory",
                 limit >> 20);
        return DDL_E_FORMAT;
    }
    struct feed feed = { .at = text, .end = text + size };
    int before = errno;
    errno = 0;
    struct ddl_c_locale scope =
        ddl_c_locale_enter(); /* jansson allows for a decimal point of one byte only */
    *out = json_load_callback(next_piece, &feed, flags, why);
    ddl_c_locale_leave(&scope);
    bool no_memory = feed.no_memory || errno == ENOMEM;
    errno = before;
    if (*out && !no_memory)
        return DDL_OK;
    json_decref(*out);
    *out = NULL;
    if (!no_memory)
        return DDL_E_FORMAT;
    snprintf(why->text, sizeof why->text, "out of memory");
    return DDL_E_MEMORY;
}

ddl_status ddl_json_parse(json_t **out, const char *text, size_t size, size_t flags, json_error_t *why)
{
    return parse(out, text, size, flags, TREE_OF_TEXT, why);
}

ddl_status ddl_json_parse_file(json_t **out, const char *path, const char *text, size_t size, size_t limit,
                               struct ddl_error *err)
{
    json_error_t why;
    size_t tree = 8 * limit;
    ddl_status status =
        parse(out, text, size, JSON_REJECT_DUPLICATES, tree < LEAST_TREE ? LEAST_TREE : tree, &why);
    if (status == DDL_E_FORMAT)
        ddl_error_set(err, status, "%s:%d:%d: not valid JSON: %s", path, why.line, why.column, why.text);
    else if (status)
        ddl_error_set(err, status, "%s: %s", path, why.text);
    return status;
}

ddl_status ddl_json_read(json_t **out, const char *path, size_t limit, struct ddl_error *err)
{
    char *text;
    size_t size;
    *out = NULL;
    ddl_status status = ddl_file_read(path, limit, &text, &size, err);
    if (status)
        return status;
    status = ddl_json_parse_file(out, path, text, size, limit, err);
    free(text);
    return status;
}

char *ddl_json_dumps(const json_t *root, size_t flags)
{
    struct ddl_c_locale scope = ddl_c_locale_enter();
    char *text = json_dumps(root, flags);
    ddl_c_locale_leave(&scope);
    return text;
}

ddl_status ddl_json_write(const char *path, const json_t *root, struct ddl_error *err)
{
    char *text = root ? ddl_json_dumps(root, JSON_INDENT(2)) : NULL;
    ddl_status status = text ? ddl_file_replace(path, text, strlen(text), err)
                             : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    free(text);
    return status;
}
