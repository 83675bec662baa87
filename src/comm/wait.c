/* Waiting for messages, with a time limit.
 *
 * A rank that reaches the limit sends a query to all others, who reply with the name of the call in which
 * they wait. The ranks without a reply after a few seconds are those that do not take part; the first rank
 * that has reached the limit names them and ends the job. If what it waits for arrives in these seconds, it
 * continues; replies to its query that arrive later are ignored. */
#define _POSIX_C_SOURCE 200809L
#include "comm/internal.h"

#include "base/clock.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const double SPIN_SECONDS = 20e-6, YIELD_SECONDS = 500e-6, GRACE_SECONDS = 5;
static const double STOPPED_SECONDS = 1; /* between two polls: the process was stopped */
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

static void check_size(ddl_comm *comm, const struct ddl_comm_batch *batch, const struct ddl_comm_transfer *t,
                       size_t received)
{
    const size_t expected = message_bytes(comm, t);
    char found[32] = "more";
    if (!t->receives || received == expected)
        return;
    if (received < expected)
        snprintf(found, sizeof found, "%zu", received);
    ddl_comm_abort(
        comm,
        "%s: message of rank %zu (host %s): expected %zu bytes, found %s: the ranks do not run the "
        "same program with the same options",
        batch->what, t->peer, comm->hosts[t->peer], expected, found);
}

static void move_transfer(ddl_comm *comm, struct ddl_comm_batch *batch, struct ddl_comm_transfer *t)
{
    const struct ddl_comm_transport *transport = &comm->transport;
    size_t bytes = message_bytes(comm, t), received = 0;
    if (!t->is_active || !transport->ops->test(transport->ctx, &t->request, &received))
        return;
    check_size(comm, batch, t, received);
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

/* ---- notices ---- */

static void receive_notices(ddl_comm *comm)
{
    const struct ddl_comm_transport *transport = &comm->transport;
    struct ddl_comm_notice notice;
    size_t from;
    while (transport->ops->poll(transport->ctx, &from, DDL_COMM_TAG_NOTICE, &notice, sizeof notice)) {
        struct ddl_comm_peer *peer = &comm->peers[from];
        peer->is_late = notice.is_late;
        if (notice.query)
            peer->unanswered = notice.query;
        if (notice.reply_to && notice.reply_to == comm->query)
            memcpy(peer->what, notice.what, sizeof peer->what);
    }
}

/* Sends the current query and the replies to those of others, `what` in each. One notice to a rank is in
 * flight at a time; the next one waits for a later call. */
static void send_notices(ddl_comm *comm, const char *what)
{
    const struct ddl_comm_transport *transport = &comm->transport;
    size_t unused;
    for (size_t r = 0; r < transport->size; r++) {
        struct ddl_comm_peer *peer = &comm->peers[r];
        const bool queries = r != transport->rank && comm->query && peer->queried != comm->query;
        if (peer->is_active)
            peer->is_active = !transport->ops->test(transport->ctx, &peer->request, &unused);
        if (comm->is_ending)
            peer->unanswered = 0;
        if (peer->is_active || (!queries && !peer->unanswered))
            continue;
        peer->sent = (struct ddl_comm_notice){ .query = queries ? comm->query : 0,
                                               .reply_to = peer->unanswered,
                                               .is_late = comm->query != 0 };
        memcpy(peer->sent.what, what, sizeof peer->sent.what);
        transport->ops->send(transport->ctx, &peer->request, r, DDL_COMM_TAG_NOTICE, &peer->sent,
                             sizeof peer->sent);
        peer->is_active = true;
        peer->queried = queries ? comm->query : peer->queried;
        peer->unanswered = 0;
    }
}

static bool notices_are_sent(void *user)
{
    const ddl_comm *comm = user;
    for (size_t r = 0; r < comm->transport.size; r++) {
        if (comm->peers[r].is_active)
            return false;
    }
    return true;
}

/* ---- the time limit ---- */

/* What a call waits for, and for how long so far, without the time in which the process was stopped (SIGSTOP,
 * scontrol suspend). */
struct wait {
    const char *what; /* the call, for error messages */
    bool (*is_complete)(void *user);
    void *user;
    double start, last; /* of the last elapsed() */
};

static void start_clock(struct wait *wait)
{
    wait->start = wait->last = ddl_clock_seconds();
}

static double elapsed(struct wait *wait)
{
    double now = ddl_clock_seconds(), gap = now - wait->last;
    if (gap > STOPPED_SECONDS)
        wait->start += gap;
    wait->last = now;
    return now - wait->start;
}

static bool has_completed(ddl_comm *comm, const struct wait *wait)
{
    ddl_comm_progress(comm);
    return wait->is_complete(wait->user);
}

static void poll_notices(ddl_comm *comm, const struct wait *wait)
{
    nanosleep(&(struct timespec){ .tv_nsec = SLEEP_NANOSECONDS }, NULL);
    receive_notices(comm);
    send_notices(comm, wait->what);
}

/* Whether the wait is complete within so many more seconds. */
static bool completes_within(ddl_comm *comm, struct wait *wait, double seconds)
{
    start_clock(wait);
    do {
        poll_notices(comm, wait);
        if (has_completed(comm, wait))
            return true;
    } while (elapsed(wait) < seconds);
    return false;
}

/* Rank number `first` or later without a reply; size if there is none. */
static size_t next_silent(const ddl_comm *comm, size_t first)
{
    while (first < comm->transport.size && comm->peers[first].what[0])
        first++;
    return first;
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
        if (strcmp(comm->peers[r].what, what) != 0)
            ddl_comm_abort(
                comm, "ranks wait for different calls: rank %zu (host %s) for %s, rank %zu (host %s) for %s",
                comm->transport.rank, comm->transport.host, what, r, comm->hosts[r], comm->peers[r].what);
    }
    ddl_comm_abort(
        comm,
        "all ranks reached %s, but messages did not arrive within %g s: check the network between the hosts "
        "(with NCCL also the GPUs: NCCL_DEBUG=INFO)",
        what, comm->time_limit);
}

