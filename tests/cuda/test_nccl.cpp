/* The stand-in for NCCL: what it rejects, and that a missing wait between streams shows. Two ranks are
 * processes. */
#include "backend/cuda/nccl.h"
#include "driver.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
CUresult cuInit(unsigned);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuStreamCreate(CUstream *, unsigned);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned);
CUresult cuEventCreate(CUevent *, unsigned);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuEventQuery(CUevent);
CUresult cuMemAllocAsync(CUdeviceptr *, size_t, CUstream);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, CUstream);
CUresult cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, CUstream);
ncclResult_t ncclGetUniqueId(ncclUniqueId *);
ncclResult_t ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclCommAbort(ncclComm_t);
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclReduceScatter(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                               CUstream);
ncclResult_t ncclBroadcast(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, CUstream);
ncclResult_t ncclSend(const void *, size_t, ncclDataType_t, int, ncclComm_t, CUstream);
ncclResult_t ncclRecv(void *, size_t, ncclDataType_t, int, ncclComm_t, CUstream);
}

enum { RANKS = 2, COUNT = 16 };

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, r->rank, #condition);                \
            return false;                                                                                    \
        }                                                                                                    \
    } while (0)

struct rank {
    int rank;
    CUcontext context, other; /* of this rank's device, of the other rank's */
    CUstream stream, ops;
    CUevent ready;
    ncclComm_t comm;
    float *x; /* (RANKS, COUNT) */
};

static bool open_rank(rank *r, const ncclUniqueId &id, bool same_device)
{
    const int device = same_device ? 0 : r->rank;
    CUdeviceptr block;
    CHECK(!cuInit(0) && !cuDevicePrimaryCtxRetain(&r->context, device) &&
          !cuDevicePrimaryCtxRetain(&r->other, 1 - device));
    CHECK(!cuCtxSetCurrent(r->context) && !cuStreamCreate(&r->stream, 0) && !cuStreamCreate(&r->ops, 0));
    CHECK(!cuEventCreate(&r->ready, 0) && !cuMemAllocAsync(&block, RANKS * COUNT * sizeof *r->x, r->ops));
    r->x = reinterpret_cast<float *>(static_cast<uintptr_t>(block));
    const ncclResult_t result = ncclCommInitRank(&r->comm, RANKS, id, r->rank);
    CHECK(result == (same_device ? ncclInvalidUsage : ncclSuccess));
    return true;
}

static bool same_device(rank *r)
{
    CHECK(r->comm == nullptr);
    return true;
}

static ncclResult_t reduce_scatter(rank *r, size_t count)
{
    return ncclReduceScatter(r->x, r->x + static_cast<size_t>(r->rank) * count, count, ncclFloat32, ncclSum,
                             r->comm, r->stream);
}

/* x = 1 + rank on the stream of the ops. Its own piece of the sum into *out, with or without a wait for x. */
static bool sum(rank *r, bool waits, float *out)
{
    float ones[RANKS * COUNT];
    for (float &one : ones)
        one = 1.0f + static_cast<float>(r->rank);
    const CUdeviceptr x = reinterpret_cast<uintptr_t>(r->x);
    CHECK(!cuMemsetD8Async(x, 0, sizeof ones, r->ops) && !cuStreamSynchronize(r->ops));
    CHECK(!cuMemcpyHtoDAsync_v2(x, ones, sizeof ones, r->ops) && !cuEventRecord(r->ready, r->ops));
    if (waits)
        CHECK(!cuStreamWaitEvent(r->stream, r->ready, 0));
    CHECK(!reduce_scatter(r, COUNT) && !cuStreamSynchronize(r->stream));
    const CUdeviceptr own = x + static_cast<size_t>(r->rank) * COUNT * sizeof *out;
    CHECK(!cuMemcpyDtoHAsync_v2(out, own, sizeof *out, r->stream) && !cuStreamSynchronize(r->stream));
    return true;
}

static bool wait_between_streams(rank *r)
{
    float found;
    CHECK(sum(r, true, &found) && found == 3);
    CHECK(sum(r, false, &found) && found == 0);
    CHECK(!cuStreamSynchronize(r->ops) && !ncclCommDestroy(r->comm));
    CHECK(reduce_scatter(r, COUNT) == ncclInvalidArgument);
    return true;
}

