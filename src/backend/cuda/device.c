/* Opening and closing a device, and the plugin's symbol. */
#include "backend/cuda/cuda.h"

#include "backend/plugin.h"
#include "backend/q8.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- devices ---- */

static size_t count_devices(void)
{
    const struct cuda_driver *driver;
    int count;
    struct ddl_error ignored;
    return cuda_driver_load(&driver, &count, &ignored) == DDL_OK ? (size_t)count : 0;
}

static void close_device(void *ctx)
{
    struct cuda_device *d = ctx;
    const struct cuda_driver *driver = d->driver;
    if (d->primary) {
        driver->context_set(d->primary);
        if (d->scratch)
            cuda_release(d, d->scratch);
        if (d->op_memory)
            cuda_release(d, d->op_memory);
        if (d->workspace)
            cuda_release(d, d->workspace);
        if (d->stream)
            driver->stream_wait(d->stream);
        cuda_graphs_close(d);
        cuda_products_close(d);
        for (size_t i = 0; i < CUDA_EVENTS && d->events[i]; i++)
            driver->event_destroy(d->events[i]);
        cuda_kernels_unload(d);
        if (d->stream)
            driver->stream_destroy(d->stream);
        driver->context_release(d->device);
    }
    free(d);
}

/* What open does step by step, so that close_device can follow a failure. Returns the failed call. */
static const char *prepare(struct cuda_device *d, CUresult *result)
{
    const struct cuda_driver *driver = d->driver;
    if ((*result = driver->context_retain(&d->primary, d->device)))
        return "cuDevicePrimaryCtxRetain";
    if ((*result = driver->context_set(d->primary)))
        return "cuCtxSetCurrent";
    if ((*result = driver->stream_create(&d->stream, CU_STREAM_NON_BLOCKING)))
        return "cuStreamCreate";
    for (size_t i = 0; i < CUDA_EVENTS; i++) {
        if ((*result = driver->event_create(&d->events[i], CU_EVENT_DISABLE_TIMING)))
            return "cuEventCreate";
    }
    size_t total;
    if ((*result = driver->context_memory(&d->free_memory, &total)))
        return "cuMemGetInfo";
    /* Freed memory remains with the process: allocations of later passes are fast. Some virtual GPUs have no
     * pool. */
    uint64_t threshold = UINT64_MAX;
    *result = driver->device_pool(&d->pool, d->device);
    if (*result == CUDA_ERROR_NOT_SUPPORTED)
        d->pool = NULL;
    else if (*result)
        return "cuDeviceGetDefaultMemPool";
    if (d->pool && (*result = driver->pool_set(d->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold)))
        return "cuMemPoolSetAttribute";
    return cuda_kernels_load(d, result);
}

static ddl_status describe(struct cuda_device *d, size_t index, char *text, size_t size,
                           struct ddl_error *err)
{
    const struct cuda_driver *driver = d->driver;
    char name[64] = "";
    int major = 0, minor = 0, multiprocessors = 0, clock = 0;
    CUresult result = driver->device_get(&d->device, (int)index);
    if (!result)
        result = driver->device_name(name, (int)sizeof name, d->device);
    if (!result)
        result = driver->device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, d->device);
    if (!result)
        result = driver->device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, d->device);
    if (!result)
        result =
            driver->device_attribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d->device);
    if (!result)
        result = driver->device_memory(&d->memory, d->device);
    char reason[128];
    if (result)
        return ddl_error_set(err, DDL_E_DEVICE, "backend cuda:%zu: %s", index,
                             cuda_driver_error(driver, result, reason, sizeof reason));
    if (major < 8)
        return ddl_error_set(err, DDL_E_UNSUPPORTED,
                             "backend cuda:%zu: %s has compute capability %d.%d: expected 8.0 or newer: use "
                             "another device (ddl info --backends) or --backend cpu",
                             index, name, major, minor);
    d->multiprocessors = (unsigned)multiprocessors;
    d->capability = (unsigned)(10 * major + minor);
    d->clock =
        driver->device_attribute(&clock, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, d->device) ? 0 : 1e3 * (double)clock;
    snprintf(text, size, "cuda:%zu (%s, %d.%d, %.1f GiB)", index, name, major, minor,
             (double)d->memory / (double)(1 << 30));
    return DDL_OK;
}

