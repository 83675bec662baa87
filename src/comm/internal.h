/* The communicator, and the messages that its calls wait for. Private to src/comm and its tests. */
#ifndef DDL_COMM_INTERNAL_H
#define DDL_COMM_INTERNAL_H

#include "comm/comm.h"
#include "comm/transport.h"

#include <stdbool.h>

enum {
    DDL_COMM_TIME_LIMIT = 600, /* seconds, unless set */
    DDL_COMM_WHAT_SIZE = 96,
    DDL_COMM_CHUNK = 256, /* numbers that a sum exchanges at once */
    /* Tags. Collectives take the rest in turn. */
    DDL_COMM_TAG_NOTICE = 0,
    DDL_COMM_TAG_MESSAGE = 1,
    DDL_COMM_TAG_COLLECTIVE = 2,
};

/* Data to or from one rank. More than a message may hold is sent as several. */
struct ddl_comm_transfer {
    unsigned char *data; /* what remains */
    size_t left, peer;
    int tag;
    bool receives, is_active;
    struct ddl_comm_request request; /* if is_active */
};

/* Transfers that complete together. Batches in flight are a list of the communicator. */
struct ddl_comm_batch {
    struct ddl_comm_transfer *transfers; /* (capacity) */
    size_t n, n_left;
    char what[DDL_COMM_WHAT_SIZE]; /* the communicator's, at the start */
    struct ddl_comm_batch *next;
};

/* A message about a rank that waits, see wait.c. */
struct ddl_comm_notice {
    uint64_t query;                /* number of a query of the sender; 0: none */
    uint64_t reply_to;             /* number of the receiver's query that this replies to; 0: none */
    uint64_t is_late;              /* whether the sender has reached the time limit */
    char what[DDL_COMM_WHAT_SIZE]; /* the call in which the sender waits */
};

/* The notices between this rank and another. */
struct ddl_comm_peer {
    struct ddl_comm_notice sent;
    struct ddl_comm_request request; /* of `sent`, if is_active */
    bool is_active;
    bool is_late;                  /* it has reached the time limit, by its last notice */
    uint64_t queried;              /* number of the last query that was sent to it */
    uint64_t unanswered;           /* its query without a reply so far; 0: none */
    char what[DDL_COMM_WHAT_SIZE]; /* its reply to the current query; "" if there is none */
};

struct ddl_comm {
    struct ddl_comm_transport transport;
    double time_limit;    /* seconds; 0: none */
    double limit_instead; /* replaces any limit but 0; negative: none does */
    double last_message;  /* clock of the last ddl_comm_still_working */
    size_t message_limit; /* bytes */
    char what[DDL_COMM_WHAT_SIZE];
    uint64_t n_collectives; /* started so far, the same on all ranks */
    struct ddl_comm_batch *in_flight;
    struct ddl_comm_batch blocking;    /* of the call in progress */
    char (*hosts)[DDL_COMM_HOST_SIZE]; /* (size) */
    uint64_t *cores;                   /* (size) ddl_process_cores_hash of each rank */
    struct ddl_comm_peer *peers;       /* (size) */
    uint64_t query, n_queries;         /* number of the current query, 0: none; queries so far */
    bool is_ending;                    /* queries are no longer replied to */
    double *numbers;                   /* (size, DDL_COMM_CHUNK) */
};

/* Waits until all ranks call it and no message is in flight: the last call before ddl_comm_free. */
void ddl_comm_end(ddl_comm *comm);
/* Frees the memory alone, and leaves the ranks connected. NULL is allowed. */
void ddl_comm_free(ddl_comm *comm);

/* Transfers that a batch needs for one collective: to and from each other rank. */
size_t ddl_comm_transfers(size_t size);
/* Removes all transfers; the batch is not in flight. */
void ddl_comm_batch_begin(ddl_comm *comm, struct ddl_comm_batch *batch);
/* Adds a transfer of any number of bytes. Receives are added before sends. */
void ddl_comm_batch_receive(struct ddl_comm_batch *batch, size_t from, int tag, size_t bytes, void *data);
void ddl_comm_batch_send(struct ddl_comm_batch *batch, size_t to, int tag, size_t bytes, const void *data);
/* Starts all transfers; then waits for them, or ends all ranks after the time limit or if a message has
 * another size than expected. */
void ddl_comm_batch_start(ddl_comm *comm, struct ddl_comm_batch *batch);
void ddl_comm_batch_wait(ddl_comm *comm, struct ddl_comm_batch *batch);
/* Waits until the other ranks have received this rank's notices; theirs are no longer replied to. */
void ddl_comm_end_notices(ddl_comm *comm);
/* The tag of the next collective. */
int ddl_comm_next_tag(ddl_comm *comm);

#endif
