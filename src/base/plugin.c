#define _GNU_SOURCE /* dladdr1 */
#include "base/plugin.h"

#include "base/file.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "libddl_"
#define SUFFIX ".so"

void ddl_signals_save(struct ddl_signals *saved)
{
    for (int s = 1; s < DDL_SIGNALS; s++)
        saved->is_known[s] = sigaction(s, NULL, &saved->actions[s]) == 0;
}

void ddl_signals_restore(const struct ddl_signals *saved)
{
    for (int s = 1; s < DDL_SIGNALS; s++) {
        if (saved->is_known[s])
            sigaction(s, &saved->actions[s], NULL);
    }
}

/* ---- where plugins are ---- */

/* From the folder of the program or library: in a build beside them; installed below the library's folder,
 * where DDL_PLUGIN_FOLDER leads from the program's. */
static const char *const folders[] = { "", "ddl", DDL_PLUGIN_FOLDER };
enum { PLACES = sizeof folders / sizeof *folders, FOLDERS = 2 * PLACES };

/* The shared library that has this code. If it is linked statically, that is the program, whose entry has an
 * empty name (and as dli_fname argv[0], which the caller of execve chooses). */
static bool find_library(char *out)
{
    Dl_info info;
    void *map = NULL;
    if (!dladdr1((const void *)folders, &info, &map, RTLD_DL_LINKMAP) || !map)
        return false;
    int n = snprintf(out, DDL_PLUGIN_PATH_SIZE, "%s", ((const struct link_map *)map)->l_name);
    return n > 0 && n < DDL_PLUGIN_PATH_SIZE;
}

bool ddl_plugin_program(char out[DDL_PLUGIN_PATH_SIZE])
{
    ssize_t n = readlink("/proc/self/exe", out, DDL_PLUGIN_PATH_SIZE - 1);
    if (n > 0)
        out[n] = '\0';
    return n > 0;
}

bool ddl_plugin_own_file(char out[DDL_PLUGIN_PATH_SIZE])
{
    return find_library(out) || ddl_plugin_program(out);
}

/* Folder i in which plugins are searched for; false where it is not known. */
static bool folder(size_t i, char *out)
{
    char file[DDL_PLUGIN_PATH_SIZE];
    bool found = i < PLACES ? find_library(file) : ddl_plugin_program(file);
    if (!found || *file != '/') /* relative to a folder that may have changed since */
        return false;
    int n = snprintf(out, DDL_PLUGIN_PATH_SIZE, "%.*s/%s", (int)(strrchr(file, '/') - file), file,
                     folders[i % PLACES]);
    return n > 0 && n < DDL_PLUGIN_PATH_SIZE;
}

bool ddl_plugin_name(char name[DDL_PLUGIN_NAME_SIZE], const char *path)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    size_t before = sizeof PREFIX - 1;
    if (strncmp(file, PREFIX, before) != 0)
        return false;
    size_t n = strspn(file + before, allowed);
    if (n == 0 || n >= DDL_PLUGIN_NAME_SIZE || strcmp(file + before + n, SUFFIX) != 0)
        return false;
    memcpy(name, file + before, n);
    name[n] = '\0';
    return true;
}

bool ddl_plugin_find(char *out, size_t size, const char *name)
{
    char in[DDL_PLUGIN_PATH_SIZE], checked[DDL_PLUGIN_NAME_SIZE];
    for (size_t i = 0; i < FOLDERS; i++) {
        int n = folder(i, in) ? snprintf(out, size, "%s/" PREFIX "%s" SUFFIX, in, name) : 0;
        if (n > 0 && (size_t)n < size && ddl_plugin_name(checked, out) && strcmp(checked, name) == 0 &&
            ddl_file_exists(out))
            return true;
    }
    return false;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool is_plugin(void *user, const char *name)
{
    char ignored[DDL_PLUGIN_NAME_SIZE];
    (void)user;
    return ddl_plugin_name(ignored, name);
}

size_t ddl_plugin_names(char (*names)[DDL_PLUGIN_NAME_SIZE], size_t most)
{
    char in[DDL_PLUGIN_PATH_SIZE];
    size_t n = 0;
    for (size_t i = 0; i < FOLDERS; i++) {
        struct ddl_file_names files;
        if (!folder(i, in) || ddl_file_list(&files, in, is_plugin, NULL, NULL) != DDL_OK)
            continue;
        for (size_t f = 0; f < files.n; f++) {
            char name[DDL_PLUGIN_NAME_SIZE];
            size_t known = 0;
            ddl_plugin_name(name, files.names[f]);
            while (known < n && strcmp(names[known], name) != 0)
                known++;
            if (known == n && n < most)
                memcpy(names[n++], name, sizeof name);
        }
        ddl_file_names_free(&files);
    }
    qsort(names, n, sizeof *names, by_name);
    return n;
}

/* ---- loading ---- */

ddl_status ddl_plugin_load(const void **out, const struct ddl_plugin_kind *kind, const char *path,
                           struct ddl_error *err)
{
    struct ddl_signals saved;
    ddl_signals_save(&saved);
    void *handle = dlopen(path, RTLD_NOW | (kind->is_global ? RTLD_GLOBAL : RTLD_LOCAL));
    ddl_signals_restore(&saved);
    if (!handle)
        return ddl_error_set(err, DDL_E_UNSUPPORTED, "%s: cannot load %s: %s", path, kind->the, dlerror());
    const unsigned *abi = dlsym(handle, kind->symbol);
    if (abi && *abi == kind->abi) {
        *out = abi;
        return DDL_OK;
    }
    if (abi)
        ddl_error_set(err, DDL_E_UNSUPPORTED,
                      "%s: %s is of another version: expected interface %u, found %u: install ddl and "
                      "its plugins of one version",
                      path, kind->the, kind->abi, *abi);
    else
        ddl_error_set(err, DDL_E_UNSUPPORTED, "%s: not %s: expected the symbol %s", path, kind->a,
                      kind->symbol);
    dlclose(handle);
    return DDL_E_UNSUPPORTED;
}
