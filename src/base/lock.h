/* Exclusive use of a folder by one process: a lock on the file ".lock" in it, which names the process. The
 * system releases the lock when the process ends; a file that is left has no meaning. On a file system
 * without locks (flock fails) the file itself is the lock, and one that a process of this machine has left is
 * replaced. */
#ifndef DDL_BASE_LOCK_H
#define DDL_BASE_LOCK_H

#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>

struct ddl_lock {
    bool held;
    bool busy;    /* after a failed take: another holder has it */
    bool missing; /* after a failed take: the folder does not exist */
    int fd;       /* of the file                                */
    int folder;   /* of the folder                              */
    char path[1088];
};

/* Locks an existing folder. DDL_E_IO with "<folder>: in use by process 123 on <host>; ..." if another holder,
 * in this process or any other, has it. Without locks of the file system also if it cannot be found out
 * whether the holder still runs: the message says which file to remove then. */
ddl_status ddl_lock_take(struct ddl_lock *lock, const char *folder, struct ddl_error *err);
/* Whether a process holds the lock of the folder. Never waits and changes no file; false if the lock cannot
 * be opened. */
bool ddl_lock_is_held(const char *folder);
/* Unlocks and removes the file. One that is not held is allowed, also a zeroed one. */
void ddl_lock_release(struct ddl_lock *lock);

/* DDL_E_IO if the folder or its lock was removed, or another process has replaced the lock. Otherwise *moved:
 * whether the folder is no longer at its path; then `now` (size bytes) gets where it is, or "another place"
 * if that is unknown. */
ddl_status ddl_lock_check(const struct ddl_lock *lock, bool *moved, char *now, size_t size,
                          struct ddl_error *err);
/* The same, but a moved folder is DDL_E_IO too. A lock that is not held is DDL_OK. */
ddl_status ddl_lock_check_in_place(const struct ddl_lock *lock, struct ddl_error *err);

#endif
