/* The CUDA driver API, as far as the backend uses it: types, and a table of the entry points of libcuda.so.1,
 * which is loaded when a device is counted or opened. No header of the toolkit is needed. Names and numbers
 * are those of CUDA's cuda.h. */
#ifndef DDL_CUDA_DRIVER_H
#define DDL_CUDA_DRIVER_H

#include "ddl/status.h"

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_UNKNOWN = 999
};

enum {
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13, /* kHz */
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
};
enum { CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_EVENT_DISABLE_TIMING = 2 };
enum { CU_MEMHOSTALLOC_PORTABLE = 1 };
enum { CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4, CU_MEMPOOL_ATTR_USED_MEM_HIGH = 8 };
enum { CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1 };

/* Member, exported name, parameters. */
/* clang-format off */
#define CUDA_DRIVER(FN) \
    FN(init,               "cuInit",                      (unsigned flags)) \
    FN(version,            "cuDriverGetVersion",          (int *version)) \
    FN(error_name,         "cuGetErrorName",              (CUresult result, const char **text)) \
    FN(error_text,         "cuGetErrorString",            (CUresult result, const char **text)) \
    FN(device_count,       "cuDeviceGetCount",            (int *count)) \
    FN(device_get,         "cuDeviceGet",                 (CUdevice *device, int index)) \
    FN(device_name,        "cuDeviceGetName",             (char *name, int size, CUdevice device)) \
    FN(device_attribute,   "cuDeviceGetAttribute",        (int *value, int attribute, CUdevice device)) \
    FN(device_bus,         "cuDeviceGetPCIBusId",         (char *text, int size, CUdevice device)) \
    FN(device_memory,      "cuDeviceTotalMem_v2",         (size_t *bytes, CUdevice device)) \
    FN(device_pool,        "cuDeviceGetDefaultMemPool",   (CUmemoryPool *pool, CUdevice device)) \
    FN(pool_set,           "cuMemPoolSetAttribute",       (CUmemoryPool pool, int attribute, void *value)) \
    FN(pool_get,           "cuMemPoolGetAttribute",       (CUmemoryPool pool, int attribute, void *value)) \
    FN(context_retain,     "cuDevicePrimaryCtxRetain",    (CUcontext *context, CUdevice device)) \
    FN(context_release,    "cuDevicePrimaryCtxRelease_v2", (CUdevice device)) \
    FN(context_set,        "cuCtxSetCurrent",             (CUcontext context)) \
    FN(context_memory,     "cuMemGetInfo_v2",             (size_t *free, size_t *total)) \
    FN(stream_create,      "cuStreamCreate",              (CUstream *stream, unsigned flags)) \
    FN(stream_destroy,     "cuStreamDestroy_v2",          (CUstream stream)) \
    FN(stream_wait,        "cuStreamSynchronize",         (CUstream stream)) \
    FN(stream_wait_event,  "cuStreamWaitEvent",           (CUstream stream, CUevent event, unsigned flags)) \
    FN(event_create,       "cuEventCreate",               (CUevent *event, unsigned flags)) \
    FN(event_destroy,      "cuEventDestroy_v2",           (CUevent event)) \
    FN(event_record,       "cuEventRecord",               (CUevent event, CUstream stream)) \
    FN(event_query,        "cuEventQuery",                (CUevent event)) \
    FN(event_wait,         "cuEventSynchronize",          (CUevent event)) \
    FN(alloc,              "cuMemAllocAsync",             (CUdeviceptr *block, size_t bytes, CUstream stream)) \
    FN(free,               "cuMemFreeAsync",              (CUdeviceptr block, CUstream stream)) \
    FN(alloc_now,          "cuMemAlloc_v2",               (CUdeviceptr *block, size_t bytes)) \
    FN(free_now,           "cuMemFree_v2",                (CUdeviceptr block)) \
    FN(alloc_host,         "cuMemHostAlloc",              (void **block, size_t bytes, unsigned flags)) \
    FN(free_host,          "cuMemFreeHost",               (void *block)) \
    FN(upload,             "cuMemcpyHtoDAsync_v2",        (CUdeviceptr to, const void *from, size_t bytes, CUstream stream)) \
    FN(download,           "cuMemcpyDtoHAsync_v2",        (void *to, CUdeviceptr from, size_t bytes, CUstream stream)) \
    FN(fill_bytes,         "cuMemsetD8Async",             (CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)) \
    FN(module_load,        "cuModuleLoadData",            (CUmodule *module, const void *image)) \
    FN(module_unload,      "cuModuleUnload",              (CUmodule module)) \
    FN(module_function,    "cuModuleGetFunction",         (CUfunction *function, CUmodule module, const char *name)) \
    FN(function_parameter, "cuFuncGetParamInfo",          (CUfunction function, size_t index, size_t *offset, size_t *bytes)) \
    FN(function_set,       "cuFuncSetAttribute",          (CUfunction function, int attribute, int value)) \
    FN(launch,             "cuLaunchKernel",              (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, \
                                                           unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, \
                                                           CUstream stream, void **arguments, void **extra)) \
    FN(capture_begin,      "cuStreamBeginCapture_v2",     (CUstream stream, int mode)) \
    FN(capture_end,        "cuStreamEndCapture",          (CUstream stream, CUgraph *graph)) \
    FN(graph_destroy,      "cuGraphDestroy",              (CUgraph graph)) \
    FN(graph_instantiate,  "cuGraphInstantiateWithFlags", (CUgraphExec *executable, CUgraph graph, unsigned long long flags)) \
    FN(graph_launch,       "cuGraphLaunch",               (CUgraphExec executable, CUstream stream)) \
    FN(graph_exec_destroy, "cuGraphExecDestroy",          (CUgraphExec executable))
/* clang-format on */

struct cuda_driver {
/* Names and parameters take no parentheses. NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define CUDA_DRIVER_MEMBER(name, symbol, parameters) CUresult(*name) parameters;
    CUDA_DRIVER(CUDA_DRIVER_MEMBER)
#undef CUDA_DRIVER_MEMBER
};

enum { CUDA_DRIVER_VERSION = 13000 }; /* the oldest driver for the kernels of this build: that of CUDA 13.0 */

/* Loads and initializes the driver at the first call. DDL_E_UNSUPPORTED, with the reason, if there is no
 * driver, one that is too old, or no device. */
ddl_status cuda_driver_load(const struct cuda_driver **out, int *devices, struct ddl_error *err);

/* "CUDA_ERROR_OUT_OF_MEMORY (out of memory)" */
const char *cuda_driver_error(const struct cuda_driver *driver, CUresult result, char *text, size_t size);

#endif
