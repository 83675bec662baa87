/* Collectives between the devices of several ranks, by NCCL: the table cuda_group (ops/group.h). They run on
 * a stream of their own, beside the ops.
 *
 * Sums in float32 are ncclReduceScatter where the pieces are equal, else one ncclReduce per piece; NCCL
 * chooses the order of the summands. In bfloat16 each rank sends the rounded pieces to their owners, which
 * add them in float32 in the order of the ranks: NCCL itself would round every partial sum.
 *
 * ncclCommInitRank waits for the other ranks without a time limit, so a thread calls it. A communicator that
 * does not block would need no thread for this, but NCCL starts one for each of its calls. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/nccl.h"
#include "ops/group.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct group {
    struct cuda_device *device;
    const struct cuda_nccl *nccl;
    ncclComm_t comm;
    CUstream stream;
    CUevent end; /* of the calls so far */
    struct ddl_group_config config;
    uint16_t *rounded;  /* BF16: (capacity) */
    uint16_t *received; /* BF16: (size, largest piece) the pieces of all ranks */
    float *widened;     /* the same in float32 */
    ncclResult_t error; /* the first one; it remains */
    const char *error_at;
    ncclUniqueId id;
    pthread_t connector; /* the thread that connects the ranks, while is_connecting */
    bool is_connecting;
    atomic_bool is_connected; /* the thread has ended, with this result: */
    ncclResult_t connected;
};

static void note(struct group *g, ncclResult_t result, const char *at)
{
    if (result && result != ncclInProgress && !g->error) {
        g->error = result;
        g->error_at = at;
    }
}

/* "ncclReduceScatter: invalid usage (reason)" */
static ddl_status failure(const struct cuda_nccl *nccl, ncclComm_t comm, ncclResult_t result, const char *at,
                          struct ddl_error *err)
{
    const char *reason = nccl->last_error(comm);
    bool has_reason = reason && *reason;
    return ddl_error_set(err, DDL_E_DEVICE, "backend cuda: NCCL: %s: %s%s%.200s%s", at,
                         nccl->error_text(result), has_reason ? " (" : "", has_reason ? reason : "",
                         has_reason ? ")" : "");
}

/* ---- pieces ---- */

static size_t begin_of(const struct group *g, size_t n, size_t rank)
{
    return g->config.cut(n, g->config.size, rank);
}

static size_t piece_of(const struct group *g, size_t n, size_t rank)
{
    return begin_of(g, n, rank + 1) - begin_of(g, n, rank);
}

static bool pieces_are_equal(const struct group *g, size_t n)
{
    for (size_t r = 1; r < g->config.size; r++) {
        if (piece_of(g, n, r) != piece_of(g, n, 0))
            return false;
    }
    return true;
}

static size_t largest_piece(const struct ddl_group_config *config)
{
    size_t largest = 0;
    for (size_t r = 0; r < config->size; r++) {
        size_t n = config->cut(config->capacity, config->size, r + 1) -
                   config->cut(config->capacity, config->size, r);
        largest = n > largest ? n : largest;
    }
    return largest;
}

/* ---- calls ---- */

/* The stream continues when the backend has reached `ready`. */
static void begin(struct group *g, ddl_event ready)
{
    struct cuda_device *d = g->device;
    const struct cuda_driver *driver = cuda_enter(d);
    if (ready)
        cuda_note(d, driver->stream_wait_event(g->stream, cuda_event_of(d, ready), 0), "cuStreamWaitEvent");
}

static void end(struct group *g)
{
    cuda_note(g->device, cuda_enter(g->device)->event_record(g->end, g->stream), "cuEventRecord");
}

static void sum_pieces(struct group *g, float *x, size_t n)
{
    note(g, g->nccl->group_start(), "ncclGroupStart");
    for (size_t r = 0; r < g->config.size; r++) {
        float *piece = x + begin_of(g, n, r);
        size_t count = piece_of(g, n, r);
        if (count)
            note(g, g->nccl->reduce(piece, piece, count, ncclFloat32, ncclSum, (int)r, g->comm, g->stream),
                 "ncclReduce");
    }
    note(g, g->nccl->group_end(), "ncclGroupEnd");
}