static ddl_status open_device(void **ctx, size_t device, size_t threads, char *text, size_t text_size,
                              struct ddl_error *err)
{
    (void)threads;
    const struct cuda_driver *driver;
    int count;
    *ctx = NULL;
    ddl_status status = cuda_driver_load(&driver, &count, err);
    if (status)
        return status;
    struct cuda_device *d = calloc(1, sizeof *d);
    if (!d)
        return ddl_error_set(err, DDL_E_MEMORY, "backend cuda: out of memory");
    d->driver = driver;
    status = describe(d, device, text, text_size, err);
    if (status) {
        free(d);
        return status;
    }
    CUresult result;
    char reason[128];
    const char *failed = prepare(d, &result);
    if (failed && result == CUDA_ERROR_DEVICE_UNAVAILABLE) {
        close_device(d);
        return ddl_error_set(
            err, DDL_E_DEVICE,
            "backend cuda:%zu: another program has the device for itself: wait until it ends, "
            "or use another device: ddl info --backends",
            device);
    }
    if (failed) {
        status = ddl_error_set(err, result == CUDA_ERROR_OUT_OF_MEMORY ? DDL_E_MEMORY : DDL_E_DEVICE,
                               "backend cuda:%zu: %s: %s", device, failed,
                               cuda_driver_error(driver, result, reason, sizeof reason));
        close_device(d);
        return status;
    }
    status = cuda_products_open(d, err);
    if (!status)
        status = cuda_graphs_open(d, err);
    if (status) {
        close_device(d);
        return status;
    }
    *ctx = d;
    return DDL_OK;
}

/* A device that need not be there. It has as many multiprocessors as the largest: scratch is not larger on
 * others. */
static ddl_status plan_device(void **ctx, size_t bytes, char *text, size_t text_size, struct ddl_error *err)
{
    enum { MOST_MULTIPROCESSORS = 192 };
    struct cuda_device *d = calloc(1, sizeof *d);
    *ctx = d;
    if (!d)
        return ddl_error_set(err, DDL_E_MEMORY, "backend cuda: out of memory");
    d->memory = d->free_memory = bytes;
    d->multiprocessors = MOST_MULTIPROCESSORS;
    snprintf(text, text_size, "cuda (planned, %.1f GiB)", (double)bytes / 0x1p30);
    return DDL_OK;
}

/* ---- the table ---- */

/* Partial sums that a block may have: those of one op, or of the three that projected_norm_bwd computes. */
static size_t summed_of(const struct ddl_limits *limits)
{
    return 2 * (limits->summed + limits->d + 32);
}

static size_t scratch_bytes(const struct cuda_device *d, size_t summed)
{
    return cuda_blocks_of_sums(d, SIZE_MAX) * summed * sizeof(float);
}

/* The most memory that an op needs. */
static size_t op_bytes(const struct ddl_limits *limits)
{
    const size_t each[] = { cuda_attention_bytes(limits->N, limits->H),
                            cuda_attention_part_bytes(limits->queries, limits->T, limits->h),
                            cuda_squares_bytes(limits->parts) };
    size_t most = 0;
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        most = each[i] > most ? each[i] : most;
    return most;
}

#define OTHER_DEVICE ": use a device with more memory, or --backend cpu"

static ddl_status reserve(void *ctx, const struct ddl_limits *limits, struct ddl_error *err)
{
    struct cuda_device *d = ctx;
    size_t most = cuda_most_channels(limits->c), of_ops = op_bytes(limits), summed = summed_of(limits);
    size_t bytes = scratch_bytes(d, d->summed);
    if (limits->c > most)
        return ddl_error_set(
            err, DDL_E_UNSUPPORTED,
            "backend cuda: value channels: expected at most %d, %d if even, %d if a multiple "
            "of 4, found %zu: use --backend cpu",
            CUDA_STATE_THREADS, 2 * CUDA_STATE_THREADS, 4 * CUDA_STATE_THREADS, limits->c);
    if (limits->queries && cuda_parts(limits->T, CUDA_ATTENTION_PART) > CUDA_ATTENTION_PARTS)
        return ddl_error_set(err, DDL_E_UNSUPPORTED,
                             "backend cuda: tokens of a sequence in decoding: expected at most %d, found "
                             "%zu: use --backend cpu",
                             CUDA_ATTENTION_PARTS * CUDA_ATTENTION_PART, limits->T);
    if (!d->workspace)
        d->workspace = cuda_alloc(d, CUDA_WORKSPACE + CUDA_REPACKED);
    if (!d->workspace)
        return ddl_error_set(err, DDL_E_MEMORY,
                             "backend cuda: out of device memory: workspace of %d MiB" OTHER_DEVICE,
                             (CUDA_WORKSPACE + CUDA_REPACKED) >> 20);
    if (of_ops && !cuda_enlarge(d, &d->op_memory, &d->op_bytes, of_ops))
        return ddl_error_set(err, DDL_E_MEMORY,
                             "backend cuda: out of device memory: %zu MiB for ops" OTHER_DEVICE,
                             of_ops >> 20);
    if (summed <= d->summed)
        return DDL_OK;
    void *scratch = d->scratch;
    bool enough = cuda_enlarge(d, &scratch, &bytes, scratch_bytes(d, summed));
    d->scratch = scratch;
    d->summed = enough ? summed : 0;
    if (!enough)
        return ddl_error_set(err, DDL_E_MEMORY,
                             "backend cuda: out of device memory: scratch of %zu MiB" OTHER_DEVICE,
                             scratch_bytes(d, summed) >> 20);
    return DDL_OK;
}

