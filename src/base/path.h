/* Paths as text: relative to which folder, and which two name the same file. What a path names need not
 * exist; its last components may be a pattern. */
#ifndef DDL_BASE_PATH_H
#define DDL_BASE_PATH_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the path depends on the working directory; "" does not. */
bool ddl_path_is_relative(const char *path);
/* The folder of a file's path: "a/b" gives "a", "b" gives ".". False if it does not fit. */
bool ddl_path_folder(const char *path, char *out, size_t size);
/* Writes `path`, which depends on the working directory, as a path that depends on `folder` instead. Symbolic
 * links in it are kept unless a ".." follows them or the result is shorter without them. False if it does not
 * fit, or if the working directory has been removed. */
bool ddl_path_relative_to(const char *folder, const char *path, char *out, size_t size);
/* Writes the absolute path without ".", ".." and symbolic links, so that it is the same for all paths of a
 * file. False as above. */
bool ddl_path_canonical(const char *path, char *out, size_t size);

#endif