/* The rounded pieces go to their owners. */
static void send_rounded(struct group *g, size_t n)
{
    size_t own = piece_of(g, n, g->config.rank);
    note(g, g->nccl->group_start(), "ncclGroupStart");
    for (size_t r = 0; r < g->config.size; r++) {
        size_t count = piece_of(g, n, r);
        if (count)
            note(g,
                 g->nccl->send(g->rounded + begin_of(g, n, r), count, ncclBfloat16, (int)r, g->comm,
                               g->stream),
                 "ncclSend");
        if (own)
            note(g, g->nccl->receive(g->received + r * own, own, ncclBfloat16, (int)r, g->comm, g->stream),
                 "ncclRecv");
    }
    note(g, g->nccl->group_end(), "ncclGroupEnd");
}

static void sum_rounded(struct group *g, float *x, size_t n)
{
    struct cuda_device *d = g->device;
    size_t own = piece_of(g, n, g->config.rank), all = g->config.size * own;
    float *sum = x + begin_of(g, n, g->config.rank);
    const CUstream ops = d->stream;
    const bool is_recording = d->is_recording;
    d->stream = g->stream; /* the kernels below are part of the call */
    d->is_recording = false;
    cuda_cast_bf16(d, &(struct cast_bf16_args){ n, x, g->rounded });
    send_rounded(g, n);
    cuda_widen_bf16(d, &(struct widen_bf16_args){ all, g->received, g->widened });
    cuda_zero(d, sum, own * sizeof *sum);
    /* A block adds up to eight rows in their order, and more of them in another one. */
    const size_t rows = g->config.size <= 8 ? g->config.size : 1;
    for (size_t r = 0; r < g->config.size; r += rows)
        cuda_add_blocks(d, rows, own, g->widened + r * own, sum);
    d->stream = ops;
    d->is_recording = is_recording;
}

static void reduce_scatter(void *group, float *x, size_t n, ddl_event ready)
{
    struct group *g = group;
    begin(g, ready);
    if (g->config.bf16)
        sum_rounded(g, x, n);
    else if (pieces_are_equal(g, n))
        note(g,
             g->nccl->reduce_scatter(x, x + begin_of(g, n, g->config.rank), n / g->config.size, ncclFloat32,
                                     ncclSum, g->comm, g->stream),
             "ncclReduceScatter");
    else
        sum_pieces(g, x, n);
    end(g);
}

static void copy_pieces(struct group *g, float *x, size_t n)
{
    note(g, g->nccl->group_start(), "ncclGroupStart");
    for (size_t r = 0; r < g->config.size; r++) {
        float *piece = x + begin_of(g, n, r);
        size_t count = piece_of(g, n, r);
        if (count)
            note(g, g->nccl->broadcast(piece, piece, count, ncclFloat32, (int)r, g->comm, g->stream),
                 "ncclBroadcast");
    }
    note(g, g->nccl->group_end(), "ncclGroupEnd");
}

static void all_gather(void *group, float *x, size_t n, ddl_event ready)
{
    struct group *g = group;
    begin(g, ready);
    if (pieces_are_equal(g, n))
        note(g,
             g->nccl->all_gather(x + begin_of(g, n, g->config.rank), x, n / g->config.size, ncclFloat32,
                                 g->comm, g->stream),
             "ncclAllGather");
    else
        copy_pieces(g, x, n);
    end(g);
}

static ddl_status poll_calls(struct group *g, bool *is_complete, struct ddl_error *err)
{
    CUresult result = cuda_enter(g->device)->event_query(g->end);
    *is_complete = result == CUDA_SUCCESS;
    if (result != CUDA_ERROR_NOT_READY)
        cuda_note(g->device, result, "cuEventQuery");
    ddl_status status = cuda_check_error(g->device, err);
    if (status)
        return status;
    ncclResult_t lost = ncclSuccess;
    note(g, g->nccl->async_error(g->comm, &lost), "ncclCommGetAsyncError");
    note(g, lost, "asynchronous error");
    return g->error ? failure(g->nccl, g->comm, g->error, g->error_at, err) : DDL_OK;
}

/* ---- opening and closing ---- */

static void release(struct group *g)
{
    const struct cuda_driver *driver = cuda_enter(g->device);
    void *const blocks[] = { g->rounded, g->received, g->widened };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        if (blocks[i])
            cuda_free(g->device, blocks[i]);
    }
    if (g->end)
        cuda_note(g->device, driver->event_destroy(g->end), "cuEventDestroy");
    if (g->stream)
        cuda_note(g->device, driver->stream_destroy(g->stream), "cuStreamDestroy");
    free(g);
}

