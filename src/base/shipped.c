/* ddl_file_find_shipped: first in the folders above this library or, where it is linked statically or its
 * path is not absolute, the program; then in ./data. */
#define _POSIX_C_SOURCE 200809L /* struct sigaction */
#include "base/plugin.h"
#include "ddl/file.h"

#include <stdio.h>
#include <string.h>

static bool exists(char *out, size_t size, const char *folder, const char *relative)
{
    int n = snprintf(out, size, "%s/%s", folder, relative);
    return n > 0 && (size_t)n < size && ddl_file_exists(out);
}

/* In the folders above `file`, which is cut off: data/ of the source tree of a build, or share/ddl/ where it
 * is installed. */
static bool above(char *file, const char *relative, char *out, size_t size)
{
    static const char *const places[] = { "data", "share/ddl" };
    for (char *slash = strrchr(file, '/'); slash; slash = strrchr(file, '/')) {
        *slash = '\0';
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            char folder[DDL_PLUGIN_PATH_SIZE + 16];
            snprintf(folder, sizeof folder, "%s/%s", file, places[i]);
            if (exists(out, size, folder, relative))
                return true;
        }
    }
    return false;
}

bool ddl_file_find_shipped(const char *relative, char *out, size_t size)
{
    char file[DDL_PLUGIN_PATH_SIZE];
    bool is_known = (ddl_plugin_own_file(file) && *file == '/') || ddl_plugin_program(file);
    if ((is_known && above(file, relative, out, size)) || exists(out, size, "data", relative))
        return true;
    *out = '\0';
    return false;
}
