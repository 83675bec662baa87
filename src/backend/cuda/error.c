/* The device's context, and errors of its calls. */
#include "backend/cuda/cuda.h"

const struct cuda_driver *cuda_enter(struct cuda_device *device)
{
    cuda_note(device, device->driver->context_set(device->primary), "cuCtxSetCurrent");
    return device->driver;
}

void cuda_note(struct cuda_device *device, CUresult result, const char *at)
{
    if (result && !device->error) {
        device->error = result;
        device->error_at = at;
    }
}

ddl_status cuda_check_error(void *ctx, struct ddl_error *err)
{
    struct cuda_device *d = ctx;
    char text[128];
    bool no_memory = d->no_memory;
    d->no_memory = false;
    if (!d->error && no_memory)
        return ddl_error_set(err, DDL_E_MEMORY, "backend cuda: out of device memory in an op");
    if (!d->error)
        return DDL_OK;
    return ddl_error_set(err, DDL_E_DEVICE, "backend cuda: %s: %s", d->error_at,
                         d->error_text ? d->error_text
                                       : cuda_driver_error(d->driver, d->error, text, sizeof text));
}
