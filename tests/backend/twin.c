/* A backend plugin: "ref" under the name TWIN_NAME, with TWIN_DEVICES devices (an environment variable; 3
 * without it), and without the ops that TWIN_LACKS lists (",rope_fwd,"). TWIN_ABI is the number of its
 * interface.
 */
#include "backend/plugin.h"
#include "backend/ref/ref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t count_devices(void)
{
    const char *text = getenv("TWIN_DEVICES");
    return text ? strtoul(text, NULL, 10) : 3;
}

static ddl_status open_twin(void **ctx, size_t device, size_t threads, char *text, size_t text_size,
                            struct ddl_error *err)
{
    (void)threads;
    if (count_devices() == 0)
        return ddl_error_set(err, DDL_E_UNSUPPORTED, "backend " TWIN_NAME ": no driver");
    *ctx = calloc(1, sizeof(struct ddl_context)); /* the ops of "ref" have no state */
    if (!*ctx)
        return ddl_error_set(err, DDL_E_MEMORY, "backend " TWIN_NAME ": out of memory");
    snprintf(text, text_size, TWIN_NAME ":%zu (ref)", device);
    return DDL_OK;
}

static void close_twin(void *ctx)
{
    free(ctx);
}

static struct ddl_ops twin;

__attribute__((constructor)) static void make_twin(void)
{
    const char *lacks = getenv("TWIN_LACKS");
    twin = ddl_ops_ref;
    twin.name = TWIN_NAME;
    twin.devices = count_devices;
    twin.open = open_twin;
    twin.close = close_twin;
#define REMOVE(name, args)                                                                                   \
    if (lacks && strstr(lacks, "," #name ","))                                                               \
        twin.name = NULL;
    DDL_OPS(REMOVE)
#undef REMOVE
}

extern const struct ddl_backend_plugin ddl_backend_plugin;
DDL_API const struct ddl_backend_plugin ddl_backend_plugin = { TWIN_ABI, &twin };
