#define _POSIX_C_SOURCE 200809L
#include "base/pattern.h"

#include "base/file.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

enum { PATH_SIZE = 1024 };

struct walk {
    const char *pattern;
    ddl_pattern_fn *each;
    void *user;
    struct ddl_error *err;
};

bool ddl_pattern_is(const char *path)
{
    return strpbrk(path, "*?[") != NULL;
}

static ddl_status too_long(const struct walk *w)
{
    return ddl_error_set(w->err, DDL_E_USAGE, "%.200s...: path longer than %d bytes", w->pattern,
                         PATH_SIZE - 1);
}

static ddl_status descend(const struct walk *w, const char *found, const char *rest);

static bool fits(void *part, const char *name)
{
    return fnmatch(part, name, FNM_PERIOD) == 0;
}

/* The entries of the folder `found` ("", or ending in a slash) that fit `part`, and below them `rest`. */
static ddl_status match_entries(const struct walk *w, const char *found, char *part, const char *rest)
{
    const char *folder = *found ? found : ".";
    struct ddl_file_names list = { 0 };
    bool is_dir;
    ddl_status status = ddl_file_find_dir(folder, &is_dir, w->err);
    if (status || !is_dir)
        return status;
    status = ddl_file_list(&list, folder, fits, part, w->err);
    if (list.missing) /* removed meanwhile */
        return DDL_OK;
    for (size_t i = 0; !status && i < list.n; i++) {
        char path[PATH_SIZE];
        int n = snprintf(path, sizeof path, "%s%s", found, list.names[i]);
        status = n < 0 || (size_t)n >= sizeof path ? too_long(w) : descend(w, path, rest);
    }
    ddl_file_names_free(&list);
    return status;
}

/* `found` is a path that fits so far, `rest` what of the pattern follows it, from its slash on. */
static ddl_status descend(const struct walk *w, const char *found, const char *rest)
{
    char path[PATH_SIZE], part[PATH_SIZE];
    if (*rest == '\0')
        return ddl_file_exists(found) ? w->each(w->user, found, w->err) : DDL_OK;
    size_t slashes = strspn(rest, "/"), length = strcspn(rest + slashes, "/");
    int n = snprintf(path, sizeof path, "%s%.*s", found, (int)slashes, rest);
    int m = snprintf(part, sizeof part, "%.*s", (int)length, rest + slashes);
    if (n < 0 || m < 0 || (size_t)n + (size_t)m >= sizeof path)
        return too_long(w);
    rest += slashes + length;
    if (ddl_pattern_is(part))
        return match_entries(w, path, part, rest);
    memcpy(path + n, part, (size_t)m + 1);
    return descend(w, path, rest);
}

ddl_status ddl_pattern_walk(const char *pattern, ddl_pattern_fn *each, void *user, struct ddl_error *err)
{
    struct walk w = { pattern, each, user, err };
    if (strlen(pattern) >= PATH_SIZE)
        return too_long(&w);
    return descend(&w, "", pattern);
}
