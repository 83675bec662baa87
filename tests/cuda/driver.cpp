/* A stand-in for the CUDA driver: a libcuda.so.1 whose devices execute kernels on the emulator. The backend's
 * host code runs on it unchanged, and mistakes that a GPU would not always show end the program with a
 * message:
 *
 *   - device memory cannot be accessed by the host, nor by a kernel beyond a block (the page behind it has no
 * access rights; with AddressSanitizer, no byte around it can be); a new block is filled with NaN
 *   - work is executed when the host waits for it, only as far as it waits; a query executes a part. Another
 * stream is executed where an event connects it
 *   - the destination of a download to pinned memory is NaN until the work is executed, and the source of an
 * upload from pinned memory is read then
 *   - calls without a current context, on freed memory, and on ranges outside of blocks are errors
 *   - a stream that is captured rejects what the real one rejects, and allocations, which the real one makes
 *     part of the graph; a capture has one stream
 *
 * Environment: CUDA_SIM_DEVICES (1), CUDA_SIM_SLICES (1: devices that are slices of one GPU), CUDA_SIM_MEMORY
 * (bytes of a device, 4 GiB), CUDA_SIM_BUSY (of them in use by others), CUDA_SIM_VERSION (13000),
 * CUDA_SIM_CAPABILITY (90), CUDA_SIM_SEED (1), CUDA_SIM_FAIL (number of the launch that fails, from 1),
 * CUDA_SIM_FAIL_DOWNLOAD (the same of a copy to the host: the device is lost before it),
 * CUDA_SIM_FAIL_ALLOCATION (number of the allocation that fails, from 1), CUDA_SIM_EXCLUSIVE (1: another
 * process has the device for itself), CUDA_SIM_NO_POOL (1: a device without pools of memory),
 * CUDA_SIM_FAIL_CAPTURE, CUDA_SIM_FAIL_INSTANTIATE and CUDA_SIM_FAIL_GRAPH (number of the capture, of the
 * instantiation, and of the launch of a graph, that fails, from 1), CUDA_SIM_REPORT (a file: the most bytes
 * that were allocated at a time, and the numbers of allocations, of graphs that were instantiated, of their
 * launches, of the nodes of the largest, and of copies to the host; a line "kernel NAME LAUNCHES" for each
 * kernel).
 */
#include "driver.h"
#include "emulator.h"

#include <algorithm>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#define DRIVER extern "C" __attribute__((visibility("default")))

/* AddressSanitizer's, where the library is linked with it. */
extern "C" void __asan_poison_memory_region(const volatile void *, size_t) __attribute__((weak));
extern "C" void __asan_unpoison_memory_region(const volatile void *, size_t) __attribute__((weak));

struct CUctx_st {
    int device;
    unsigned retained;
};

struct block {
    char *start;
    size_t bytes;
    char *pages;
    size_t page_bytes; /* without the guard page */
    int device;
    bool is_open; /* to accesses, until the commands that are being executed are done */
};

struct CUevent_st {
    uint64_t position; /* of its last record in the stream: complete once so many commands are executed */
    CUstream stream;
    bool is_captured; /* its last record is part of a capture: nothing can wait for it */
};

/* The commands of a capture, in their order. */
struct CUgraph_st {
    std::vector<std::function<CUresult()>> commands;
};
struct CUgraphExec_st {
    std::vector<std::function<CUresult()>> commands;
};

struct CUstream_st {
    std::deque<std::function<CUresult()>> queue;
    uint64_t submitted, executed; /* commands */
    int device;
    CUgraph capture; /* while it is captured, else NULL */
    bool is_invalid; /* the capture, after a call that cannot be captured */
};

struct CUmod_st {
    int device;
};

struct CUfunc_st {
    std::string name;
    size_t bytes;  /* of the arguments */
    size_t shared; /* most dynamic shared memory, bytes: none unless set, as if the kernel's own were the
                      default's 48 KiB */
};

