/* ddl_option_join_paths: several paths as one text, which a recipe can store. */
#include "ddl/option.h"

#include "base/pattern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Counts the matches of a pattern that are among the paths, and those that are not. */
struct matches {
    const char **sorted;
    size_t n, listed, others;
};

static int compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static ddl_status count_match(void *user, const char *path, struct ddl_error *err)
{
    struct matches *m = user;
    (void)err;
    if (bsearch(&path, m->sorted, m->n, sizeof *m->sorted, compare))
        m->listed++;
    else
        m->others++;
    return DDL_OK;
}

/* The pattern of the first `prefix` bytes, '*' and the last `suffix` bytes of a path, if exactly the paths
 * match it. */
static bool try_pattern(struct matches *m, const char *path, size_t prefix, size_t suffix, char *out,
                        size_t size)
{
    int n = snprintf(out, size, "%.*s*%s", (int)prefix, path, path + strlen(path) - suffix);
    if (n < 0 || (size_t)n >= size)
        return false;
    out[prefix] = '\0';
    bool literal = !ddl_pattern_is(out) && !ddl_pattern_is(path + strlen(path) - suffix);
    out[prefix] = '*';
    m->listed = m->others = 0;
    return literal && ddl_pattern_walk(out, count_match, m, NULL) == DDL_OK && m->listed == m->n &&
           m->others == 0;
}

/* Length of the common beginning of all paths. */
static size_t common_prefix(const struct matches *m)
{
    size_t n = 0;
    while (m->sorted[0][n] && m->sorted[0][n] == m->sorted[m->n - 1][n])
        n++;
    return n;
}

/* Length of the file name extension, from its dot, that all paths have; 0 if there is none. */
static size_t common_extension(const struct matches *m)
{
    const char *dot = strrchr(m->sorted[0], '.');
    for (size_t i = 0; dot && i < m->n; i++) {
        const char *other = strrchr(m->sorted[i], '.');
        if (!other || strcmp(dot, other) != 0)
            dot = NULL;
    }
    return dot && !strchr(dot, '/') ? strlen(dot) : 0;
}

/* Tries the prefix without the digits at its end first: "train_*.bin" rather than "train_00000*.bin". */
static bool find_pattern(struct matches *m, char *out, size_t size)
{
    size_t suffix = common_extension(m), whole = common_prefix(m), prefix = whole;
    const char *path = m->sorted[0];
    if (suffix == 0 || whole + suffix > strlen(path))
        return false;
    while (prefix > 0 && strchr("0123456789", path[prefix - 1]))
        prefix--;
    return try_pattern(m, path, prefix, suffix, out, size) || try_pattern(m, path, whole, suffix, out, size);
}

static ddl_status write_list(const char *const *paths, size_t n, const char *where, char *out, size_t size,
                             struct ddl_error *err)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        if (n > 1 && strchr(paths[i], ','))
            return ddl_error_set(err, DDL_E_USAGE,
                                 "%s: '%.200s' contains a comma, which separates paths: use a pattern or a "
                                 "folder",
                                 where, paths[i]);
        int written = snprintf(out + used, size - used, "%s%s", i ? "," : "", paths[i]);
        if (written < 0 || (size_t)written >= size - used)
            return ddl_error_set(
                err, DDL_E_USAGE,
                "%s: %zu paths, '%.40s...', exceed the limit of %zu bytes: use a folder or a "
                "pattern in quotes",
                where, n, paths[0], size - 1);
        used += (size_t)written;
    }
    return DDL_OK;
}

ddl_status ddl_option_join_paths(const char *const *paths, size_t n, const char *where, char *out,
                                 size_t size, struct ddl_error *err)
{
    if (n > 1) {
        struct matches m = { .sorted = malloc(n * sizeof *m.sorted), .n = n };
        if (!m.sorted)
            return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for %zu paths", where, n);
        memcpy(m.sorted, paths, n * sizeof *m.sorted);
        qsort(m.sorted, n, sizeof *m.sorted, compare);
        bool found = find_pattern(&m, out, size);
        free(m.sorted);
        if (found)
            return DDL_OK;
    }
    return write_list(paths, n, where, out, size, err);
}
