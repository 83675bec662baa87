/* A folder that one process at a time works in: the file ".lock" there, which holds who it is. The system
 * lets go of it when the process dies; the file that then stays means nothing. */
#ifndef DDL_BASE_LOCK_H
#define DDL_BASE_LOCK_H

#include "ddl/status.h"

#include <stdbool.h>

struct ddl_lock {
    bool held;
    int fd;
    char path[1088];
};

/* The folder exists. DDL_E_IO with "<folder>: process 123 on <host> works in it; ..." where another one holds
 * it, in this process or any other. On a file system that knows no locks it is taken as free. */
ddl_status ddl_lock_take(struct ddl_lock *lock, const char *folder, struct ddl_error *err);
/* And removes the file. One that is not held, zeroed say, is allowed. */
void ddl_lock_release(struct ddl_lock *lock);

#endif
