#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE /* madvise: POSIX has only a call that glibc ignores */
#include "base/file.h"

#include "base/held.h"
#include "base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Advice for errors whose message does not suggest what to do. */
static const struct {
    int number;
    const char *advice;
} advices[] = {
    { ENOSPC, "free some space there, then run this again" },
    { EDQUOT, "free some of your quota there, then run this again" },
    { EFBIG, "raise the limit on the size of files there: ulimit -f, or that of the file system" },
    { EIO, "the device has failed: see the system log" },
    { EROFS, "choose a folder that can be written" },
};

ddl_status ddl_file_error(struct ddl_error *err, const char *path, const char *verb)
{
    int number = errno;
    const char *advice = NULL;
    for (size_t i = 0; i < sizeof advices / sizeof *advices; i++) {
        if (advices[i].number == number)
            advice = advices[i].advice;
    }
    return ddl_error_set(err, number == ENOMEM ? DDL_E_MEMORY : DDL_E_IO, "%s: cannot %s: %s%s%s%s", path,
                         verb, strerror(number), advice ? " (" : "", advice ? advice : "", advice ? ")" : "");
}

/* Opens a regular file for reading. Without O_NONBLOCK a pipe would wait for a writer, and some
 * devices act on being opened. */
static ddl_status open_regular(const char *path, int *fd, size_t *size, struct ddl_error *err)
{
    *fd = ddl_held_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (*fd < 0)
        return ddl_file_error(err, path, "open");
    struct stat st;
    const bool is_known = fstat(*fd, &st) == 0;
    if (is_known && S_ISREG(st.st_mode)) {
        *size = (size_t)st.st_size;
        return DDL_OK;
    }
    close(*fd);
    return ddl_error_set(err, DDL_E_IO, "%s: not a regular file%s", path,
                         is_known && S_ISDIR(st.st_mode) ? " but a folder" : "");
}

ddl_status ddl_file_map_open(struct ddl_file_map *map, const char *path, struct ddl_error *err)
{
    *map = (struct ddl_file_map){ 0 };
    int fd;
    size_t size = 0;
    ddl_status status = open_regular(path, &fd, &size, err);
    if (status)
        return status;
    void *view = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : (void *)(uintptr_t) "";
    if (view == MAP_FAILED)
        status = ddl_file_error(err, path, "map");
    else
        *map = (struct ddl_file_map){ view, size };
    close(fd);
    return status;
}

void ddl_file_map_release(const struct ddl_file_map *map, const unsigned char *from, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), begin = (size_t)(from - map->data);
    size_t first = begin / page * page, end = (begin + size) / page * page;
    if (end > first) /* advice: where it is not taken, pages stay */
        (void)madvise((void *)(uintptr_t)(map->data + first), end - first, MADV_DONTNEED);
}

void ddl_file_map_close(struct ddl_file_map *map)
{
    if (map->data && map->size)
        munmap((void *)(uintptr_t)map->data, map->size);
    *map = (struct ddl_file_map){ 0 };
}

/* Exactly size bytes: a file that another program cuts short meanwhile is an error here, not a signal as it
 * would be in a map. */
