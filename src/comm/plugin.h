/* The MPI plugin: a shared library that is loaded while the program runs, so that it needs no MPI otherwise.
 */
#ifndef DDL_COMM_PLUGIN_H
#define DDL_COMM_PLUGIN_H

#include "comm/transport.h"
#include "ddl/status.h"

/* Loads the plugin; *out is constant and remains loaded. DDL_E_UNSUPPORTED, with the file and reason, if it
 * is not installed or does not fit this library. */
ddl_status ddl_comm_plugin_load(const struct ddl_comm_plugin **out, struct ddl_error *err);

/* Connects the processes within `limit` seconds, 0 for no limit. DDL_E_UNSUPPORTED with the plugin's reason.
 */
ddl_status ddl_comm_plugin_open(const struct ddl_comm_plugin *plugin, struct ddl_comm_transport *out,
                                double limit, struct ddl_error *err);

#endif
