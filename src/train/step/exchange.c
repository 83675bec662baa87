#include "train/step/exchange.h"

#include "base/mem.h"
#include "model/params/flat.h"
#include "ops/ops.h"
#include "train/step/param_layer.h"

/* A bucket in flight. */
struct flight {
    struct ddl_comm_exchange *exchange;
    struct ddl_range range; /* empty: none */
    float *staging;         /* (bucket) host memory; NULL where the backend's memory is host memory */
};

struct ddl_exchange {
    ddl_comm *comm;
    ddl_model *model;
    struct ddl_partition partition;
    size_t rank;
    size_t left;    /* buckets whose gradients are not exchanged yet: those before the others */
    size_t started; /* exchanges since the creation */
    struct flight *flights;
    size_t n_flights;
};

ddl_status ddl_exchange_create(struct ddl_exchange **out, ddl_comm *comm, ddl_model *model,
                               const struct ddl_partition *partition, enum ddl_comm_dtype dtype,
                               size_t in_flight, struct ddl_error *err)
{
    *out = NULL;
    if (!comm)
        return DDL_OK;
    const ddl_backend *backend = ddl_model_backend(model);
    struct ddl_exchange *ex = ddl_mem_zalloc(sizeof *ex);
    if (ex) {
        *ex = (struct ddl_exchange){ .comm = comm,
                                     .model = model,
                                     .partition = *partition,
                                     .rank = ddl_comm_rank(comm),
                                     .left = ddl_partition_n_buckets(partition),
                                     .n_flights = in_flight };
        ex->flights = ddl_mem_zalloc(in_flight * sizeof *ex->flights);
    }
    ddl_status status = ex && ex->flights ? DDL_OK : DDL_E_MEMORY;
    for (size_t i = 0; i < in_flight && !status; i++) {
        struct flight *flight = &ex->flights[i];
        status = ddl_comm_exchange_create(&flight->exchange, comm, partition->bucket, dtype, err);
        if (!status && !backend->ops->host_memory)
            flight->staging = ddl_mem_alloc(partition->bucket * sizeof *flight->staging);
        if (!status && !backend->ops->host_memory && !flight->staging)
            status = DDL_E_MEMORY;
    }
    if (status) {
        ddl_exchange_free(ex);
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu buckets of %zu floats in flight",
                             in_flight, partition->bucket);
    }
    *out = ex;
    return DDL_OK;
}

void ddl_exchange_free(struct ddl_exchange *exchange)
{
    for (size_t i = 0; exchange && exchange->flights && i < exchange->n_flights; i++) {
        ddl_comm_exchange_free(exchange->flights[i].exchange);
        ddl_mem_free(exchange->flights[i].staging);
    }
    if (exchange)
        ddl_mem_free(exchange->flights);
    ddl_mem_free(exchange);
}

/* ---- buckets in flight ---- */

/* A collective on a flat buffer of the backend. */
struct collective {
    float *buffer;
    void (*start)(struct ddl_comm_exchange *exchange, size_t n, float *x);
};

/* Copies what the collective has changed from the staging memory of the flight to the backend. */
static void unload(const struct ddl_exchange *ex, const struct flight *flight, float *buffer)
{
    const ddl_backend *backend = ddl_model_backend(ex->model);
    size_t n = flight->range.end - flight->range.begin;
    if (flight->staging)
        backend->ops->upload(backend->ctx, buffer + flight->range.begin, flight->staging, n * sizeof *buffer);
}

static void finish(const struct ddl_exchange *ex, struct flight *flight, float *buffer)
{
    if (flight->range.begin == flight->range.end)
        return;
    ddl_comm_finish(flight->exchange);
    unload(ex, flight, buffer);
    flight->range.begin = flight->range.end;
}

/* Starts the collective on a bucket. Waits for the one that was started `n_flights` earlier. */
static void start(struct ddl_exchange *ex, const struct collective *what, size_t bucket)
{
    const ddl_backend *backend = ddl_model_backend(ex->model);
    struct flight *flight = &ex->flights[ex->started++ % ex->n_flights];
    finish(ex, flight, what->buffer);
    flight->range = ddl_partition_bucket(&ex->partition, bucket);
    size_t n = flight->range.end - flight->range.begin;
    float *x = what->buffer + flight->range.begin;
    if (flight->staging) {
        backend->ops->download(backend->ctx, flight->staging, x, n * sizeof *x);
        x = flight->staging;
    }
    what->start(flight->exchange, n, x);
}

