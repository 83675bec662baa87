/* The backends by name: those of this build, and plugins. */
#define _POSIX_C_SOURCE 200809L /* struct sigaction */
#include "backend/cpu/cpu.h"
#include "backend/plugin.h"
#include "backend/ref/ref.h"

#include "base/mem.h"
#include "base/plugin.h"
#include "base/process.h"
#include "ops/defaults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)DDL_BACKEND_NAME_SIZE == (int)DDL_PLUGIN_NAME_SIZE,
               "the name of a plugin is that of its backend");

static const struct ddl_ops *const built_in[] = { &ddl_ops_cpu, &ddl_ops_ref };
enum { BUILT_IN = sizeof built_in / sizeof *built_in, MOST_BACKENDS = 16 };

/* ---- names ---- */

static const struct ddl_ops *find_built_in(const char *name)
{
    for (size_t i = 0; i < BUILT_IN; i++) {
        if (strcmp(built_in[i]->name, name) == 0)
            return built_in[i];
    }
    return NULL;
}

/* The plugin that the environment names; NULL if it names none. */
static const char *chosen_plugin(void)
{
    const char *path = getenv("DDL_BACKEND_PLUGIN");
    return path && *path ? path : NULL;
}

typedef char plugin_name[DDL_PLUGIN_NAME_SIZE];

/* The names of the backends that are plugins, that of the environment last. Returns their number. */
static size_t list_plugins(plugin_name names[MOST_BACKENDS + 1])
{
    plugin_name chosen;
    bool has_chosen = chosen_plugin() && ddl_plugin_name(chosen, chosen_plugin()) && !find_built_in(chosen);
    size_t n = ddl_plugin_names(names, MOST_BACKENDS), kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], "mpi") != 0 && !find_built_in(names[i]) &&
            !(has_chosen && strcmp(names[i], chosen) == 0))
            memmove(names[kept++], names[i], sizeof *names);
    }
    if (has_chosen)
        memcpy(names[kept++], chosen, sizeof *names);
    return kept;
}

const char *ddl_backend_list(size_t i, char *name)
{
    plugin_name names[MOST_BACKENDS + 1];
    if (i >= BUILT_IN && i - BUILT_IN >= list_plugins(names))
        return NULL;
    snprintf(name, DDL_BACKEND_NAME_SIZE, "%s", i < BUILT_IN ? built_in[i]->name : names[i - BUILT_IN]);
    return name;
}

/* NAME or NAME:INDEX. */
struct choice {
    char name[DDL_BACKEND_NAME_SIZE];
    bool has_index;
    size_t index;
};

static ddl_status unknown_name(const char *text, struct ddl_error *err)
{
    char list[MOST_BACKENDS * (DDL_BACKEND_NAME_SIZE + 1)] = "", name[DDL_BACKEND_NAME_SIZE], file[64];
    for (size_t i = 0, at = 0; at < sizeof list && ddl_backend_list(i, name); i++)
        at += (size_t)snprintf(list + at, sizeof list - at, " %s", name);
    snprintf(file, sizeof file, "libddl_%.*s.so", (int)strcspn(text, ":"), text);
    if (!ddl_plugin_name(name, file))
        return ddl_error_set(err, DDL_E_USAGE, "unknown backend '%s': expected one of:%s", text, list);
    return ddl_error_set(err, DDL_E_USAGE,
                         "unknown backend '%s': expected one of:%s; the plugin %s is not installed", text,
                         list, file);
}

static ddl_status parse(struct choice *out, const char *text, struct ddl_error *err)
{
    const char *colon = strchr(text, ':'), *digits = colon ? colon + 1 : "0";
    size_t length = colon ? (size_t)(colon - text) : strlen(text), n = strspn(digits, "0123456789");
    if (length >= sizeof out->name)
        return unknown_name(text, err);
    memcpy(out->name, text, length);
    out->name[length] = '\0';
    if (n == 0 || n > 4 || digits[n] != '\0')
        return ddl_error_set(err, DDL_E_USAGE, "backend '%s': expected a device index after ':', found '%s'",
                             text, digits);
    out->has_index = colon != NULL;
    out->index = (size_t)strtoul(digits, NULL, 10);
    return DDL_OK;
}

/* ---- plugins ---- */

static const struct ddl_plugin_kind kind = { .a = "a backend plugin",
                                             .the = "the backend plugin",
                                             .symbol = DDL_BACKEND_PLUGIN_SYMBOL,
                                             .abi = DDL_BACKEND_ABI };

/* The table of a built-in backend or a plugin. `text`: the whole name, with an index, for the error message.
 */
