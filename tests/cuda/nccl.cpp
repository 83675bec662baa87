/* A stand-in for NCCL: a libnccl.so.2 on the simulated driver (driver.cpp), between processes of one machine
 * through a shared file. Groups of calls are executed in the order of the stream: a rank publishes what it
 * sends when all ranks are done with the group before, and completes its calls when all have published. Sums
 * begin at the rank after the owner of the result, as on a ring.
 *
 * What NCCL rejects is an error with a message: a wrong device, an address outside of its memory, a root that
 * does not exist, two ranks on one GPU, a communicator that was destroyed or aborted. Where it would hang
 * or mix up memory, ncclCommGetAsyncError reports an error with a message: calls or counts that differ
 * between the ranks.
 *
 * Environment: NCCL_SIM_LOST (RANK:GROUP, from 0: from this group on the rank cannot be reached, which is an
 * asynchronous error of all ranks), NCCL_SIM_STUCK (the same without the error), NCCL_SIM_ABSENT (RANK: it
 * does not join).
 */
#include "backend/cuda/nccl.h"
#include "driver.h"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#define LIBRARY extern "C" __attribute__((visibility("default")))

enum { MOST_RANKS = 16, MOST_CALLS = 64 };
static const size_t SLOT = static_cast<size_t>(64) << 20; /* bytes that a rank sends in a group, at most */

enum kind { REDUCE_SCATTER, ALL_GATHER, REDUCE, BROADCAST, SEND, RECEIVE };
static const char *const kinds[] = { "ncclReduceScatter", "ncclAllGather", "ncclReduce",
                                     "ncclBroadcast",     "ncclSend",      "ncclRecv" };

struct call {
    enum kind kind;
    ncclDataType_t type;
    int peer; /* or root; 0: none */
    size_t count;
    size_t sent, offset; /* bytes that are published, and where in the slot */
    const void *from;
    void *to;
};

/* A rank, in shared memory. */
struct member {
    std::atomic<bool> joined, lost;
    int device, size;
    std::atomic<uint64_t> published, completed; /* groups */
    size_t n_calls;                             /* of the group that was published last */
    call calls[MOST_CALLS];
};

struct shared {
    member members[MOST_RANKS];
};
static const size_t HEADER = (sizeof(shared) + 4095) / 4096 * 4096;

struct ncclComm {
    shared *memory;
    int rank, size, device;
    uint64_t submitted; /* groups */
    ncclResult_t error;
    bool aborted;
};

struct group {
    ncclComm_t comm;
    CUstream stream;
    uint64_t index;
    std::vector<call> calls;
};

static std::set<ncclComm_t> live;
static unsigned depth; /* of ncclGroupStart */
static group pending;
static char last_error[256];

