/* Exclusive use of a folder by one process: a lock on the file ".lock" in it, which names the process. The
 * system releases the lock when the process ends; a file that is left has no meaning. */
#ifndef DDL_BASE_LOCK_H
#define DDL_BASE_LOCK_H

#include "ddl/status.h"

#include <stdbool.h>

struct ddl_lock {
    bool held;
    bool busy;    /* after a failed take: another holder has it */
    bool missing; /* after a failed take: the folder does not exist */
    int fd;
    char path[1088];
};

/* Locks an existing folder. DDL_E_IO with "<folder>: in use by process 123 on <host>; ..." if another holder,
 * in this process or any other, has it. On a file system without locks it counts as free. */
ddl_status ddl_lock_take(struct ddl_lock *lock, const char *folder, struct ddl_error *err);
/* Whether a process holds the lock of the folder. Never waits and changes no file; false if it cannot be
 * found out. */
bool ddl_lock_is_held(const char *folder);
/* Unlocks and removes the file. One that is not held is allowed, also a zeroed one. */
void ddl_lock_release(struct ddl_lock *lock);

#endif