static ddl_status read_bytes(int fd, const char *path, char *out, size_t size, struct ddl_error *err)
{
    for (size_t at = 0; at < size;) {
        ssize_t got = read(fd, out + at, size - at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ddl_file_error(err, path, "read");
        if (got == 0)
            return ddl_error_set(err, DDL_E_IO,
                                 "%s: became shorter while it was read: %zu bytes, at first %zu", path, at,
                                 size);
        at += (size_t)got;
    }
    return DDL_OK;
}

/* The next n bytes of an open file, malloc'ed. */
static ddl_status read_next(int fd, const char *path, size_t n, char **out, size_t *size,
                            struct ddl_error *err)
{
    char *text = malloc(n + 1);
    if (!text)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for %zu bytes", path, n);
    ddl_status status = read_bytes(fd, path, text, n, err);
    if (status) {
        free(text);
        return status;
    }
    text[n] = '\0';
    *out = text;
    if (size)
        *size = n;
    return DDL_OK;
}

/* A file of at most limit bytes, or the last limit bytes of a larger one. */
static ddl_status read_file(const char *path, size_t limit, bool only_end, char **out, size_t *size,
                            struct ddl_error *err)
{
    *out = NULL;
    int fd;
    size_t n = 0;
    ddl_status status = open_regular(path, &fd, &n, err);
    if (status)
        return status;
    if (n <= limit)
        status = read_next(fd, path, n, out, size, err);
    else if (!only_end)
        status = ddl_error_set(err, DDL_E_FORMAT, "%s: %zu bytes, at most %zu are read", path, n, limit);
    else if (lseek(fd, (off_t)(n - limit), SEEK_SET) < 0)
        status = ddl_file_error(err, path, "read");
    else
        status = read_next(fd, path, limit, out, size, err);
    close(fd);
    return status;
}

ddl_status ddl_file_read(const char *path, size_t limit, char **out, size_t *size, struct ddl_error *err)
{
    return read_file(path, limit, false, out, size, err);
}

ddl_status ddl_file_read_end(const char *path, size_t limit, char **out, size_t *size, struct ddl_error *err)
{
    return read_file(path, limit, true, out, size, err);
}

ddl_status ddl_file_sum(const char *path, ddl_sum_fn *add, uint64_t *size, uint32_t *sum,
                        struct ddl_error *err)
{
    unsigned char piece[1 << 16];
    int fd;
    size_t expected;
    ddl_status status = open_regular(path, &fd, &expected, err);
    if (status)
        return status;
    *size = 0;
    *sum = 0;
    ssize_t n;
    while ((n = read(fd, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR)) {
        if (n > 0) {
            *size += (uint64_t)n;
            *sum = add(*sum, piece, (size_t)n);
        }
    }
    if (n < 0)
        status = ddl_file_error(err, path, "read");
    close(fd);
    return status;
}

/* The folder that holds `path`, into folder[PATH_MAX]. */
static ddl_status parent_of(const char *path, char *folder, struct ddl_error *err)
{
    return ddl_path_folder(path, folder, PATH_MAX)
               ? DDL_OK
               : ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", path);
}

/* Whether the error of a call says that another process has removed a folder meanwhile; ESTALE: on a
 * network's file system. */
static bool is_removed(int number)
{
    return number == ENOENT || number == ESTALE;
}

/* required: a folder that does not exist is an error. */
static ddl_status sync_folder(const char *path, bool required, struct ddl_error *err)
{
    int fd = ddl_held_open(path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return is_removed(errno) && !required ? DDL_OK : ddl_file_error(err, path, "open folder");
    /* EINVAL: a file system that has nothing to sync in a folder. */
    ddl_status status = fsync(fd) == 0 || errno == EINVAL ? DDL_OK : ddl_file_error(err, path, "sync folder");
    close(fd);
    return status;
}

ddl_status ddl_file_sync_dir(const char *path, struct ddl_error *err)
{
    return sync_folder(path, true, err);
}

ddl_status ddl_file_sync_parent(const char *path, struct ddl_error *err)
{
    char folder[PATH_MAX];
    ddl_status status = parent_of(path, folder, err);
    return status ? status : ddl_file_sync_dir(folder, err);
}

/* Whether the error of a call says that there is nothing at a path. */
static bool is_absence(int number)
{
    return number == ENOENT || number == ENOTDIR || number == ENAMETOOLONG;
}

bool ddl_file_exists(const char *path)
{
    struct stat st;
    return ddl_held_stat(path, &st) == 0 || !is_absence(errno);
}

ddl_status ddl_file_find_dir(const char *path, bool *is_dir, struct ddl_error *err)
{
    struct stat st;
    bool found = ddl_held_stat(path, &st) == 0;
    *is_dir = found && S_ISDIR(st.st_mode);
    return found || is_absence(errno) ? DDL_OK : ddl_file_error(err, path, "examine");
}

bool ddl_file_is_dir(const char *path)
{
    struct stat st;
    return ddl_held_stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Whether a component of the path ends at i. */
static bool ends_at(const char *path, size_t i)
{
    return path[i] == '/' || path[i] == '\0';
}

/* Neither a folder nor missing. */
static bool is_no_folder(const char *path)
{
    struct stat st;
    if (ddl_held_stat(path, &st) == 0)
        return !S_ISDIR(st.st_mode);
    return ddl_held_lstat(path, &st) == 0 && S_ISLNK(st.st_mode); /* a link to nothing */
}

/* Makes the folders that are missing. *first: length of the shortest path made, 0 before the first call.
 * After a failure, with errno, `path` is that of the folder that could not be made. */
static bool make_dirs(char *path, size_t length, size_t *first)
{
    for (size_t i = ddl_held_length(path) + 1; i <= length; i++) { /* a held folder exists */
        if (!ends_at(path, i))
            continue;
        const char kept = path[i];
        path[i] = '\0';
        bool made = ddl_held_mkdir(path) == 0;
        if (!made && errno != EEXIST)
            return false;
        if (made && (*first == 0 || i < *first))
            *first = i;
        path[i] = kept;
    }
    return true;
}

ddl_status ddl_file_make_dir(const char *path, struct ddl_error *err)
{
    enum { MAKE_TRIES = 100 };
    char part[1024];
    size_t length = strlen(path), first = 0;
    if (length == 0 || length >= sizeof part)
        return ddl_error_set(err, DDL_E_USAGE, "'%.200s': not a usable folder name", path);
    strcpy(part, path);
    for (int i = 0; !make_dirs(part, length, &first); i++) {
        if (!is_removed(errno) || i == MAKE_TRIES)
            return ddl_file_error(err, part, "make folder");
        strcpy(part, path);
    }
    for (size_t i = first; first > 0 && i <= length; i++) {
        char folder[PATH_MAX];
        if (!ends_at(part, i))
            continue;
        const char kept = part[i];
        part[i] = '\0';
        ddl_status status = parent_of(part, folder, err);
        part[i] = kept;
        if (!status)
            status = sync_folder(folder, false, err);
        if (status)
            return status;
    }
    if (is_no_folder(path))
        return ddl_error_set(err, DDL_E_IO, "%s: exists and is not a folder", path);
    return DDL_OK;
}

ddl_status ddl_file_make_parent(const char *path, struct ddl_error *err)
{
    char folder[PATH_MAX];
    ddl_status status = parent_of(path, folder, err);
    return status ? status : ddl_file_make_dir(folder, err);
}

ddl_status ddl_file_make_new_dir(const char *path, bool *made, struct ddl_error *err)
{
    *made = false;
    ddl_status status = ddl_file_make_parent(path, err);
    if (status)
        return status;
    *made = ddl_held_mkdir(path) == 0;
    if (!*made)
        return errno == EEXIST ? DDL_OK : ddl_file_error(err, path, "make folder");
    return ddl_file_sync_parent(path, err);
}

ddl_status ddl_file_check_no_link(const char *path, struct ddl_error *err)
{
    struct stat st;
    if (ddl_held_lstat(path, &st) != 0 || !S_ISLNK(st.st_mode))
        return DDL_OK;
    return ddl_error_set(err, DDL_E_IO, "%s: is a symbolic link: expected a folder", path);
}

ddl_status ddl_file_make_only_dir(const char *path, struct ddl_error *err)
{
    return ddl_held_mkdir(path) == 0 ? DDL_OK : ddl_file_error(err, path, "make folder");
}

bool ddl_path_join(char *out, size_t size, const char *folder, const char *name)
{
    int n = snprintf(out, size, "%s/%s", folder, name);
    return n >= 0 && (size_t)n < size;
}