static ncclResult_t complain(ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static ncclResult_t complain(ncclResult_t result, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(last_error, sizeof last_error, format, list);
    va_end(list);
    fprintf(stderr, "simulated CUDA device: NCCL: %s\n", last_error);
    return result;
}

static size_t size_of(ncclDataType_t type)
{
    return type == ncclBfloat16 ? 2 : 4;
}

static bool is_message(const call &c)
{
    return c.kind == SEND || c.kind == RECEIVE;
}

static char *slot_of(ncclComm_t comm, int rank)
{
    return reinterpret_cast<char *>(comm->memory) + HEADER + static_cast<size_t>(rank) * SLOT;
}

/* Whether the variable says that this rank fails in this group or an earlier one. */
static bool fails(const char *name, ncclComm_t comm, uint64_t index)
{
    const char *text = getenv(name);
    int rank;
    unsigned long long first;
    return text && sscanf(text, "%d:%llu", &rank, &first) == 2 && rank == comm->rank && index >= first;
}

/* ---- execution ---- */

static CUresult publish(void *user)
{
    const group *g = static_cast<group *>(user);
    ncclComm_t comm = g->comm;
    if (comm->aborted)
        return CUDA_SUCCESS;
    member &own = comm->memory->members[comm->rank];
    if (fails("NCCL_SIM_LOST", comm, g->index))
        own.lost = true;
    if (own.lost || fails("NCCL_SIM_STUCK", comm, g->index))
        return CUDA_ERROR_NOT_READY;
    for (int r = 0; r < comm->size; r++)
        if (comm->memory->members[r].completed < g->index)
            return CUDA_ERROR_NOT_READY;
    size_t offset = 0;
    own.n_calls = 0;
    for (call c : g->calls) {
        c.offset = offset;
        if (offset + c.sent > SLOT || own.n_calls == MOST_CALLS) {
            complain(ncclInternalError, "a group is too large for the simulation");
            abort();
        }
        memcpy(slot_of(comm, comm->rank) + offset, c.from, c.sent);
        offset += c.sent;
        own.calls[own.n_calls++] = c;
    }
    own.published = g->index + 1;
    return CUDA_SUCCESS;
}

/* The sum over the ranks of `count` numbers, of call `c` from number `first` on, for the rank `owner`. */
static void sum(ncclComm_t comm, size_t c, size_t first, size_t count, int owner, float *to)
{
    std::vector<float> total(count, 0.0f);
    for (int i = 1; i <= comm->size; i++) {
        const int r = (owner + i) % comm->size;
        const char *slot = slot_of(comm, r) + comm->memory->members[r].calls[c].offset;
        const float *x = reinterpret_cast<const float *>(slot) + first;
        for (size_t k = 0; k < count; k++)
            total[k] = i == 1 ? x[k] : total[k] + x[k];
    }
    memcpy(to, total.data(), count * sizeof *to);
}

/* Number `nth` of what rank `from` sends to `to`; NULL: there is none. */
static const call *message(ncclComm_t comm, int from, int to, size_t nth)
{
    const member &m = comm->memory->members[from];
    for (size_t i = 0; i < m.n_calls; i++)
        if (m.calls[i].kind == SEND && m.calls[i].peer == to && nth-- == 0)
            return &m.calls[i];
    return nullptr;
}

static ncclResult_t receive(ncclComm_t comm, const call &c, size_t nth)
{
    const call *sent = message(comm, c.peer, comm->rank, nth);
    if (!sent || sent->count != c.count || sent->type != c.type)
        return complain(ncclInvalidUsage, "rank %d receives %zu numbers from rank %d, which sends %zu",
                        comm->rank, c.count, c.peer, sent ? sent->count : 0);
    memcpy(c.to, slot_of(comm, c.peer) + sent->offset, sent->sent);
    return ncclSuccess;
}

/* Another rank's collective that differs from this rank's is an error. */
static ncclResult_t compare(ncclComm_t comm, const group *g)
{
    for (int r = 0; r < comm->size; r++) {
        const member &m = comm->memory->members[r];
        for (size_t i = 0; i < g->calls.size() || i < m.n_calls; i++) {
            if (i >= g->calls.size() || i >= m.n_calls)
                return complain(ncclInvalidUsage, "rank %d has a group of %zu calls, rank %d of %zu",
                                comm->rank, g->calls.size(), r, m.n_calls);
            const call &own = g->calls[i], &other = m.calls[i];
            if (is_message(own) && is_message(other))
                continue;
            if (own.kind != other.kind || own.count != other.count || own.type != other.type ||
                own.peer != other.peer)
                return complain(ncclInvalidUsage, "rank %d calls %s of %zu numbers, rank %d %s of %zu",
                                comm->rank, kinds[own.kind], own.count, r, kinds[other.kind], other.count);
        }
    }
    return ncclSuccess;
}

static ncclResult_t finish_call(ncclComm_t comm, const group *g, size_t i)
{
    const call &c = g->calls[i];
    const size_t bytes = c.count * size_of(c.type);
    size_t nth = 0;
    switch (c.kind) {
    case REDUCE_SCATTER:
        sum(comm, i, static_cast<size_t>(comm->rank) * c.count, c.count, comm->rank,
            static_cast<float *>(c.to));
        break;
    case REDUCE:
        if (comm->rank == c.peer)
            sum(comm, i, 0, c.count, c.peer, static_cast<float *>(c.to));
        break;
    case ALL_GATHER:
        for (int r = 0; r < comm->size; r++)
            memcpy(static_cast<char *>(c.to) + static_cast<size_t>(r) * bytes,
                   slot_of(comm, r) + comm->memory->members[r].calls[i].offset, bytes);
        break;
    case BROADCAST:
        memcpy(c.to, slot_of(comm, c.peer) + comm->memory->members[c.peer].calls[i].offset, bytes);
        break;
    case RECEIVE:
        for (size_t k = 0; k < i; k++)
            nth += g->calls[k].kind == RECEIVE && g->calls[k].peer == c.peer;
        return receive(comm, c, nth);
    case SEND:
        break;
    }
    return ncclSuccess;
}

static CUresult complete(void *user)
{
    group *g = static_cast<group *>(user);
    ncclComm_t comm = g->comm;
    for (int r = 0; !comm->aborted && r < comm->size; r++)
        if (comm->memory->members[r].published <= g->index)
            return CUDA_ERROR_NOT_READY;
    if (!comm->aborted && comm->error)
        return CUDA_ERROR_NOT_READY;
    if (!comm->aborted) {
        comm->error = compare(comm, g);
        for (size_t i = 0; !comm->error && i < g->calls.size(); i++)
            comm->error = finish_call(comm, g, i);
        if (comm->error)
            return CUDA_ERROR_NOT_READY;
        comm->memory->members[comm->rank].completed = g->index + 1;
    }
    delete g;
    return CUDA_SUCCESS;
}

/* ---- calls ---- */

static ncclResult_t submit(const group &made)
{
    if (made.calls.empty())
        return ncclSuccess;
    group *g = new group(made);
    g->index = g->comm->submitted++;
    if (cuda_sim_submit_until(g->stream, "NCCL", publish, g) ||
        cuda_sim_submit_until(g->stream, "NCCL", complete, g))
        return ncclUnhandledCudaError;
    cuda_sim_progress(g->stream);
    return ncclSuccess;
}

static ncclResult_t check(ncclComm_t comm, CUstream stream, const call &c, size_t received)
{
    const char *name = kinds[c.kind];
    if (!live.count(comm))
        return complain(ncclInvalidArgument, "%s: the communicator was destroyed or aborted", name);
    if (cuda_sim_device() != comm->device || cuda_sim_stream_device(stream) != comm->device)
        return complain(ncclInvalidUsage,
                        "%s: the communicator is on device %d, the context on %d, the stream on %d", name,
                        comm->device, cuda_sim_device(), cuda_sim_stream_device(stream));
    if (c.type != ncclFloat32 && (c.type != ncclBfloat16 || c.kind == REDUCE_SCATTER || c.kind == REDUCE))
        return complain(ncclInvalidArgument, "%s: type %d", name, c.type);
    if (c.peer < 0 || c.peer >= comm->size)
        return complain(ncclInvalidArgument, "%s: rank %d of %d", name, c.peer, comm->size);
    if ((c.sent && cuda_sim_block_device(c.from, c.sent) != comm->device) ||
        (received && cuda_sim_block_device(c.to, received) != comm->device))
        return complain(ncclInvalidArgument, "%s: memory outside of a block of device %d", name,
                        comm->device);
    return ncclSuccess;
}

/* received: bytes that are written to c.to. */
static ncclResult_t add(ncclComm_t comm, CUstream stream, const call &c, size_t received)
{
    if (ncclResult_t result = check(comm, stream, c, received))
        return result;
    if (depth == 0)
        return submit(group{ comm, stream, 0, { c } });
    if (!pending.calls.empty() && (pending.comm != comm || pending.stream != stream))
        return complain(ncclInvalidUsage, "%s: another communicator or stream in a group", kinds[c.kind]);
    pending.comm = comm;
    pending.stream = stream;
    pending.calls.push_back(c);
    return ncclSuccess;
}

LIBRARY ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

LIBRARY ncclResult_t ncclGroupEnd(void)
{
    if (depth == 0)
        return complain(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--depth)
        return ncclSuccess;
    const group all = pending;
    pending.calls.clear();
    return submit(all);
}

LIBRARY ncclResult_t ncclReduceScatter(const void *from, void *to, size_t received, ncclDataType_t type,
                                       ncclRedOp_t op, ncclComm_t comm, CUstream stream)
{
    if (op != ncclSum)
        return complain(ncclInvalidArgument, "ncclReduceScatter: operation %d", op);
    const size_t ranks = live.count(comm) ? static_cast<size_t>(comm->size) : 0,
                 bytes = received * size_of(type);
    return add(comm, stream, { REDUCE_SCATTER, type, 0, received, ranks * bytes, 0, from, to }, bytes);
}

LIBRARY ncclResult_t ncclAllGather(const void *from, void *to, size_t sent, ncclDataType_t type,
                                   ncclComm_t comm, CUstream stream)
{
    const size_t ranks = live.count(comm) ? static_cast<size_t>(comm->size) : 0, bytes = sent * size_of(type);
    return add(comm, stream, { ALL_GATHER, type, 0, sent, bytes, 0, from, to }, ranks * bytes);
}

LIBRARY ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                int root, ncclComm_t comm, CUstream stream)
{
    if (op != ncclSum)
        return complain(ncclInvalidArgument, "ncclReduce: operation %d", op);
    const size_t bytes = count * size_of(type);
    const bool is_root = live.count(comm) && comm->rank == root;
    return add(comm, stream, { REDUCE, type, root, count, bytes, 0, from, to }, is_root ? bytes : 0);
}

