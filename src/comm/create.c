/* Creating a communicator over a transport, and closing it. */
#include "comm/internal.h"

#include "base/mem.h"
#include "base/process.h"

#include <stdio.h>
#include <stdlib.h>

static bool allocate(ddl_comm *comm, size_t size)
{
    comm->blocking.transfers = ddl_mem_alloc(ddl_comm_transfers(size) * sizeof *comm->blocking.transfers);
    comm->hosts = ddl_mem_zalloc(size * sizeof *comm->hosts);
    comm->cores = ddl_mem_zalloc(size * sizeof *comm->cores);
    comm->peers = ddl_mem_zalloc(size * sizeof *comm->peers);
    comm->numbers = ddl_mem_alloc(size * DDL_COMM_CHUNK * sizeof *comm->numbers);
    return comm->blocking.transfers && comm->hosts && comm->cores && comm->peers && comm->numbers;
}

static void exchange_places(ddl_comm *comm)
{
    const struct ddl_comm_transport *transport = &comm->transport;
    const uint64_t cores = ddl_process_cores_hash();
    for (size_t rank = 0; rank < transport->size; rank++) /* in messages about ranks that do not arrive */
        snprintf(comm->hosts[rank], sizeof *comm->hosts, "unknown");
    ddl_comm_gather(comm, sizeof *comm->hosts, transport->host, comm->hosts);
    ddl_comm_gather(comm, sizeof cores, &cores, comm->cores);
}

ddl_comm *ddl_comm_create(const struct ddl_comm_transport *transport, double limit_instead)
{
    ddl_comm *comm = ddl_mem_zalloc(sizeof *comm);
    if (comm)
        comm->transport = *transport;
    if (!comm || !allocate(comm, transport->size)) {
        transport->ops->abort(transport->ctx, "ddl: out of memory for the communicator");
        abort();
    }
    comm->limit_instead = limit_instead;
    ddl_comm_set_time_limit(comm, DDL_COMM_TIME_LIMIT);
    comm->message_limit = (size_t)1 << 30;
    ddl_comm_describe(comm, "the start of the program");
    exchange_places(comm);
    return comm;
}

void ddl_comm_free(ddl_comm *comm)
{
    if (!comm)
        return;
    ddl_mem_free(comm->blocking.transfers);
    ddl_mem_free(comm->hosts);
    ddl_mem_free(comm->cores);
    ddl_mem_free(comm->peers);
    ddl_mem_free(comm->numbers);
    ddl_mem_free(comm);
}

/* After the first barrier no rank is in an earlier call: notices in flight are of no use. In the second one a
 * rank receives those of the ranks that wait for it. */
void ddl_comm_end(ddl_comm *comm)
{
    ddl_comm_barrier(comm);
    ddl_comm_end_notices(comm);
    ddl_comm_barrier(comm);
}

void ddl_comm_close(ddl_comm *comm)
{
    if (!comm)
        return;
    ddl_comm_describe(comm, "the end of the program");
    ddl_comm_end(comm);
    comm->transport.ops->close(comm->transport.ctx);
    ddl_comm_free(comm);
}
