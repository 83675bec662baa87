/* Checkpoints: folders `out`/checkpoint-<step> from which a run goes on as if it had never stopped. */
#ifndef DDL_RUN_CHECKPOINT_H
#define DDL_RUN_CHECKPOINT_H

#include "ddl/tokenizer.h"
#include "ddl/train.h"
#include "train/optim.h"
#include "train/spike.h"

/* What a run is made of beyond model and moments. Random numbers and the schedule need no state: they are
 * functions of seed and step. */
struct ddl_run_state {
    uint64_t step;     /* done                                  */
    uint64_t position; /* of the loader: sequences handed out   */
    uint64_t tokens;   /* cumulative, as are flops and seconds  */
    uint64_t logged;   /* step of the last line of metrics.jsonl, 0: none */
    double flops, seconds;
    double loss;  /* of the step                              */
    bool has_val; /* whether a validation followed the step   */
    double val_loss;
    struct ddl_spike_state spike; /* spike.skipped of the steps have updated nothing */
};

/* Writes `out`/checkpoint-<step> whole or not at all; when it returns DDL_OK the checkpoint is on the disk
 * under its name. Removes no other. tokenizer may be NULL. `path` (size bytes) gets the folder. */
ddl_status ddl_checkpoint_save(const struct ddl_train_config *config, const ddl_model *model,
                               const struct ddl_optim *optim, const ddl_tokenizer *tokenizer,
                               const struct ddl_run_state *state, char *path, size_t size,
                               struct ddl_error *err);

/* After a checkpoint of `step`: removes those up to it that are neither among the newest keep_last nor among
 * the keep_best of lowest validation loss (keep_last 0: none). Later ones belong to a future that was passed
 * over as damaged: they neither count nor go, and nor does one whose state.json cannot be read. *best tells
 * whether this step has the lowest loss. */
ddl_status ddl_checkpoint_prune(const struct ddl_train_config *config, uint64_t step, bool *best,
                                struct ddl_error *err);

/* The folder of the newest checkpoint before step `before` (UINT64_MAX: of all) and its step (may be NULL);
 * false if `out` has none. */
bool ddl_checkpoint_newest(const char *out, uint64_t before, uint64_t *step, char *path, size_t size);

/* Reads state.json of a checkpoint and holds it against the configuration: what would change the sequence of
 * numbers (the model, seed, order, sizes, data) must be the same; other differences are noted. A file of the
 * checkpoint whose size or checksum is not the one it was written with is DDL_E_FORMAT. */
ddl_status ddl_checkpoint_read_state(const char *path, const struct ddl_train_config *config,
                                     struct ddl_run_state *state, ddl_warn_fn *note, void *user,
                                     struct ddl_error *err);
/* The same of the newest checkpoint that is whole: a damaged one is named and passed over, for the one before
 * it loses less than an end. What the user asked for wrongly is not damage. */
ddl_status ddl_checkpoint_read_newest(const struct ddl_train_config *config, struct ddl_run_state *state,
                                      char *path, size_t size, ddl_warn_fn *note, void *user,
                                      struct ddl_error *err);
/* Reads parameters and moments. */
ddl_status ddl_checkpoint_read_weights(const char *path, ddl_model *model, struct ddl_optim *optim,
                                       const struct ddl_run_state *state, struct ddl_error *err);

/* Removes every checkpoint and dump of `out`, and what an interrupted save has left. */
ddl_status ddl_checkpoint_remove_all(const char *out, struct ddl_error *err);
/* The latter alone: half-written folders, and temporary files of those that stand in `out`. */
ddl_status ddl_checkpoint_remove_partial(const char *out, struct ddl_error *err);

#endif