static const size_t PAGE = 4096;
static bool is_initialized;
static pid_t process;              /* that is initialized: a process that it forks is not */
static unsigned executing_streams; /* the nesting of execute */
static thread_local CUcontext current;
static std::map<int, CUctx_st> contexts;
static std::map<char *, block> blocks;       /* of device memory, by start */
static std::map<char *, size_t> host_blocks; /* pinned */
static std::vector<CUstream> streams;
static std::map<int, size_t> used, peak; /* bytes of each device, and the most */
static size_t allocations, attempted;    /* attempted: including failed ones */
static std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
static CUresult sticky; /* an error of the device: every later call reports it */
static uint64_t random_state, launches;
static size_t downloads, captures, instantiated, graph_launches, most_nodes;
static std::set<CUgraphExec> graphs;           /* executable ones */
static std::string executing;                  /* for messages */
static std::map<std::string, size_t> launched; /* kernels, and how often */

static size_t setting(const char *name, size_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, nullptr, 10) : otherwise;
}

static uint64_t random_below(uint64_t limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % limit;
}

static void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void complain(const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "simulated CUDA device: %s\n", text);
}

/* ---- memory ---- */

/* The block that an address is in, or the nearest before it. */
static block *nearest(const char *address)
{
    auto after = blocks.upper_bound(const_cast<char *>(address));
    return after == blocks.begin() ? nullptr : &std::prev(after)->second;
}

static bool in_block(const void *address, size_t bytes)
{
    const char *start = static_cast<const char *>(address);
    const block *b = nearest(start);
    return b && start + bytes <= b->start + b->bytes;
}

/* For traffic.cpp. */
extern "C" bool cuda_traffic_is_global(const void *address)
{
    return in_block(address, 1);
}

/* Opens a block at the first access of a command. */
static void on_fault(int, siginfo_t *info, void *)
{
    const char *address = static_cast<const char *>(info->si_addr);
    block *b = nearest(address);
    if (!b || address >= b->pages + b->page_bytes + PAGE) {
        signal(SIGSEGV, SIG_DFL); /* not ours */
        return;
    }
    if (executing_streams && !b->is_open && address < b->pages + b->page_bytes) {
        b->is_open = mprotect(b->pages, b->page_bytes, PROT_READ | PROT_WRITE) == 0;
        return;
    }
    if (executing_streams)
        complain("%s accesses a number %td bytes after the start of a block of %zu bytes", executing.c_str(),
                 address - b->start, b->bytes);
    else
        complain("the host accesses device memory, %td bytes after the start of a block of %zu bytes",
                 address - b->start, b->bytes);
    _exit(99);
}

/* The signal handler: at any time, and of commands even where a program has set another. */
static struct sigaction fault_action()
{
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    return action;
}

static void close_blocks()
{
    for (auto &each : blocks)
        if (each.second.is_open) {
            mprotect(each.second.pages, each.second.page_bytes, PROT_NONE);
            each.second.is_open = false;
        }
}

static CUresult check()
{
    if (!is_initialized)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!current)
        return CUDA_ERROR_INVALID_CONTEXT;
    return sticky;
}

/* ---- execution ---- */

/* Executes the commands of a stream up to number `position`. One that returns CUDA_ERROR_NOT_READY waits for
 * another process: it is tried again, or without `waits` remains the next. */
static CUresult execute(CUstream stream, uint64_t position, bool waits = true)
{
    if (stream->executed >= position)
        return sticky;
    static const struct sigaction ours = fault_action();
    static struct sigaction before;
    if (executing_streams++ == 0)
        sigaction(SIGSEGV, &ours, &before);
    CUresult result = sticky;
    while (stream->executed < position) {
        result = sticky ? sticky : stream->queue.front()();
        if (result == CUDA_ERROR_NOT_READY && !waits)
            break;
        if (result == CUDA_ERROR_NOT_READY) {
            usleep(100);
            continue;
        }
        sticky = result;
        stream->queue.pop_front();
        stream->executed++;
    }
    if (--executing_streams == 0) {
        close_blocks();
        sigaction(SIGSEGV, &before, nullptr);
    }
    return result;
}

