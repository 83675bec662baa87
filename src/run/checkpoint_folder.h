/* The checkpoints of a run's folder: their names, and how they go. */
#ifndef DDL_RUN_CHECKPOINT_FOLDER_H
#define DDL_RUN_CHECKPOINT_FOLDER_H

#include "run/checkpoint.h"

/* `out`/checkpoint-<step>, or the name it has while it is written (partial); false if it does not fit. */
bool ddl_checkpoint_path(const char *out, uint64_t step, bool partial, char *path, size_t size);
/* Removes a finished one. It loses its name first, so that one half removed is never met as a checkpoint. */
ddl_status ddl_checkpoint_remove(const char *path, struct ddl_error *err);

#endif