static void begin_query(ddl_comm *comm, const char *what)
{
    struct ddl_comm_peer *own = &comm->peers[comm->transport.rank];
    comm->query = ++comm->n_queries;
    for (size_t r = 0; r < comm->transport.size; r++)
        comm->peers[r].what[0] = '\0';
    memcpy(own->what, what, sizeof own->what);
    own->is_late = true;
}

/* After the time limit: ends the job, unless the wait is complete while the other ranks reply. */
static void end_job(ddl_comm *comm, struct wait *wait)
{
    char names[NAMED * (DDL_COMM_HOST_SIZE + 32) + 64];
    size_t first = 0;
    begin_query(comm, wait->what);
    bool completes = completes_within(
        comm, wait,
        comm->time_limit > 0 && comm->time_limit < GRACE_SECONDS ? comm->time_limit : GRACE_SECONDS);
    while (!comm->peers[first].what[0] || !comm->peers[first].is_late)
        first++;
    /* One message is enough; the others are for the case that this rank cannot end the job. */
    if (!completes && comm->transport.rank != first)
        completes = completes_within(comm, wait, GRACE_SECONDS);
    comm->query = 0;
    if (completes)
        return;
    if (next_silent(comm, 0) == comm->transport.size)
        abort_all_waiting(comm, wait->what);
    name_silent(comm, names, sizeof names);
    ddl_comm_abort(comm, "%s did not reach %s within %g s", names, wait->what, comm->time_limit);
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

/* `what`: the call, for error messages; DDL_COMM_WHAT_SIZE bytes. */
static void wait_until(ddl_comm *comm, const char *what, bool (*completes)(void *user), void *user)
{
    struct wait wait = { .what = what, .is_complete = completes, .user = user };
    start_clock(&wait);
    while (!has_completed(comm, &wait)) {
        double waited = elapsed(&wait);
        if (waited < SPIN_SECONDS)
            continue;
        if (waited < YIELD_SECONDS) {
            sched_yield();
            continue;
        }
        poll_notices(comm, &wait);
        if (comm->time_limit > 0 && waited > comm->time_limit) {
            end_job(comm, &wait);
            return;
        }
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

void ddl_comm_end_notices(ddl_comm *comm)
{
    comm->is_ending = true;
    ddl_comm_wait_until(comm, notices_are_sent, comm);
}
