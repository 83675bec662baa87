/* The models in a run's folder: its checkpoints and its final model, and the choice of one of them. */
#ifndef DDL_RUN_H
#define DDL_RUN_H

#include "ddl/config.h"
#include "ddl/model.h"
#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The values of `which` below, for help texts. */
#define DDL_WHICH_HELP                                                                                       \
    "saved model of a run folder: last (newest), best (lowest validation loss), final, or a step"

/* A model folder, and which model of a run it is. */
struct ddl_run_model {
    char path[1280]; /* the model folder                                                           */
    char name[32];   /* "final" or "checkpoint-<step>"; "" if the given folder is not a run's       */
    bool has_step;   /* false: not a run's, or a final model of an unknown step (earlier versions) */
    uint64_t step;   /* after which the model was saved                                            */
    bool is_newer;   /* a checkpoint newer than the final model, which exists too                  */
};

/* Into *out: the model that `which` (NULL: "last") names in `folder`, a model folder or a run's folder (one
 * with a recipe.yaml, metrics.jsonl or checkpoints). With `verify` the files are compared with their
 * checksums if there are any: DDL_E_FORMAT for a file that differs. In a run's folder "last" is the newest
 * model, the final one or a checkpoint written after it; "best" is the checkpoint of lowest validation loss,
 * as ddl_checkpoint_best; "final" is the final model, which a finished run has; a number is the checkpoint of
 * that step, or the final model if that is its step. "last" and "best" skip a corrupted checkpoint, with a
 * message to `warn` (may be NULL), but not a corrupted final model. A model folder that is not a run's is its
 * own "last" and "final". DDL_E_USAGE for another text; DDL_E_IO, with a list of what exists, if there is no
 * such model. */
DDL_API ddl_status ddl_run_find(struct ddl_run_model *out, const char *folder, const char *which, bool verify,
                                ddl_warn_fn *warn, void *user, struct ddl_error *err);
/* DDL_E_USAGE, with `name` in front, if `which` is none of these. */
DDL_API ddl_status ddl_run_check_which(const char *name, const char *which, struct ddl_error *err);
/* Writes what a message says of a model in a run to `out`: "checkpoint-8", "the final model (step 6)".
 * Truncates to size. */
DDL_API void ddl_run_describe(const struct ddl_run_model *model, char *out, size_t size);
/* Compares the tokenizer at `path`, as ddl_tokenizer_load takes it, with its checksums in checksums.json or a
 * checkpoint's state.json, if there are any: DDL_E_FORMAT for a file that differs. DDL_TOKENIZER_SHIPPED has
 * none. */
DDL_API ddl_status ddl_run_check_tokenizer(const char *path, struct ddl_error *err);
/* Whether a process is training in the run folder `folder`: it holds the folder's lock. False if that cannot
 * be found out. */
DDL_API bool ddl_run_is_training(const char *folder);
/* Into *step: the step of the final model in a run's folder; 0 if there is none or if its step is unknown.
 * Reads no weights. */
DDL_API ddl_status ddl_run_final_step(uint64_t *step, const char *folder, struct ddl_error *err);
/* Into *found: whether the last process that trained in the run's folder `folder` ended because of a
 * non-finite value; then its error message into out[size], truncated. DDL_E_FORMAT, and false, if the record
 * of it has other content. */
DDL_API ddl_status ddl_run_diverged(bool *found, const char *folder, char *out, size_t size,
                                    struct ddl_error *err);
/* Into *out: the configuration of a model folder or of a run, whose models all have the same one. With
 * `verify` config.json is compared with its checksum in checksums.json, if there is one. `warn` may be NULL.
 */
DDL_API ddl_status ddl_run_config(struct ddl_config *out, const char *folder, bool verify, ddl_warn_fn *warn,
                                  void *user, struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
