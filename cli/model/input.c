#include "cli/model/input.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_standard(const char *path)
{
    return !path || strcmp(path, "-") == 0;
}

const char *input_name(const char *path)
{
    return is_standard(path) ? "standard input" : path;
}

static ddl_status read_all(FILE *file, const char *name, size_t limit, char **text, size_t *n,
                           struct ddl_error *err)
{
    size_t capacity = 0, got = 0;
    do {
        *n += got;
        if (*n > limit)
            return ddl_error_set(err, DDL_E_USAGE, "%s: expected at most %zu bytes, found more", name, limit);
        if (capacity - *n < 1 << 16) {
            capacity = 2 * capacity + (1 << 17);
            char *grown = realloc(*text, capacity);
            if (!grown)
                return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory after %zu bytes", name, *n);
            *text = grown;
        }
        got = fread(*text + *n, 1, capacity - *n - 1, file);
    } while (got);
    if (ferror(file))
        return ddl_error_set(err, DDL_E_IO, "%s: cannot read: %s", name, strerror(errno));
    (*text)[*n] = '\0';
    return DDL_OK;
}

ddl_status read_input(const char *path, size_t limit, char **out, size_t *size, struct ddl_error *err)
{
    const char *name = input_name(path);
    FILE *file = is_standard(path) ? stdin : fopen(path, "rb");
    *out = NULL;
    *size = 0;
    if (!file)
        return ddl_error_set(err, DDL_E_IO, "%s: cannot open: %s", name, strerror(errno));
    ddl_status status = read_all(file, name, limit, out, size, err);
    if (file != stdin)
        fclose(file);
    if (status) {
        free(*out);
        *out = NULL;
    }
    return status;
}
