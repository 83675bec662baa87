/* Child processes that run this program again, with other arguments. */
#ifndef DDL_BASE_PROCESS_H
#define DDL_BASE_PROCESS_H

#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a child is started. */
struct ddl_process_options {
    const char *const *argv; /* ended by NULL; argv[0] is a name only                                     */
    const char *output;      /* file that standard output and standard error are appended to              */
    const char *const
        *unset; /* names of environment variables that it does not inherit, ended by NULL; or NULL */
    const char *const *set; /* variables of its environment, "NAME=value", ended by NULL; or NULL */
};

/* Starts the executable of the calling process. The child is in a process group of its own, so that Ctrl-C in
 * the terminal does not reach it; it has no standard input and no blocked signals, and gets SIGTERM when the
 * calling thread ends. *pid gets its process id; ddl_process_poll must be called until it has ended. */
ddl_status ddl_process_start(long *pid, const struct ddl_process_options *options, struct ddl_error *err);

/* How a process has ended. */
struct ddl_process_end {
    int signal; /* that ended it, or 0    */
    int status; /* exit status without one */
};
/* Whether the child has ended; then *end says how, and the process id is no longer valid. */
bool ddl_process_poll(long pid, struct ddl_process_end *end);
/* Sends SIGTERM to the child. */
void ddl_process_terminate(long pid);

/* The number of this process among those on its machine: DDL_LOCAL_RANK, which a sweep sets for its runs, or
 * what a launcher put into the environment; 0 without one. */
size_t ddl_process_local_rank(void);

/* Number of processors that the process may use. */
size_t ddl_process_cores(void);
/* A hash of the set of these processors; 0 if the system does not tell. */
uint64_t ddl_process_cores_hash(void);

#endif
