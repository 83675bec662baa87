#include "train/run/moments.h"

#include "model/params/flat.h"
#include "ops/ops.h"

#include <stdio.h>

/* Numbers [start, start + n) of a moment of parameter `row`; n 0: the end. */
struct request {
    uint64_t row, kind, start, n;
};

static ddl_status read_own(const struct ddl_moments *moments, const struct request *r, float *out,
                           struct ddl_error *err)
{
    const ddl_backend *backend = ddl_model_backend(moments->model);
    ddl_optim_read(moments->optim, (size_t)r->row, (size_t)r->start, (size_t)r->n, r->kind ? NULL : out,
                   r->kind ? out : NULL);
    return backend->ops->check_error(backend->ctx, err);
}

/* The next part of the request that `rank` owns, in numbers of the parameter; n 0 after the last. *left: what
 * is not searched yet, of the flat buffer, at first the whole request. */
static struct request next_part(const struct ddl_moments *moments, const struct request *r, size_t rank,
                                struct ddl_range *left)
{
    size_t offset = ddl_model_flat_param(moments->model, (size_t)r->row).offset;
    struct ddl_range own = ddl_partition_next(moments->partition, rank, *left);
    left->begin = own.end;
    return (struct request){ r->row, r->kind, own.begin - offset, own.end - own.begin };
}

static struct ddl_range range_of(const struct ddl_moments *moments, const struct request *r)
{
    size_t begin = ddl_model_flat_param(moments->model, (size_t)r->row).offset + (size_t)r->start;
    return (struct ddl_range){ begin, begin + (size_t)r->n };
}

/* The numbers, and the error of the other rank, if it could not read them. */
static ddl_status receive(const struct ddl_moments *moments, const struct request *r, size_t rank, float *out,
                          struct ddl_error *err)
{
    struct ddl_range left = range_of(moments, r);
    struct request part;
    uint64_t failed = 0;
    while ((part = next_part(moments, r, rank, &left)).n > 0)
        ddl_comm_receive(moments->comm, rank, (size_t)part.n * sizeof *out, out + (part.start - r->start));
    ddl_comm_receive(moments->comm, rank, sizeof failed, &failed);
    if (!failed)
        return DDL_OK;
    char where[32];
    snprintf(where, sizeof where, "rank %zu", rank);
    ddl_comm_receive(moments->comm, rank, sizeof *err, err);
    return ddl_error_prefix(err, err->status, where);
}

static ddl_status send(const struct ddl_moments *moments, const struct request *r, struct ddl_error *err)
{
    struct ddl_range left = range_of(moments, r);
    struct request part;
    ddl_status status = DDL_OK;
    while ((part = next_part(moments, r, ddl_comm_rank(moments->comm), &left)).n > 0) {
        if (!status)
            status = read_own(moments, &part, moments->scratch, err);
        ddl_comm_send(moments->comm, 0, (size_t)part.n * sizeof *moments->scratch, moments->scratch);
    }
    uint64_t failed = status != DDL_OK;
    ddl_comm_send(moments->comm, 0, sizeof failed, &failed);
    if (failed)
        ddl_comm_send(moments->comm, 0, sizeof *err, err);
    return status;
}

ddl_status ddl_moments_read(const struct ddl_moments *moments, size_t i, int kind, size_t start, size_t n,
                            float *out, struct ddl_error *err)
{
    struct request r = { i, (uint64_t)kind, start, n };
    ddl_comm_broadcast(moments->comm, 0, sizeof r, &r);
    ddl_status status = read_own(moments, &r, out, err);
    for (size_t rank = 1; rank < ddl_comm_size(moments->comm); rank++) {
        struct ddl_error later;
        ddl_status received = receive(moments, &r, rank, out, status ? &later : err);
        status = status ? status : received;
    }
    return status;
}

void ddl_moments_end(const struct ddl_moments *moments)
{
    struct request r = { 0 };
    ddl_comm_broadcast(moments->comm, 0, sizeof r, &r);
}

ddl_status ddl_moments_serve(const struct ddl_moments *moments, struct ddl_error *err)
{
    struct request r = { 0 };
    ddl_status status = DDL_OK;
    do {
        ddl_comm_broadcast(moments->comm, 0, sizeof r, &r);
        struct ddl_error later;
        ddl_status sent = r.n > 0 ? send(moments, &r, status ? &later : err) : DDL_OK;
        status = status ? status : sent;
    } while (r.n > 0);
    return status;
}
