/* NCCL, as far as the backend uses it: types, and a table of the entry points of libnccl.so.2, which is
 * loaded when several ranks train. No header of NCCL is needed. Names and numbers are those of its nccl.h. */
#ifndef DDL_CUDA_NCCL_H
#define DDL_CUDA_NCCL_H

#include "backend/cuda/driver.h"

typedef int ncclResult_t;
typedef int ncclDataType_t;
typedef int ncclRedOp_t;
typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;

enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7
};
enum { ncclFloat32 = 7, ncclBfloat16 = 9 };
enum { ncclSum = 0 };

/* Member, exported name, type of the result, parameters. */
/* clang-format off */
#define CUDA_NCCL(FN) \
    FN(version,            "ncclGetVersion",              ncclResult_t, (int *version)) \
    FN(error_text,         "ncclGetErrorString",          const char *, (ncclResult_t result)) \
    FN(last_error,         "ncclGetLastError",            const char *, (ncclComm_t comm)) \
    FN(unique_id,          "ncclGetUniqueId",             ncclResult_t, (ncclUniqueId *id)) \
    FN(init,               "ncclCommInitRank",            ncclResult_t, (ncclComm_t *comm, int size, ncclUniqueId id, int rank)) \
    FN(destroy,            "ncclCommDestroy",             ncclResult_t, (ncclComm_t comm)) \
    FN(abort,              "ncclCommAbort",               ncclResult_t, (ncclComm_t comm)) \
    FN(async_error,        "ncclCommGetAsyncError",       ncclResult_t, (ncclComm_t comm, ncclResult_t *error)) \
    FN(group_start,        "ncclGroupStart",              ncclResult_t, (void)) \
    FN(group_end,          "ncclGroupEnd",                ncclResult_t, (void)) \
    FN(reduce_scatter,     "ncclReduceScatter",           ncclResult_t, (const void *from, void *to, size_t received, \
                                                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, CUstream stream)) \
    FN(all_gather,         "ncclAllGather",               ncclResult_t, (const void *from, void *to, size_t sent, \
                                                           ncclDataType_t type, ncclComm_t comm, CUstream stream)) \
    FN(reduce,             "ncclReduce",                  ncclResult_t, (const void *from, void *to, size_t count, \
                                                           ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream)) \
    FN(broadcast,          "ncclBroadcast",               ncclResult_t, (const void *from, void *to, size_t count, \
                                                           ncclDataType_t type, int root, ncclComm_t comm, CUstream stream)) \
    FN(send,               "ncclSend",                    ncclResult_t, (const void *from, size_t count, ncclDataType_t type, \
                                                           int peer, ncclComm_t comm, CUstream stream)) \
    FN(receive,            "ncclRecv",                    ncclResult_t, (void *to, size_t count, ncclDataType_t type, \
                                                           int peer, ncclComm_t comm, CUstream stream))
/* clang-format on */

struct cuda_nccl {
/* Names, types and parameters take no parentheses. NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define CUDA_NCCL_MEMBER(name, symbol, type, parameters) type(*name) parameters;
    CUDA_NCCL(CUDA_NCCL_MEMBER)
#undef CUDA_NCCL_MEMBER
};

/* Loads the library at the first call. DDL_E_UNSUPPORTED, with the reason, if there is none. */
ddl_status cuda_nccl_load(const struct cuda_nccl **out, struct ddl_error *err);

#endif
