/* Checksums of a folder's files: a size and a checksum for each, in a JSON file whose last line is the
 * checksum (CRC-32) of the text before it, so that a changed byte in any of the files is detected. A
 * checkpoint has them in state.json, other model folders in checksums.json. */
#ifndef DDL_MODEL_SUMS_H
#define DDL_MODEL_SUMS_H

#include "ddl/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- any files ---- */

enum ddl_sum_kind {
    DDL_SUM_CRC32,  /* of checkpoints: the key crc32    */
    DDL_SUM_CRC32C, /* of other models: the key crc32c  */
};
/* Adds "name": { size, checksum } of a file in `folder` to the object `sums`; a file that does not exist is
 * left out. */
ddl_status ddl_sums_take(json_t *sums, const char *folder, const char *name, enum ddl_sum_kind kind,
                         struct ddl_error *err);
/* Compares the files in `folder` with such an object, which is from its file `from`; only the file `only`
 * unless that is NULL. DDL_E_FORMAT for a file that differs. */
ddl_status ddl_sums_check(const char *folder, const char *from, const json_t *sums, const char *only,
                          struct ddl_error *err);

/* The object as text, closed by a line with the checksum of all bytes before it; malloc'ed. NULL without
 * memory.
 */
char *ddl_sums_seal(const json_t *object);
/* Compares a text with the checksum in its last line. `path` is for the error message. */
ddl_status ddl_sums_check_seal(const char *path, const char *text, size_t size, struct ddl_error *err);

/* ---- checksums.json of a model folder ---- */

/* The checksums of a model that is being written. */
struct ddl_model_sums {
    json_t *files;    /* of the new files                                                     */
    json_t *previous; /* of the files that they replace; NULL: there are none, or not of these files */
};
/* With the companion files in `folder`, which are complete. End after a failure too. */
ddl_status ddl_model_sums_begin(struct ddl_model_sums *sums, const char *folder, struct ddl_error *err);
void ddl_model_sums_end(struct ddl_model_sums *sums);
/* Adds a file that is not yet in the folder, or reads one that is. */
ddl_status ddl_model_sums_put(struct ddl_model_sums *sums, const char *name, uint64_t size, uint32_t crc32c,
                              struct ddl_error *err);
ddl_status ddl_model_sums_take(struct ddl_model_sums *sums, const char *folder, const char *name,
                               struct ddl_error *err);
/* Replaces checksums.json. With `previous` the files may be the new ones or those that they replace: written
 * before the first of several is replaced, and again without it after the last. */
ddl_status ddl_model_sums_write(const struct ddl_model_sums *sums, const char *folder, bool previous,
                                struct ddl_error *err);

/* Compares the files of a model folder with its checksums.json: DDL_E_FORMAT, and what to do, for one that
 * differs. A folder without checksums.json is not checked, but files of torch.save have checksums of their
 * own. */
ddl_status ddl_model_sums_check(const char *folder, struct ddl_error *err);
/* The same for one file alone. */
ddl_status ddl_model_sums_check_file(const char *folder, const char *name, struct ddl_error *err);

/* The other files of a model folder: the tokenizer's, and what is copied with them. NULL after the last. */
extern const char *const ddl_companion_files[];

#endif
