/* Waiting for messages, with a time limit.
 *
 * A rank that reaches the limit sends a notice to all others: the name of the call in which it waits. Ranks
 * that receive a notice while they wait reply with their own. The ranks without a notice after a few seconds
 * are those that do not take part; the first of the others names them and ends the job. */
#define _POSIX_C_SOURCE 200809L
#include "comm/internal.h"

#include "base/clock.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const double SPIN_SECONDS = 20e-6, YIELD_SECONDS = 500e-6, GRACE_SECONDS = 5;
enum { SLEEP_NANOSECONDS = 100000, NAMED = 8 };

int ddl_comm_next_tag(ddl_comm *comm)
{
    uint64_t i = comm->n_collectives++ % (DDL_COMM_TAGS - DDL_COMM_TAG_COLLECTIVE);
    return DDL_COMM_TAG_COLLECTIVE + (int)i;
}

/* ---- batches ---- */

size_t ddl_comm_transfers(size_t size)
{
    return 2 * (size - 1);
}

void ddl_comm_batch_begin(ddl_comm *comm, struct ddl_comm_batch *batch)
{
    batch->n = batch->n_left = 0;
    memcpy(batch->what, comm->what, sizeof batch->what);
}

static void add(struct ddl_comm_batch *batch, struct ddl_comm_transfer transfer)
{
    if (transfer.left > 0)
        batch->transfers[batch->n++] = transfer;
}

void ddl_comm_batch_receive(struct ddl_comm_batch *batch, size_t from, int tag, size_t bytes, void *data)
{
    add(batch, (struct ddl_comm_transfer){
                   .data = data, .left = bytes, .peer = from, .tag = tag, .receives = true });
}

void ddl_comm_batch_send(struct ddl_comm_batch *batch, size_t to, int tag, size_t bytes, const void *data)
{
    /* Only read. */
    add(batch,
        (struct ddl_comm_transfer){ .data = (unsigned char *)data, .left = bytes, .peer = to, .tag = tag });
}

static size_t message_bytes(const ddl_comm *comm, const struct ddl_comm_transfer *t)
{
    return t->left < comm->message_limit ? t->left : comm->message_limit;
}

static void start_message(ddl_comm *comm, struct ddl_comm_transfer *t)
{
    const struct ddl_comm_transport *transport = &comm->transport;
    size_t bytes = message_bytes(comm, t);
    if (t->receives)
        transport->ops->receive(transport->ctx, &t->request, t->peer, t->tag, t->data, bytes);
    else
        transport->ops->send(transport->ctx, &t->request, t->peer, t->tag, t->data, bytes);
    t->is_active = true;
}

void ddl_comm_batch_start(ddl_comm *comm, struct ddl_comm_batch *batch)
{
    for (size_t i = 0; i < batch->n; i++)
        start_message(comm, &batch->transfers[i]);
    batch->n_left = batch->n;
    batch->next = comm->in_flight;
    comm->in_flight = batch;
}

static void move_transfer(ddl_comm *comm, struct ddl_comm_batch *batch, struct ddl_comm_transfer *t)
{
    const struct ddl_comm_transport *transport = &comm->transport;
    if (!t->is_active || !transport->ops->test(transport->ctx, &t->request))
        return;
    size_t bytes = message_bytes(comm, t);
    t->is_active = false;
    t->data += bytes;
    t->left -= bytes;
    if (t->left > 0)
        start_message(comm, t);
    else
        batch->n_left--;
}

void ddl_comm_progress(ddl_comm *comm)
{
    if (!comm)
        return;
    for (struct ddl_comm_batch *batch = comm->in_flight; batch; batch = batch->next) {
        for (size_t i = 0; i < batch->n && batch->n_left > 0; i++)
            move_transfer(comm, batch, &batch->transfers[i]);
    }
}

/* ---- the time limit ---- */

static void sleep_briefly(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = SLEEP_NANOSECONDS }, NULL);
}

/* Receives the notices that have arrived; whether there was one. */
static bool poll_notices(ddl_comm *comm)
{
    const struct ddl_comm_transport *transport = &comm->transport;
    char what[DDL_COMM_WHAT_SIZE];
    size_t from;
    bool any = false;
    while (transport->ops->poll(transport->ctx, &from, DDL_COMM_TAG_NOTICE, what, sizeof what)) {
        memcpy(comm->notices[from], what, sizeof what);
        any = true;
    }
    return any;
}

/* Rank number `first` or later without a notice; size if there is none. */
static size_t next_silent(const ddl_comm *comm, size_t first)
{
    while (first < comm->transport.size && comm->notices[first][0])
        first++;
    return first;
}

