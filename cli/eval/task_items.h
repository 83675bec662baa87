/* The file of --items: one JSON object per document of a task that a model has scored. An interrupted
 * evaluation continues from it. */
#ifndef DDL_CLI_TASK_ITEMS_H
#define DDL_CLI_TASK_ITEMS_H

#include "ddl/status.h"
#include "ddl/tasks.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What the scores of a line depend on, besides the document. */
struct item_key {
    const char *model;            /* the folder's path, with escapes if it is not UTF-8 */
    const char *saved;            /* the model's name in a run, or ""                   */
    uint64_t modified;            /* when its weights were last written, nanoseconds    */
    const char *tokenizer_sha256; /* lines of earlier versions have none and do not match */
    const char *dtype;
    const char *task;
    size_t shots;
    uint64_t seed;
};

/* The file, opened for appending; zero-initialize. */
struct items {
    FILE *file;
    const char *path;
    char *line; /* the last one that was read */
    size_t capacity;
};

/* Refuses a path at which there is something else than a regular file of such lines. Changes nothing. */
ddl_status items_check(const char *path, struct ddl_error *err);
/* Opens or creates the file, and locks it until it is closed: DDL_E_IO if another evaluation has it. Refuses
 * what items_check does. An incomplete last line of its own, which an interruption leaves, is removed. */
ddl_status items_open(struct items *items, const char *path, struct ddl_error *err);
/* Sets scores and done of the task's documents that the file has for this key; returns their number in *n. */
ddl_status items_read(struct items *items, const struct item_key *key, const ddl_task *task, bool *done,
                      struct ddl_task_score *scores, size_t *n, struct ddl_error *err);
/* Appends document i. */
ddl_status items_write(struct items *items, const struct item_key *key, const ddl_task *task, size_t i,
                       const struct ddl_task_score *scores, struct ddl_error *err);
/* Closes the file; any earlier write error is reported here at the latest. */
ddl_status items_close(struct items *items, struct ddl_error *err);

#endif
