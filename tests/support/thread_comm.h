/* Ranks as threads of one process: a transport over shared memory, for tests of everything that runs with
 * several ranks. The collectives and time limits are those of src/comm, as with MPI.
 *
 * A send completes when its receive has copied the data, so that a wrong order of calls does not work by
 * luck, and the thread sanitizer detects an access to data in flight. */
#ifndef DDL_TEST_THREAD_COMM_H
#define DDL_TEST_THREAD_COMM_H

#include "comm/comm.h"

#include <stdbool.h>
#include <stddef.h>

/* The body of a rank. The communicator is valid during the call; it is not closed by the body. */
typedef void thread_comm_body(ddl_comm *comm, void *user);

/* How a job ended. */
struct thread_comm_end {
    bool is_aborted;
    char message[1200]; /* of the first ddl_comm_abort, as MPI prints it */
};

/* Runs `body` once per rank, each in a thread, and waits for all of them. Rank r is on "host<r>". An abort
 * ends all ranks at their next call of comm/comm.h, as pthread_exit. A cmocka assertion that fails in a body
 * ends the program. */
struct thread_comm_end thread_comm_try(size_t size, thread_comm_body *body, void *user);
/* The same; fails if the job was aborted. */
void thread_comm_run(size_t size, thread_comm_body *body, void *user);

/* In a body: does nothing until another rank ends the job. */
void thread_comm_hang(ddl_comm *comm) DDL_NORETURN;

#endif