static void collect_notices(ddl_comm *comm, const char *what)
{
    const struct ddl_comm_transport *transport = &comm->transport;
    memcpy(comm->notices[transport->rank], what, sizeof *comm->notices);
    for (size_t r = 0; r < transport->size; r++) {
        if (r != transport->rank)
            transport->ops->send(transport->ctx, &comm->notice_requests[r], r, DDL_COMM_TAG_NOTICE,
                                 comm->notices[transport->rank], sizeof *comm->notices);
    }
    double grace =
        comm->time_limit > 0 && comm->time_limit < GRACE_SECONDS ? comm->time_limit : GRACE_SECONDS;
    double end = ddl_clock_seconds() + grace;
    while (next_silent(comm, 0) < transport->size && ddl_clock_seconds() < end) {
        sleep_briefly();
        ddl_comm_progress(comm);
        poll_notices(comm);
    }
}

/* "rank 3 (host b)", "ranks 2 (host a), 3 (host b) and 5 more" */
static void name_silent(const ddl_comm *comm, char *out, size_t size)
{
    size_t n = 0, end = comm->transport.size, length;
    for (size_t r = next_silent(comm, 0); r < end; r = next_silent(comm, r + 1))
        n++;
    length = (size_t)snprintf(out, size, n == 1 ? "rank " : "ranks ");
    size_t r = next_silent(comm, 0);
    for (size_t i = 0; i < n && i < NAMED; i++, r = next_silent(comm, r + 1))
        length += (size_t)snprintf(out + length, size - length, "%s%zu (host %s)", i ? ", " : "", r,
                                   comm->hosts[r]);
    if (n > NAMED)
        snprintf(out + length, size - length, " and %zu more", n - NAMED);
}

/* All ranks wait: either in different calls, or their messages are lost. */
static void abort_all_waiting(ddl_comm *comm, const char *what)
{
    for (size_t r = 0; r < comm->transport.size; r++) {
        if (strcmp(comm->notices[r], what) != 0)
            ddl_comm_abort(
                comm, "ranks wait for different calls: rank %zu (host %s) for %s, rank %zu (host %s) for %s",
                comm->transport.rank, comm->transport.host, what, r, comm->hosts[r], comm->notices[r]);
    }
    ddl_comm_abort(
        comm,
        "all ranks reached %s, but messages did not arrive within %g s: check the network between the hosts",
        what, comm->time_limit);
}

static void end_job(ddl_comm *comm, const char *what)
{
    char names[NAMED * (DDL_COMM_HOST_SIZE + 32) + 64];
    collect_notices(comm, what);
    size_t first = 0;
    while (!comm->notices[first][0])
        first++;
    /* One message is enough; the others are for the case that this rank cannot end the job. */
    double start = ddl_clock_seconds();
    while (comm->transport.rank != first && ddl_clock_seconds() < start + GRACE_SECONDS) {
        sleep_briefly();
        ddl_comm_progress(comm);
    }
    if (next_silent(comm, 0) == comm->transport.size)
        abort_all_waiting(comm, what);
    name_silent(comm, names, sizeof names);
    ddl_comm_abort(comm, "%s did not reach %s within %g s", names, what, comm->time_limit);
}

static void remove_batch(ddl_comm *comm, struct ddl_comm_batch *batch)
{
    struct ddl_comm_batch **link = &comm->in_flight;
    while (*link != batch)
        link = &(*link)->next;
    *link = batch->next;
}

static bool batch_is_complete(void *user)
{
    const struct ddl_comm_batch *batch = user;
    return batch->n_left == 0;
}

/* `what`: the call, for error messages. */
static void wait_until(ddl_comm *comm, const char *what, bool (*is_complete)(void *user), void *user)
{
    double start = ddl_clock_seconds();
    for (;;) {
        ddl_comm_progress(comm);
        if (is_complete(user))
            return;
        double waited = ddl_clock_seconds() - start;
        if (waited < SPIN_SECONDS)
            continue;
        if (waited < YIELD_SECONDS) {
            sched_yield();
            continue;
        }
        sleep_briefly();
        if (poll_notices(comm) || (comm->time_limit > 0 && waited > comm->time_limit))
            end_job(comm, what);
    }
}

void ddl_comm_batch_wait(ddl_comm *comm, struct ddl_comm_batch *batch)
{
    wait_until(comm, batch->what, batch_is_complete, batch);
    remove_batch(comm, batch);
}

void ddl_comm_wait_until(ddl_comm *comm, bool (*is_complete)(void *user), void *user)
{
    if (comm)
        wait_until(comm, comm->what, is_complete, user);
}