/* Fails, and invalidates the capture, if the stream is captured. */
static CUresult reject_capture(CUstream stream, const char *call)
{
    if (!stream->capture)
        return CUDA_SUCCESS;
    complain("%s cannot be captured", call);
    stream->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* The same if any stream is captured: of calls that may wait for the device. */
static CUresult reject_captures(const char *call)
{
    CUresult result = CUDA_SUCCESS;
    for (CUstream stream : streams)
        if (CUresult rejected = reject_capture(stream, call))
            result = rejected;
    return result;
}

/* The legacy stream waits for the others: it invalidates their captures, and has no other use here. */
static CUresult legacy_stream()
{
    complain("work in the legacy stream");
    for (CUstream stream : streams)
        stream->is_invalid = stream->is_invalid || stream->capture;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

static CUresult submit(CUstream stream, std::function<CUresult()> command)
{
    if (!stream)
        return legacy_stream();
    if (stream->is_invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->capture && captures == setting("CUDA_SIM_FAIL_CAPTURE", 0)) {
        stream->is_invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (stream->capture) {
        stream->capture->commands.push_back(std::move(command));
        return CUDA_SUCCESS;
    }
    stream->queue.push_back(std::move(command));
    stream->submitted++;
    return CUDA_SUCCESS;
}

DRIVER CUresult cuda_sim_submit(CUstream stream, const char *name, void (*execute)(const void *arguments),
                                const void *arguments, size_t bytes)
{
    if (CUresult result = check())
        return result;
    const char *start = static_cast<const char *>(arguments);
    auto copied = std::make_shared<std::vector<char>>(start, start + bytes);
    return submit(stream, [=] {
        executing = name;
        execute(copied->data());
        return CUDA_SUCCESS;
    });
}

DRIVER CUresult cuda_sim_submit_until(CUstream stream, const char *name, CUresult (*execute)(void *user),
                                      void *user)
{
    if (CUresult result = check())
        return result;
    if (CUresult result = reject_capture(stream, name)) /* its state is that of one call */
        return result;
    return submit(stream, [=] {
        executing = name;
        return execute(user);
    });
}

DRIVER void cuda_sim_progress(CUstream stream)
{
    const uint64_t left = stream->submitted - stream->executed;
    execute(stream, stream->executed + random_below(left + 1), false);
}

DRIVER bool cuda_sim_in_block(const void *address, size_t bytes)
{
    return in_block(address, bytes);
}

DRIVER int cuda_sim_device(void)
{
    return current ? current->device : -1;
}

DRIVER int cuda_sim_stream_device(CUstream stream)
{
    return std::find(streams.begin(), streams.end(), stream) == streams.end() ? -1 : stream->device;
}

DRIVER int cuda_sim_block_device(const void *address, size_t bytes)
{
    return in_block(address, bytes) ? nearest(static_cast<const char *>(address))->device : -1;
}

/* ---- initialization and devices ---- */

DRIVER CUresult cuInit(unsigned)
{
    static char stack[1 << 16]; /* the faulting thread may be a fiber */
    const stack_t alternative = { stack, 0, sizeof stack };
    const struct sigaction action = fault_action();
    if (setting("CUDA_SIM_DEVICES", 1) == 0)
        return CUDA_ERROR_NO_DEVICE;
    is_initialized = true;
    process = getpid();
    random_state = setting("CUDA_SIM_SEED", 1);
    sigaltstack(&alternative, nullptr);
    sigaction(SIGSEGV, &action, nullptr);
    return CUDA_SUCCESS;
}

DRIVER CUresult cuDriverGetVersion(int *version)
{
    *version = static_cast<int>(setting("CUDA_SIM_VERSION", 13000));
    return CUDA_SUCCESS;
}

static const struct {
    CUresult result;
    const char *name, *text;
} errors[] = {
    { CUDA_SUCCESS, "CUDA_SUCCESS", "no error" },
    { CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
    { CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
    { CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
    { CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
    { CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
    { CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
    { CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE",
      "CUDA-capable device(s) is/are busy or unavailable" },
    { CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
    { CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready" },
    { CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE",
      "the operation cannot be performed in the present state" },
    { CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
      "operation not permitted when stream is capturing" },
    { CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
      "operation failed due to a previous error during capture" },
    { CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
      "dependency created on uncaptured work in another stream" },
    { CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
      "operation would make the legacy stream depend on a capturing blocking stream" },
    { CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
      "operation not permitted on an event last recorded in a capturing stream" },
    { CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure" },
};

static CUresult describe_error(CUresult result, bool name, const char **text)
{
    for (const auto &each : errors)
        if (each.result == result) {
            *text = name ? each.name : each.text;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

DRIVER CUresult cuGetErrorName(CUresult result, const char **text)
{
    return describe_error(result, true, text);
}

DRIVER CUresult cuGetErrorString(CUresult result, const char **text)
{
    return describe_error(result, false, text);
}

DRIVER CUresult cuDeviceGetCount(int *count)
{
    *count = static_cast<int>(setting("CUDA_SIM_DEVICES", 1));
    return is_initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

static bool is_device(CUdevice device)
{
    return device >= 0 && static_cast<size_t>(device) < setting("CUDA_SIM_DEVICES", 1);
}

DRIVER CUresult cuDeviceGet(CUdevice *device, int index)
{
    *device = index;
    return is_device(index) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

DRIVER CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    snprintf(name, static_cast<size_t>(size), "simulated GPU");
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

DRIVER CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    const int capability = static_cast<int>(setting("CUDA_SIM_CAPABILITY", 90));
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = capability / 10;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = capability % 10;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        *value = 1000000; /* 1 GHz */
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = 3; /* few: kernels loop */
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

DRIVER int cuda_sim_gpu(CUdevice device)
{
    return device / static_cast<int>(setting("CUDA_SIM_SLICES", 1));
}

DRIVER CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice device)
{
    snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", cuda_sim_gpu(device));
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static size_t capacity()
{
    return setting("CUDA_SIM_MEMORY", static_cast<size_t>(4) << 30);
}

DRIVER CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    *bytes = capacity();
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

DRIVER CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    if (CUresult result = check())
        return result;
    *total = capacity();
    *free = *total - std::min(*total, setting("CUDA_SIM_BUSY", 0));
    return CUDA_SUCCESS;
}

DRIVER CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    *pool = reinterpret_cast<CUmemoryPool>(static_cast<uintptr_t>(device + 1));
    if (setting("CUDA_SIM_NO_POOL", 0))
        return CUDA_ERROR_NOT_SUPPORTED;
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

DRIVER CUresult cuMemPoolSetAttribute(CUmemoryPool, int attribute, void *)
{
    return attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

DRIVER CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    if (attribute != CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    *static_cast<uint64_t *>(value) = peak[reinterpret_cast<uintptr_t>(pool) - 1];
    return CUDA_SUCCESS;
}

DRIVER CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    if (process != getpid())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (setting("CUDA_SIM_EXCLUSIVE", 0))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    contexts[device].device = device;
    contexts[device].retained++;
    *context = &contexts[device];
    return CUDA_SUCCESS;
}

static void report(CUdevice device)
{
    const char *path = getenv("CUDA_SIM_REPORT");
    FILE *file = path ? fopen(path, "w") : nullptr;
    if (!file)
        return;
    fprintf(file, "bytes %zu allocations %zu graphs %zu launches %zu nodes %zu downloads %zu\n", peak[device],
            allocations, instantiated, graph_launches, most_nodes, downloads);
    for (const auto &kernel : launched)
        fprintf(file, "kernel %s %zu\n", kernel.first.c_str(), kernel.second);
    fclose(file);
}

/* Reports what the last owner of a context has not freed. */
DRIVER CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    if (!is_device(device) || contexts[device].retained == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (--contexts[device].retained)
        return CUDA_SUCCESS;
    report(device);
    if (!graphs.empty())
        complain("%zu graphs are not destroyed", graphs.size());
    if (used[device])
        complain("%zu bytes of device %d are not freed", used[device], device);
    return CUDA_SUCCESS;
}

DRIVER CUresult cuCtxSetCurrent(CUcontext context)
{
    current = context;
    return sticky;
}

/* ---- streams and events ---- */

DRIVER CUresult cuStreamCreate(CUstream *stream, unsigned)
{
    if (CUresult result = check())
        return result;
    *stream = new CUstream_st{ {}, 0, 0, current->device, nullptr, false };
    streams.push_back(*stream);
    return CUDA_SUCCESS;
}

DRIVER CUresult cuStreamSynchronize(CUstream stream)
{
    if (CUresult result = check())
        return result;
    if (CUresult result = reject_capture(stream, "cuStreamSynchronize"))
        return result;
    return execute(stream, stream->submitted);
}

DRIVER CUresult cuStreamDestroy_v2(CUstream stream)
{
    execute(stream, stream->submitted);
    streams.erase(std::remove(streams.begin(), streams.end(), stream), streams.end());
    delete stream;
    return sticky;
}

DRIVER CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned)
{
    if (CUresult result = check())
        return result;
    if (event->is_captured != (stream->capture != nullptr) ||
        (event->is_captured && event->stream != stream)) {
        complain("cuStreamWaitEvent between a capture and what is outside of it");
        stream->is_invalid = stream->capture;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (event->is_captured)
        return CUDA_SUCCESS; /* the order of the stream */
    const CUstream other = event->stream;
    const uint64_t position = event->position;
    return other ? submit(stream, [=] { return execute(other, position, false); }) : CUDA_SUCCESS;
}

DRIVER CUresult cuEventCreate(CUevent *event, unsigned)
{
    if (CUresult result = check())
        return result;
    *event = new CUevent_st{ 0, nullptr, false };
    return CUDA_SUCCESS;
}

DRIVER CUresult cuEventDestroy_v2(CUevent event)
{
    delete event;
    return CUDA_SUCCESS;
}

DRIVER CUresult cuEventRecord(CUevent event, CUstream stream)
{
    if (CUresult result = check())
        return result;
    if (stream->is_invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event->stream = stream;
    event->position = stream->submitted;
    event->is_captured = stream->capture;
    return CUDA_SUCCESS;
}

static CUresult captured_event(CUevent event)
{
    complain("the host waits for an event that was recorded in a capture");
    event->stream->is_invalid = event->stream->capture;
    return CUDA_ERROR_CAPTURED_EVENT;
}

DRIVER CUresult cuEventQuery(CUevent event)
{
    if (CUresult result = check())
        return result;
    if (event->is_captured)
        return captured_event(event);
    if (!event->stream || event->stream->executed >= event->position)
        return CUDA_SUCCESS;
    const uint64_t left = event->position - event->stream->executed;
    const CUresult result = execute(event->stream, event->stream->executed + 1 + random_below(left), false);
    return result ? result : event->stream->executed >= event->position ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

DRIVER CUresult cuEventSynchronize(CUevent event)
{
    if (CUresult result = check())
        return result;
    if (event->is_captured)
        return captured_event(event);
    return event->stream ? execute(event->stream, event->position) : CUDA_SUCCESS;
}

/* ---- memory ---- */

static CUresult allocate(CUdeviceptr *out, size_t bytes, CUdevice device)
{
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (++attempted == setting("CUDA_SIM_FAIL_ALLOCATION", 0))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (bytes > capacity() || used[device] > capacity() - bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const size_t rounded = (bytes + 255) / 256 * 256, page_bytes = (rounded + PAGE - 1) / PAGE * PAGE;
    void *pages = mmap(nullptr, page_bytes + PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block b = { static_cast<char *>(pages) + page_bytes - rounded,
                bytes,
                static_cast<char *>(pages),
                page_bytes,
                device,
                false };
    if (page_bytes <= 1 << 20) /* larger ones would take long */
        memset(pages, 0xff, page_bytes);
    if (__asan_poison_memory_region) {
        __asan_poison_memory_region(pages, page_bytes);
        __asan_unpoison_memory_region(b.start, bytes);
    }
    mprotect(pages, page_bytes + PAGE, PROT_NONE);
    blocks[b.start] = b;
    used[b.device] += bytes;
    peak[b.device] = std::max(peak[b.device], used[b.device]);
    allocations++;
    *out = reinterpret_cast<uintptr_t>(b.start);
    return CUDA_SUCCESS;
}

DRIVER CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
    if (CUresult result = check())
        return result;
    if (CUresult result = reject_capture(stream, "cuMemAllocAsync"))
        return result;
    return setting("CUDA_SIM_NO_POOL", 0) ? CUDA_ERROR_NOT_SUPPORTED : allocate(out, bytes, stream->device);
}

static void release(char *start)
{
    const block b = blocks[start];
    used[b.device] -= b.bytes;
    blocks.erase(start);
    if (__asan_unpoison_memory_region)
        __asan_unpoison_memory_region(b.pages, b.page_bytes);
    munmap(b.pages, b.page_bytes + PAGE);
}

DRIVER CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    if (CUresult result = check())
        return result;
    if (CUresult result = reject_capture(stream, "cuMemFreeAsync"))
        return result;
    char *start = reinterpret_cast<char *>(static_cast<uintptr_t>(address));
    if (!blocks.count(start)) {
        complain("cuMemFreeAsync of what is not a block");
        return CUDA_ERROR_INVALID_VALUE;
    }
    return submit(stream, [start] {
        release(start);
        return CUDA_SUCCESS;
    });
}

DRIVER CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    if (CUresult result = check())
        return result;
    if (CUresult result = reject_captures("cuMemAlloc"))
        return result;
    return allocate(out, bytes, current->device);
}

DRIVER CUresult cuMemFree_v2(CUdeviceptr address)
{
    if (CUresult result = check())
        return result;
    if (CUresult result = reject_captures("cuMemFree"))
        return result;
    char *start = reinterpret_cast<char *>(static_cast<uintptr_t>(address));
    if (!blocks.count(start)) {
        complain("cuMemFree of what is not a block");
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (CUstream stream : streams) /* as the real one, which waits for the device */
        execute(stream, stream->submitted);
    release(start);
    return CUDA_SUCCESS;
}

DRIVER CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned)
{
    if (CUresult result = check())
        return result;
    if (CUresult result = reject_captures("cuMemHostAlloc"))
        return result;
    *out = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
    if (!*out)
        return CUDA_ERROR_OUT_OF_MEMORY;
    host_blocks[static_cast<char *>(*out)] = bytes;
    return CUDA_SUCCESS;
}

DRIVER CUresult cuMemFreeHost(void *address)
{
    if (CUresult result = check())
        return result;
    if (CUresult result = reject_captures("cuMemFreeHost"))
        return result;
    for (CUstream stream : streams) /* as the real one, which waits for the device */
        execute(stream, stream->submitted);
    if (!host_blocks.erase(static_cast<char *>(address)))
        return CUDA_ERROR_INVALID_VALUE;
    free(address);
    return CUDA_SUCCESS;
}

static bool is_pinned(const void *address, size_t bytes)
{
    char *start = static_cast<char *>(const_cast<void *>(address));
    auto after = host_blocks.upper_bound(start);
    return after != host_blocks.begin() &&
           start + bytes <= std::prev(after)->first + std::prev(after)->second;
}

static CUresult check_range(const char *call, const void *address, size_t bytes)
{
    if (in_block(address, bytes))
        return CUDA_SUCCESS;
    complain("%s of %zu bytes outside of a block", call, bytes);
    return CUDA_ERROR_INVALID_VALUE;
}

DRIVER CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr address, const void *from, size_t bytes, CUstream stream)
{
    char *to = reinterpret_cast<char *>(static_cast<uintptr_t>(address));
    CUresult result = check();
    if (!result)
        result = check_range("a copy to the device", to, bytes);
    if (result)
        return result;
    if (is_pinned(from, bytes))
        return submit(stream, [to, from, bytes] {
            memcpy(to, from, bytes);
            return CUDA_SUCCESS;
        });
    if (CUresult rejected = reject_capture(stream, "a copy from memory that is not pinned"))
        return rejected;
    auto staged = std::make_shared<std::vector<char>>(static_cast<const char *>(from),
                                                      static_cast<const char *>(from) + bytes);
    return submit(stream, [to, staged] {
        memcpy(to, staged->data(), staged->size());
        return CUDA_SUCCESS;
    });
}

DRIVER CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr address, size_t bytes, CUstream stream)
{
    const char *from = reinterpret_cast<const char *>(static_cast<uintptr_t>(address));
    CUresult result = check();
    if (!result)
        result = check_range("a copy from the device", from, bytes);
    if (result)
        return result;
    if (!is_pinned(to, bytes) && (result = reject_capture(stream, "a copy to memory that is not pinned")))
        return result;
    memset(to, 0xff, bytes);
    result = submit(stream, [to, from, bytes] {
        if (++downloads == setting("CUDA_SIM_FAIL_DOWNLOAD", 0))
            return CUDA_ERROR_LAUNCH_FAILED;
        memcpy(to, from, bytes);
        return CUDA_SUCCESS;
    });
    return result || is_pinned(to, bytes) ? result : execute(stream, stream->submitted);
}

DRIVER CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream)
{
    char *to = reinterpret_cast<char *>(static_cast<uintptr_t>(address));
    CUresult result = check();
    if (!result)
        result = check_range("cuMemsetD8Async", to, bytes);
    if (result)
        return result;
    return submit(stream, [to, value, bytes] {
        memset(to, value, bytes);
        return CUDA_SUCCESS;
    });
}

/* ---- kernels ---- */

DRIVER CUresult cuModuleLoadData(CUmodule *module, const void *)
{
    if (CUresult result = check())
        return result;
    if (CUresult result = reject_captures("cuModuleLoadData"))
        return result;
    *module = new CUmod_st{ current->device };
    return CUDA_SUCCESS;
}

DRIVER CUresult cuModuleUnload(CUmodule module)
{
    delete module;
    return CUDA_SUCCESS;
}

DRIVER CUresult cuModuleGetFunction(CUfunction *function, CUmodule, const char *name)
{
    const size_t bytes = emulator_kernel(name);
    if (bytes == 0)
        return CUDA_ERROR_NOT_FOUND;
    std::unique_ptr<CUfunc_st> &f = functions[name];
    if (!f)
        f.reset(new CUfunc_st{ name, bytes, 0 });
    *function = f.get();
    return CUDA_SUCCESS;
}

DRIVER CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes)
{
    if (index > 0)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = 0;
    if (bytes)
        *bytes = function->bytes;
    return CUDA_SUCCESS;
}

/* Bytes of shared memory that a block may have. The static ones of a kernel are known when it runs. */
static size_t most_shared()
{
    const size_t capability = setting("CUDA_SIM_CAPABILITY", 90);
    if (capability == 86 || capability == 89 || capability / 10 == 12)
        return 99 << 10;
    return capability < 90 ? 163 << 10 : 227 << 10;
}

DRIVER CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
    if (CUresult result = check())
        return result;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        static_cast<size_t>(value) > most_shared())
        return CUDA_ERROR_INVALID_VALUE;
    function->shared = static_cast<size_t>(value);
    return CUDA_SUCCESS;
}

DRIVER CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                               CUstream stream, void **arguments, void **)
{
    if (CUresult result = check())
        return result;
    if (grid_x * grid_y * grid_z == 0) {
        complain("kernel %s: an empty grid", function->name.c_str());
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (shared > function->shared) {
        complain("kernel %s: %u bytes of dynamic shared memory, allowed are %zu", function->name.c_str(),
                 shared, function->shared);
        return CUDA_ERROR_INVALID_VALUE;
    }
    const char *bytes = static_cast<const char *>(arguments[0]);
    auto copied = std::make_shared<std::vector<char>>(bytes, bytes + function->bytes);
    return submit(stream, [=] {
        const struct emulator_launch launch = { function->name.c_str(),
                                                { grid_x, grid_y, grid_z },
                                                { block_x, block_y, block_z },
                                                shared,
                                                most_shared(),
                                                copied->data(),
                                                random_below(1 << 30) };
        char message[512];
        executing = "kernel " + function->name;
        launched[function->name]++;
        if (++launches == setting("CUDA_SIM_FAIL", 0))
            return static_cast<CUresult>(CUDA_ERROR_LAUNCH_FAILED);
        if (emulator_run(&launch, message, sizeof message))
            return static_cast<CUresult>(CUDA_SUCCESS);
        complain("%s", message);
        return static_cast<CUresult>(CUDA_ERROR_LAUNCH_FAILED);
    });
}

/* ---- capture ---- */

DRIVER CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    if (CUresult result = check())
        return result;
    if (!stream) {
        complain("a capture of the legacy stream");
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL && mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        return CUDA_ERROR_INVALID_VALUE;
    stream->capture = new CUgraph_st;
    captures++;
    return CUDA_SUCCESS;
}

DRIVER CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    *graph = nullptr;
    if (CUresult result = check())
        return result;
    if (!stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (stream->is_invalid)
        delete stream->capture;
    else
        *graph = stream->capture;
    stream->capture = nullptr;
    stream->is_invalid = false;
    return *graph ? CUresult(CUDA_SUCCESS) : CUresult(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

DRIVER CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
    if (CUresult result = check())
        return result;
    *status = stream->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
              : stream->capture  ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                 : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

DRIVER CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
    *n = graph->commands.size();
    return nodes ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

DRIVER CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    if (CUresult result = check())
        return result;
    if (CUresult result = reject_captures("cuGraphInstantiate"))
        return result;
    *out = nullptr;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (++instantiated == setting("CUDA_SIM_FAIL_INSTANTIATE", 0))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = new CUgraphExec_st{ graph->commands };
    graphs.insert(*out);
    most_nodes = std::max(most_nodes, graph->commands.size());
    return CUDA_SUCCESS;
}

/* Copies read, and kernels get, what was given when they were captured: addresses, and values of arguments.
 */
DRIVER CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream)
{
    if (CUresult result = check())
        return result;
    if (CUresult result = stream ? reject_capture(stream, "cuGraphLaunch") : legacy_stream())
        return result;
    if (!graphs.count(graph)) {
        complain("the launch of a graph that was destroyed");
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (++graph_launches == setting("CUDA_SIM_FAIL_GRAPH", 0))
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (const std::function<CUresult()> &command : graph->commands)
        submit(stream, command);
    return CUDA_SUCCESS;
}

DRIVER CUresult cuGraphDestroy(CUgraph graph)
{
    delete graph;
    return CUDA_SUCCESS;
}

/* A launch that is not complete goes on. */
DRIVER CUresult cuGraphExecDestroy(CUgraphExec graph)
{
    if (!graphs.erase(graph))
        return CUDA_ERROR_INVALID_VALUE;
    delete graph;
    return CUDA_SUCCESS;
}
