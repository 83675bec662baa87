/* Memory, transfers and events. */
#include "backend/cuda/cuda.h"

static CUdeviceptr address(const void *block)
{
    return (CUdeviceptr)(uintptr_t)block;
}

void *cuda_alloc(void *ctx, size_t bytes)
{
    struct cuda_device *d = ctx;
    CUdeviceptr block = 0;
    const struct cuda_driver *driver = cuda_enter(d);
    bytes = bytes ? bytes : 1;
    CUresult result = d->pool ? driver->alloc(&block, bytes, d->stream) : driver->alloc_now(&block, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return NULL;
    cuda_note(d, result, d->pool ? "cuMemAllocAsync" : "cuMemAlloc");
    return result ? NULL : (void *)(uintptr_t)block;
}

CUresult cuda_release(const struct cuda_device *d, void *block)
{
    if (d->pool)
        return d->driver->free(address(block), d->stream);
    CUresult result = d->driver->stream_wait(d->stream); /* of what may still use the block */
    return result ? result : d->driver->free_now(address(block));
}

void cuda_free(void *ctx, void *block)
{
    struct cuda_device *d = ctx;
    cuda_submit(d);
    cuda_enter(d);
    cuda_note(d, cuda_release(d, block), d->pool ? "cuMemFreeAsync" : "cuMemFree");
}

bool cuda_enlarge(struct cuda_device *d, void **block, size_t *bytes, size_t needed)
{
    if (*block && needed <= *bytes)
        return true;
    if (*block)
        cuda_free(d, *block);
    *block = cuda_alloc(d, needed);
    *bytes = *block ? needed : 0;
    return *block != NULL;
}

void *cuda_op_memory(struct cuda_device *device, size_t bytes)
{
    if (!cuda_enlarge(device, &device->op_memory, &device->op_bytes, bytes)) {
        device->no_memory = true;
        return NULL;
    }
    return device->op_memory;
}

void *cuda_alloc_host(void *ctx, size_t bytes)
{
    struct cuda_device *d = ctx;
    void *block = NULL;
    CUresult result = cuda_enter(d)->alloc_host(&block, bytes ? bytes : 1, CU_MEMHOSTALLOC_PORTABLE);
    return result ? NULL : block;
}

void cuda_free_host(void *ctx, void *block)
{
    struct cuda_device *d = ctx;
    cuda_note(d, cuda_enter(d)->free_host(block), "cuMemFreeHost");
}

/* ---- events ---- */

ddl_event cuda_record(void *ctx)
{
    struct cuda_device *d = ctx;
    ddl_event event = ++d->recorded;
    cuda_submit(d);
    cuda_note(d, cuda_enter(d)->event_record(d->events[event % CUDA_EVENTS], d->stream), "cuEventRecord");
    return event;
}

/* Where its own was reused, the oldest of those that remain, which is later. */
CUevent cuda_event_of(const struct cuda_device *d, ddl_event event)
{
    ddl_event oldest = d->recorded >= CUDA_EVENTS ? d->recorded - CUDA_EVENTS + 1 : 1;
    return d->events[(event < oldest ? oldest : event) % CUDA_EVENTS];
}

bool cuda_is_done(void *ctx, ddl_event event)
{
    struct cuda_device *d = ctx;
    if (event == 0)
        return true;
    CUresult result = cuda_enter(d)->event_query(cuda_event_of(d, event));
    if (result == CUDA_ERROR_NOT_READY)
        return false;
    cuda_note(d, result, "cuEventQuery");
    return true;
}

void cuda_wait(void *ctx, ddl_event event)
{
    struct cuda_device *d = ctx;
    if (event)
        cuda_note(d, cuda_enter(d)->event_wait(cuda_event_of(d, event)), "cuEventSynchronize");
}

void cuda_synchronize(void *ctx)
{
    struct cuda_device *d = ctx;
    cuda_submit(d);
    cuda_note(d, cuda_enter(d)->stream_wait(d->stream), "cuStreamSynchronize");
}

/* ---- transfers ---- */

ddl_event cuda_upload_async(void *ctx, void *dst, const void *host, size_t bytes)
{
    struct cuda_device *d = ctx;
    cuda_submit(d);
    if (bytes)
        cuda_note(d, cuda_enter(d)->upload(address(dst), host, bytes, d->stream), "cuMemcpyHtoDAsync");
    return cuda_record(ctx);
}

ddl_event cuda_download_async(void *ctx, void *host, const void *src, size_t bytes)
{
    struct cuda_device *d = ctx;
    cuda_submit(d);
    if (bytes)
        cuda_note(d, cuda_enter(d)->download(host, address(src), bytes, d->stream), "cuMemcpyDtoHAsync");
    return cuda_record(ctx);
}

/* The driver reads memory that is not pinned before cuMemcpyHtoDAsync returns, but CUDA does not promise it
 * for every system: wait. */
void cuda_upload(void *ctx, void *dst, const void *host, size_t bytes)
{
    if (bytes)
        cuda_wait(ctx, cuda_upload_async(ctx, dst, host, bytes));
}

void cuda_download(void *ctx, void *host, const void *src, size_t bytes)
{
    if (bytes)
        cuda_wait(ctx, cuda_download_async(ctx, host, src, bytes));
}

struct zeroing {
    void *dst;
    size_t bytes;
};

static void zero(struct cuda_device *d, const void *command)
{
    const struct zeroing *z = command;
    cuda_note(d, cuda_enter(d)->fill_bytes(address(z->dst), 0, z->bytes, d->stream), "cuMemsetD8Async");
}

const void *cuda_zeroed(const struct cuda_command *command)
{
    return command->execute == zero ? ((const struct zeroing *)(const void *)(command + 1))->dst : NULL;
}

void cuda_zero(void *ctx, void *dst, size_t bytes)
{
    const struct zeroing now = { dst, bytes };
    if (bytes == 0)
        return;
    struct zeroing *later = cuda_record_command(ctx, zero, sizeof now);
    if (later)
        *later = now;
    else
        zero(ctx, &now);
}
