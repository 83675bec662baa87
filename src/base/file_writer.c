/* Files that are written completely or not at all, and files that are appended to. */
#define _DEFAULT_SOURCE /* getrandom, statfs */
#include "base/file.h"

#include "base/held.h"
#include "base/path.h"
#include "base/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* ---- temporary names ---- */

static uint64_t random_bits(void)
{
    uint64_t bits;
    struct timespec now = { 0 };
    if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) == (ssize_t)sizeof bits)
        return bits;
    (void)clock_gettime(CLOCK_REALTIME, &now); /* O_EXCL finds names that are in use */
    return ddl_rng_u64(((uint64_t)now.tv_sec << 30) + (uint64_t)now.tv_nsec, (uint64_t)getpid());
}

static const char temporary_mark[] = ".tmp-";
enum { RANDOM_DIGITS = 16, LONGEST_NAME = 255 };

bool ddl_file_temporary_name(char *out, size_t size, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash + 1 - path) : 0, name = strlen(path) - folder;
    const size_t most = LONGEST_NAME - (sizeof temporary_mark - 1) - RANDOM_DIGITS;
    int n = snprintf(out, size, "%.*s%s%0*llx", (int)(folder + (name < most ? name : most)), path,
                     temporary_mark, RANDOM_DIGITS, (unsigned long long)random_bits());
    return n > 0 && (size_t)n < size;
}

bool ddl_file_is_temporary(const char *name, const char *file)
{
    size_t n = strlen(file);
    if (strncmp(name, file, n) != 0 || strncmp(name + n, temporary_mark, sizeof temporary_mark - 1) != 0)
        return false;
    const char *digits = name + n + sizeof temporary_mark - 1;
    size_t count = strspn(digits, "0123456789abcdef"); /* earlier versions: the process id */
    return count > 0 && count <= 20 && digits[count] == '\0';
}

/* ---- writing ---- */

/* Creates a file that did not exist and stores its name in w->temporary. Returns the descriptor, or -1. */
static int create_temporary(struct ddl_file_writer *w)
{
    enum { TRIES = 100 };
    int fd = -1;
    errno = EEXIST;
    for (int i = 0; i < TRIES && fd < 0 && errno == EEXIST; i++) {
        if (!ddl_file_temporary_name(w->temporary, sizeof w->temporary, w->path)) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = ddl_held_open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
    }
    return fd;
}

/* The stream of a descriptor, which it takes over; NULL with errno. */
static FILE *stream_of(int fd, const char *mode)
{
    FILE *stream = fd < 0 ? NULL : fdopen(fd, mode);
    if (fd >= 0 && !stream) {
        int number = errno;
        close(fd);
        errno = number;
    }
    return stream;
}

static ddl_status set_path(struct ddl_file_writer *w, const char *path, struct ddl_error *err)
{
    *w = (struct ddl_file_writer){ 0 };
    if (strlen(path) >= sizeof w->path)
        return ddl_error_set(err, DDL_E_USAGE, "%.200s...: path longer than %zu bytes", path,
                             sizeof w->path - 1);
    strcpy(w->path, path);
    return DDL_OK;
}

ddl_status ddl_file_writer_begin(struct ddl_file_writer *w, const char *path, struct ddl_error *err)
{
    ddl_status status = set_path(w, path, err);
    if (status)
        return status;
    int fd = create_temporary(w);
    w->stream = stream_of(fd, "wb");
    if (w->stream)
        return DDL_OK;
    status = ddl_file_error(err, path, "create");
    if (fd >= 0)
        ddl_held_unlink(w->temporary);
    *w->temporary = '\0';
    return status;
}

/* Whether the path leads, perhaps through links, to a name in /proc, as /dev/stdout does: the open file that
 * it stands for is written, whatever its kind. */
