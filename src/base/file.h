/* Files: read whole, map, replace atomically. Every error message has the path and the system's reason. */
#ifndef DDL_BASE_FILE_H
#define DDL_BASE_FILE_H

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
void ddl_file_map_let_go(const struct ddl_file_map *map, const unsigned char *from, size_t size);
void ddl_file_map_close(struct ddl_file_map *map); /* a zeroed or closed map is allowed */

/* The whole file as NUL-terminated bytes (free with free); refused beyond `limit` bytes, and
 * where it becomes shorter meanwhile. */
ddl_status ddl_file_read(const char *path, size_t limit, char **out, size_t *size, struct ddl_error *err);

/* The same for the end of a file: its last `limit` bytes, or all if it has fewer. */
ddl_status ddl_file_read_end(const char *path, size_t limit, char **out, size_t *size, struct ddl_error *err);

/* Size and CRC-32 of a whole file. Reads it, so that a device that fails is an error and not a signal, as it
 * would be in a map. */
ddl_status ddl_file_sum(const char *path, uint64_t *size, uint32_t *crc, struct ddl_error *err);

/* Atomic replacement of the file `path`: written to a temporary file in the same folder, synced, renamed,
 * and its folder synced. commit closes and publishes; discard closes and removes. After begin exactly one of
 * the two must be called; after a failed commit the temporary file is removed. */
struct ddl_file_writer {
    FILE *stream;
    char path[1024];
    char temporary[1088];
};
ddl_status ddl_file_writer_begin(struct ddl_file_writer *w, const char *path, struct ddl_error *err);
ddl_status ddl_file_writer_write(struct ddl_file_writer *w, const void *data, size_t size,
                                 struct ddl_error *err);
ddl_status ddl_file_writer_commit(struct ddl_file_writer *w, struct ddl_error *err);
void ddl_file_writer_discard(struct ddl_file_writer *w);

/* Begin, write all, commit. */
ddl_status ddl_file_replace(const char *path, const void *data, size_t size, struct ddl_error *err);

bool ddl_file_exists(const char *path);
bool ddl_file_is_dir(const char *path);
/* Makes the folder and its parents, each synced into the one above. An existing folder is no error. If
 * another process removes one of them meanwhile, a new one takes its place. */
ddl_status ddl_file_make_dir(const char *path, struct ddl_error *err);
/* The same, but *made is false if `path` exists: of several processes, one makes it. */
ddl_status ddl_file_make_new_dir(const char *path, bool *made, struct ddl_error *err);
/* The same as ddl_file_make_dir for the folder that will contain `path`. */
ddl_status ddl_file_make_parent(const char *path, struct ddl_error *err);
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
