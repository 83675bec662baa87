/* A loss or gradient that is not finite: where it went bad, in words and as a dump that `ddl verify` replays.
 *
 * A dump is a folder `out`/trouble-<step> in the manner of a golden case:
 *
 * - config.json, model.safetensors: the model before the step, a model folder like any other.
 *
 * - batch.safetensors: tokens, targets (A, B, T) I64. The micro-batch that goes bad (A = 1), or where it
 * takes the sum of several, all up to that one.
 *
 * - recipe.yaml: the run's configuration.
 *
 * - trouble.json: kind "trouble", version 1; step; what ("loss", "gradient", "validation"); micro_batch (from
 * 1) of micro_batches; scale, by which the sum of losses is multiplied for its gradient; loss and grad_norm,
 * a number or "nan", "inf", "-inf"; backend; dtype; recompute (missing: cheap); first: null, or the first bad
 * tensor as backward, layer (null outside the blocks), part, tensor (names: model/probe.h), first_row, rows,
 * width, n, nan, inf, first (its index), largest (magnitude of the finite); parameter: null, or the first
 * parameter or moment that was bad before: kind, name, n, nan, inf, first, largest. */
#ifndef DDL_RUN_TROUBLE_H
#define DDL_RUN_TROUBLE_H

#include "ddl/train.h"
#include "train/replay.h"
#include "train/step.h"

enum ddl_trouble_what { DDL_TROUBLE_LOSS, DDL_TROUBLE_GRADIENT, DDL_TROUBLE_VALIDATION };

struct ddl_trouble {
    int what;
    uint64_t step; /* that failed; of a validation: after which it was made */
    double loss, grad_norm, scale;
    size_t micro_batch, micro_batches; /* the bad one, from 1, of the step's */
    size_t held, batch, seq;
    const int32_t *tokens, *targets; /* (held, batch, seq), the last micro-batch is the bad one; borrowed */
    struct ddl_finding finding;      /* nothing found: it did not happen again, the machine is at fault */
    const char *spoiled;             /* ddl_optim_spoiled before the step, or NULL                      */
    char spoiled_name[DDL_PLACE_NAME];
    struct ddl_values spoiled_values;
};

/* What a step that ended with DDL_E_NUMERIC died of: replays the micro-batch whose loss is bad; of a bad
 * gradient each by itself, then their sum. Overwrites gradients, changes no parameter. The caller sets
 * `step`. */
ddl_status ddl_trouble_of_step(struct ddl_trouble *out, const struct ddl_step *step,
                               const struct ddl_step_result *result, struct ddl_error *err);
/* The same of a batch of a validation: `step` with batch, tokens and targets of that batch. */
ddl_status ddl_trouble_of_validation(struct ddl_trouble *out, const struct ddl_step *step,
                                     struct ddl_error *err);

/* "first in layer 1, mlp: s, sequence 0, token 7 (1 NaN and ...)", and the parameter that was bad before. */
void ddl_trouble_text(const struct ddl_trouble *trouble, char *out, size_t size);

/* Writes the dump, whole or not at all, in place of an earlier one of that step; `path` (size bytes) gets the
 * folder. */
ddl_status ddl_trouble_save(const struct ddl_trouble *trouble, const struct ddl_train_config *config,
                            const ddl_model *model, char *path, size_t size, struct ddl_error *err);

/* What trouble.json of a dump says; tokens and targets stay NULL. Not to be trusted: everything is checked.
 */
struct ddl_trouble_record {
    struct ddl_trouble trouble;
    char backend[32];
    enum ddl_precision precision;
    enum ddl_recompute recompute;
};
ddl_status ddl_trouble_read(struct ddl_trouble_record *out, const char *folder, struct ddl_error *err);

#endif