static bool leads_to_proc(const char *path)
{
    enum { MAX_LINKS = 40 };
    char at[1024], folder[1024], target[1024];
    snprintf(at, sizeof at, "%s", path);
    for (int i = 0; i < MAX_LINKS; i++) {
        struct statfs system;
        if (!ddl_path_folder(at, folder, sizeof folder))
            return false;
        if (statfs(folder, &system) == 0 && system.f_type == PROC_SUPER_MAGIC)
            return true;
        ssize_t n = readlink(at, target, sizeof target - 1);
        if (n <= 0)
            return false;
        target[n] = '\0';
        if (*target == '/')
            strcpy(at, target);
        else if (!ddl_path_join(at, sizeof at, folder, target))
            return false;
    }
    return false;
}

ddl_status ddl_file_writer_begin_output(struct ddl_file_writer *w, const char *path, struct ddl_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0 || S_ISDIR(st.st_mode) || (S_ISREG(st.st_mode) && !leads_to_proc(path)))
        return ddl_file_writer_begin(w, path, err);
    ddl_status status = set_path(w, path, err);
    if (status)
        return status;
    w->stream = stream_of(open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY), "wb");
    return w->stream ? DDL_OK : ddl_file_error(err, path, "open");
}

ddl_status ddl_file_open_append(int *fd, const char *path, struct ddl_error *err)
{
    struct stat st;
    *fd = ddl_held_open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666);
    if (*fd < 0 && errno == ELOOP && ddl_held_lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
        return ddl_error_set(err, DDL_E_IO, "%s: is a symbolic link: expected a regular file", path);
    if (*fd < 0)
        return ddl_file_error(err, path, "open");
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode))
        return DDL_OK;
    close(*fd);
    return ddl_error_set(err, DDL_E_IO, "%s: not a regular file", path);
}

ddl_status ddl_file_append(FILE **out, const char *path, struct ddl_error *err)
{
    int fd;
    *out = NULL;
    ddl_status status = ddl_file_open_append(&fd, path, err);
    if (status)
        return status;
    *out = stream_of(fd, "a+b");
    return *out ? DDL_OK : ddl_file_error(err, path, "open");
}

ddl_status ddl_file_writer_write(struct ddl_file_writer *w, const void *data, size_t size,
                                 struct ddl_error *err)
{
    if (size && fwrite(data, 1, size, w->stream) != size)
        return ddl_file_error(err, w->path, "write");
    return DDL_OK;
}

ddl_status ddl_file_writer_finish(struct ddl_file_writer *w, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    if (fflush(w->stream) != 0 || ferror(w->stream)) /* ferror: an earlier write that failed */
        status = ddl_file_error(err, w->path, "write");
    else if (*w->temporary && fsync(fileno(w->stream)) != 0)
        status = ddl_file_error(err, w->path, "sync");
    if (fclose(w->stream) != 0 && !status)
        status = ddl_file_error(err, w->path, "close");
    w->stream = NULL;
    return status;
}

ddl_status ddl_file_writer_publish(struct ddl_file_writer *w, struct ddl_error *err)
{
    if (!*w->temporary)
        return DDL_OK;
    if (ddl_held_rename(w->temporary, w->path) != 0) {
        ddl_status status = ddl_file_error(err, w->path, "rename into place");
        ddl_file_writer_discard(w);
        return status;
    }
    *w->temporary = '\0';
    return ddl_file_sync_parent(w->path, err);
}

ddl_status ddl_file_writer_commit(struct ddl_file_writer *w, struct ddl_error *err)
{
    ddl_status status = ddl_file_writer_finish(w, err);
    if (!status)
        return ddl_file_writer_publish(w, err);
    ddl_file_writer_discard(w);
    return status;
}

void ddl_file_writer_discard(struct ddl_file_writer *w)
{
    if (w->stream)
        fclose(w->stream);
    if (*w->temporary)
        ddl_held_unlink(w->temporary);
    w->stream = NULL;
    *w->temporary = '\0';
}

ddl_status ddl_file_replace(const char *path, const void *data, size_t size, struct ddl_error *err)
{
    struct ddl_file_writer w;
    ddl_status status = ddl_file_writer_begin(&w, path, err);
    if (status)
        return status;
    status = ddl_file_writer_write(&w, data, size, err);
    if (status) {
        ddl_file_writer_discard(&w);
        return status;
    }
    return ddl_file_writer_commit(&w, err);
}
