#include "train/step/exchange.h"

#include "base/mem.h"
#include "model/params/flat.h"
#include "train/step/collectives.h"

struct ddl_exchange {
    ddl_model *model;
    struct ddl_partition partition;
    struct ddl_collectives collectives;
    size_t left; /* buckets whose gradients are not exchanged yet: those before the others */
};

ddl_status ddl_exchange_create(struct ddl_exchange **out, ddl_comm *comm, ddl_model *model,
                               const struct ddl_partition *partition, enum ddl_comm_dtype dtype,
                               size_t in_flight, struct ddl_error *err)
{
    *out = NULL;
    if (!comm)
        return DDL_OK;
    struct ddl_exchange *ex = ddl_mem_zalloc(sizeof *ex);
    ddl_status status = DDL_OK;
    if (!ex)
        status = ddl_error_set(err, DDL_E_MEMORY, "out of memory for the exchange of gradients");
    status = ddl_comm_agree(comm, status, err); /* the calls below are collective */
    if (status) {
        ddl_mem_free(ex);
        return status;
    }
    *ex = (struct ddl_exchange){ .model = model,
                                 .partition = *partition,
                                 .left = ddl_partition_n_buckets(partition) };
    const ddl_backend *backend = ddl_model_backend(model);
    status = ddl_collectives_create_device(&ex->collectives, comm, backend, partition->bucket, dtype, err);
    if (!status && !ex->collectives.ops)
        status = ddl_collectives_create_host(&ex->collectives, comm, backend, partition->bucket, dtype,
                                             in_flight, err);
    if (status)
        ddl_exchange_free(ex);
    else
        *out = ex;
    return status;
}

void ddl_exchange_free(struct ddl_exchange *exchange)
{
    if (exchange && exchange->collectives.ops)
        exchange->collectives.ops->free(exchange->collectives.ctx);
    ddl_mem_free(exchange);
}

const char *ddl_exchange_note(const struct ddl_exchange *exchange)
{
    return exchange ? exchange->collectives.note : "";
}

/* Everything submitted to the backend so far. */
static ddl_event now(const struct ddl_exchange *ex)
{
    const ddl_backend *backend = ddl_model_backend(ex->model);
    return backend->ops->record(backend->ctx);
}

/* ---- gradients ---- */

/* Starts the buckets that begin at `begin` or after it and are not started yet. */
static void start_gradients(struct ddl_exchange *ex, float *grads, size_t begin)
{
    ddl_event ready = 0;
    for (; ex->left > 0; ex->left--) {
        const struct ddl_range range = ddl_partition_bucket(&ex->partition, ex->left - 1);
        if (range.begin < begin)
            break;
        if (!ready)
            ready = now(ex);
        ex->collectives.ops->reduce_scatter(ex->collectives.ctx, grads + range.begin, range.end - range.begin,
                                            ready);
    }
}

/* A ddl_grads_final_fn; user: the exchange. */
static void gradients_final(void *user, float *grads, size_t begin)
{
    struct ddl_exchange *ex = user;
    start_gradients(ex, grads, begin);
    ex->collectives.ops->progress(ex->collectives.ctx);
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
    ddl_workspace_set_grads_final(ws, NULL, NULL);
    start_gradients(exchange, ddl_model_flat_grads(exchange->model), 0);
    exchange->collectives.ops->finish(exchange->collectives.ctx);
    exchange->left = ddl_partition_n_buckets(&exchange->partition);
}

/* ---- parameters ---- */

void ddl_exchange_parameters(struct ddl_exchange *exchange)
{
    if (!exchange)
        return;
    float *values = ddl_model_flat_values(exchange->model);
    ddl_event ready = now(exchange);
    for (size_t b = 0; b < ddl_partition_n_buckets(&exchange->partition); b++) {
        const struct ddl_range range = ddl_partition_bucket(&exchange->partition, b);
        exchange->collectives.ops->all_gather(exchange->collectives.ctx, values + range.begin,
                                              range.end - range.begin, ready);
    }
    exchange->collectives.ops->finish(exchange->collectives.ctx);
}

/* ---- memory and traffic ---- */

/* The floats of the largest layer: what a pass completes between two calls of gradients_final, except for the
 * embedding, after which nothing is left to compute. */
static size_t largest_layer(const struct ddl_param *params, size_t n)
{
    size_t largest = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || params[i].layer != params[i - 1].layer)
            sum = 0;
        sum += params[i].layer >= 0 ? params[i].count : 0;
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
