/* The checkpoints of a run's folder, and its dumps: their names, and how they are published and removed. */
#ifndef DDL_CHECKPOINT_FOLDER_H
#define DDL_CHECKPOINT_FOLDER_H

#include "checkpoint/checkpoint.h"

/* Dumps of non-finite steps (train/nonfinite/nonfinite.h) are named so, with a dot before it until they are
 * complete. */
#define DDL_DUMP_PREFIX "trouble-"

/* The longest path of a run's folder, in bytes. The limit of ddl_file_writer is 1023; the longest name in the
 * folder is "/.checkpoint-<19 digits>/optimizer.safetensors". */
enum { DDL_CHECKPOINT_MAX_OUT = 1023 - 64 };

/* `out`/checkpoint-<step>, or the name it has while it is written (partial); false if it does not fit. */
bool ddl_checkpoint_path(const char *out, uint64_t step, bool partial, char *path, size_t size);
/* The one of lowest validation loss that is neither by time nor `marked` (NULL: none is), the earliest of
 * equals; n if there is none. */
size_t ddl_checkpoint_lowest(const struct ddl_checkpoint *list, size_t n, const bool *marked);
/* Renames the finished folder `partial` to `path`, replacing one of that name, which ddl_checkpoint_restore
 * finds if the process ends meanwhile. Both are in `out`. Of the one replaced, what cannot be removed is left
 * to ddl_checkpoint_remove_partial. */
ddl_status ddl_checkpoint_publish(const char *out, const char *partial, const char *path,
                                  struct ddl_error *err);
/* Before the folder `partial` of `out` is written: ddl_checkpoint_remove_partial; what cannot be removed and
 * has the name is renamed. */
ddl_status ddl_checkpoint_clear(const char *out, const char *partial, struct ddl_error *err);
/* Removes one that was not published, if it is there; needs no memory. */
void ddl_checkpoint_discard(const char *path);

#endif
