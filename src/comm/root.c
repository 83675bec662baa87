/* Work that rank 0 does alone, for longer than the time limit of a call. */
#include "comm/internal.h"

#include "base/clock.h"

static void send_working(ddl_comm *comm, bool working)
{
    unsigned char more = working;
    ddl_comm_broadcast(comm, 0, sizeof more, &more);
}

void ddl_comm_still_working(ddl_comm *comm)
{
    const double most = 1; /* seconds between two messages */
    if (!comm || ddl_clock_seconds() - comm->last_message < most)
        return;
    send_working(comm, true);
    comm->last_message = ddl_clock_seconds();
}

void ddl_comm_done_working(ddl_comm *comm)
{
    send_working(comm, false);
}

void ddl_comm_wait_for_root(ddl_comm *comm)
{
    unsigned char more = 1;
    while (more)
        ddl_comm_broadcast(comm, 0, sizeof more, &more);
}
