/* What moves bytes between ranks: the interface that the collectives of comm.h are built on. One
 * implementation is the MPI plugin (mpi/plugin.c), another the threads of tests/support/thread_comm.c.
 *
 * A transport only has point-to-point messages. All collectives, their order of summation, time limits and
 * messages are in this layer, once, so that they are the same for every transport. */
#ifndef DDL_COMM_TRANSPORT_H
#define DDL_COMM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Changes with every change of this header: a plugin of another number is refused. */
enum { DDL_COMM_ABI = 2 };

/* Tags are in [0, DDL_COMM_TAGS): MPI guarantees as many. */
enum { DDL_COMM_TAGS = 32768, DDL_COMM_HOST_SIZE = 64 };

/* A message in flight: the transport's own value. */
struct ddl_comm_request {
    uintptr_t value;
};

/* A failed call ends all ranks, as abort does, with a message that names the failure. */
struct ddl_comm_transport_ops {
    /* Start to send or receive a message of `bytes` (at least 1, at most INT_MAX) at `data`, which is
     * borrowed until the request is complete. Messages between two ranks with the same tag arrive in the
     * order in which they are sent. A receive expects the size of the message: see test. */
    void (*send)(void *ctx, struct ddl_comm_request *request, size_t to, int tag, const void *data,
                 size_t bytes);
    void (*receive)(void *ctx, struct ddl_comm_request *request, size_t from, int tag, void *data,
                    size_t bytes);
    /* Whether the request is complete; then it is no longer valid, and for a receive *bytes is the size of
     * the message, or any larger number than expected if it is too large. Does not wait. */
    bool (*test)(void *ctx, struct ddl_comm_request *request, size_t *bytes);
    /* Receives a message of `bytes` with this tag from any rank if one has arrived, and stores the rank in
     * *from. Does not wait. */
    bool (*poll)(void *ctx, size_t *from, int tag, void *data, size_t bytes);
    /* Prints the message and a newline on standard error and ends all ranks with exit status 1. Does not
     * return. */
    void (*abort)(void *ctx, const char *message);
    /* Releases the transport; no request is in flight, and all ranks call it. */
    void (*close)(void *ctx);
};

/* A transport and this rank's place in it. */
struct ddl_comm_transport {
    const struct ddl_comm_transport_ops *ops;
    void *ctx;
    size_t rank, size;
    char host[DDL_COMM_HOST_SIZE];
};

/* The one symbol of a plugin, DDL_COMM_PLUGIN_SYMBOL. */
struct ddl_comm_plugin {
    unsigned abi; /* DDL_COMM_ABI */
    /* Writes the name and version of its library to out, truncated to size; needs no open. */
    void (*library)(char *out, size_t size);
    /* Connects the processes. false, with a reason in error, truncated to size. All ranks are ended if the
     * connection takes longer than `limit` seconds; 0: no limit. */
    bool (*open)(struct ddl_comm_transport *out, double limit, char *error, size_t size);
};
#define DDL_COMM_PLUGIN_SYMBOL "ddl_comm_plugin"

#endif