static void abort_group(void *group)
{
    struct group *g = group;
    cuda_enter(g->device);
    if (g->is_connecting) {
        (void)pthread_detach(g->connector); /* it may wait forever, and has the group */
        return;
    }
    if (g->comm)
        g->nccl->abort(g->comm);
    release(g);
}

static void close_group(void *group)
{
    struct group *g = group;
    cuda_note(g->device, cuda_enter(g->device)->stream_wait(g->stream), "cuStreamSynchronize");
    g->nccl->destroy(g->comm);
    release(g);
}

static bool alloc_rounded(struct group *g)
{
    size_t pieces = g->config.size * largest_piece(&g->config);
    g->rounded = cuda_alloc(g->device, g->config.capacity * sizeof *g->rounded);
    g->received = cuda_alloc(g->device, pieces * sizeof *g->received);
    g->widened = cuda_alloc(g->device, pieces * sizeof *g->widened);
    cuda_synchronize(g->device); /* the blocks exist for the other stream too */
    return g->rounded && g->received && g->widened;
}

/* The stream, the event and the memory. */
static ddl_status prepare(struct group *g, struct ddl_error *err)
{
    const struct cuda_driver *driver = cuda_enter(g->device);
    CUresult result = driver->stream_create(&g->stream, CU_STREAM_NON_BLOCKING);
    if (!result)
        result = driver->event_create(&g->end, CU_EVENT_DISABLE_TIMING);
    if (!result)
        result = driver->event_record(g->end, g->stream);
    cuda_note(g->device, result, "cuStreamCreate");
    ddl_status status = cuda_check_error(g->device, err);
    if (!status && g->config.bf16 && !alloc_rounded(g))
        status =
            ddl_error_set(err, DDL_E_MEMORY, "backend cuda: out of device memory for buckets of %zu floats",
                          g->config.capacity);
    return status;
}

/* A number from each rank to each: in the first such call NCCL connects senders with receivers and takes
 * memory for that, and it blocks its caller. */
static ncclResult_t exchange_numbers(const struct group *g, ncclComm_t comm, uint16_t *numbers,
                                     CUstream stream)
{
    ncclResult_t result = g->nccl->group_start(), end;
    for (size_t r = 0; r < g->config.size && !result; r++) {
        result = g->nccl->send(numbers, 1, ncclBfloat16, (int)r, comm, stream);
        if (!result)
            result = g->nccl->receive(numbers + 1 + r, 1, ncclBfloat16, (int)r, comm, stream);
    }
    end = g->nccl->group_end();
    return result ? result : end;
}

static ncclResult_t connect_senders(const struct group *g, ncclComm_t comm)
{
    const struct cuda_driver *driver = g->device->driver;
    CUstream stream = NULL;
    CUdeviceptr numbers = 0;
    ncclResult_t result = ncclUnhandledCudaError;
    if (!driver->stream_create(&stream, CU_STREAM_NON_BLOCKING) &&
        !driver->alloc_now(&numbers, (1 + g->config.size) * sizeof(uint16_t)))
        result = exchange_numbers(g, comm, (uint16_t *)(uintptr_t)numbers, stream);
    if (stream && driver->stream_wait(stream) && !result)
        result = ncclUnhandledCudaError;
    if (numbers)
        (void)driver->free_now(numbers);
    if (stream)
        (void)driver->stream_destroy(stream);
    return result;
}

static void *connect_ranks(void *group)
{
    struct group *g = group;
    ncclComm_t comm = NULL;
    CUresult result = g->device->driver->context_set(g->device->primary); /* of this thread */
    g->connected = result ? ncclUnhandledCudaError
                          : g->nccl->init(&comm, (int)g->config.size, g->id, (int)g->config.rank);
    if (!g->connected && g->config.bf16)
        g->connected = connect_senders(g, comm);
    g->comm = g->connected ? NULL : comm;
    atomic_store(&g->is_connected, true);
    return NULL;
}

