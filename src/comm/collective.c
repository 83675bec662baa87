/* Blocking collectives: each rank sends its data to every other. */
#include "comm/internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void ddl_comm_gather(ddl_comm *comm, size_t bytes, const void *mine, void *all)
{
    size_t size = ddl_comm_size(comm), rank = ddl_comm_rank(comm);
    unsigned char *blocks = all, *own = blocks + rank * bytes;
    if (own != mine && bytes > 0)
        memcpy(own, mine, bytes);
    if (size == 1)
        return;
    struct ddl_comm_batch *batch = &comm->blocking;
    int tag = ddl_comm_next_tag(comm);
    ddl_comm_batch_begin(comm, batch);
    for (size_t i = 1; i < size; i++) {
        size_t from = (rank + size - i) % size;
        ddl_comm_batch_receive(batch, from, tag, bytes, blocks + from * bytes);
    }
    for (size_t i = 1; i < size; i++)
        ddl_comm_batch_send(batch, (rank + i) % size, tag, bytes, own);
    ddl_comm_batch_start(comm, batch);
    ddl_comm_batch_wait(comm, batch);
}

void ddl_comm_barrier(ddl_comm *comm)
{
    if (comm)
        ddl_comm_gather(comm, 1, comm->what, comm->numbers);
}

/* into (n) = into, combined with from (n); 8 bytes each. */
typedef void combine_fn(size_t n, void *into, const void *from);

static void add_f64(size_t n, void *into, const void *from)
{
    double *sum = into;
    const double *x = from;
    for (size_t i = 0; i < n; i++)
        sum[i] += x[i];
}

static void add_u64(size_t n, void *into, const void *from)
{
    uint64_t *sum = into;
    const uint64_t *x = from;
    for (size_t i = 0; i < n; i++)
        sum[i] += x[i];
}

static void max_u64(size_t n, void *into, const void *from)
{
    uint64_t *max = into;
    const uint64_t *x = from;
    for (size_t i = 0; i < n; i++)
        max[i] = x[i] > max[i] ? x[i] : max[i];
}

/* All ranks combine the numbers in the order of the ranks. */
static void reduce(ddl_comm *comm, size_t n, void *x, combine_fn *combine)
{
    size_t size = ddl_comm_size(comm);
    unsigned char *numbers = x;
    for (size_t done = 0; size > 1 && done < n; done += DDL_COMM_CHUNK) {
        size_t count = n - done < DDL_COMM_CHUNK ? n - done : DDL_COMM_CHUNK, bytes = 8 * count;
        unsigned char *chunk = numbers + 8 * done, *all = (unsigned char *)comm->numbers;
        ddl_comm_gather(comm, bytes, chunk, all);
        memcpy(chunk, all, bytes);
        for (size_t r = 1; r < size; r++)
            combine(count, chunk, all + r * bytes);
    }
}

void ddl_comm_sum_f64(ddl_comm *comm, size_t n, double *x)
{
    reduce(comm, n, x, add_f64);
}

void ddl_comm_sum_u64(ddl_comm *comm, size_t n, uint64_t *x)
{
    reduce(comm, n, x, add_u64);
}

void ddl_comm_max_u64(ddl_comm *comm, size_t n, uint64_t *x)
{
    reduce(comm, n, x, max_u64);
}

void ddl_comm_broadcast(ddl_comm *comm, size_t root, size_t bytes, void *data)
{
    size_t size = ddl_comm_size(comm), rank = ddl_comm_rank(comm);
    assert(root < size);
    if (size == 1)
        return;
    struct ddl_comm_batch *batch = &comm->blocking;
    int tag = ddl_comm_next_tag(comm);
    ddl_comm_batch_begin(comm, batch);
    if (rank != root)
        ddl_comm_batch_receive(batch, root, tag, bytes, data);
    for (size_t i = 1; rank == root && i < size; i++)
        ddl_comm_batch_send(batch, (rank + i) % size, tag, bytes, data);
    ddl_comm_batch_start(comm, batch);
    ddl_comm_batch_wait(comm, batch);
}

void ddl_comm_send(ddl_comm *comm, size_t to, size_t bytes, const void *data)
{
    assert(to < ddl_comm_size(comm) && to != ddl_comm_rank(comm));
    ddl_comm_batch_begin(comm, &comm->blocking);
    ddl_comm_batch_send(&comm->blocking, to, DDL_COMM_TAG_MESSAGE, bytes, data);
    ddl_comm_batch_start(comm, &comm->blocking);
    ddl_comm_batch_wait(comm, &comm->blocking);
}

void ddl_comm_receive(ddl_comm *comm, size_t from, size_t bytes, void *data)
{
    assert(from < ddl_comm_size(comm) && from != ddl_comm_rank(comm));
    ddl_comm_batch_begin(comm, &comm->blocking);
    ddl_comm_batch_receive(&comm->blocking, from, DDL_COMM_TAG_MESSAGE, bytes, data);
    ddl_comm_batch_start(comm, &comm->blocking);
    ddl_comm_batch_wait(comm, &comm->blocking);
}

ddl_status ddl_comm_agree(ddl_comm *comm, ddl_status status, struct ddl_error *err)
{
    size_t size = ddl_comm_size(comm), first = 0;
    uint64_t any = status;
    ddl_comm_max_u64(comm, 1, &any);
    if (size == 1 || any == DDL_OK)
        return status;
    struct ddl_error *errors = (struct ddl_error *)comm->numbers;
    _Static_assert(sizeof *errors <= DDL_COMM_CHUNK * sizeof *comm->numbers, "an error per rank");
    err->status = status;
    if (status == DDL_OK)
        err->text[0] = '\0';
    ddl_comm_gather(comm, sizeof *err, err, errors);
    while (first < size && errors[first].status == DDL_OK)
        first++;
    if (first == size)
        ddl_comm_abort_call(
            comm, "a rank reported an error that no rank has: the ranks do not run the same program");
    size_t same = first;
    while (same < size && errors[same].status == errors[first].status &&
           strcmp(errors[same].text, errors[first].text) == 0)
        same++;
    *err = errors[first];
    if (first == 0 && same == size)
        return err->status;
    char prefix[DDL_COMM_HOST_SIZE + 64];
    snprintf(prefix, sizeof prefix, "rank %zu of %zu (host %s)", first, size, comm->hosts[first]);
    return ddl_error_prefix(err, err->status, prefix);
}
