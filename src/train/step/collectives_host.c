/* Collectives through host memory. Backend memory that is not host memory is copied to a pinned buffer and
 * back. A range waits until its numbers are complete (or copied); ranges are sent in the order of the calls,
 * as the communicator requires. */
#include "train/step/collectives.h"

#include "base/mem.h"

typedef void start_fn(struct ddl_comm_exchange *exchange, size_t n, float *x);

/* A range in flight. */
struct flight {
    struct ddl_comm_exchange *exchange;
    float *pinned;                         /* (capacity); NULL where the backend's memory is host memory */
    enum { IDLE, WAITING, SENDING } phase; /* for `event`; for the other ranks                           */
    start_fn *start;
    float *x;
    size_t n;
    ddl_event event; /* the numbers are complete or copied; IDLE: the pinned buffer is no longer read */
};

struct host {
    ddl_comm *comm;
    const ddl_backend *backend;
    struct flight *flights;
    size_t n_flights;
    size_t next; /* flight of the next call, which is the oldest */
};

static struct flight *flight_of(const struct host *h, size_t age)
{
    return &h->flights[(h->next + age) % h->n_flights];
}

static void send(struct flight *flight)
{
    flight->phase = SENDING;
    flight->start(flight->exchange, flight->n, flight->pinned ? flight->pinned : flight->x);
}

/* Sends the ranges that are complete, up to the first that is not. */
static void send_complete(const struct host *h)
{
    const struct ddl_ops *ops = h->backend->ops;
    for (size_t i = 0; i < h->n_flights; i++) {
        struct flight *flight = flight_of(h, i);
        if (flight->phase != WAITING)
            continue;
        if (!ops->is_done(h->backend->ctx, flight->event))
            return;
        send(flight);
    }
}

/* Completes a range: sends it if it waits to be sent, and waits for it. */
static void complete(const struct host *h, struct flight *flight)
{
    const struct ddl_ops *ops = h->backend->ops;
    if (flight->phase == IDLE)
        return;
    if (flight->phase == WAITING) {
        ops->wait(h->backend->ctx, flight->event);
        send(flight);
    }
    ddl_comm_finish(flight->exchange);
    if (flight->pinned)
        flight->event =
            ops->upload_async(h->backend->ctx, flight->x, flight->pinned, flight->n * sizeof *flight->x);
    flight->phase = IDLE;
}

static void call(struct host *h, start_fn *start, float *x, size_t n, ddl_event ready)
{
    const struct ddl_ops *ops = h->backend->ops;
    struct flight *flight = flight_of(h, 0);
    complete(h, flight);
    h->next = (h->next + 1) % h->n_flights;
    if (flight->pinned) {
        ops->wait(h->backend->ctx, flight->event);
        ready = ops->download_async(h->backend->ctx, flight->pinned, x, n * sizeof *x);
    }
    flight->phase = WAITING;
    flight->start = start;
    flight->x = x;
    flight->n = n;
    flight->event = ready;
    send_complete(h);
}

static void reduce_scatter(void *ctx, float *x, size_t n, ddl_event ready)
{
    call(ctx, ddl_comm_reduce_scatter_start, x, n, ready);
}

static void all_gather(void *ctx, float *x, size_t n, ddl_event ready)
{
    call(ctx, ddl_comm_all_gather_start, x, n, ready);
}

static void progress(void *ctx)
{
    const struct host *h = ctx;
    send_complete(h);
    ddl_comm_progress(h->comm);
}

static void finish(void *ctx)
{
    const struct host *h = ctx;
    for (size_t i = 0; i < h->n_flights; i++)
        complete(h, flight_of(h, i));
}

static void free_host(void *ctx)
{
    struct host *h = ctx;
    for (size_t i = 0; h && h->flights && i < h->n_flights; i++) {
        struct flight *flight = &h->flights[i];
        ddl_comm_exchange_free(flight->exchange);
        if (!flight->pinned)
            continue;
        h->backend->ops->wait(h->backend->ctx, flight->event);
        h->backend->ops->free_host(h->backend->ctx, flight->pinned);
    }
    if (h)
        ddl_mem_free(h->flights);
    ddl_mem_free(h);
}

static const struct ddl_collectives_ops host_ops = { reduce_scatter, all_gather, progress, finish,
                                                     free_host };

ddl_status ddl_collectives_create_host(struct ddl_collectives *out, ddl_comm *comm,
                                       const ddl_backend *backend, size_t capacity, enum ddl_comm_dtype dtype,
                                       size_t in_flight, struct ddl_error *err)
{
    const struct ddl_ops *ops = backend->ops;
    struct host *h = ddl_mem_zalloc(sizeof *h);
    if (h)
        *h = (struct host){ .comm = comm, .backend = backend, .n_flights = in_flight };
    if (h)
        h->flights = ddl_mem_zalloc(in_flight * sizeof *h->flights);
    ddl_status status = h && h->flights ? DDL_OK : DDL_E_MEMORY;
    for (size_t i = 0; i < in_flight && !status; i++) {
        struct flight *flight = &h->flights[i];
        status = ddl_comm_exchange_create(&flight->exchange, comm, capacity, dtype, err);
        if (!status && !ops->host_memory) {
            flight->pinned = ops->alloc_host(backend->ctx, capacity * sizeof *flight->pinned);
            status = flight->pinned ? DDL_OK : DDL_E_MEMORY;
        }
    }
    if (status) {
        free_host(h);
        out->ops = NULL;
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu buckets of %zu floats in flight",
                             in_flight, capacity);
    }
    out->ops = &host_ops;
    out->ctx = h;
    return DDL_OK;
}
