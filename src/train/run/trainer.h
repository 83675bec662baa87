/* A run in progress: the object that the trainer's files share. trainer.c (the loop) and
 * trainer_preview.c (the dry run) use the others: trainer_open.c calls trainer_make.c and trainer_tasks.c,
 * trainer_make.c calls trainer_tasks.c, and trainer_nonfinite.c calls trainer_save.c. trainer_ranks.c and
 * trainer_note.c serve several of them.
 *
 * With several ranks every rank runs the loop, and all take the same decisions, because a collective must be
 * called by all of them: a status on which the loop depends is agreed upon first. Rank 0 has the run folder;
 * it alone writes, and calls the caller's callbacks, except begin and stop. */
#ifndef DDL_TRAIN_TRAINER_H
#define DDL_TRAIN_TRAINER_H

#include "base/lock.h"
#include "ddl/data.h"
#include "ddl/train.h"
#include "train/log/metrics.h"
#include "train/run/resume.h"
#include "train/step/step.h"
#include "train/log/telemetry.h"
#include "train/log/tensorboard.h"
#include "train/run/timing.h"
#include "train/config/train_config.h"
#include "train/run/validate.h"

enum { RUN_PATH_SIZE = 1280 };

struct run {
    struct ddl_train_config config;
    const struct ddl_train_callbacks *callbacks; /* of ranks after the first: own_callbacks */
    struct ddl_train_callbacks own_callbacks;    /* of the caller's, begin and stop */
    struct ddl_lock lock;                        /* of the folder, until the run is closed */
    ddl_shards *train, *val;                     /* val may be NULL */
    ddl_tokenizer *tokenizer;
    struct ddl_tokenizer_identity identity; /* of the tokenizer or of the data */
    ddl_backend *backend;
    ddl_model *model;
    ddl_workspace *ws;
    struct ddl_partition partition;
    struct ddl_optim *optim;
    struct ddl_moments moments;
    struct ddl_exchange *exchange;
    struct ddl_share share;
    int32_t *tokens, *targets; /* (share.most, share.batch, seq); sequences after the share have no targets */
    int32_t *next_tokens, *next_targets; /* the same; of the data at next_position if has_next */
    uint64_t next_position;
    bool has_next;
    int32_t *buffers; /* memory of these */
    struct ddl_loader loader;
    struct ddl_step step;
    struct ddl_validation validation;
    struct ddl_task_list tasks;
    struct ddl_task_result *task_results; /* (tasks.n) of the last evaluation */
    struct ddl_run_state state;
    struct ddl_metrics metrics, samples;
    struct ddl_telemetry telemetry;
    struct ddl_tensorboard tensorboard;
    struct ddl_train_progress start, progress; /* before step 1; of the last step */
    struct ddl_train_plan plan;
    struct ddl_timing timing;
    uint64_t logged_tokens;         /* of the state when the last line was written, for the rate since then */
    double logged_seconds;          /* training time then */
    bool moved;                     /* the folder is no longer at its path: reported */
    bool finished;                  /* the run in the folder has its final model: nothing is trained */
    uint64_t saved_step;            /* of the newest checkpoint; UINT64_MAX: to be written once more */
    char checkpoint[RUN_PATH_SIZE]; /* its folder, "" if there is none   */
    bool is_irreproducible;         /* the replay of a non-finite step is finite, or failed: no divergence */
};

/* ---- trainer_note.c ---- */

/* Passes a message to the caller's `note`. */
void trainer_note(const struct run *run, const char *message);
/* Puts the step and `what` it was before the message of a device that has failed (DDL_E_DEVICE); returns
 * `status`. */
ddl_status trainer_at_step(const struct run *run, ddl_status status, const char *what, struct ddl_error *err);

/* ---- trainer_ranks.c ---- */

/* Whether this is rank 0, or the only one. */
bool trainer_is_root(const struct run *run);
/* ddl_comm_agree: the status and error of the first rank that failed, on all ranks. */
ddl_status trainer_agree(const struct run *run, ddl_status status, struct ddl_error *err);
/* Whether it is true on any rank. */
bool trainer_any(const struct run *run, bool yes);
/* DDL_E_USAGE, with the first rank and value that differ, unless all ranks have the same program and
 * configuration; data and tokenizer; parameters. Another number of threads or instruction set is reported. */
