/* Plugins without MPI, for tests of what loads them: STUB_ABI is the number of the interface that this one
 * has. */
#define _POSIX_C_SOURCE 200809L
#include "comm/transport.h"

#include "ddl/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void close_stub(void *ctx)
{
    (void)ctx;
    setenv("STUB_CLOSED", "1", 1);
}

static const struct ddl_comm_transport_ops ops = { .close = close_stub };

/* One rank, unless STUB_FAILS is set. */
static bool open_stub(struct ddl_comm_transport *out, char *error, size_t size)
{
    if (getenv("STUB_FAILS")) {
        snprintf(error, size, "no network");
        return false;
    }
    *out = (struct ddl_comm_transport){ .ops = &ops, .rank = 0, .size = 1, .host = "stub" };
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
