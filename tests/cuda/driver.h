/* What the stand-in for the CUDA driver offers other libraries of the simulated device: commands in the order
 * of its streams, on its memory. */
#ifndef DDL_TESTS_CUDA_DRIVER_H
#define DDL_TESTS_CUDA_DRIVER_H

#include "backend/cuda/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Submits a command, `name` in messages, with a copy of its arguments. */
CUresult cuda_sim_submit(CUstream stream, const char *name, void (*execute)(const void *arguments),
                         const void *arguments, size_t bytes);

/* Submits a command that returns CUDA_ERROR_NOT_READY, having done nothing, while it waits for another
 * process. */
CUresult cuda_sim_submit_until(CUstream stream, const char *name, CUresult (*execute)(void *user),
                               void *user);
/* Executes a random part of what is submitted, as far as it waits for nothing. */
void cuda_sim_progress(CUstream stream);

/* The GPU that a device is, or is a slice of. */
int cuda_sim_gpu(CUdevice device);
/* The device of the current context, of a stream, of a block with these bytes; -1: none. */
int cuda_sim_device(void);
int cuda_sim_stream_device(CUstream stream);
int cuda_sim_block_device(const void *address, size_t bytes);

/* Whether the numbers are in one block of device memory. */
bool cuda_sim_in_block(const void *address, size_t bytes);

/* ---- capture ----
 *
 * What the real driver has too, for host code that captures a stream's work into a graph and replays it. */
typedef struct CUgraphNode_st *CUgraphNode;
enum { CU_STREAM_CAPTURE_MODE_GLOBAL = 0 };
enum {
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2
};
enum {
    CUDA_ERROR_ILLEGAL_STATE = 401,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
    CUDA_ERROR_CAPTURED_EVENT = 907
};
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuStreamIsCapturing(CUstream stream, int *status);
/* `nodes` is NULL: their number alone. */
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags);
CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuGraphExecDestroy(CUgraphExec graph);

#ifdef __cplusplus
}
#endif

#endif
