#include "backend/cuda/driver.h"

#include "ddl/status.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static struct cuda_driver driver;
static int device_count;
static bool is_loaded;
static pid_t process; /* that loaded it */

/* A loaded library is never closed: the driver has threads. */
static ddl_status find_functions(struct ddl_error *err)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return ddl_error_set(
            err, DDL_E_UNSUPPORTED,
            "backend cuda: the driver's library cannot be loaded (%s): install the NVIDIA driver", dlerror());
    static const struct {
        const char *symbol;
        size_t offset;
    } functions[] = {
#define CUDA_DRIVER_ROW(name, symbol, parameters) { symbol, offsetof(struct cuda_driver, name) },
        CUDA_DRIVER(CUDA_DRIVER_ROW)
#undef CUDA_DRIVER_ROW
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(library, functions[i].symbol);
        if (!function)
            return ddl_error_set(
                err, DDL_E_UNSUPPORTED,
                "backend cuda: libcuda.so.1 has no %s: install a driver for CUDA %d.%d or newer",
                functions[i].symbol, CUDA_DRIVER_VERSION / 1000, CUDA_DRIVER_VERSION % 1000 / 10);
        memcpy((char *)&driver + functions[i].offset, &function, sizeof function);
    }
    return DDL_OK;
}

const char *cuda_driver_error(const struct cuda_driver *d, CUresult result, char *text, size_t size)
{
    const char *name = NULL, *meaning = NULL;
    if (d->error_name(result, &name) == CUDA_SUCCESS && d->error_text(result, &meaning) == CUDA_SUCCESS)
        snprintf(text, size, "%s (%s)", name, meaning);
    else
        snprintf(text, size, "CUDA error %d", result);
    return text;
}

static ddl_status no_device(struct ddl_error *err)
{
    return ddl_error_set(
        err, DDL_E_UNSUPPORTED,
        "backend cuda: there is no NVIDIA GPU, or none is visible (CUDA_VISIBLE_DEVICES, permissions)");
}

static ddl_status initialize(struct ddl_error *err)
{
    char text[128];
    int version = 0;
    CUresult result = driver.init(0);
    if (result == CUDA_ERROR_NO_DEVICE)
        return no_device(err);
    if (result)
        return ddl_error_set(err, DDL_E_UNSUPPORTED, "backend cuda: the driver cannot be initialized: %s",
                             cuda_driver_error(&driver, result, text, sizeof text));
    result = driver.version(&version);
    if (!result && version < CUDA_DRIVER_VERSION)
        return ddl_error_set(err, DDL_E_UNSUPPORTED,
                             "backend cuda: the driver is for CUDA %d.%d: expected %d.%d or newer: update "
                             "it, or use --backend cpu",
                             version / 1000, version % 1000 / 10, CUDA_DRIVER_VERSION / 1000,
                             CUDA_DRIVER_VERSION % 1000 / 10);
    if (!result)
        result = driver.device_count(&device_count);
    if (result)
        return ddl_error_set(err, DDL_E_UNSUPPORTED, "backend cuda: the driver fails: %s",
                             cuda_driver_error(&driver, result, text, sizeof text));
    return device_count == 0 ? no_device(err) : DDL_OK;
}

ddl_status cuda_driver_load(const struct cuda_driver **out, int *devices, struct ddl_error *err)
{
    if (!is_loaded) {
        ddl_status status = find_functions(err);
        if (!status)
            status = initialize(err);
        if (status)
            return status;
        is_loaded = true;
        process = getpid();
    }
    if (process != getpid())
        return ddl_error_set(
            err, DDL_E_UNSUPPORTED,
            "backend cuda: this process was forked after its parent had used CUDA: start it with "
            "exec (in Python: the method spawn)");
    *out = &driver;
    *devices = device_count;
    return DDL_OK;
}
