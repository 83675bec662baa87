#define _GNU_SOURCE /* dladdr */
#include "backend/cuda/cublaslt.h"

#include "base/pattern.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libcublasLt.so.13"

static struct cuda_cublaslt cublaslt;
static bool is_loaded;

static ddl_status open_first(void *user, const char *path, struct ddl_error *err)
{
    void **library = user;
    (void)err;
    if (!*library)
        *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return DDL_OK;
}

/* A library of the nvidia packages of a folder of Python packages, which may contain wildcards. */
static void *in_packages(const char *folder)
{
    char pattern[PATH_MAX];
    void *library = NULL;
    struct ddl_error ignored;
    if (snprintf(pattern, sizeof pattern, "%s/nvidia/*/lib/" LIBRARY, folder) < (int)sizeof pattern)
        (void)ddl_pattern_walk(pattern, open_first, &library, &ignored);
    return library;
}

/* In the folders that the plugin is in, of which one may be a site-packages. */
static void *near_plugin(void)
{
    Dl_info plugin;
    char folder[PATH_MAX];
    void *library = NULL;
    if (!dladdr(&cublaslt, &plugin) || !plugin.dli_fname || strlen(plugin.dli_fname) >= sizeof folder)
        return NULL;
    strcpy(folder, plugin.dli_fname);
    for (char *end; !library && (end = strrchr(folder, '/'));) {
        *end = 0;
        library = in_packages(folder);
    }
    return library;
}

static void *in_environment(void)
{
    const char *environment = getenv("VIRTUAL_ENV");
    char folder[PATH_MAX];
    if (!environment || !*environment ||
        snprintf(folder, sizeof folder, "%s/lib/python3*/site-packages", environment) >= (int)sizeof folder)
        return NULL;
    return in_packages(folder);
}

/* A loaded library is never closed: it has threads. */
ddl_status cuda_cublaslt_load(const struct cuda_cublaslt **out, struct ddl_error *err)
{
    static const struct {
        const char *symbol;
        size_t offset;
    } functions[] = {
#define CUDA_CUBLASLT_ROW(name, symbol, type, parameters) { symbol, offsetof(struct cuda_cublaslt, name) },
        CUDA_CUBLASLT(CUDA_CUBLASLT_ROW)
#undef CUDA_CUBLASLT_ROW
    };
    *out = &cublaslt;
    if (is_loaded)
        return DDL_OK;
    char reason[256] = "";
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(reason, sizeof reason, "%s", dlerror());
    if (!library)
        library = near_plugin();
    if (!library)
        library = in_environment();
    if (!library)
        library = dlopen("/usr/local/cuda/lib64/" LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return ddl_error_set(
            err, DDL_E_UNSUPPORTED,
            "backend cuda: cuBLASLt cannot be loaded (%s): install the libraries of CUDA 13, "
            "or the Python package nvidia-cublas",
            reason);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(library, functions[i].symbol);
        if (!function)
            return ddl_error_set(err, DDL_E_UNSUPPORTED, "backend cuda: " LIBRARY " has no %s",
                                 functions[i].symbol);
        memcpy((char *)&cublaslt + functions[i].offset, &function, sizeof function);
    }
    is_loaded = true;
    return DDL_OK;
}
