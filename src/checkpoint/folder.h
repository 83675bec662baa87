/* The checkpoints of a run's folder, and its dumps: their names, and how they come and go. */
#ifndef DDL_RUN_CHECKPOINT_FOLDER_H
#define DDL_RUN_CHECKPOINT_FOLDER_H

#include "checkpoint/checkpoint.h"

/* Dumps (train/nonfinite.h) are named so, with a dot before it until they are whole. */
#define DDL_TROUBLE_PREFIX "trouble-"

/* `out`/checkpoint-<step>, or the name it has while it is written (partial); false if it does not fit. */
bool ddl_checkpoint_path(const char *out, uint64_t step, bool partial, char *path, size_t size);
/* Removes a finished one. It loses its name first, so that one half removed is never met as a checkpoint. */
ddl_status ddl_checkpoint_remove(const char *path, struct ddl_error *err);
/* The finished folder `partial` takes its name `path`; one that bears it makes room. Both stand in `out`. */
ddl_status ddl_checkpoint_publish(const char *out, const char *partial, const char *path,
                                  struct ddl_error *err);
/* Removes one that never got its name, if it is there; needs no memory. */
void ddl_checkpoint_discard(const char *path);

#endif