/* Waits for all collectives, the oldest first. */
static void finish_all(struct ddl_exchange *ex, float *buffer)
{
    for (size_t i = 0; i < ex->n_flights; i++)
        finish(ex, &ex->flights[(ex->started + i) % ex->n_flights], buffer);
}

/* ---- gradients ---- */

/* Starts the buckets that begin at `begin` or after it and are not started yet. */
static void start_gradients(struct ddl_exchange *ex, float *grads, size_t begin)
{
    const struct collective sum = { grads, ddl_comm_reduce_scatter_start };
    while (ex->left > 0 && ddl_partition_bucket(&ex->partition, ex->left - 1).begin >= begin)
        start(ex, &sum, --ex->left);
}

/* A ddl_grads_final_fn; user: the exchange. */
static void gradients_final(void *user, float *grads, size_t begin)
{
    struct ddl_exchange *ex = user;
    const ddl_backend *backend = ddl_model_backend(ex->model);
    if (backend->ops->host_memory)
        backend->ops->synchronize(backend->ctx);
    start_gradients(ex, grads, begin);
    ddl_comm_progress(ex->comm);
}

void ddl_exchange_overlap(struct ddl_exchange *exchange, ddl_workspace *ws)
{
    if (exchange)
        ddl_workspace_set_grads_final(ws, gradients_final, exchange);
}

void ddl_exchange_gradients(struct ddl_exchange *exchange, ddl_workspace *ws)
{
    if (!exchange)
        return;
    float *grads = ddl_model_flat_grads(exchange->model);
    ddl_workspace_set_grads_final(ws, NULL, NULL);
    start_gradients(exchange, grads, 0);
    finish_all(exchange, grads);
    exchange->left = ddl_partition_n_buckets(&exchange->partition);
}

/* ---- parameters ---- */

void ddl_exchange_parameters(struct ddl_exchange *exchange)
{
    if (!exchange)
        return;
    const struct collective copy = { ddl_model_flat_values(exchange->model), ddl_comm_all_gather_start };
    for (size_t b = 0; b < ddl_partition_n_buckets(&exchange->partition); b++)
        start(exchange, &copy, b);
    finish_all(exchange, copy.buffer);
}

/* ---- memory and traffic ---- */

/* The floats of the largest layer: what a pass completes between two calls of gradients_final, except for the
 * embedding, after which nothing is left to compute. */
static size_t largest_layer(const struct ddl_param *params, size_t n)
{
    size_t largest = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        long layer = ddl_param_layer(params[i].name);
        if (i == 0 || layer != ddl_param_layer(params[i - 1].name))
            sum = 0;
        sum += layer >= 0 ? params[i].count : 0;
        largest = sum > largest ? sum : largest;
    }
    return largest;
}

size_t ddl_exchange_in_flight(const struct ddl_param *params, size_t n, const struct ddl_partition *partition)
{
    size_t all = ddl_partition_n_buckets(partition);
    size_t wanted = largest_layer(params, n) / partition->bucket + 2;
    return wanted < all ? wanted : all;
}

size_t ddl_exchange_bytes(const struct ddl_partition *partition, enum ddl_comm_dtype dtype, size_t in_flight,
                          bool host_memory)
{
    if (partition->ranks == 1)
        return 0;
    size_t staging = host_memory ? 0 : partition->bucket * sizeof(float);
    return in_flight * (ddl_comm_exchange_bytes(partition->bucket, partition->ranks, dtype) + staging);
}

size_t ddl_exchange_traffic(const struct ddl_partition *partition, enum ddl_comm_dtype dtype)
{
    size_t bytes = 0;
    for (size_t b = 0; partition->ranks > 1 && b < ddl_partition_n_buckets(partition); b++) {
        struct ddl_range bucket = ddl_partition_bucket(partition, b);
        bytes += ddl_comm_exchange_traffic(bucket.end - bucket.begin, partition->ranks, dtype) +
                 ddl_comm_exchange_traffic(bucket.end - bucket.begin, partition->ranks, DDL_COMM_F32);
    }
    return bytes;
}
