/* The files of a run: their names, and where each of them is. */
#ifndef DDL_CHECKPOINT_FILES_H
#define DDL_CHECKPOINT_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows of the table, in the order in which state.json lists the files of a checkpoint. */
enum ddl_run_file {
    DDL_FILE_RECIPE,
    DDL_FILE_METRICS,
    DDL_FILE_SAMPLES,
    DDL_FILE_MODEL,
    DDL_FILE_CONFIG,
    DDL_FILE_OPTIMIZER,
    DDL_FILE_TOKENIZER,
    DDL_FILE_CHECKSUMS,
    DDL_FILE_TENSORBOARD, /* a folder */
    DDL_FILE_STATE,
    DDL_FILE_DIVERGED,
    DDL_RUN_FILES
};

/* Where a file is; a set. */
enum {
    DDL_IN_RUN = 1,        /* in the run's folder                                            */
    DDL_IN_CHECKPOINT = 2, /* in a checkpoint                                                */
    DDL_IS_SUMMED = 4,     /* its size and checksum are in the checkpoint's state.json       */
    DDL_IS_RESULT = 8,     /* in the run's folder it is part of the finished model           */
};

const char *ddl_run_file_name(enum ddl_run_file file);
/* Whether the row has all of `places`. */
bool ddl_run_file_is(enum ddl_run_file file, unsigned places);

/* The folder of a checkpoint is named by this and the step. */
#define DDL_CHECKPOINT_PREFIX "checkpoint-"
/* The step in the name of such a folder, whatever path is before it; UINT64_MAX for any other name. */
uint64_t ddl_checkpoint_step(const char *path);

#endif
