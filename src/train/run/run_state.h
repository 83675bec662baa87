/* The state of a run in a checkpoint: saving it and reading it back. */
#ifndef DDL_TRAIN_RUN_STATE_H
#define DDL_TRAIN_RUN_STATE_H

#include "ddl/tokenizer.h"
#include "ddl/train.h"
#include "train/config/run_data.h"
#include "train/run/moments.h"
#include "train/step/spike.h"

#include <jansson.h>

/* State beyond model and moments. Random numbers and the schedule need none: they are functions of seed and
 * step. */
struct ddl_run_state {
    uint64_t step;                        /* completed                               */
    uint64_t position;                    /* of the loader: sequences returned       */
    uint64_t tokens;                      /* cumulative, as are flops, seconds and train_seconds */
    uint64_t logged;                      /* step of the last line of metrics.jsonl, 0: none */
    double flops, seconds, train_seconds; /* struct ddl_train_progress */
    double loss;                          /* of the step                              */
    bool has_val;                         /* whether a validation followed the step   */
    double val_loss;
    bool by_time; /* of the newest checkpoint: checkpoint_seconds was the reason, and the next replaces it */
    /* A validation of the step was interrupted or not finite: the resumed run repeats it, then logs the step.
     */
    struct ddl_pending {
        bool validation;
        double lr, grad_norm;
        bool skipped;
    } pending;
    struct ddl_tokenizer_identity tokenizer; /* of the data; an empty sha256: unknown */
    struct ddl_data_identity train, val;     /* of train_data and val_data */
    struct ddl_spike_state spike;            /* spike.skipped of the steps have updated nothing */
};

/* Saves a checkpoint of config->out: ddl_checkpoint_save. tokenizer may be NULL. On rank 0, while the others
 * are in ddl_moments_serve. */
ddl_status ddl_run_save(const struct ddl_train_config *config, const ddl_model *model,
                        const struct ddl_moments *moments, const ddl_tokenizer *tokenizer,
                        const struct ddl_run_state *state, char *path, size_t size, struct ddl_error *err);

/* The state of the checkpoint `path`, without regard to its other files or a configuration. */
ddl_status ddl_run_read_state(const char *path, struct ddl_run_state *state, struct ddl_error *err);
/* The same of the contents of its state.json. */
ddl_status ddl_run_parse_state(const char *path, const json_t *root, struct ddl_run_state *state,
                               struct ddl_error *err);
/* Reads parameters, moments and the optimizer's count of steps. */
ddl_status ddl_run_read_weights(const char *path, ddl_model *model, struct ddl_optim *optim,
                                const struct ddl_run_state *state, struct ddl_error *err);

#endif
