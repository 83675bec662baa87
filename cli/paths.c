#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"
#include "ddl/file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool exists(char *out, size_t size, const char *folder, const char *below, const char *relative)
{
    int n = snprintf(out, size, "%s%s%s", folder, below, relative);
    return n > 0 && (size_t)n < size && ddl_file_exists(out);
}

/* The folders above the program: its own source tree in a build, or PREFIX/share/ddl where it is installed.
 */
static bool in_program_folder(const char *relative, char *out, size_t size)
{
    char folder[1024];
    ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (n <= 0)
        return false;
    folder[n] = '\0';
    for (char *slash = strrchr(folder, '/'); slash; slash = strrchr(folder, '/')) {
        *slash = '\0';
        if (exists(out, size, folder, "/data/", relative) ||
            exists(out, size, folder, "/share/ddl/", relative))
            return true;
    }
    return false;
}

bool find_data(const char *relative, char *out, size_t size)
{
    if (exists(out, size, "data/", "", relative) || in_program_folder(relative, out, size))
        return true;
    *out = '\0';
    return false;
}

void trim_slashes(char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        path[--length] = '\0';
}
