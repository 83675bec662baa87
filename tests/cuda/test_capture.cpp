/* The capture of graphs by the stand-in for the driver: a replay computes what the captured calls compute,
 * with the contents that memory has then, and what the real driver rejects is rejected. */
#include "driver.h"
#include "ops/args.h"

#include <cstdio>
#include <cstdlib>

#define CUDA_DECLARE_FUNCTION(name, symbol, parameters)                                                      \
    extern "C" CUresult driver_##name parameters __asm__(symbol);
CUDA_DRIVER(CUDA_DECLARE_FUNCTION)
#undef CUDA_DECLARE_FUNCTION

static const size_t N = 100, BYTES = N * sizeof(float);
static CUstream stream, other;
static CUevent event;
static CUfunction fill;
static CUdeviceptr x;
static float *pinned, *result; /* (N) each */

static void expect(CUresult expected, CUresult found, const char *what)
{
    if (expected == found)
        return;
    printf("%s: expected %d, found %d\n", what, expected, found);
    exit(1);
}
#define OK(call) expect(CUDA_SUCCESS, call, #call)
#define FAILS(error, call) expect(error, call, #call)

/* x = value, in a kernel. */
static CUresult launch_fill(CUstream in, float value)
{
    struct fill_args arguments = { N, value, reinterpret_cast<float *>(static_cast<uintptr_t>(x)) };
    void *parameters[] = { &arguments };
    return driver_launch(fill, 1, 1, 1, 256, 1, 1, 0, in, parameters, nullptr);
}

static void expect_result(float expected, const char *what)
{
    OK(driver_stream_wait(stream));
    for (size_t i = 0; i < N; i++)
        if (result[i] != expected) {
            printf("%s: expected %g, found %g\n", what, static_cast<double>(expected),
                   static_cast<double>(result[i]));
            exit(1);
        }
}

static void set_up()
{
    CUcontext context;
    CUmodule module;
    OK(driver_init(0));
    OK(driver_context_retain(&context, 0));
    OK(driver_context_set(context));
    OK(driver_stream_create(&stream, CU_STREAM_NON_BLOCKING));
    OK(driver_stream_create(&other, CU_STREAM_NON_BLOCKING));
    OK(driver_event_create(&event, CU_EVENT_DISABLE_TIMING));
    OK(driver_module_load(&module, nullptr));
    OK(driver_module_function(&fill, module, "fill"));
    OK(driver_alloc(&x, BYTES, stream));
    OK(driver_alloc_host(reinterpret_cast<void **>(&pinned), BYTES, 0));
    OK(driver_alloc_host(reinterpret_cast<void **>(&result), BYTES, 0));
}

/* Captured calls do nothing; each launch does what they describe, in order, and reads pinned memory then. */
static void test_replay()
{
    CUgraph graph;
    CUgraphExec kernel, copy;
    size_t n;
    int status;
    OK(driver_fill_bytes(x, 0, BYTES, stream));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuStreamIsCapturing(stream, &status));
    FAILS(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
    OK(launch_fill(stream, 3));
    OK(driver_download(result, x, BYTES, stream));
    OK(driver_event_record(event, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetNodes(graph, nullptr, &n));
    FAILS(2, static_cast<CUresult>(n));
    OK(cuGraphInstantiateWithFlags(&kernel, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(driver_download(result, x, BYTES, stream));
    expect_result(0, "before the launch");
    OK(cuGraphLaunch(kernel, stream));
    expect_result(3, "a kernel");
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(driver_upload(x, pinned, BYTES, stream));
    OK(driver_download(result, x, BYTES, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&copy, graph, 0));
    OK(cuGraphDestroy(graph));
    for (int launch = 1; launch <= 2; launch++) {
        for (size_t i = 0; i < N; i++)
            pinned[i] = static_cast<float>(10 * launch);
        OK(cuGraphLaunch(copy, stream));
        OK(cuGraphLaunch(kernel, stream));
        OK(cuGraphLaunch(copy, stream));
        expect_result(static_cast<float>(10 * launch), "a copy");
    }
    OK(cuGraphExecDestroy(kernel));
    OK(cuGraphExecDestroy(copy));
}

/* A call in a capture fails with `error`; the capture is invalid afterwards, and the next one is not. */
template <typename Call> static void rejects(CUresult error, const char *what, Call call)
{
    CUgraph graph;
    int status;
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(launch_fill(stream, 1));
    expect(error, call(), what);
    OK(cuStreamIsCapturing(stream, &status));
    expect(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status, what);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, launch_fill(stream, 1));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
    FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(stream, &graph));
    OK(driver_fill_bytes(x, 0, BYTES, stream));
    OK(driver_download(result, x, BYTES, stream));
    expect_result(0, what);
}

static void test_rejected()
{
    static float pageable[N];
    const CUresult unsupported = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUdeviceptr block;
    CUmodule module;
    void *host;
    FAILS(unsupported, cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    rejects(unsupported, "synchronize", [] { return driver_stream_wait(stream); });
    rejects(unsupported, "an allocation", [&] { return driver_alloc(&block, 1, stream); });
    rejects(unsupported, "a free", [] { return driver_free(x, stream); });
    rejects(unsupported, "pinned memory", [&] { return driver_alloc_host(&host, 1, 0); });
    rejects(unsupported, "a free of pinned memory", [] { return driver_free_host(pinned); });
    rejects(unsupported, "a module", [&] { return driver_module_load(&module, nullptr); });
    rejects(unsupported, "an upload", [] { return driver_upload(x, pageable, BYTES, stream); });
    rejects(unsupported, "a download", [] { return driver_download(pageable, x, BYTES, stream); });
    rejects(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the legacy stream", [] { return launch_fill(nullptr, 1); });
    rejects(CUDA_ERROR_CAPTURED_EVENT, "an event's query", [] {
        OK(driver_event_record(event, stream));
        return driver_event_query(event);
    });
    rejects(CUDA_ERROR_CAPTURED_EVENT, "an event's wait", [] {
        OK(driver_event_record(event, stream));
        return driver_event_wait(event);
    });
    rejects(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "work outside", [] {
        OK(driver_event_record(event, other));
        return driver_stream_wait_event(stream, event, 0);
    });
}

int main()
{
    set_up();
    test_replay();
    test_rejected();
    puts("ok");
    return 0;
}
