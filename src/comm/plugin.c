#define _POSIX_C_SOURCE 200809L /* struct sigaction */
#include "comm/plugin.h"

#include "base/plugin.h"

#include <stdlib.h>

/* Global: components that Open MPI loads itself use symbols of libmpi without linking it. */
static const struct ddl_plugin_kind kind = { .a = "an MPI plugin",
                                             .the = "the MPI plugin",
                                             .symbol = DDL_COMM_PLUGIN_SYMBOL,
                                             .abi = DDL_COMM_ABI,
                                             .is_global = true };

ddl_status ddl_comm_plugin_load(const struct ddl_comm_plugin **out, struct ddl_error *err)
{
    char found[DDL_PLUGIN_PATH_SIZE];
    const char *path = getenv("DDL_COMM_PLUGIN");
    const void *plugin;
    if (!path || !*path) {
        if (!ddl_plugin_find(found, sizeof found, "mpi"))
            return ddl_error_set(
                err, DDL_E_UNSUPPORTED,
                "libddl_mpi.so: the MPI plugin is not installed: install the package ddl-mpi");
        path = found;
    }
    ddl_status status = ddl_plugin_load(&plugin, &kind, path, err);
    if (!status)
        *out = plugin;
    return status;
}

ddl_status ddl_comm_plugin_open(const struct ddl_comm_plugin *plugin, struct ddl_comm_transport *out,
                                double limit, struct ddl_error *err)
{
    char reason[512];
    struct ddl_signals saved;
    ddl_signals_save(&saved);
    bool is_open = plugin->open(out, limit, reason, sizeof reason);
    ddl_signals_restore(&saved);
    return is_open ? DDL_OK : ddl_error_set(err, DDL_E_UNSUPPORTED, "MPI: %s", reason);
}