LIBRARY ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                                   ncclComm_t comm, CUstream stream)
{
    const size_t bytes = count * size_of(type);
    const bool is_root = live.count(comm) && comm->rank == root;
    return add(comm, stream, { BROADCAST, type, root, count, is_root ? bytes : 0, 0, from, to }, bytes);
}

LIBRARY ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                              CUstream stream)
{
    return add(comm, stream, { SEND, type, peer, count, count * size_of(type), 0, from, nullptr }, 0);
}

LIBRARY ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                              CUstream stream)
{
    return add(comm, stream, { RECEIVE, type, peer, count, 0, 0, nullptr, to }, count * size_of(type));
}

/* ---- communicators ---- */

LIBRARY ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    const char *folder = getenv("TMPDIR");
    memset(id->internal, 0, sizeof id->internal);
    const int length =
        snprintf(id->internal, sizeof id->internal, "%s/nccl.XXXXXX", folder && *folder ? folder : "/tmp");
    const int file = length < static_cast<int>(sizeof id->internal) ? mkstemp(id->internal) : -1;
    if (file < 0 || ftruncate(file, static_cast<off_t>(HEADER + MOST_RANKS * SLOT)))
        return complain(ncclSystemError, "%s: %s", id->internal, strerror(errno));
    close(file);
    return ncclSuccess;
}