ddl_status trainer_compare_ranks(struct run *run, struct ddl_error *err);
ddl_status trainer_compare_data(const struct run *run, struct ddl_error *err);
ddl_status trainer_compare_model(const struct run *run, struct ddl_error *err);
/* Copies the configuration and the state that rank 0 has found in the run folder to the other ranks. */
ddl_status trainer_share_start(struct run *run, struct ddl_error *err);

/* ---- trainer_save.c ---- */

enum trainer_save {
    SAVE_AND_PRUNE,
    SAVE_AND_KEEP_ALL, /* but those by time */
    SAVE_BY_TIME,      /* until the next checkpoint; one that cannot be written is reported, and no error */
};
/* A run that is resumed from the next checkpoint repeats the validation of the last step. */
void trainer_postpone_validation(struct run *run);
/* Saves a checkpoint of the state unless there is one, by time for SAVE_BY_TIME only; then removes others.
 * DDL_E_NUMERIC, and no checkpoint, if the state is not finite: it would replace one that a run can continue
 * from. */
ddl_status trainer_save(struct run *run, enum trainer_save kind, struct ddl_error *err);
/* Writes the model, its step in the metadata, and the tokenizer to the run's folder, and removes a checkpoint
 * by time; DDL_E_NUMERIC as above. */
ddl_status trainer_save_model(struct run *run, struct ddl_error *err);

/* ---- trainer_open.c ---- */

/* Everything up to the first step. All is checked before anything is written. If the run is finished, nothing
 * is opened but its folder. */
ddl_status trainer_open(struct run *run, struct ddl_error *err);
/* Parts of it that write nothing. Opens and checks those of train_data, val_data, tokenizer and tasks that
 * are set. */
ddl_status trainer_open_inputs(struct run *run, struct ddl_error *err);
/* A run of this config before anything is open; `callbacks` may be NULL. NULL: out of memory. */
struct run *trainer_new(const struct ddl_train_config *config, const struct ddl_train_callbacks *callbacks);
void trainer_free(struct run *run); /* closes all that is open */

/* ---- trainer_make.c ---- */

/* DDL_E_MEMORY if the run needs more than there is; unless it is `dry`, the message names --dry-run. Checked
 * before memory is allocated: the system may grant more than it has and kill the process later. */
ddl_status trainer_check_memory(struct run *run, bool dry, struct ddl_error *err);
/* Whether the tensors of init_from are those of the model; of a run that is not resumed. No checksum is
 * compared. */
ddl_status trainer_check_initial(const struct run *run, struct ddl_error *err);
/* The model, its optimizer and the buffers of a step. */
ddl_status trainer_make(struct run *run, struct ddl_error *err);
/* The exchange of gradients with the other ranks, all of which call it after trainer_make. */
ddl_status trainer_connect(struct run *run, struct ddl_error *err);

/* ---- trainer_preview.c ---- */

/* The summary of a run; what is not open yet is left empty. */
void trainer_summary(const struct run *run, struct ddl_train_summary *out);

/* ---- trainer_sample.c ---- */

/* Generates a sample of text with the current parameters and passes it to the callback. */
ddl_status trainer_sample(struct run *run, struct ddl_error *err);

/* ---- trainer_tasks.c ---- */

/* Loads the tasks and checks that the model can score them. */
ddl_status trainer_tasks_open(struct run *run, struct ddl_error *err);
void trainer_tasks_close(struct run *run);
/* Tokens of all requests. */
double trainer_tasks_tokens(const struct run *run);
/* Scores the tasks with the current parameters; run->progress gets the results. */
ddl_status trainer_tasks_score(struct run *run, struct ddl_error *err);

/* ---- trainer_nonfinite.c ---- */

/* After a step, or a validation whose batch is still in the buffers, that ended with DDL_E_NUMERIC and the
 * error *err: locates the first non-finite tensor, writes a dump, saves the state, and replaces *err by the
 * full message. */
ddl_status trainer_nonfinite_step(struct run *run, const struct ddl_step_result *result,
                                  struct ddl_error *err);
ddl_status trainer_nonfinite_validation(struct run *run, const struct ddl_validation_result *result,
                                        struct ddl_error *err);

#endif
