#define _POSIX_C_SOURCE 200809L
#include "base/lock.h"

#include "base/file.h"
#include "base/held.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OWNER_SIZE = 512 };

static const char lock_name[] = ".lock", takeover_name[] = ".lock.takeover";

/* ---- the owner of a lock ---- */

/* The first bytes of a file in one read, without a newline at their end; "" if it cannot be read. */
static void read_text(int fd, char *out, size_t size)
{
    ssize_t n = fd < 0 ? 0 : pread(fd, out, size - 1, 0);
    out[n > 0 ? n : 0] = '\0';
    size_t length = strlen(out);
    if (length > 0 && out[length - 1] == '\n')
        out[length - 1] = '\0';
}

static void read_named(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    read_text(fd, out, size);
    if (fd >= 0)
        close(fd);
}

/* When a process started, in ticks since the machine did; 0 if there is no such process. */
static unsigned long long start_of(long pid)
{
    enum { FIELDS = 20 }; /* between the name, which ends in the last parenthesis, and the time */
    char path[64], text[1024], *at;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    read_named(path, text, sizeof text);
    at = strrchr(text, ')');
    if (at && (strncmp(at, ") Z", 3) == 0 || strncmp(at, ") X", 3) == 0)) /* it has ended */
        return 0;
    for (int i = 0; at && i < FIELDS; i++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

/* What process numbers and start times belong to: the machine since it started, and the namespace. "" if it
 * is unknown. */
static void describe_machine(char *out, size_t size)
{
    char boot[64], space[64];
    read_named("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    ssize_t n = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    space[n > 0 ? n : 0] = '\0';
    snprintf(out, size, "%s %s", space, boot);
    if (!*boot || !*space)
        *out = '\0';
}

/* Two lines: the process for people, and what is needed to find out whether it still runs. */
static void describe_self(char out[OWNER_SIZE])
{
    char host[65] = "", machine[160];
    (void)gethostname(host, sizeof host - 1);
    describe_machine(machine, sizeof machine);
    snprintf(out, OWNER_SIZE, "process %ld on %s\nstarted %llu %s\n", (long)getpid(), host,
             start_of((long)getpid()), machine);
}

/* UNKNOWN: the process is on another machine, in another container, or of an earlier version. */
enum owner_state { UNKNOWN, RUNS, ENDED };

/* Whether the process that wrote the text still runs. */
static enum owner_state state_of(const char *owner)
{
    char machine[160];
    long pid;
    unsigned long long start;
    int end = 0;
    describe_machine(machine, sizeof machine);
    const char *second = strchr(owner, '\n');
    if (!second || sscanf(owner, "process %ld on ", &pid) != 1 ||
        sscanf(second, "\nstarted %llu %n", &start, &end) != 1 || end == 0 || !*machine || start == 0 ||
        strcmp(second + end, machine) != 0)
        return UNKNOWN;
    return start_of(pid) == start ? RUNS : ENDED;
}

static bool write_owner(int fd)
{
    char owner[OWNER_SIZE];
    describe_self(owner);
    size_t n = strlen(owner);
    return ftruncate(fd, 0) == 0 && write(fd, owner, n) == (ssize_t)n;
}

/* ---- messages ---- */

/* The file names the process that holds the lock; it is empty if that has only just opened it. */
static ddl_status in_use(struct ddl_lock *lock, const char *folder, struct ddl_error *err)
{
    char owner[OWNER_SIZE];
    read_text(lock->fd, owner, sizeof owner);
    owner[strcspn(owner, "\n")] = '\0';
    lock->busy = true;
    return ddl_error_set(err, DDL_E_IO,
                         "%.600s: in use by %s; wait for it, stop it, or choose another folder", folder,
                         *owner ? owner : "another process");
}

static ddl_status maybe_in_use(struct ddl_lock *lock, const char *folder, struct ddl_error *err)
{
    char owner[OWNER_SIZE];
    read_text(lock->fd, owner, sizeof owner);
    owner[strcspn(owner, "\n")] = '\0';
    lock->busy = true;
    return ddl_error_set(
        err, DDL_E_IO,
        "%.400s: in use by %s, unless that has ended: this file system has no locks, by which "
        "to find out; if it has ended, remove %.400s",
        folder, *owner ? owner : "another process", lock->path);
}

/* ---- taking it ---- */

/* LOCK_SH or LOCK_EX, at once. 0, or errno. */
static int try_flock(int fd, int kind)
{
    int result;
    do {
        result = flock(fd, kind | LOCK_NB);
    } while (result != 0 && errno == EINTR);
    return result ? errno : 0;
}

/* Errors of flock on a file system, or a server of it, that has no locks. */
static bool has_no_locks(int number)
{
    return number == ENOSYS || number == ENOLCK || number == EOPNOTSUPP;
}

/* False if the file was removed or replaced, by the process that held it, between opening and locking it. */
static bool is_in(int folder, int fd)
{
    struct stat opened, found;
    return fstat(fd, &opened) == 0 && fstatat(folder, lock_name, &found, AT_SYMLINK_NOFOLLOW) == 0 &&
           opened.st_dev == found.st_dev && opened.st_ino == found.st_ino;
}

/* Whether `path` is this folder. */
static bool is_at(int folder, const char *path)
{
    struct stat opened, found;
    return fstat(folder, &opened) == 0 && ddl_held_stat(path, &found) == 0 && opened.st_dev == found.st_dev &&
           opened.st_ino == found.st_ino;
}

/* The file, new or existing; *made: new. -1 with errno; ENOENT if the folder has been removed. */
static int open_file(int folder, bool *made)
{
    enum { TRIES = 1000 };
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    int fd = -1;
    for (int i = 0; i < TRIES && fd < 0; i++) {
        fd = openat(folder, lock_name, flags | O_CREAT | O_EXCL, 0666);
        *made = fd >= 0;
        if (fd >= 0 || errno != EEXIST)
            break;
        fd = openat(folder, lock_name, flags); /* ENOENT: it has just been removed */
        if (fd < 0 && errno != ENOENT)
            break;
    }
    return fd;
}

/* Without locks of the file system, for a file that existed: replaces it if its owner has ended. Processes
 * that replace it at the same time exclude each other by a second file. */
static ddl_status take_over(struct ddl_lock *lock, const char *folder, bool *again, struct ddl_error *err)
{
    char owner[OWNER_SIZE];
    read_text(lock->fd, owner, sizeof owner);
    const enum owner_state owner_is = state_of(owner);
    if (owner_is != ENDED)
        return owner_is == RUNS ? in_use(lock, folder, err) : maybe_in_use(lock, folder, err);
    int guard =
        openat(lock->folder, takeover_name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (guard < 0 && errno == EEXIST) {
        lock->busy = true;
        return ddl_error_set(err, DDL_E_IO,
                             "%.400s: another process has just taken it; if there is none, remove "
                             "%.400s and %s next to it",
                             folder, lock->path, takeover_name);
    }
    if (guard < 0)
        return ddl_file_error(err, lock->path, "replace");
    ddl_status status = DDL_OK;
    if (!is_in(lock->folder, lock->fd)) {
        *again = true;
    } else if (unlinkat(lock->folder, lock_name, 0) != 0) {
        status = ddl_file_error(err, lock->path, "replace");
    } else {
        close(lock->fd);
        lock->fd = openat(lock->folder, lock_name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (lock->fd < 0) {
            lock->busy = errno == EEXIST;
            status = ddl_file_error(err, lock->path, "create");
        }
    }
    (void)unlinkat(lock->folder, takeover_name, 0);
    close(guard);
    return status;
}

/* In the open folder. *again: the file or the lock has changed meanwhile. */
static ddl_status take_in(struct ddl_lock *lock, const char *folder, bool *again, struct ddl_error *err)
{
    bool made = false;
    lock->fd = open_file(lock->folder, &made);
    if (lock->fd < 0) {
        lock->missing = errno == ENOENT;
        return ddl_file_error(err, lock->path, "create");
    }
    int number = try_flock(lock->fd, LOCK_EX);
    if (number == EWOULDBLOCK) {
        if (try_flock(lock->fd, LOCK_SH) == EWOULDBLOCK)
            return in_use(lock, folder, err);
        /* only ddl_lock_is_held was in the way */
        (void)nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        *again = true;
        return DDL_OK;
    }
    if (number && !has_no_locks(number)) {
        errno = number;
        return ddl_file_error(err, lock->path, "lock");
    }
    if (number && !made)
        return take_over(lock, folder, again, err);
    *again = !is_in(lock->folder, lock->fd) || !is_at(lock->folder, folder);
    return DDL_OK;
}

static void close_all(struct ddl_lock *lock)
{
    if (lock->fd >= 0)
        close(lock->fd);
    if (lock->folder >= 0)
        close(lock->folder);
    lock->fd = lock->folder = -1;
}

ddl_status ddl_lock_take(struct ddl_lock *lock, const char *folder, struct ddl_error *err)
{
    bool again;
    *lock = (struct ddl_lock){ .fd = -1, .folder = -1 };
    if (!ddl_path_join(lock->path, sizeof lock->path, folder, lock_name))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", folder);
    do {
        ddl_status status = DDL_OK;
        again = false;
        lock->folder = ddl_held_open(folder, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0);
        if (lock->folder < 0) {
            lock->missing = errno == ENOENT;
            status = ddl_file_error(err, lock->path, "create");
        } else {
            status = take_in(lock, folder, &again, err);
        }
        if (status || again)
            close_all(lock);
        if (status)
            return status;
    } while (again);
    lock->held = true;
    if (write_owner(lock->fd))
        return DDL_OK;
    ddl_status status = ddl_file_error(err, lock->path, "write");
    ddl_lock_release(lock);
    return status;
}

/* A shared lock is enough to find out, and released at once. */
bool ddl_lock_is_held(const char *folder)
{
    char path[1088], owner[OWNER_SIZE];
    if (!ddl_path_join(path, sizeof path, folder, lock_name))
        return false;
    int fd = ddl_held_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return false;
    int number = try_flock(fd, LOCK_SH);
    read_text(fd, owner, sizeof owner);
    close(fd);
    return number == EWOULDBLOCK || (has_no_locks(number) && state_of(owner) != ENDED);
}

void ddl_lock_release(struct ddl_lock *lock)
{
    if (!lock->held)
        return;
    lock->held = false;
    if (is_in(lock->folder, lock->fd))
        (void)unlinkat(lock->folder, lock_name, 0); /* while it is held: another one's is not removed */
    close_all(lock);
}

/* ---- whether the folder is still there ---- */

/* The folder of the lock, as it was given. */
static void folder_of(const struct ddl_lock *lock, char *out, size_t size)
{
    snprintf(out, size, "%.*s", (int)(strlen(lock->path) - strlen(lock_name) - 1), lock->path);
}

ddl_status ddl_lock_check(const struct ddl_lock *lock, bool *moved, char *now, size_t size,
                          struct ddl_error *err)
{
    char folder[1088], link[64];
    struct stat opened, found;
    folder_of(lock, folder, sizeof folder);
    *moved = false;
    snprintf(now, size, "another place");
    if (fstat(lock->folder, &opened) != 0)
        return ddl_file_error(err, folder, "examine");
    if (opened.st_nlink == 0 || !is_in(lock->folder, lock->fd))
        return ddl_error_set(err, DDL_E_IO,
                             "%.600s: the folder or its file %s was removed or replaced while it was in use: "
                             "nothing more is written",
                             folder, lock_name);
    *moved = stat(folder, &found) != 0 || found.st_dev != opened.st_dev || found.st_ino != opened.st_ino;
    snprintf(link, sizeof link, "/proc/self/fd/%d", lock->folder);
    ssize_t n = *moved && size > 0 ? readlink(link, now, size - 1) : -1;
    if (n > 0)
        now[n] = '\0';
    return DDL_OK;
}

ddl_status ddl_lock_check_in_place(const struct ddl_lock *lock, struct ddl_error *err)
{
    char folder[1088], now[1088];
    bool moved = false;
    ddl_status status = lock->held ? ddl_lock_check(lock, &moved, now, sizeof now, err) : DDL_OK;
    if (status || !moved)
        return status;
    folder_of(lock, folder, sizeof folder);
    return ddl_error_set(err, DDL_E_IO,
                         "%.400s: the folder was moved to %.400s while it was in use: nothing more is "
                         "written; move it back, then run this again",
                         folder, now);
}
