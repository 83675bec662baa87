/* A run while it lasts: what the files of the trainer share. */
#ifndef DDL_RUN_TRAINER_H
#define DDL_RUN_TRAINER_H

#include "base/lock.h"
#include "ddl/data.h"
#include "ddl/train.h"
#include "checkpoint/checkpoint.h"
#include "train/metrics.h"
#include "train/step.h"
#include "train/validate.h"

enum { RUN_PATH_SIZE = 1280 };

struct run {
    struct ddl_train_config config;
    const struct ddl_train_callbacks *callbacks;
    struct ddl_lock lock;    /* of the folder, for as long as the run lasts */
    ddl_shards *train, *val; /* val may be NULL */
    ddl_tokenizer *tokenizer;
    ddl_backend *backend;
    ddl_model *model;
    ddl_workspace *ws;
    struct ddl_optim *optim;
    int32_t *tokens, *targets; /* (accumulate, batch, seq) */
    struct ddl_loader loader;
    struct ddl_step step;
    struct ddl_validation validation;
    struct ddl_run_state state;
    struct ddl_metrics metrics;
    struct ddl_train_progress progress;
    double flops_per_token;
    uint64_t logged_tokens; /* of the state when the last line was written, for the rate since */
    double logged_seconds;
    uint64_t saved_step;            /* of the newest checkpoint, 0: none */
    char checkpoint[RUN_PATH_SIZE]; /* its folder, "" if there is none   */
};

/* One sentence to the caller's `note`. */
void trainer_note(const struct run *run, const char *sentence);

/* trainer.c: a checkpoint of the state, if there is none yet. `beside`: none is removed for it. DDL_E_NUMERIC
 * for a state that is not finite: it would take the place of one that a run can go on from. */
ddl_status trainer_save(struct run *run, bool beside, struct ddl_error *err);

/* trainer_open.c: everything up to the first step. Nothing is written before all has been checked. */
ddl_status trainer_open(struct run *run, struct ddl_error *err);
void trainer_close(struct run *run); /* zeroed is allowed */

/* trainer_sample.c: a sample of text from the model as it is. */
ddl_status trainer_sample(struct run *run, struct ddl_error *err);

/* trainer_trouble.c: after a step, or a validation whose batch of `failed` sequences is still in the buffers,
 * that ended with DDL_E_NUMERIC and the sentence in *err: the whole sentence there is to say. */
ddl_status trainer_trouble_step(struct run *run, const struct ddl_step_result *result, struct ddl_error *err);
ddl_status trainer_trouble_validation(struct run *run, size_t failed, struct ddl_error *err);

#endif
