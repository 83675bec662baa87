#define _GNU_SOURCE /* dladdr */
#include "backend/cuda/library.h"

#include "base/pattern.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ddl_status open_first(void *user, const char *path, struct ddl_error *err)
{
    void **handle = user;
    (void)err;
    if (!*handle)
        *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return DDL_OK;
}

/* A library of the nvidia packages of a folder of Python packages, which may contain wildcards. */
static void *in_packages(const char *folder, const char *file)
{
    char pattern[PATH_MAX];
    void *handle = NULL;
    struct ddl_error ignored;
    if (snprintf(pattern, sizeof pattern, "%s/nvidia/*/lib/%s", folder, file) < (int)sizeof pattern)
        (void)ddl_pattern_walk(pattern, open_first, &handle, &ignored);
    return handle;
}

/* In the folders that the plugin is in, of which one may be a site-packages. */
static void *near_plugin(const char *file)
{
    static const char in_plugin;
    Dl_info plugin;
    char folder[PATH_MAX];
    void *handle = NULL;
    if (!dladdr(&in_plugin, &plugin) || !plugin.dli_fname || strlen(plugin.dli_fname) >= sizeof folder)
        return NULL;
    strcpy(folder, plugin.dli_fname);
    for (char *end; !handle && (end = strrchr(folder, '/'));) {
        *end = 0;
        handle = in_packages(folder, file);
    }
    return handle;
}

static void *in_environment(const char *file)
{
    const char *environment = getenv("VIRTUAL_ENV");
    char folder[PATH_MAX];
    if (!environment || !*environment ||
        snprintf(folder, sizeof folder, "%s/lib/python3*/site-packages", environment) >= (int)sizeof folder)
        return NULL;
    return in_packages(folder, file);
}

static void *in_toolkit(const char *file)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "/usr/local/cuda/lib64/%s", file);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

ddl_status cuda_library_load(void *table, const struct cuda_library *library, struct ddl_error *err)
{
    char reason[256] = "";
    void *handle = dlopen(library->file, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        snprintf(reason, sizeof reason, "%s", dlerror());
    if (!handle)
        handle = near_plugin(library->file);
    if (!handle)
        handle = in_environment(library->file);
    if (!handle)
        handle = in_toolkit(library->file);
    if (!handle)
        return ddl_error_set(err, DDL_E_UNSUPPORTED, "backend cuda: %s cannot be loaded (%s): install %s",
                             library->name, reason, library->hint);
    for (size_t i = 0; i < library->n; i++) {
        void *function = dlsym(handle, library->symbols[i].symbol);
        if (!function)
            return ddl_error_set(err, DDL_E_UNSUPPORTED, "backend cuda: %s has no %s", library->file,
                                 library->symbols[i].symbol);
        memcpy((char *)table + library->symbols[i].offset, &function, sizeof function);
    }
    return DDL_OK;
}
