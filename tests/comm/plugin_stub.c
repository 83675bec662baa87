/* Plugins without MPI, for tests of what loads them: STUB_ABI is the number of the interface that this one
 * has. */
#define _POSIX_C_SOURCE 200809L
#include "comm/transport.h"

#include "ddl/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void close_stub(void *ctx)
{
    (void)ctx;
    setenv("STUB_CLOSED", "1", 1);
}

static void send_nothing(void *ctx, struct ddl_comm_request *request, size_t to, int tag, const void *data,
                         size_t bytes)
{
    (void)ctx, (void)request, (void)to, (void)tag, (void)data, (void)bytes;
}

static void receive_nothing(void *ctx, struct ddl_comm_request *request, size_t from, int tag, void *data,
                            size_t bytes)
{
    (void)ctx, (void)request, (void)from, (void)tag, (void)data, (void)bytes;
}

static bool test_nothing(void *ctx, struct ddl_comm_request *request, size_t *bytes)
{
    (void)ctx, (void)request, (void)bytes;
    return false;
}

static bool poll_nothing(void *ctx, size_t *from, int tag, void *data, size_t bytes)
{
    (void)ctx, (void)from, (void)tag, (void)data, (void)bytes;
    return false;
}

static void abort_stub(void *ctx, const char *message)
{
    (void)ctx;
    fprintf(stderr, "%s\n", message);
    fflush(stderr);
    _exit(1);
}

static const struct ddl_comm_transport_ops ops = {
    .send = send_nothing,
    .receive = receive_nothing,
    .test = test_nothing,
    .poll = poll_nothing,
    .abort = abort_stub,
    .close = close_stub,
};

/* One rank, or STUB_SIZE ranks of which the others never arrive; fails if STUB_FAILS is set. The time limit
 * is stored in STUB_LIMIT. */
static bool open_stub(struct ddl_comm_transport *out, double limit, char *error, size_t size)
{
    char text[32];
    const char *ranks = getenv("STUB_SIZE");
    snprintf(text, sizeof text, "%g", limit);
    setenv("STUB_LIMIT", text, 1);
    if (getenv("STUB_FAILS")) {
        snprintf(error, size, "no network");
        return false;
    }
    *out = (struct ddl_comm_transport){
        .ops = &ops, .rank = 0, .size = ranks ? (size_t)atoi(ranks) : 1, .host = "stub"
    };
    return true;
}

static void name_library(char *out, size_t size)
{
    snprintf(out, size, "stub 1.0");
}

DDL_API extern const struct ddl_comm_plugin ddl_comm_plugin;
const struct ddl_comm_plugin ddl_comm_plugin = {
    .abi = STUB_ABI,
    .library = name_library,
    .open = open_stub,
};
