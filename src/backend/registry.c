/* The backends of this build, by name. */
#include "backend/cpu/cpu.h"
#include "backend/ref/ref.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define TABLE_ROW(name) &ddl_ops_##name,
static const struct ddl_ops *const backends[] = { DDL_BACKENDS(TABLE_ROW) };
#undef TABLE_ROW
#define NAME_ROW(name) #name,
const char *const ddl_backend_names[] = { DDL_BACKENDS(NAME_ROW) NULL };
#undef NAME_ROW
enum { N_BACKENDS = sizeof backends / sizeof *backends };

const char *ddl_backend_list(size_t i)
{
    return i < N_BACKENDS ? ddl_backend_names[i] : NULL;
}

/* NAME or NAME:INDEX. */
static ddl_status parse(const char *text, const struct ddl_ops **ops, size_t *device, struct ddl_error *err)
{
    const char *colon = strchr(text, ':'), *digits = colon ? colon + 1 : NULL;
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    *ops = NULL;
    *device = 0;
    for (size_t i = 0; i < N_BACKENDS && !*ops; i++) {
        if (strlen(backends[i]->name) == length && strncmp(backends[i]->name, text, length) == 0)
            *ops = backends[i];
    }
    if (!*ops)
        return ddl_error_set(err, DDL_E_USAGE,
                             "unknown backend '%s': expected " DDL_BACKEND_HELP
                             " (this build has these; both run on the processor)",
                             text);
    if (!digits)
        return DDL_OK;
    size_t n = strspn(digits, "0123456789");
    if (n == 0 || n > 4 || digits[n] != '\0')
        return ddl_error_set(err, DDL_E_USAGE, "backend '%s': expected a device index after ':', found '%s'",
                             text, digits);
    *device = (size_t)strtoul(digits, NULL, 10);
    return DDL_OK;
}

ddl_status ddl_backend_create(ddl_backend **out, const char *name, size_t threads, struct ddl_error *err)
{
    const struct ddl_ops *ops;
    size_t device;
    *out = NULL;
    ddl_status status = parse(name ? name : ddl_backend_names[0], &ops, &device, err);
    if (status)
        return status;
    struct ddl_backend *backend = ddl_mem_zalloc(sizeof *backend);
    if (!backend)
        return ddl_error_set(err, DDL_E_MEMORY, "backend %s: out of memory", ops->name);
    backend->ops = ops;
    status =
        ops->open(&backend->ctx, device, threads, backend->description, sizeof backend->description, err);
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
