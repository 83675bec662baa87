/* Ranks: the processes that a launcher (mpirun, srun) started together to train one model.
 *
 * A communicator connects them. With one process there is none: every function takes NULL for rank 0 of 1.
 * A communicator is used by one thread at a time. */
#ifndef DDL_COMM_H
#define DDL_COMM_H

#include "ddl/option.h"
#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddl_comm ddl_comm; /* the ranks of a job, seen from one of them */

/* What the environment of the process says about the launcher that started it. */
struct ddl_comm_launch {
    const char *launcher; /* "Open MPI's mpirun"; NULL: none, or the processes are independent         */
    const char *variable; /* from which this follows; NULL without a launcher                          */
    size_t size;          /* processes that it started; 0 if it does not tell; 1 without a launcher    */
    size_t rank;          /* number of this process, from 0                                            */
};
/* Reads the variables of launchers; connects nothing. With DDL_COMM=none there is no launcher. */
DDL_API struct ddl_comm_launch ddl_comm_launched(void);

/* Connects the processes that a launcher started. All of them call it once, before they do anything else.
 *
 * *out is NULL, with DDL_OK, if this is the only process: no launcher's variables are in the environment
 * (Open MPI, MPICH, MVAPICH2, Slurm, Flux, PMIx), they say that it started one process, or DDL_COMM is
 * "none". Otherwise, or if DDL_COMM is "mpi", the MPI plugin is loaded: the file DDL_COMM_PLUGIN, or
 * libddl_mpi.so beside the library or program, or in lib/ddl of their prefix. Signal handlers remain as they
 * are. DDL_E_USAGE for another value of DDL_COMM or DDL_COMM_TIMEOUT, DDL_E_UNSUPPORTED if the plugin is
 * missing, does not fit this library, or connects another number of processes than the launcher started. */
DDL_API ddl_status ddl_comm_open(ddl_comm **out, struct ddl_error *err);
/* Waits until all ranks call it, then disconnects them and frees the communicator (NULL is allowed). Another
 * cannot be opened afterwards. */
DDL_API void ddl_comm_close(ddl_comm *comm);

/* Number of this process, from 0 to size - 1; 0 if comm is NULL. */
DDL_API size_t ddl_comm_rank(const ddl_comm *comm);
/* Number of processes; 1 if comm is NULL. */
DDL_API size_t ddl_comm_size(const ddl_comm *comm);
/* Name of the host that a rank runs on; "localhost" if comm is NULL. Owned by the communicator. */
DDL_API const char *ddl_comm_host(const ddl_comm *comm, size_t rank);
/* Number of ranks on the host of this one, itself included. */
DDL_API size_t ddl_comm_local_size(const ddl_comm *comm);
/* The threads of this rank: `threads`; if that is 0 and other ranks are on its host, the cores that it may
 * use, divided by the ranks there that may use the same ones, at least 1; else 0, all cores. */
DDL_API size_t ddl_comm_threads(const ddl_comm *comm, size_t threads);

/* Longest time in seconds that a call on comm waits for other ranks, 0 for no limit; 600 unless set. The
 * environment variable DDL_COMM_TIMEOUT replaces any limit but 0. When the limit is reached, all ranks are
 * ended with a message that names those that did not reach the call. All ranks set the same value. */
DDL_API void ddl_comm_set_time_limit(ddl_comm *comm, double seconds);

/* All ranks continue with one status: DDL_OK if it is that of all ranks. Otherwise the status and message of
 * the first rank that failed, on every rank; the message begins with "rank 3 of 4 (host b): " unless all
 * ranks have the same status and message. err may not be NULL. */
DDL_API ddl_status ddl_comm_agree(ddl_comm *comm, ddl_status status, struct ddl_error *err);

/* all (size, bytes): block r = the `bytes` at `mine` of rank r. `mine` may be the own block of `all`. A rank
 * sends its data to every other, so this is for small amounts. */
DDL_API void ddl_comm_gather(ddl_comm *comm, size_t bytes, const void *mine, void *all);
/* All ranks compare their `text`, lines "name: value" with the same names on all ranks (NULL: it could not be
 * made, memory is missing). DDL_OK if it is the same on all ranks. Otherwise DDL_E_USAGE on every rank, with
 * the first rank and line that differ from rank 0 and both values, or DDL_E_MEMORY. err may not be NULL. */
DDL_API ddl_status ddl_comm_compare(ddl_comm *comm, const char *text, struct ddl_error *err);

typedef struct ddl_comm_list ddl_comm_list; /* a text for ddl_comm_compare that is made line by line */
/* Returns an empty list, or NULL without memory, which the functions below accept. */
DDL_API ddl_comm_list *ddl_comm_list_create(void);
/* Adds a line "name: value" to the list, `format` applied as by printf. */
DDL_API void ddl_comm_list_add(ddl_comm_list *list, const char *format, ...) DDL_PRINTF(2, 3);
/* Adds a line for each row of a table to the list, with its value in *object; not for `threads`, in which
 * ranks may differ. */
DDL_API void ddl_comm_list_add_options(ddl_comm_list *list, const struct ddl_option *table,
                                       const void *object);
/* ddl_comm_compare of the list's text. Frees the list. */
DDL_API ddl_status ddl_comm_list_compare(ddl_comm *comm, ddl_comm_list *list, struct ddl_error *err);

/* Prints "ddl: rank R of N on HOST: " (if comm is NULL, "ddl: ") and the message, `format` applied as by
 * printf, on standard error, then ends all ranks with exit status 1. For errors of one rank after which the
 * others would wait forever. */
DDL_API void ddl_comm_abort(ddl_comm *comm, const char *format, ...) DDL_PRINTF(2, 3) DDL_NORETURN;

/* Writes one line to out, truncated to size: the MPI library of the plugin that ddl_comm_open would load,
 * with its version, or "none" and the reason. Connects nothing. */
DDL_API void ddl_comm_library(char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