static bool rejected(rank *r)
{
    float host[COUNT] = {};
    CHECK(ncclReduceScatter(host, host, 1, ncclFloat32, ncclSum, r->comm, r->stream) == ncclInvalidArgument);
    CHECK(reduce_scatter(r, COUNT + 1) == ncclInvalidArgument);
    CHECK(ncclBroadcast(r->x, r->x, 1, ncclFloat32, RANKS, r->comm, r->stream) == ncclInvalidArgument);
    CHECK(ncclReduceScatter(r->x, r->x, 1, ncclFloat32, 1, r->comm, r->stream) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    CHECK(!ncclGroupStart() && !ncclBroadcast(r->x, r->x, 1, ncclFloat32, 0, r->comm, r->stream));
    CHECK(ncclBroadcast(r->x, r->x, 1, ncclFloat32, 0, r->comm, r->ops) == ncclInvalidUsage &&
          !ncclGroupEnd());
    CHECK(!cuStreamSynchronize(r->stream));
    CHECK(!cuCtxSetCurrent(r->other) && reduce_scatter(r, COUNT) == ncclInvalidUsage);
    CHECK(!cuCtxSetCurrent(r->context) && !ncclCommDestroy(r->comm));
    return true;
}

/* Whether the error is reported while the host waits for the call, which never completes. */
static bool ends_with(rank *r, ncclResult_t expected)
{
    ncclResult_t error = ncclSuccess;
    CHECK(!cuEventRecord(r->ready, r->stream));
    for (int tries = 0; !error && tries < 10000; tries++) {
        CHECK(cuEventQuery(r->ready) == CUDA_ERROR_NOT_READY && !ncclCommGetAsyncError(r->comm, &error));
        usleep(1000);
    }
    CHECK(error == expected);
    CHECK(!ncclCommAbort(r->comm) && !cuStreamSynchronize(r->stream));
    CHECK(ncclCommGetAsyncError(r->comm, &error) == ncclInvalidArgument);
    return true;
}

static bool counts_differ(rank *r)
{
    CHECK(!reduce_scatter(r, r->rank ? COUNT / 2 : COUNT));
    return ends_with(r, ncclInvalidUsage);
}

static bool messages_differ(rank *r)
{
    CHECK(!ncclGroupStart());
    CHECK(!ncclSend(r->x, COUNT, ncclFloat32, 1 - r->rank, r->comm, r->stream));
    CHECK(!ncclRecv(r->x + COUNT, COUNT - 1, ncclFloat32, 1 - r->rank, r->comm, r->stream) &&
          !ncclGroupEnd());
    return ends_with(r, ncclInvalidUsage);
}

/* Rank 1 leaves. */
static bool lost(rank *r)
{
    if (r->rank == 1 && !ncclCommAbort(r->comm))
        return true;
    CHECK(!reduce_scatter(r, COUNT));
    return ends_with(r, ncclRemoteError);
}

int main()
{
    static const struct {
        const char *name;
        bool (*test)(rank *);
    } tests[] = { { "same_device", same_device },
                  { "wait_between_streams", wait_between_streams },
                  { "rejected", rejected },
                  { "counts_differ", counts_differ },
                  { "messages_differ", messages_differ },
                  { "lost", lost } };
    int failures = 0;
    setenv("CUDA_SIM_DEVICES", "2", 1);
    for (const auto &each : tests) {
        ncclUniqueId id;
        pid_t ranks[RANKS];
        int status, bad = ncclGetUniqueId(&id);
        for (int i = 0; i < RANKS; i++) {
            ranks[i] = fork();
            if (ranks[i] == 0) {
                rank r = {};
                r.rank = i;
                _exit(!open_rank(&r, id, each.test == same_device) || !each.test(&r));
            }
        }
        for (pid_t process : ranks)
            bad |= process < 0 || waitpid(process, &status, 0) < 0 || status;
        printf("[ %s ] %s\n", bad ? " FAILED " : "      OK", each.name);
        failures += bad != 0;
    }
    return failures != 0;
}
