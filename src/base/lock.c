#define _POSIX_C_SOURCE 200809L
#include "base/lock.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The file names the process that holds the lock; it is empty if that has only just opened it. */
static ddl_status in_use(int fd, const char *folder, struct ddl_error *err)
{
    char who[128];
    ssize_t n = read(fd, who, sizeof who - 1);
    who[n > 0 ? n : 0] = '\0';
    who[strcspn(who, "\n")] = '\0';
    return ddl_error_set(err, DDL_E_IO,
                         "%.600s: in use by %s; wait for it, stop it, or choose another folder", folder,
                         *who ? who : "another process");
}

/* False if the file was removed or replaced, by the process that held it, between opening and locking it. */
static bool is_at(int fd, const char *path)
{
    struct stat opened, found;
    return fstat(fd, &opened) == 0 && lstat(path, &found) == 0 && opened.st_dev == found.st_dev &&
           opened.st_ino == found.st_ino;
}

static bool write_who(int fd)
{
    char host[65] = "", who[128];
    (void)gethostname(host, sizeof host - 1);
    int n = snprintf(who, sizeof who, "process %ld on %s\n", (long)getpid(), host);
    return ftruncate(fd, 0) == 0 && write(fd, who, (size_t)n) == n;
}

ddl_status ddl_lock_take(struct ddl_lock *lock, const char *folder, struct ddl_error *err)
{
    *lock = (struct ddl_lock){ .fd = -1 };
    if (!ddl_path_join(lock->path, sizeof lock->path, folder, ".lock"))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", folder);
    for (;;) {
        lock->fd = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666);
        if (lock->fd < 0) {
            lock->missing = errno == ENOENT;
            return ddl_file_error(err, lock->path, "create");
        }
        if (flock(lock->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            if (flock(lock->fd, LOCK_SH | LOCK_NB) == 0) { /* only ddl_lock_is_held was in the way */
                close(lock->fd);
                (void)nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
                continue;
            }
            ddl_status status = in_use(lock->fd, folder, err);
            lock->busy = true;
            close(lock->fd);
            return status;
        }
        if (is_at(lock->fd, lock->path))
            break;
        close(lock->fd);
    }
    lock->held = true;
    if (write_who(lock->fd))
        return DDL_OK;
    ddl_status status = ddl_file_error(err, lock->path, "write");
    ddl_lock_release(lock);
    return status;
}

/* A shared lock is enough to find out, and released at once. */
bool ddl_lock_is_held(const char *folder)
{
    char path[1088];
    if (!ddl_path_join(path, sizeof path, folder, ".lock"))
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return false;
    bool held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return held;
}

void ddl_lock_release(struct ddl_lock *lock)
{
    if (!lock->held)
        return;
    lock->held = false;
    (void)unlink(lock->path); /* while it is held: another one's is not removed */
    close(lock->fd);
}
