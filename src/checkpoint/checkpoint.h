/* Checkpoints: folders `out`/checkpoint-<step>, each a model folder with further tensors and a state. What
 * the state says beyond its step and losses is the caller's. */
#ifndef DDL_CHECKPOINT_H
#define DDL_CHECKPOINT_H

#include "ddl/model.h"
#include "ddl/tokenizer.h"
#include "ddl/train.h"
#include "tensor/safetensors.h"

#include <jansson.h>

/* Tensors beside the model's (optimizer moments): optimizer.safetensors. All are float32. */
struct ddl_checkpoint_tensors {
    const struct ddl_tensor *tensor; /* n names and shapes */
    size_t n;
    ddl_tensor_fill_fn *fill; /* to write them: copies bytes of tensor i */
    /* To read them: takes numbers [start, start + count) of tensor i. */
    void (*take)(void *user, size_t i, size_t start, size_t count, const float *numbers);
    void *user;
};

struct ddl_checkpoint_content {
    const ddl_model *model;
    const ddl_tokenizer *tokenizer; /* may be NULL */
    const struct ddl_checkpoint_tensors *tensors;
    /* An object with step, loss, val_loss (null: none), by_time (absent: false) and whatever else the caller
     * reads back. The keys version, files and crc32 are the checkpoint's own. */
    const json_t *state;
};

/* Writes `out`/checkpoint-<step> atomically; when it returns DDL_OK the checkpoint is on disk under its name.
 * Removes no other. `path` (size bytes) gets the folder. */
ddl_status ddl_checkpoint_save(const char *out, uint64_t step, const struct ddl_checkpoint_content *content,
                               char *path, size_t size, struct ddl_error *err);

/* The state of a checkpoint (release with json_decref), after every file has been compared with the size and
 * checksum it was written with: a corrupted one is DDL_E_FORMAT. */
ddl_status ddl_checkpoint_open(const char *path, json_t **state, struct ddl_error *err);
/* The state alone; no other file is read. */
ddl_status ddl_checkpoint_read_state(const char *path, json_t **state, struct ddl_error *err);
/* ddl_checkpoint_check_model for one file alone. */
ddl_status ddl_checkpoint_check_file(const char *folder, const char *name, struct ddl_error *err);
/* Parameters and further tensors. */
ddl_status ddl_checkpoint_read_weights(const char *path, ddl_model *model,
                                       const struct ddl_checkpoint_tensors *tensors, struct ddl_error *err);

/* Opens one checkpoint and decides whether it will do. */
typedef ddl_status ddl_checkpoint_fn(void *user, const char *path, struct ddl_error *err);
/* Calls `take` with the checkpoints of `out`, the newest first, until one does not return DDL_E_FORMAT or
 * DDL_E_IO; its folder goes to `path`. Skipped ones are reported to `note`. If all are corrupted the error
 * is the newest's. */
ddl_status ddl_checkpoint_take_newest(const char *out, ddl_checkpoint_fn *take, void *user, ddl_warn_fn *note,
                                      void *note_user, char *path, size_t size, struct ddl_error *err);

/* Which checkpoints stay. */
struct ddl_checkpoint_keep {
    size_t last;  /* the newest; 0: all                                              */
    size_t best;  /* in addition, those of lowest validation loss                    */
    bool by_time; /* the one of the step if it is by time; no other by time counts or stays */
};
/* After a checkpoint of `step`: removes those up to it that `keep` does not name. Later ones were skipped as
 * corrupted: they are neither counted nor removed, and neither is one whose state.json cannot be read. *best:
 * whether this step has the lowest loss. One that cannot be removed is no error: *kept says why, and is empty
 * otherwise. */
ddl_status ddl_checkpoint_prune(const char *out, uint64_t step, const struct ddl_checkpoint_keep *keep,
                                bool *best, struct ddl_error *kept, struct ddl_error *err);

/* The folder of the newest checkpoint before step `before` (UINT64_MAX: of all) and its step (may be NULL);
 * false if `out` has none or cannot be listed. */
bool ddl_checkpoint_newest(const char *out, uint64_t before, uint64_t *step, char *path, size_t size);

/* Removes every checkpoint and dump of `out`, and what an interrupted save has left. */
ddl_status ddl_checkpoint_remove_all(const char *out, struct ddl_error *err);
/* Gives a checkpoint its name again that a process which has ended was replacing where the file system cannot
 * exchange names. Before `out` is searched for checkpoints. */
ddl_status ddl_checkpoint_restore(const char *out, struct ddl_error *err);
/* Restores, and removes the latter: half-written folders, and temporary files of the run's own files. What
 * cannot be removed is no error: *kept says why, and is empty otherwise. */
ddl_status ddl_checkpoint_remove_partial(const char *out, struct ddl_error *kept, struct ddl_error *err);
/* Whether the file or folder `path` is lost when a new run begins in `out`: it is `out` itself, or it is or
 * lies in one of the checkpoints and dumps that ddl_checkpoint_remove_all removes. */
bool ddl_checkpoint_is_lost(const char *out, const char *path);

#endif
