/* Files: read whole, map, replace atomically. Every error message has the path and the system's reason. */
#ifndef DDL_BASE_FILE_H
#define DDL_BASE_FILE_H

#include "ddl/file.h"
#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* DDL_E_IO (DDL_E_MEMORY where that is why) with "<path>: cannot <verb>: <why errno says>", and what to do
 * about a full or failing disk. */
ddl_status ddl_file_error(struct ddl_error *err, const char *path, const char *verb);

/* Only regular files are opened, at once: no pipe is waited for, no device touched. */

/* A read-only view of a whole file. A file of zero bytes has data != NULL and size 0. If another program
 * writes to the file, the new bytes may be visible; if one truncates it, an access to the missing part raises
 * SIGBUS. Therefore only large files that are appended to or replaced are mapped: tensors, shards, texts. */
struct ddl_file_map {
    const unsigned char *data;
    size_t size;
};
ddl_status ddl_file_map_open(struct ddl_file_map *map, const char *path, struct ddl_error *err);
/* Bytes [from, from + size) of the map need not stay in memory; the next access reads them again. Whole pages
 * are released, from the page that contains `from`. */
void ddl_file_map_release(const struct ddl_file_map *map, const unsigned char *from, size_t size);
void ddl_file_map_close(struct ddl_file_map *map); /* a zeroed or closed map is allowed */

/* The whole file as NUL-terminated bytes (free with free); refused beyond `limit` bytes, and
 * where it becomes shorter meanwhile. */
ddl_status ddl_file_read(const char *path, size_t limit, char **out, size_t *size, struct ddl_error *err);

/* The same for the end of a file: its last `limit` bytes, or all if it has fewer. */
ddl_status ddl_file_read_end(const char *path, size_t limit, char **out, size_t *size, struct ddl_error *err);

/* Adds `size` bytes to a checksum, which is 0 for no bytes: ddl_crc32c_add, for example. */
typedef uint32_t ddl_sum_fn(uint32_t sum, const void *data, size_t size);
/* Size and checksum of a whole file. Reads it, so that a device that fails is an error and not a signal, as
 * it would be in a map. */
ddl_status ddl_file_sum(const char *path, ddl_sum_fn *add, uint64_t *size, uint32_t *sum,
                        struct ddl_error *err);

/* Files are written by ddl_file_writer and opened for appending by ddl_file_append (ddl/file.h). */

/* As ddl_file_append, but a descriptor, which is closed by execve. */
ddl_status ddl_file_open_append(int *fd, const char *path, struct ddl_error *err);

/* The two halves of ddl_file_writer_commit. After finish the file is complete and synced under its temporary
 * name, so that several files can be prepared before the first is replaced; publish or discard must follow,
 * also after a failed finish. After a failed publish the temporary file is removed. */
ddl_status ddl_file_writer_finish(struct ddl_file_writer *w, struct ddl_error *err);
ddl_status ddl_file_writer_publish(struct ddl_file_writer *w, struct ddl_error *err);

/* Begin, write all, commit. */
ddl_status ddl_file_replace(const char *path, const void *data, size_t size, struct ddl_error *err);

/* The name under which ddl_file_writer writes the file `path`, in the same folder and different at each call:
 * "<path>.tmp-" and 16 random hexadecimal digits; also for folders that are written under a temporary name. A
 * long last component is truncated so that the name fits. False if the path does not fit. */
bool ddl_file_temporary_name(char *out, size_t size, const char *path);
/* Whether `name` is such a name of the file `file` (both without a folder), by this version or an earlier
 * one. */
bool ddl_file_is_temporary(const char *name, const char *file);

/* False also where it cannot be found out. */
bool ddl_file_is_dir(const char *path);
/* Into *is_dir: whether there is a folder at `path`; DDL_E_IO where that cannot be found out. */
ddl_status ddl_file_find_dir(const char *path, bool *is_dir, struct ddl_error *err);
/* Makes the folder and its parents, each synced into the one above. An existing folder is no error. If
 * another process removes one of them meanwhile, a new one takes its place. */
ddl_status ddl_file_make_dir(const char *path, struct ddl_error *err);
/* The same, but *made is false if `path` exists: of several processes, one makes it. */
ddl_status ddl_file_make_new_dir(const char *path, bool *made, struct ddl_error *err);
/* The same as ddl_file_make_dir for the folder that will contain `path`. */
ddl_status ddl_file_make_parent(const char *path, struct ddl_error *err);
/* Makes a folder that does not exist; an existing one, or a link, is DDL_E_IO. Its parents exist. */
ddl_status ddl_file_make_only_dir(const char *path, struct ddl_error *err);
/* DDL_E_IO if `path` is a symbolic link, and DDL_OK for anything else. For folders that the program makes in
 * a folder which may be from a stranger: it does not write through a link. */
ddl_status ddl_file_check_no_link(const char *path, struct ddl_error *err);
/* Removes a folder and the plain files in it; DDL_E_IO where something else is in it. Of a link to a folder
 * only the link. */
ddl_status ddl_file_remove_dir(const char *path, struct ddl_error *err);
/* fsync of the folder, so that renames in it last. */
ddl_status ddl_file_sync_dir(const char *path, struct ddl_error *err);
/* fsync of the folder that holds `path`. */
ddl_status ddl_file_sync_parent(const char *path, struct ddl_error *err);
/* "a/b": joins into out[size]; false if it does not fit. */
bool ddl_path_join(char *out, size_t size, const char *folder, const char *name);

#endif