static ddl_status open_group(void **out, void *ctx, const struct ddl_group_config *config,
                             struct ddl_error *err)
{
    struct cuda_device *d = ctx;
    const struct cuda_nccl *nccl;
    *out = NULL;
    ddl_status status = cuda_nccl_load(&nccl, err);
    if (status)
        return status;
    struct group *g = calloc(1, sizeof *g);
    if (!g)
        return ddl_error_set(err, DDL_E_MEMORY, "backend cuda: out of memory");
    *g = (struct group){ .device = d, .nccl = nccl, .config = *config };
    memcpy(g->id.internal, config->id, sizeof g->id.internal);
    g->is_connecting = pthread_create(&g->connector, NULL, connect_ranks, g) == 0;
    if (!g->is_connecting) {
        free(g);
        return ddl_error_set(err, DDL_E_MEMORY, "backend cuda: a thread for NCCL cannot be started");
    }
    *out = g;
    return DDL_OK;
}

/* What follows when the ranks are connected, or could not be. */
static ddl_status finish_connecting(struct group *g, struct ddl_error *err)
{
    (void)pthread_join(g->connector, NULL);
    g->is_connecting = false;
    cuda_enter(g->device);
    return g->connected ? failure(g->nccl, NULL, g->connected, "ncclCommInitRank", err) : prepare(g, err);
}

static ddl_status poll(void *group, bool *is_complete, struct ddl_error *err)
{
    struct group *g = group;
    *is_complete = false;
    if (g->is_connecting && !atomic_load(&g->is_connected))
        return DDL_OK;
    ddl_status status = g->is_connecting ? finish_connecting(g, err) : DDL_OK;
    return status ? status : poll_calls(g, is_complete, err);
}

/* The host and the place on its bus, which the slices of a GPU (MIG) have in common: NCCL refuses ranks of
 * one GPU. */
static void name_device(struct cuda_device *d, char out[DDL_GROUP_DEVICE])
{
    char host[37] = "", bus[24] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file && !fgets(host, sizeof host, file))
        host[0] = '\0';
    if (file)
        fclose(file);
    cuda_note(d, cuda_enter(d)->device_bus(bus, sizeof bus, d->device), "cuDeviceGetPCIBusId");
    snprintf(out, DDL_GROUP_DEVICE, "%s %s", host, bus);
}

static ddl_status load(void *ctx, char device[DDL_GROUP_DEVICE], char *text, size_t text_size,
                       struct ddl_error *err)
{
    struct cuda_device *d = ctx;
    const struct cuda_nccl *nccl;
    int version = 0;
    ddl_status status = cuda_nccl_load(&nccl, err);
    if (status)
        return status;
    ncclResult_t result = nccl->version(&version);
    if (result)
        return failure(nccl, NULL, result, "ncclGetVersion", err);
    name_device(d, device);
    snprintf(text, text_size, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return cuda_check_error(d, err);
}

static ddl_status make_id(void *ctx, unsigned char id[DDL_GROUP_ID], struct ddl_error *err)
{
    const struct cuda_nccl *nccl;
    ncclUniqueId made;
    ddl_status status = cuda_nccl_load(&nccl, err);
    if (status)
        return status;
    cuda_enter(ctx);
    ncclResult_t result = nccl->unique_id(&made);
    if (result)
        return failure(nccl, NULL, result, "ncclGetUniqueId", err);
    memcpy(id, made.internal, DDL_GROUP_ID);
    return DDL_OK;
}

/* Allowance for the memory of NCCL, which depends on its version, its number of channels and the topology.
 * Issues of github.com/NVIDIA/nccl report 0.5 GB when a communicator is created (2366), 1.6 GB after an
 * all-reduce (864), and 3.3 GB more after send and receive between 8 H100, which have 7 peers each (1685);
 * peers on other hosts share buffers. */
enum { NCCL_MIB = 1600, NCCL_PEER_MIB = 480, NCCL_PEERS = 7 };

static size_t memory_estimate(void *ctx, size_t size, bool bf16)
{
    (void)ctx;
    const size_t peers = size - 1 < NCCL_PEERS ? size - 1 : NCCL_PEERS;
    return (NCCL_MIB + (bf16 ? peers * NCCL_PEER_MIB : 0)) << 20; /* bf16: ncclSend and ncclRecv */
}

const struct ddl_group_ops cuda_group = {
    .load = load,
    .make_id = make_id,
    .open = open_group,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .poll = poll,
    .abort = abort_group,
    .close = close_group,
    .memory_estimate = memory_estimate,
};
