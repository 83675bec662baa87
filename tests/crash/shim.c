/* A library to preload: counts the calls that change or open files below one folder, and at a chosen call
 * simulates a failing or full disk, or ends the process. Preloaded and not wrapped at link time, so that the
 * installed program is tested, with its exit status and error message; no privileges are needed, unlike with
 * a device mapper or ptrace. Output streams are replaced by streams over the shim's own write (fopencookie),
 * because the C library's calls inside fwrite cannot be replaced: each write(2) is one call here too.
 *
 *   DDL_SHIM_UNDER  calls on paths that begin so are counted
 *   DDL_SHIM_AT     the number of the call where it happens, from 1
 *   DDL_SHIM_ACT    error: that call fails (EIO)
 *                   dead:  that one and all after it fail (EIO)
 *                   full:  from that one on what needs space fails (ENOSPC); a write, after half of it
 *                   kill:  SIGKILL instead of that call; a write, after half of it
 *                   stop:  SIGINT before it, and SIGTERM two calls later
 *                   pause: SIGSTOP before it
 *                   move:  before it, DDL_SHIM_FROM is renamed to DDL_SHIM_TO, and DDL_SHIM_PUT to
 *                          DDL_SHIM_FROM
 *   DDL_SHIM_BYTES  ENOSPC after so many bytes written
 *   DDL_SHIM_LOG    gets a line for each call: "17 fsync /path"; and a line "fault ..." where it happened
 *   DDL_SHIM_FLOCK  flock fails with this errno; with EINTR only every second time
 *   DDL_SHIM_EXCHANGE none: names cannot be exchanged, as on NFS
 *   DDL_SHIM_NOSYNC 1: fsync only counts, for speed where no power is cut
 *
 * A name relative to a folder's descriptor has the path by which the folder was opened, which remains the
 * same if the folder is moved; a descriptor that the shim has not seen opened has the path that the system
 * gives it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
/* The next definition of a function after ours. */
#define REAL(name)                                                                                           \
    (((union {                                                                                               \
         void *address;                                                                                      \
         __typeof__(&name) function;                                                                         \
     }){ dlsym(RTLD_NEXT, #name) })                                                                          \
         .function)

enum { MAX_FD = 256, PATH = 4096 };
enum need { ANY, SPACE };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long calls, left_bytes = -1;
static char path_of[MAX_FD][PATH]; /* of open folders, and of files that are watched; otherwise "" */
static FILE *stream_of[MAX_FD];

static const char *setting(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

static bool watched(const char *path)
{
    const char *under = setting("DDL_SHIM_UNDER");
    return path && *under && strncmp(path, under, strlen(under)) == 0;
}

static bool watched_fd(int fd)
{
    return fd >= 0 && fd < MAX_FD && watched(path_of[fd]);
}

static void log_line(const char *format, ...)
{
    char line[2 * PATH];
    const char *log = setting("DDL_SHIM_LOG");
    if (!*log)
        return;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    int fd = REAL(open)(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd >= 0 && n > 0) {
        ssize_t unused = REAL(write)(fd, line, (size_t)n);
        (void)unused;
        REAL(close)(fd);
    }
}

/* Renames the folder DDL_SHIM_FROM to DDL_SHIM_TO, then DDL_SHIM_PUT, if it is set, to DDL_SHIM_FROM. */
static void move_folder(void)
{
    const char *from = setting("DDL_SHIM_FROM"), *put = setting("DDL_SHIM_PUT");
    if (REAL(rename)(from, setting("DDL_SHIM_TO")) == 0 && *put)
        (void)REAL(rename)(put, from);
    log_line("fault move\n");
}

/* What is to happen at this call: 0, or the errno it fails with; *half: after half of it. */
static int fate(const char *name, const char *path, enum need need, bool *half)
{
    const char *act = setting("DDL_SHIM_ACT"), *at_text = setting("DDL_SHIM_AT");
    long at = *at_text ? atol(at_text) : 0;
    pthread_mutex_lock(&lock);
    long n = ++calls;
    pthread_mutex_unlock(&lock);
    int saved = errno, result = 0;
    log_line("%ld %s %s\n", n, name, path);
    *half = n == at;
    if (strcmp(act, "error") == 0 && n == at)
        result = EIO;
    else if (strcmp(act, "dead") == 0 && at && n >= at)
        result = EIO;
    else if (strcmp(act, "full") == 0 && at && n >= at && need == SPACE)
        result = ENOSPC;
    else if (strcmp(act, "kill") == 0 && n == at)
        result = -1;
    else if (strcmp(act, "move") == 0 && n == at)
        move_folder();
    else if (strcmp(act, "stop") == 0 && (n == at || n == at + 2))
        kill(getpid(), n == at ? SIGINT : SIGTERM); /* the process: raise means this thread */
    else if (strcmp(act, "pause") == 0 && n == at)
        kill(getpid(), SIGSTOP);
    if (result)
        log_line("fault %s at %ld %s %s\n", act, n, name, path);
    errno = saved;
    return result;
}

/* True if the call is to fail; errno is then set. */
static bool fails(const char *name, const char *path, enum need need)
{
    bool half;
    int number = fate(name, path, need, &half);
    if (number < 0)
        raise(SIGKILL);
    if (number > 0)
        errno = number;
    return number > 0;
}

/* ---- descriptors ---- */

static void remember(int fd, const char *path)
{
    if (fd >= 0 && fd < MAX_FD)
        snprintf(path_of[fd], PATH, "%s", path);
}

static void forget(int fd)
{
    if (fd >= 0 && fd < MAX_FD)
        path_of[fd][0] = '\0';
}

/* The path of an open folder, without slashes at its end; "" if it is unknown. */
static void folder_path(int fd, char out[PATH])
{
    char link[64];
    if (fd >= 0 && fd < MAX_FD && path_of[fd][0]) {
        snprintf(out, PATH, "%s", path_of[fd]);
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, out, PATH - 1);
        out[n > 0 ? n : 0] = '\0';
    }
    for (size_t n = strlen(out); n > 0 && out[n - 1] == '/'; n--)
        out[n - 1] = '\0';
}

/* The path of a name relative to a descriptor; a static buffer of the thread. */
static const char *full_path(int dir, const char *path)
{
    static __thread char full[2 * PATH];
    char folder[PATH];
    if (dir == AT_FDCWD || *path == '/')
        return path;
    folder_path(dir, folder);
    if (strcmp(path, ".") == 0)
        snprintf(full, sizeof full, "%s", folder);
    else
        snprintf(full, sizeof full, "%s/%s", folder, path);
    return full;
}

static int open_at(const char *name, int dir, const char *path, int flags, mode_t mode)
{
    const char *full = full_path(dir, path);
    if (watched(full) && fails(flags & O_CREAT ? "create" : name, full, flags & O_CREAT ? SPACE : ANY))
        return -1;
    int fd = REAL(openat)(dir, path, flags, mode);
    if (watched(full) || flags & O_DIRECTORY)
        remember(fd, full);
    return fd;
}

EXPORT int openat(int dir, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? (mode_t)va_arg(args, int) : 0;
    va_end(args);
    return open_at("open", dir, path, flags, mode);
}

EXPORT int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? (mode_t)va_arg(args, int) : 0;
    va_end(args);
    return open_at("open", AT_FDCWD, path, flags, mode);
}

EXPORT int creat(const char *path, mode_t mode)
{
    return open_at("creat", AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

EXPORT int close(int fd)
{
    bool failed = watched_fd(fd) && fails("close", path_of[fd], ANY);
    int number = errno;
    forget(fd);
    int result = REAL(close)(fd); /* as the system does: closed, whatever it says */
    if (failed)
        errno = number;
    return failed ? -1 : result;
}

EXPORT int fsync(int fd)
{
    if (watched_fd(fd) && fails("fsync", path_of[fd], SPACE))
        return -1;
    return *setting("DDL_SHIM_NOSYNC") ? 0 : REAL(fsync)(fd);
}

EXPORT int ftruncate(int fd, off_t length)
{
    return watched_fd(fd) && fails("ftruncate", path_of[fd], ANY) ? -1 : REAL(ftruncate)(fd, length);
}

/* How much of a write is carried out; errno says why not all. */
static size_t share(int fd, size_t size)
{
    bool half;
    int number = fate("write", path_of[fd], SPACE, &half);
    size_t done = number == 0 ? size : half && (number == ENOSPC || number < 0) ? size / 2 : 0;
    if (left_bytes < 0) {
        const char *bytes = setting("DDL_SHIM_BYTES");
        left_bytes = *bytes ? atol(bytes) : (long)1 << 60;
    }
    if ((long)done > left_bytes) {
        log_line("fault bytes %s\n", path_of[fd]);
        done = (size_t)left_bytes;
        number = number ? number : ENOSPC;
    }
    left_bytes -= (long)done;
    errno = number < 0 ? EINTR : number;
    return done;
}

static ssize_t write_watched(int fd, const char *data, size_t size)
{
    size_t wanted = share(fd, size), done = 0;
    int number = errno;
    while (done < wanted) {
        ssize_t n = REAL(write)(fd, data + done, wanted - done);
        if (n <= 0)
            return done ? (ssize_t)done : -1;
        done += (size_t)n;
    }
    if (number == EINTR)
        raise(SIGKILL);
    errno = number;
    return done == 0 && number ? -1 : (ssize_t)done;
}

EXPORT ssize_t write(int fd, const void *data, size_t size)
{
    return watched_fd(fd) ? write_watched(fd, data, size) : REAL(write)(fd, data, size);
}

EXPORT ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    if (watched_fd(fd) && fails("pwrite", path_of[fd], SPACE))
        return -1;
    return REAL(pwrite)(fd, data, size, offset);
}

/* ---- streams ---- */

static ssize_t cookie_read(void *cookie, char *data, size_t size)
{
    return read((int)(intptr_t)cookie, data, size);
}

/* A short count is an error to the stream; a half-carried write keeps its errno. */
static ssize_t cookie_write(void *cookie, const char *data, size_t size)
{
    ssize_t n = write_watched((int)(intptr_t)cookie, data, size);
    return n < 0 ? 0 : n;
}

static int cookie_seek(void *cookie, off64_t *offset, int whence)
{
    off64_t at = lseek64((int)(intptr_t)cookie, *offset, whence);
    if (at < 0)
        return -1;
    *offset = at;
    return 0;
}

static int cookie_close(void *cookie)
{
    int fd = (int)(intptr_t)cookie;
    stream_of[fd] = NULL;
    return close(fd);
}

static FILE *stream_over(int fd, const char *mode)
{
    static const cookie_io_functions_t functions = { cookie_read, cookie_write, cookie_seek, cookie_close };
    FILE *stream = fd < MAX_FD ? fopencookie((void *)(intptr_t)fd, mode, functions) : NULL;
    if (stream)
        stream_of[fd] = stream;
    return stream;
}

EXPORT FILE *fopen(const char *path, const char *mode)
{
    if (!watched(path))
        return REAL(fopen)(path, mode);
    int flags = mode[0] == 'r' ? O_RDONLY : O_WRONLY | O_CREAT | (mode[0] == 'a' ? O_APPEND : O_TRUNC);
    int fd = open_at("fopen", AT_FDCWD, path, flags | O_CLOEXEC, 0666);
    return fd < 0 ? NULL : stream_over(fd, mode);
}

EXPORT FILE *fdopen(int fd, const char *mode)
{
    return watched_fd(fd) ? stream_over(fd, mode) : REAL(fdopen)(fd, mode);
}

EXPORT int fileno(FILE *stream)
{
    for (int fd = 0; fd < MAX_FD; fd++) {
        if (stream_of[fd] == stream)
            return fd;
    }
    return REAL(fileno)(stream);
}

/* ---- names ---- */

EXPORT int mkdir(const char *path, mode_t mode)
{
    return watched(path) && fails("mkdir", path, SPACE) ? -1 : REAL(mkdir)(path, mode);
}

EXPORT int rename(const char *from, const char *to)
{
    return watched(to) && fails("rename", to, ANY) ? -1 : REAL(rename)(from, to);
}

EXPORT int unlink(const char *path)
{
    return watched(path) && fails("unlink", path, ANY) ? -1 : REAL(unlink)(path);
}

EXPORT int rmdir(const char *path)
{
    return watched(path) && fails("rmdir", path, ANY) ? -1 : REAL(rmdir)(path);
}

EXPORT int mkdirat(int dir, const char *path, mode_t mode)
{
    const char *full = full_path(dir, path);
    return watched(full) && fails("mkdir", full, SPACE) ? -1 : REAL(mkdirat)(dir, path, mode);
}

EXPORT int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    const char *full = full_path(to_dir, to);
    return watched(full) && fails("rename", full, ANY) ? -1 : REAL(renameat)(from_dir, from, to_dir, to);
}

EXPORT int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    const char *full = full_path(to_dir, to);
    if (flags & RENAME_EXCHANGE && strcmp(setting("DDL_SHIM_EXCHANGE"), "none") == 0) {
        errno = EINVAL;
        return -1;
    }
    return watched(full) && fails("rename", full, ANY) ? -1
                                                       : REAL(renameat2)(from_dir, from, to_dir, to, flags);
}

EXPORT int unlinkat(int dir, const char *path, int flags)
{
    const char *full = full_path(dir, path);
    return watched(full) && fails(flags & AT_REMOVEDIR ? "rmdir" : "unlink", full, ANY)
               ? -1
               : REAL(unlinkat)(dir, path, flags);
}

/* DDL_SHIM_FLOCK=n: flock fails with errno n; with EINTR, only every second time. */
EXPORT int flock(int fd, int operation)
{
    static unsigned turn;
    const int number = atoi(setting("DDL_SHIM_FLOCK"));
    if (!number || (number == EINTR && turn++ % 2 == 1))
        return REAL(flock)(fd, operation);
    errno = number;
    return -1;
}

/* Lists of watched folders are counted by themselves: with DDL_SHIM_LIST=n the n-th fails after its entries,
 * as the second getdents64 can. One folder is listed at a time. */
static DIR *listed;
static long lists;
static char listed_path[PATH];

static DIR *list_begins(DIR *dir, const char *path)
{
    if (dir && watched(path)) {
        listed = dir;
        lists++;
        snprintf(listed_path, sizeof listed_path, "%s", path);
    } else if (listed == dir) {
        listed = NULL;
    }
    return dir;
}

EXPORT DIR *opendir(const char *path)
{
    if (watched(path) && fails("opendir", path, ANY))
        return NULL;
    return list_begins(REAL(opendir)(path), path);
}

EXPORT DIR *fdopendir(int fd)
{
    if (watched_fd(fd) && fails("opendir", path_of[fd], ANY))
        return NULL;
    return list_begins(REAL(fdopendir)(fd), watched_fd(fd) ? path_of[fd] : NULL);
}

/* It closes the descriptor inside the C library. */
EXPORT int closedir(DIR *dir)
{
    forget(dirfd(dir));
    if (listed == dir)
        listed = NULL;
    return REAL(closedir)(dir);
}

EXPORT struct dirent *readdir(DIR *dir)
{
    const char *at = setting("DDL_SHIM_LIST");
    struct dirent *entry = REAL(readdir)(dir);
    if (entry || dir != listed || !*at || lists != atol(at))
        return entry;
    log_line("fault list %s\n", listed_path);
    errno = EIO;
    return NULL;
}