/* Waits for the other ranks. */
static ncclResult_t join(ncclComm_t comm)
{
    for (int r = 0; r < comm->size; r++) {
        const member &m = comm->memory->members[r];
        for (unsigned tries = 0; !m.joined; tries++) {
            if (tries == 60000)
                return complain(ncclSystemError, "rank %d does not join", r);
            usleep(1000);
        }
        if (m.size != comm->size)
            return complain(ncclInvalidArgument, "rank %d expects %d ranks, rank %d %d", comm->rank,
                            comm->size, r, m.size);
        if (r != comm->rank && cuda_sim_gpu(m.device) == cuda_sim_gpu(comm->device))
            return complain(ncclInvalidUsage, "Duplicate GPU detected: ranks %d and %d both on GPU %d",
                            comm->rank, r, cuda_sim_gpu(m.device));
    }
    return ncclSuccess;
}

LIBRARY ncclResult_t ncclCommInitRank(ncclComm_t *out, int size, ncclUniqueId id, int rank)
{
    *out = nullptr;
    if (size < 1 || size > MOST_RANKS || rank < 0 || rank >= size || cuda_sim_device() < 0)
        return complain(ncclInvalidArgument, "ncclCommInitRank: rank %d of %d", rank, size);
    id.internal[sizeof id.internal - 1] = 0;
    const int file = open(id.internal, O_RDWR);
    void *memory = file < 0 ? MAP_FAILED
                            : mmap(nullptr, HEADER + MOST_RANKS * SLOT, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_NORESERVE, file, 0);
    if (memory == MAP_FAILED)
        return complain(ncclSystemError, "%s: %s", id.internal, strerror(errno));
    close(file);
    ncclComm_t comm =
        new ncclComm{ static_cast<shared *>(memory), rank, size, cuda_sim_device(), 0, ncclSuccess, false };
    member &own = comm->memory->members[rank];
    const char *absent = getenv("NCCL_SIM_ABSENT");
    while (absent && atoi(absent) == rank)
        pause();
    own.device = comm->device;
    own.size = size;
    own.joined = true;
    if (ncclResult_t result = join(comm))
        return result;
    if (rank == 0)
        unlink(id.internal); /* all have mapped it */
    live.insert(comm);
    *out = comm;
    return ncclSuccess;
}

LIBRARY ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    if (!live.count(comm))
        return complain(ncclInvalidArgument,
                        "ncclCommGetAsyncError: the communicator was destroyed or aborted");
    for (int r = 0; r < comm->size && !comm->error; r++) {
        const member &m = comm->memory->members[r];
        if (m.lost) {
            snprintf(last_error, sizeof last_error, "rank %d cannot be reached", r);
            comm->error = ncclRemoteError;
        }
    }
    *error = comm->error;
    return ncclSuccess;
}

LIBRARY ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (!live.erase(comm))
        return complain(ncclInvalidArgument, "ncclCommAbort: the communicator was destroyed or aborted");
    comm->aborted = true;
    comm->memory->members[comm->rank].lost = true;
    return ncclSuccess;
}

LIBRARY ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (!live.erase(comm))
        return complain(ncclInvalidArgument, "ncclCommDestroy: the communicator was destroyed or aborted");
    if (comm->memory->members[comm->rank].completed != comm->submitted)
        return complain(ncclInvalidUsage, "ncclCommDestroy: calls are in flight");
    return ncclSuccess;
}

/* ---- texts ---- */

LIBRARY ncclResult_t ncclGetVersion(int *version)
{
    *version = 22803;
    return ncclSuccess;
}

LIBRARY const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {
        "no error",
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "internal error - please report this issue to the NCCL developers",
        "invalid argument (run with NCCL_DEBUG=WARN for details)",
        "invalid usage (run with NCCL_DEBUG=WARN for details)",
        "remote process exited or there was a network error",
        "NCCL operation in progress",
    };
    return result >= 0 && result <= ncclInProgress ? texts[result] : "unknown result code";
}

LIBRARY const char *ncclGetLastError(ncclComm_t)
{
    return last_error;
}
