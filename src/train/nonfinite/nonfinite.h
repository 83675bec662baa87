/* Diagnosis of a loss or gradient that is not finite: the first bad tensor, found by a replay, and a dump
 * that `ddl verify` replays.
 *
 * A dump is a folder `out`/trouble-<step>, laid out like a golden case:
 *
 * - config.json, model.safetensors: the model before the step, a model folder like any other.
 *
 * - batch.safetensors: tokens, targets (A, B, T) I64. The micro-batch that is not finite (A = 1); where only
 * the sum of several is, all of these.
 *
 * - recipe.yaml: the run's configuration.
 *
 * - trouble.json: kind "trouble", version 1; step; what ("loss", "gradient", "validation"); micro_batch (from
 * 1) of micro_batches; rank of ranks; replay_error, if the replay failed: its message; scale, the factor of
 * the sum of losses whose gradient is taken; loss and grad_norm, a number or "nan", "inf", "-inf"; backend;
 * dtype; recompute (missing: elementwise); first: null, or the first bad tensor as backward, layer (null
 * outside the blocks), part, tensor (names: model/observe/probe.h), first_row, rows, width, n, nan, inf,
 * first (its index), largest (magnitude of the finite); parameter: null, or the first parameter or moment
 * that was not finite before the step: kind, name, n, nan, inf, first, largest. */
#ifndef DDL_TRAIN_NONFINITE_H
#define DDL_TRAIN_NONFINITE_H

#include "ddl/train.h"
#include "train/nonfinite/replay.h"
#include "train/step/step.h"

enum ddl_nonfinite_what { DDL_NONFINITE_LOSS, DDL_NONFINITE_GRADIENT, DDL_NONFINITE_VALIDATION };

/* Names of the parts of a model in a struct ddl_place, and of the kinds of ddl_optim_corrupted; NULL ends
 * them.
 */
enum { DDL_NONFINITE_PARTS = 5, DDL_NONFINITE_KINDS = 3 };
extern const char *const ddl_nonfinite_parts[], *const ddl_nonfinite_kinds[];

struct ddl_nonfinite {
    int what;
    uint64_t step; /* that failed; of a validation: after which it ran */
    double loss, grad_norm, scale;
    size_t micro_batch, micro_batches; /* the bad one, from 1, of the step's, on */
    size_t rank, ranks;                /* this rank of so many */
    size_t held, batch, seq;
    const int32_t *tokens, *targets; /* (held, batch, seq), the last micro-batch is the bad one; borrowed */
    struct ddl_finding finding;      /* not found: the replay was finite, or it failed          */
    struct ddl_error replay_error;   /* why it failed; status DDL_OK if it did not              */
    const char *earlier; /* what was not finite before the step: a kind of ddl_optim_corrupted, or NULL */
    char earlier_name[DDL_PLACE_NAME];
    struct ddl_values earlier_values;
};

/* Of a step that ended with DDL_E_NUMERIC: replays the micro-batch whose loss is bad; for a bad gradient each
 * one by itself, then their sum. Where the replay fails, *out describes the data of the whole search.
 * Overwrites gradients, changes no parameter. The caller sets `step`. */
void ddl_nonfinite_of_step(struct ddl_nonfinite *out, const struct ddl_step *step,
                           const struct ddl_step_result *result);
/* Of a step or validation whose bad micro-batch another rank has: only the state before it is checked. */
void ddl_nonfinite_of_other(struct ddl_nonfinite *out, const struct ddl_step *step);
/* The same for a batch of a validation: `step` with batch, tokens and targets of that batch. */
void ddl_nonfinite_of_validation(struct ddl_nonfinite *out, const struct ddl_step *step);

/* Makes the diagnoses of all ranks one: that of rank `from`, or, where that is the number of ranks, of the
 * first that has found a tensor, and sets rank and ranks. Rank 0 receives its data in tokens and targets,
 * which hold as many micro-batches as the rank with the most has; on other ranks the data is undefined. */
void ddl_nonfinite_share(struct ddl_nonfinite *nonfinite, ddl_comm *comm, size_t from, int32_t *tokens,
                         int32_t *targets);

/* "first in layer 1, mlp: s, sequence 0, token 7 (1 NaN and ...)", and what was not finite before the step.
 */
void ddl_nonfinite_text(const struct ddl_nonfinite *nonfinite, char *out, size_t size);

/* Writes the dump atomically, replacing an earlier one of that step; `path` (size bytes) gets the folder. */
ddl_status ddl_nonfinite_save(const struct ddl_nonfinite *nonfinite, const struct ddl_train_config *config,
                              const ddl_model *model, char *path, size_t size, struct ddl_error *err);

/* The contents of a dump's trouble.json; tokens and targets are NULL. Every value is validated. */
struct ddl_nonfinite_record {
    struct ddl_nonfinite nonfinite;
    char backend[32];
    enum ddl_precision precision;
    enum ddl_recompute recompute;
};
ddl_status ddl_nonfinite_read(struct ddl_nonfinite_record *out, const char *folder, struct ddl_error *err);

#endif
