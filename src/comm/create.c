/* Creating a communicator over a transport, and closing it. */
#include "comm/internal.h"

#include "base/mem.h"

#include <stdlib.h>

enum { TIME_LIMIT = 600 };

static bool allocate(ddl_comm *comm, size_t size)
{
    comm->blocking.transfers = ddl_mem_alloc(ddl_comm_transfers(size) * sizeof *comm->blocking.transfers);
    comm->hosts = ddl_mem_zalloc(size * sizeof *comm->hosts);
    comm->notices = ddl_mem_zalloc(size * sizeof *comm->notices);
    comm->notice_requests = ddl_mem_alloc(size * sizeof *comm->notice_requests);
    comm->numbers = ddl_mem_alloc(size * DDL_COMM_CHUNK * sizeof *comm->numbers);
    return comm->blocking.transfers && comm->hosts && comm->notices && comm->notice_requests && comm->numbers;
}

ddl_comm *ddl_comm_create(const struct ddl_comm_transport *transport)
{
    ddl_comm *comm = ddl_mem_zalloc(sizeof *comm);
    if (comm)
        comm->transport = *transport;
    if (!comm || !allocate(comm, transport->size)) {
        transport->ops->abort(transport->ctx, "ddl: out of memory for the communicator");
        abort();
    }
    comm->time_limit = TIME_LIMIT;
    comm->limit_instead = -1;
    comm->message_limit = (size_t)1 << 30;
    ddl_comm_describe(comm, "the start of the program");
    ddl_comm_gather(comm, sizeof *comm->hosts, transport->host, comm->hosts);
    return comm;
}

void ddl_comm_free(ddl_comm *comm)
{
    if (!comm)
        return;
    ddl_mem_free(comm->blocking.transfers);
    ddl_mem_free(comm->hosts);
    ddl_mem_free(comm->notices);
    ddl_mem_free(comm->notice_requests);
    ddl_mem_free(comm->numbers);
    ddl_mem_free(comm);
}

void ddl_comm_close(ddl_comm *comm)
{
    if (!comm)
        return;
    ddl_comm_describe(comm, "the end of the program");
    ddl_comm_barrier(comm);
    comm->transport.ops->close(comm->transport.ctx);
    ddl_comm_free(comm);
}
