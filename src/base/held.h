/* Folders that are held open. While a folder is held, a path that begins with its path is used relative to
 * its descriptor: after the folder was moved the path still leads into it, and never into a folder that has
 * taken its place. The functions below are the system's calls for such paths; other paths are used as they
 * are. */
#ifndef DDL_BASE_HELD_H
#define DDL_BASE_HELD_H

#include <dirent.h>
#include <stdbool.h>
#include <sys/stat.h>

/* Holds the folder `path`, of which `fd` is a descriptor, until ddl_held_release(fd). False without memory.
 */
bool ddl_held_add(const char *path, int fd);
void ddl_held_release(int fd); /* no effect if it is not held */

/* How many bytes at the beginning of the path are that of a held folder; 0: it is not in one. */
size_t ddl_held_length(const char *path);

/* As the calls of these names, with their results and errno; opened descriptors are closed by exec. */
int ddl_held_open(const char *path, int flags, mode_t mode);
DIR *ddl_held_opendir(const char *path);
int ddl_held_mkdir(const char *path);
int ddl_held_unlink(const char *path);
int ddl_held_rmdir(const char *path);
int ddl_held_rename(const char *from, const char *to);
int ddl_held_exchange(const char *a, const char *b); /* renameat2 with RENAME_EXCHANGE */
int ddl_held_stat(const char *path, struct stat *out);
int ddl_held_lstat(const char *path, struct stat *out);

#endif