static size_t memory_estimate(void *ctx, const struct ddl_limits *limits)
{
    const struct cuda_device *d = ctx;
    const size_t library = (size_t)512 << 20; /* the context, the kernels and cuBLASLt */
    if (limits->summed > SIZE_MAX / 16 / (4 * sizeof(float)) / (d->multiprocessors + 1) ||
        (limits->H && limits->N > SIZE_MAX / 4 / (2 * sizeof(float)) / limits->H))
        return SIZE_MAX;
    return library + CUDA_WORKSPACE + CUDA_REPACKED + scratch_bytes(d, summed_of(limits)) + op_bytes(limits);
}

static size_t logit_block(void *ctx)
{
    (void)ctx;
    return DDL_DEVICE_LOGITS;
}

static size_t memory_used(void *ctx)
{
    struct cuda_device *d = ctx;
    uint64_t bytes = 0;
    if (d->pool)
        cuda_note(d, cuda_enter(d)->pool_get(d->pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &bytes),
                  "cuMemPoolGetAttribute");
    return bytes;
}

static size_t memory_capacity(void *ctx)
{
    const struct cuda_device *d = ctx;
    return d->free_memory;
}

/* Operations of a multiprocessor in a clock: dense products with sums in float32 (NVIDIA's papers on the
 * architectures; TF32 has half the rate of bfloat16). Of 8.6 to 8.9 and 12.0 they are those of boards for
 * workstations and servers; GeForce boards have half of them in bfloat16. */
static const struct {
    unsigned capability; /* and later ones, up to the next row */
    double f32, bf16;
} rates[] = {
    { 80, 128, 2048 }, { 86, 256, 1024 }, { 90, 256, 4096 }, { 100, 256, 8192 }, { 120, 256, 1024 }
};

static double peak_rate(void *ctx, enum ddl_rate rate)
{
    const struct cuda_device *d = ctx;
    size_t i = 0;
    while (i + 1 < sizeof rates / sizeof *rates && rates[i + 1].capability <= d->capability)
        i++;
    double operations = rate == DDL_RATE_F32    ? rates[i].f32
                        : rate == DDL_RATE_TF32 ? rates[i].bf16 / 2
                                                : rates[i].bf16;
    return operations * d->clock * d->multiprocessors;
}

static size_t q8_bytes(void *ctx, size_t rows, size_t width)
{
    (void)ctx;
    return ddl_q8_tiles(rows, width) * sizeof(struct ddl_q8);
}

/* The ops, whose arguments have padding of any content. */
#define CUDA_ENTRY(name, args)                                                                               \
    static void enter_##name(void *ctx, const struct args *a)                                                \
    {                                                                                                        \
        struct args copy = *a; /* NOLINT(bugprone-macro-parentheses) */                                      \
        CUDA_CLEAR_PADDING(&copy);                                                                           \
        cuda_##name(ctx, &copy);                                                                             \
    }
DDL_OPS(CUDA_ENTRY)
#undef CUDA_ENTRY

static const struct ddl_ops cuda_ops = { .name = "cuda",
                                         .has_tf32 = true,
                                         .step_rows = CUDA_STEP_ROWS,
                                         .devices = count_devices,
                                         .open = open_device,
                                         .close = close_device,
                                         .plan = plan_device,
                                         .reserve = reserve,
                                         .memory_estimate = memory_estimate,
                                         .logit_block = logit_block,
                                         .memory_capacity = memory_capacity,
                                         .memory_used = memory_used,
                                         .warning = cuda_warning,
                                         .peak_rate = peak_rate,
                                         .check_error = cuda_check_error,
                                         .alloc = cuda_alloc,
                                         .free = cuda_free,
                                         .alloc_host = cuda_alloc_host,
                                         .free_host = cuda_free_host,
                                         .upload_async = cuda_upload_async,
                                         .download_async = cuda_download_async,
                                         .upload = cuda_upload,
                                         .download = cuda_download,
                                         .zero = cuda_zero,
                                         .record = cuda_record,
                                         .is_done = cuda_is_done,
                                         .wait = cuda_wait,
                                         .synchronize = cuda_synchronize,
                                         .begin_graph = cuda_begin_graph,
                                         .end_graph = cuda_end_graph,
                                         .q8_bytes = q8_bytes,
                                         .group = &cuda_group,
#define CUDA_MEMBER(name, args) .name = enter_##name,
                                         DDL_OPS(CUDA_MEMBER)
#undef CUDA_MEMBER
};

extern const struct ddl_backend_plugin ddl_backend_plugin;
DDL_API const struct ddl_backend_plugin ddl_backend_plugin = { DDL_BACKEND_ABI, &cuda_ops };
