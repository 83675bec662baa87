#define _GNU_SOURCE /* dladdr1 */
#include "comm/plugin.h"

#include "base/file.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "libddl_mpi.so"

enum { PATH_SIZE = 1024, LAST_SIGNAL = 31 /* of those that are not real-time signals */ };

struct signals {
    struct sigaction actions[LAST_SIGNAL + 1];
    bool is_known[LAST_SIGNAL + 1];
};

static void save_signals(struct signals *saved)
{
    for (int s = 1; s <= LAST_SIGNAL; s++)
        saved->is_known[s] = sigaction(s, NULL, &saved->actions[s]) == 0;
}

static void restore_signals(const struct signals *saved)
{
    for (int s = 1; s <= LAST_SIGNAL; s++) {
        if (saved->is_known[s])
            sigaction(s, &saved->actions[s], NULL);
    }
}

/* From the folder of the program or library: in a build beside them; installed below the library's folder,
 * where DDL_PLUGIN_FOLDER leads from the program's. */
static const char *const folders[] = { "", "ddl", DDL_PLUGIN_FOLDER };

static bool find_near(char *out, size_t size, const char *file)
{
    const char *slash = strrchr(file, '/');
    if (*file != '/') /* relative to a folder that may have changed since */
        return false;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        int n = snprintf(out, size, "%.*s/%s/" FILE_NAME, (int)(slash - file), file, folders[i]);
        if (n > 0 && (size_t)n < size && ddl_file_exists(out))
            return true;
    }
    return false;
}

/* The shared library that has this code. If it is linked statically, that is the program, whose entry has an
 * empty name (and as dli_fname argv[0], which the caller of execve chooses). */
static bool find_near_library(char *out, size_t size)
{
    Dl_info info;
    void *map = NULL;
    return dladdr1((const void *)folders, &info, &map, RTLD_DL_LINKMAP) != 0 && map &&
           find_near(out, size, ((const struct link_map *)map)->l_name);
}

static bool find_near_program(char *out, size_t size)
{
    char program[PATH_SIZE];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0)
        return false;
    program[n] = '\0';
    return find_near(out, size, program);
}

ddl_status ddl_comm_plugin_load(const struct ddl_comm_plugin **out, struct ddl_error *err)
{
    char found[PATH_SIZE];
    const char *path = getenv("DDL_COMM_PLUGIN");
    if (!path || !*path) {
        if (!find_near_library(found, sizeof found) && !find_near_program(found, sizeof found))
            return ddl_error_set(err, DDL_E_UNSUPPORTED,
                                 FILE_NAME ": the MPI plugin is not installed: install the package ddl-mpi");
        path = found;
    }
    /* Global: components that Open MPI loads itself use symbols of libmpi without linking it. */
    struct signals saved;
    save_signals(&saved);
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    restore_signals(&saved);
    if (!handle)
        return ddl_error_set(err, DDL_E_UNSUPPORTED, "%s: cannot load the MPI plugin: %s", path, dlerror());
    const struct ddl_comm_plugin *plugin = dlsym(handle, DDL_COMM_PLUGIN_SYMBOL);
    if (plugin && plugin->abi == DDL_COMM_ABI) {
        *out = plugin;
        return DDL_OK;
    }
    if (plugin)
        ddl_error_set(err, DDL_E_UNSUPPORTED,
                      "%s: the MPI plugin is of another version: expected interface %d, found %u", path,
                      DDL_COMM_ABI, plugin->abi);
    else
        ddl_error_set(err, DDL_E_UNSUPPORTED, "%s: not an MPI plugin: expected the symbol %s", path,
                      DDL_COMM_PLUGIN_SYMBOL);
    dlclose(handle);
    return DDL_E_UNSUPPORTED;
}

ddl_status ddl_comm_plugin_open(const struct ddl_comm_plugin *plugin, struct ddl_comm_transport *out,
                                struct ddl_error *err)
{
    char reason[512];
    struct signals saved;
    save_signals(&saved);
    bool is_open = plugin->open(out, reason, sizeof reason);
    restore_signals(&saved);
    return is_open ? DDL_OK : ddl_error_set(err, DDL_E_UNSUPPORTED, "MPI: %s", reason);
}
