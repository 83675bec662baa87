#define _GNU_SOURCE /* renameat2 */
#include "base/held.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct held {
    struct held *next;
    int fd;
    size_t length;
    char path[]; /* without slashes at its end */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct held *first;

bool ddl_held_add(const char *path, int fd)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    struct held *held = malloc(sizeof *held + length + 1);
    if (!held)
        return false;
    held->fd = fd;
    held->length = length;
    memcpy(held->path, path, length);
    held->path[length] = '\0';
    pthread_mutex_lock(&lock);
    held->next = first;
    first = held;
    pthread_mutex_unlock(&lock);
    return true;
}

void ddl_held_release(int fd)
{
    pthread_mutex_lock(&lock);
    struct held **at = &first, *found;
    while (*at && (*at)->fd != fd)
        at = &(*at)->next;
    found = *at;
    if (found)
        *at = found->next;
    pthread_mutex_unlock(&lock);
    free(found);
}

/* A path for the calls with "at" in their names. */
struct place {
    int dir;
    const char *path;
    size_t held; /* bytes of the held folder's path */
};

/* Whether a component of the path is "..", which leads out of the folder. */
static bool leads_up(const char *path)
{
    for (const char *at = path; (at = strstr(at, "..")); at += 2) {
        if ((at == path || at[-1] == '/') && (at[2] == '/' || at[2] == '\0'))
            return true;
    }
    return false;
}

static struct place place_of(const char *path)
{
    struct place place = { AT_FDCWD, path, 0 };
    pthread_mutex_lock(&lock);
    for (const struct held *held = first; held; held = held->next) {
        const char *rest = path + held->length;
        if (held->length <= place.held || strncmp(path, held->path, held->length) != 0 ||
            (*rest != '/' && *rest != '\0') || leads_up(rest))
            continue;
        rest += strspn(rest, "/");
        place = (struct place){ held->fd, *rest ? rest : ".", held->length };
    }
    pthread_mutex_unlock(&lock);
    return place;
}

size_t ddl_held_length(const char *path)
{
    return place_of(path).held;
}

int ddl_held_open(const char *path, int flags, mode_t mode)
{
    struct place at = place_of(path);
    return openat(at.dir, at.path, flags | O_CLOEXEC, mode);
}

DIR *ddl_held_opendir(const char *path)
{
    int fd = ddl_held_open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !dir) {
        int number = errno;
        close(fd);
        errno = number;
    }
    return dir;
}

int ddl_held_mkdir(const char *path)
{
    struct place at = place_of(path);
    return mkdirat(at.dir, at.path, 0777);
}

int ddl_held_unlink(const char *path)
{
    struct place at = place_of(path);
    return unlinkat(at.dir, at.path, 0);
}

int ddl_held_rmdir(const char *path)
{
    struct place at = place_of(path);
    return unlinkat(at.dir, at.path, AT_REMOVEDIR);
}

int ddl_held_rename(const char *from, const char *to)
{
    struct place a = place_of(from), b = place_of(to);
    return renameat(a.dir, a.path, b.dir, b.path);
}

int ddl_held_exchange(const char *a, const char *b)
{
    struct place x = place_of(a), y = place_of(b);
    return renameat2(x.dir, x.path, y.dir, y.path, RENAME_EXCHANGE);
}

int ddl_held_stat(const char *path, struct stat *out)
{
    struct place at = place_of(path);
    return fstatat(at.dir, at.path, out, 0);
}

int ddl_held_lstat(const char *path, struct stat *out)
{
    struct place at = place_of(path);
    return fstatat(at.dir, at.path, out, AT_SYMLINK_NOFOLLOW);
}
