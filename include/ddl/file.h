/* Folders and files, as the library itself reads and writes them: a sorted list of the names in a folder, and
 * files that are written completely or not at all. */
#ifndef DDL_FILE_H
#define DDL_FILE_H

#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Names of a folder's entries. A zeroed struct is an empty list. */
struct ddl_file_names {
    char **names; /* (n) sorted by bytes                               */
    size_t n;     /* how many                                          */
    bool missing; /* after DDL_E_IO: there is no folder with that path */
};

/* Whether the entry `name` of a folder belongs to a list. */
typedef bool ddl_file_name_fn(void *user, const char *name);

/* Into *out: the entries of `folder` except "." and "..", those that `wanted` accepts or all if it is NULL.
 * An error in the middle of the folder is DDL_E_IO with "<folder>: cannot list: <reason>", never a shorter
 * list. After an error the list is empty. Free it with ddl_file_names_free. */
DDL_API ddl_status ddl_file_list(struct ddl_file_names *out, const char *folder, ddl_file_name_fn *wanted,
                                 void *user, struct ddl_error *err);
/* Frees the names and empties the `list`. */
DDL_API void ddl_file_names_free(struct ddl_file_names *list);

/* False only if there is nothing at `path`. Where that cannot be found out (EIO, EACCES) it is true, so that
 * the caller goes on to open the file and reports why it cannot. */
DDL_API bool ddl_file_exists(const char *path);

/* Finds what comes with ddl at the path `relative` ("tokenizer", "text"): in share/ddl where this program or
 * library is installed, in data of the source tree that it was built in, or in ./data. False, and out empty,
 * if it is nowhere. */
DDL_API bool ddl_file_find_shipped(const char *relative, char *out, size_t size);

/* A file being written. Its content goes to `stream`; errors of the stream may be left to commit. */
struct ddl_file_writer {
    FILE *stream;         /* NULL: none is under way                           */
    char path[1024];      /* the file                                          */
    char temporary[1088]; /* what is written until commit; "": the file itself */
};
/* Begins in *w the atomic replacement of the file `path`: a new file with a random name in the same folder,
 * which commit syncs and renames. A symbolic link at `path` is not followed but replaced. After DDL_OK
 * exactly one of commit and discard must be called. */
DDL_API ddl_status ddl_file_writer_begin(struct ddl_file_writer *w, const char *path, struct ddl_error *err);
/* As ddl_file_writer_begin(w, path, err), for a path that a user gives as the place of output: a device, a
 * pipe and /dev/stdout, also through a link, are opened and written directly; commit only closes them. */
DDL_API ddl_status ddl_file_writer_begin_output(struct ddl_file_writer *w, const char *path,
                                                struct ddl_error *err);
/* Appends `size` bytes of `data` to *w. */
DDL_API ddl_status ddl_file_writer_write(struct ddl_file_writer *w, const void *data, size_t size,
                                         struct ddl_error *err);
/* Publishes the file of *w, unless a write has failed; syncs it and its folder. After an error the temporary
 * file is removed and the earlier file remains. */
DDL_API ddl_status ddl_file_writer_commit(struct ddl_file_writer *w, struct ddl_error *err);
/* Closes and removes the temporary file of *w; no effect if none is under way. */
DDL_API void ddl_file_writer_discard(struct ddl_file_writer *w);

/* Into *out: the file `path`, opened for appending and reading, and created if there is none. DDL_E_IO for a
 * symbolic link and for whatever is not a regular file. The caller closes it; NULL after an error. */
DDL_API ddl_status ddl_file_append(FILE **out, const char *path, struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