static ddl_status find(const struct ddl_ops **out, const char *name, const char *text, struct ddl_error *err)
{
    char found[DDL_PLUGIN_PATH_SIZE], chosen[DDL_PLUGIN_NAME_SIZE];
    const char *path = chosen_plugin();
    const void *symbol;
    if ((*out = find_built_in(name)))
        return DDL_OK;
    if (path && !ddl_plugin_name(chosen, path))
        return ddl_error_set(err, DDL_E_USAGE,
                             "DDL_BACKEND_PLUGIN: expected a file libddl_NAME.so, found '%s'", path);
    if (!path || strcmp(chosen, name) != 0) {
        if (!ddl_plugin_find(found, sizeof found, name))
            return unknown_name(text, err);
        path = found;
    }
    ddl_status status = ddl_plugin_load(&symbol, &kind, path, err);
    if (status)
        return status;
    const struct ddl_backend_plugin *plugin = symbol;
    if (strcmp(plugin->ops->name, name) != 0)
        return ddl_error_set(err, DDL_E_UNSUPPORTED, "%s: expected the backend %s, found %s", path, name,
                             plugin->ops->name);
    *out = plugin->ops;
    return DDL_OK;
}

/* ---- devices ---- */

/* Where the name has no index, the processes on a machine take its devices in turn. A backend without a
 * device reports the reason when it is opened. */
static ddl_status choose_device(size_t *device, const struct ddl_ops *ops, const struct choice *choice,
                                struct ddl_error *err)
{
    size_t n = ops->devices();
    *device = choice->has_index ? choice->index : n ? ddl_process_local_rank() % n : 0;
    if (n == 0 || *device < n)
        return DDL_OK;
    return n == 1 ? ddl_error_set(err, DDL_E_USAGE, "backend %s:%zu: the only device of %s is %s:0",
                                  ops->name, *device, ops->name, ops->name)
                  : ddl_error_set(err, DDL_E_USAGE, "backend %s:%zu: expected a device from %s:0 to %s:%zu",
                                  ops->name, *device, ops->name, ops->name, n - 1);
}

ddl_status ddl_backend_devices(size_t *n, const char *name, struct ddl_error *err)
{
    const struct ddl_ops *ops;
    *n = 0;
    ddl_status status = find(&ops, name, name, err);
    if (!status)
        *n = ops->devices();
    return status;
}

/* ---- backends ---- */

/* A backend, and its table if it is another than that of its library. */
struct completed {
    struct ddl_backend backend; /* first: what is freed */
    struct ddl_ops ops;
};

ddl_status ddl_backend_create(ddl_backend **out, const char *name, size_t threads, struct ddl_error *err)
{
    struct choice choice;
    size_t device = 0;
    *out = NULL;
    name = name ? name : built_in[0]->name;
    ddl_status status = parse(&choice, name, err);
    if (status)
        return status;
    const struct ddl_ops *ops;
    status = find(&ops, choice.name, name, err);
    if (!status)
        status = choose_device(&device, ops, &choice, err);
    if (status)
        return status;
    struct completed *made = ddl_mem_zalloc(sizeof *made);
    if (!made)
        return ddl_error_set(err, DDL_E_MEMORY, "backend %s: out of memory", ops->name);
    struct ddl_backend *backend = &made->backend;
    backend->ops = ops;
    status =
        ops->open(&backend->ctx, device, threads, backend->description, sizeof backend->description, err);
    if (status) {
        ddl_mem_free(made);
        return status;
    }
    if (!ddl_ops_are_complete(ops)) {
        made->ops = *ops;
        ddl_ops_complete(&made->ops);
        backend->ops = &made->ops;
        ((struct ddl_context *)backend->ctx)->ops = &made->ops;
    }
    *out = backend;
    return DDL_OK;
}

ddl_status ddl_backend_plan(ddl_backend **out, const char *name, size_t bytes, struct ddl_error *err)
{
    struct choice choice;
    const struct ddl_ops *ops;
    *out = NULL;
    ddl_status status = parse(&choice, name, err);
    if (!status)
        status = find(&ops, choice.name, name, err);
    if (status)
        return status;
    if (!ops->plan)
        return ddl_error_set(err, DDL_E_USAGE,
                             "backend %s: its memory is the machine's: expected a backend with devices, such "
                             "as cuda, for a plan with device memory",
                             ops->name);
    struct ddl_backend *backend = ddl_mem_zalloc(sizeof *backend);
    if (!backend)
        return ddl_error_set(err, DDL_E_MEMORY, "backend %s: out of memory", ops->name);
    backend->ops = ops;
    status = ops->plan(&backend->ctx, bytes, backend->description, sizeof backend->description, err);
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
