#define _XOPEN_SOURCE 700
#include "base/path.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONGEST = PATH_MAX };

bool ddl_path_is_relative(const char *path)
{
    return *path != '\0' && *path != '/';
}

bool ddl_path_folder(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');
    int n = slash ? snprintf(out, size, "%.*s", slash == path ? 1 : (int)(slash - path), path)
                  : snprintf(out, size, ".");
    return n >= 0 && (size_t)n < size;
}

static void drop_last(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
}

/* Appends one component to the absolute path in out[LONGEST], where "" is the root. The folder above a
 * symbolic link is that of its target. */
static bool append(char *out, const char *part, size_t n)
{
    struct stat st;
    char target[LONGEST];
    size_t length = strlen(out);
    if (n == 0 || (n == 1 && part[0] == '.'))
        return true;
    if (n == 2 && memcmp(part, "..", 2) == 0) {
        if (lstat(out, &st) == 0 && S_ISLNK(st.st_mode) && realpath(out, target))
            strcpy(out, target);
        drop_last(out);
        return true;
    }
    if (length + n + 2 > LONGEST)
        return false;
    snprintf(out + length, LONGEST - length, "/%.*s", (int)n, part);
    return true;
}

/* The absolute path in out[LONGEST], without "." and "..". */
static bool absolute(const char *path, char *out)
{
    if (*path == '/')
        *out = '\0';
    else if (!getcwd(out, LONGEST))
        return false;
    if (strcmp(out, "/") == 0)
        *out = '\0';
    for (size_t n; *path; path += n + (path[n] == '/')) {
        n = strcspn(path, "/");
        if (!append(out, path, n))
            return false;
    }
    return true;
}

/* The absolute path in out[LONGEST], also without symbolic links in as much of it as exists. */
static bool canonical(const char *path, char *out)
{
    char whole[LONGEST], head[LONGEST];
    if (!absolute(path, whole))
        return false;
    size_t n = strlen(whole);
    for (strcpy(head, whole); n > 0 && !realpath(head, out);) {
        drop_last(head);
        n = strlen(head);
    }
    if (n == 0 || strcmp(out, "/") == 0)
        *out = '\0';
    size_t length = strlen(out);
    if (length + strlen(whole + n) + 1 > LONGEST)
        return false;
    strcpy(out + length, whole + n);
    return true;
}

/* The way from one absolute path to another in out[LONGEST]; *ups counts its "..". */
static bool way(const char *from, const char *to, char *out, size_t *ups)
{
    size_t common = 0, used = 0;
    for (size_t i = 0; from[i] == to[i] || !from[i] || !to[i]; i++) {
        if ((!from[i] || from[i] == '/') && (!to[i] || to[i] == '/'))
            common = i;
        if (!from[i] || !to[i])
            break;
    }
    *ups = 0;
    for (const char *at = from + common; *at; at++)
        *ups += *at == '/';
    if (3 * *ups + strlen(to + common) + 2 > LONGEST)
        return false;
    for (size_t i = 0; i < *ups; i++)
        used += (size_t)snprintf(out + used, LONGEST - used, "%s..", i ? "/" : "");
    const char *rest = to + common + (to[common] == '/');
    snprintf(out + used, LONGEST - used, "%s%s", used && *rest ? "/" : "", *rest || used ? rest : ".");
    return true;
}

bool ddl_path_relative_to(const char *folder, const char *path, char *out, size_t size)
{
    char from[LONGEST], to[LONGEST], kept[LONGEST], resolved[LONGEST];
    size_t kept_ups, resolved_ups;
    if (!canonical(folder, from) || !absolute(path, to) || !way(from, to, kept, &kept_ups) ||
        !canonical(path, to) || !way(from, to, resolved, &resolved_ups))
        return false;
    int n = snprintf(out, size, "%s", resolved_ups < kept_ups ? resolved : kept);
    return n >= 0 && (size_t)n < size;
}

bool ddl_path_canonical(const char *path, char *out, size_t size)
{
    char whole[LONGEST];
    if (!canonical(path, whole))
        return false;
    int n = snprintf(out, size, "%s", *whole ? whole : "/");
    return n >= 0 && (size_t)n < size;
}
