/* Which backends this build has. */
#include "backend/cpu/cpu.h"
#include "backend/ref/ref.h"

#include "base/mem.h"

#include <string.h>

static const struct ddl_ops *const backends[] = { &ddl_ops_cpu, &ddl_ops_ref };
#define BACKEND_NAMES "cpu, ref"
enum { N_BACKENDS = sizeof backends / sizeof *backends };

const char *ddl_backend_list(size_t i)
{
    return i < N_BACKENDS ? backends[i]->name : NULL;
}

static const struct ddl_ops *find(const char *name)
{
    for (size_t i = 0; i < N_BACKENDS; i++) {
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i];
    }
    return NULL;
}

ddl_status ddl_backend_create(ddl_backend **out, const char *name, size_t threads, struct ddl_error *err)
{
    *out = NULL;
    const struct ddl_ops *ops = name ? find(name) : backends[0];
    if (!ops)
        return ddl_error_set(err, DDL_E_USAGE, "unknown backend '%s' (there are: " BACKEND_NAMES ")", name);
    struct ddl_backend *backend = ddl_mem_zalloc(sizeof *backend);
    if (!backend)
        return ddl_error_set(err, DDL_E_MEMORY, "backend %s: out of memory", ops->name);
    backend->ops = ops;
    ddl_status status =
        ops->open(&backend->ctx, threads, backend->description, sizeof backend->description, err);
    if (status) {
        ddl_mem_free(backend);
        return status;
    }
    *out = backend;
    return DDL_OK;
}

void ddl_backend_free(ddl_backend *backend)
{
    if (!backend)
        return;
    backend->ops->close(backend->ctx);
    ddl_mem_free(backend);
}

const char *ddl_backend_description(const ddl_backend *backend)
{
    return backend->description;
}

const char *ddl_backend_name(const ddl_backend *backend)
{
    return backend->ops->name;
}
