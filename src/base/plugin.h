/* Plugins: shared libraries libddl_NAME.so that are loaded while the program runs, so that it does not need
 * the libraries that they are linked with.
 *
 * A plugin has one symbol, a constant struct whose first member is the number of its interface (unsigned). It
 * is searched for beside the program, beside the shared library that has this code, and in the folder of an
 * installation, never in the current folder. */
#ifndef DDL_BASE_PLUGIN_H
#define DDL_BASE_PLUGIN_H

#include "ddl/status.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

enum { DDL_PLUGIN_PATH_SIZE = 1024, DDL_PLUGIN_NAME_SIZE = 32 };

/* The path of the file that has this code: the shared library, or the program it is linked into. False if it
 * is not known or longer than out. */
bool ddl_plugin_own_file(char out[DDL_PLUGIN_PATH_SIZE]);
/* The path of the program; false likewise. */
bool ddl_plugin_program(char out[DDL_PLUGIN_PATH_SIZE]);
/* The path of libddl_`name`.so; false if there is none or no plugin can have that name. */
bool ddl_plugin_find(char *out, size_t size, const char *name);
/* The NAME of a path that ends in libddl_NAME.so, of lower case letters, digits and underscores; false if it
 * has another form. */
bool ddl_plugin_name(char name[DDL_PLUGIN_NAME_SIZE], const char *path);
/* Names of up to `most` plugins that can be found, sorted; none is loaded. Returns their number. */
size_t ddl_plugin_names(char (*names)[DDL_PLUGIN_NAME_SIZE], size_t most);

/* What a plugin is for. */
struct ddl_plugin_kind {
    const char *a, *the; /* "an MPI plugin", "the MPI plugin" */
    const char *symbol;
    unsigned abi;   /* number of the interface */
    bool is_global; /* libraries that it loads need the symbols of those that it is linked with */
};
/* Loads the file, which remains loaded; *out is its struct. DDL_E_UNSUPPORTED, with the path and reason, if
 * it is not such a plugin or its interface has another number. Loading leaves signal handlers as they were.
 */
ddl_status ddl_plugin_load(const void **out, const struct ddl_plugin_kind *kind, const char *path,
                           struct ddl_error *err);

/* Handlers of all signals that are not real-time signals: libraries that a plugin loads replace some. */
enum { DDL_SIGNALS = 32 };
struct ddl_signals {
    struct sigaction actions[DDL_SIGNALS];
    bool is_known[DDL_SIGNALS];
};
void ddl_signals_save(struct ddl_signals *saved);
void ddl_signals_restore(const struct ddl_signals *saved);

#endif
