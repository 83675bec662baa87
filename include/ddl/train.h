/* Training: a recipe, the run it describes, and what a run leaves behind. */
#ifndef DDL_TRAIN_H
#define DDL_TRAIN_H

#include "ddl/config.h"
#include "ddl/data.h"
#include "ddl/model.h"
#include "ddl/option.h"
#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the learning rate changes after the warmup (docs/equations.md, 10). */
enum ddl_schedule {
    DDL_SCHEDULE_COSINE,   /* half a cosine down to lr * lr_min_ratio */
    DDL_SCHEDULE_CONSTANT, /* lr */
    DDL_SCHEDULE_WSD,      /* warmup, stable, decay: lr, then linear to lr * lr_min_ratio */
    DDL_SCHEDULES
};

/* A run. Each key of a recipe is a field of the same name. A field whose comment says "auto" may be
 * DDL_OPTION_AUTO: it is then computed from the other fields by the rule of its row (ddl_train_options),
 * once, when the run starts. A resumed run keeps the values that the run started with. */
struct ddl_train_config {
    /* the model: names give defaults, the keys of ddl_config_options change them */
    char model[64];                   /* a preset's name, or ""                                     */
    char size[64];                    /* a size's name, or ""                                       */
    char init_from[1024];             /* a model or a run's folder to start from instead, or ""     */
    char init_which[32];              /* of a run: as ddl_run_find                                  */
    bool ignore_extra;                /* of it: ignore tensors that are not parameters              */
    char ddl_residual_by_layer[4096]; /* "add,delta,...", or "": config.residual in every layer */
    struct ddl_config config;         /* the result of all of them                              */
    /* data */
    char train_data[4096]; /* shards, as ddl_shards_open_with with DDL_SHARDS_TRAIN     */
    char val_data[4096];   /* shards, with DDL_SHARDS_VAL; "auto": the validation shards of
                              train_data, if it has others too; "none" or "": no validation */
    int format;            /* enum ddl_shards_format, of both                           */
    char tokenizer[1024];  /* as ddl_tokenizer_load, or "": none is saved with the model */
    char out[1024];        /* the run's folder, or "": runs/MODEL-SIZE-N, N the first free number */
    /* size of a step: accumulate micro-batches of batch sequences of seq tokens */
    uint64_t steps;                /* optimizer steps of the whole run                            */
    size_t batch, accumulate, seq; /* seq 0: the model's context                                  */
    /* the optimizer */
    double lr, lr_min_ratio;              /* peak; final rate relative to it        */
    int schedule;                         /* enum ddl_schedule                      */
    double decay_ratio;                   /* wsd: share of the steps that decay     */
    uint64_t warmup;                      /* steps of linear warmup; auto           */
    float beta1, beta2, eps;              /* of AdamW                              */
    float weight_decay;                   /* of all parameters                     */
    float weight_decay_group[DDL_GROUPS]; /* negative: weight_decay. Keys weight_decay_embedding, ... */
    float clip;                           /* 0: none */
    int precision;                        /* enum ddl_precision, key dtype */
    int recompute;                        /* enum ddl_recompute */
    double spike_z;        /* 0: off. A step whose gradient norm is more than so many deviations above */
    size_t spike_window;   /* the mean of the last spike_window steps taken updates nothing; after     */
    size_t spike_max_skip; /* spike_max_skip of them in a row the new level is taken                   */
    uint64_t seed;         /* of initial values and data order */
    int order;             /* enum ddl_order */
    /* how often; 0: never */
    uint64_t log_every;        /* steps between lines of metrics.jsonl; auto */
    uint64_t val_every;        /* steps between validations; auto       */
    uint64_t val_tokens;       /* on a fixed set of positions, spread over val_data; auto */
    uint64_t sample_every;     /* steps between samples of text      */
    char sample_prompt[512];   /* what a sample begins with          */
    size_t sample_tokens;      /* and how long it is                 */
    uint64_t checkpoint_every; /* 0: only on a stop; auto            */
    size_t keep_last;          /* checkpoints; 0: all                */
    size_t keep_best;          /* beside those, the ones of lowest validation loss; 0: none */
    /* the machine */
    char backend[32]; /* as ddl_backend_create */
    size_t threads;   /* 0: one for each core  */
    /* not keys of a recipe */
    bool resume;    /* continue from the newest checkpoint in `out` that is not corrupted */
    bool overwrite; /* an earlier run in `out` is removed        */
    uint64_t skip;  /* steps whose data a resumed run skips: where they end it every time */
};

/* The paper's model and optimizer, with intervals relative to the number of steps. */
DDL_API struct ddl_train_config ddl_train_defaults(void);
/* The rows of a recipe, in addition to those of ddl_config_options, whose keys a recipe may have too. */
DDL_API const struct ddl_option *ddl_train_options(void);

/* Into *out: defaults, then the recipe (NULL: none), then flags of the same names. A name (model, size,
 * init_from) sets defaults; explicit keys override them, and options override the recipe. The recipe is a
 * flat YAML mapping; unknown and doubled keys are errors that say file and line. Flags that are not keys are
 * looked up in `more` for `more_object` (both may be NULL). argv[1..*n_positional] of argc is what is no
 * flag, as ddl_option_parse leaves it; `recipe` is then argv[1] if it is NULL and there is one. The result is
 * checked.
 */
DDL_API ddl_status ddl_train_configure(struct ddl_train_config *out, const char *recipe, int argc,
                                       char **argv, const struct ddl_option *more, void *more_object,
                                       int *n_positional, struct ddl_error *err);
/* DDL_E_USAGE if a value is out of range, or for combinations of keys that no single row can check;
 * not the world (files). */
DDL_API ddl_status ddl_train_check(const struct ddl_train_config *config, struct ddl_error *err);

/* Work and memory of a run. */
struct ddl_train_plan {
    size_t params[DDL_GROUPS], params_total; /* numbers                                           */
    double flops_per_token;                  /* forward and backward                              */
    double tokens_per_step, tokens, flops;   /* of the whole run                                  */
    size_t bytes_params, bytes_grads, bytes_moments, bytes_workspace; /* memory, by what takes it */
    size_t bytes_other;    /* program, libraries and their buffers, scratch, tables, pages of the shards */
    size_t bytes_total;    /* predicted peak resident memory                                         */
    size_t bytes_capacity; /* memory of the backend: the machine's or the device's                */
};
/* The plan of a config that ddl_train_check accepts, into *out. Shards that can be opened are measured, not
 * read. */
DDL_API ddl_status ddl_train_plan(const struct ddl_train_config *config, struct ddl_train_plan *out,
                                  struct ddl_error *err);

/* A completed step. Step 0 is the state before the first step: lr, grad_norm and tokens_per_s are 0, and
 * `loss` is that of step 1, which is computed before its update. */
struct ddl_train_progress {
    uint64_t step, steps;              /* done, of all                                  */
    double loss;                       /* mean over the step's targets, nats            */
    double lr, grad_norm;              /* the norm before clipping                      */
    bool skipped;                      /* the norm was a spike: nothing was updated */
    bool has_val;                      /* a validation followed it                      */
    double val_loss;                   /* its loss, nats                                */
    uint64_t tokens;                   /* cumulative, as are flops and seconds          */
    double flops, seconds;             /* see tokens */
    double tokens_per_s, seconds_left; /* since the last such call; till the end, guessed */
    size_t peak_memory;                /* bytes, of the process                         */
};
/* All may be NULL; all are called from the caller's thread and handed `user`. */
struct ddl_train_callbacks {
    void *user;
    /* once, before the first step: all values of the run, with the folder that it writes to in `out` */
    void (*begin)(void *user, const struct ddl_train_config *config);
    void (*progress)(void *user, const struct ddl_train_progress *progress); /* every log_every steps */
    /* Every sample_every steps: the text after the prompt, `size` bytes. */
    void (*sample)(void *user, uint64_t step, const char *prompt, const char *text, size_t size);
    ddl_warn_fn *note;       /* one message: warnings, checkpoints written                             */
    int (*stop)(void *user); /* called after each step: not zero ends the run after a checkpoint       */
};

/* Trains a model. Everything is checked before anything is written. A resumed run needs `out`. `out`
 * gets recipe.yaml, metrics.jsonl (one object a logged step), checkpoint-<step>/ (model.safetensors,
 * config.json, tokenizer.json, optimizer.safetensors, state.json; written atomically) and at the end the
 * model itself. A resumed run gives the same parameters, moments and losses, bit for bit, as one that was
 * never stopped, wherever it was stopped: before the first checkpoint it starts again, after the last step
 * only the model is written. A corrupted checkpoint is reported and skipped. A text sample that fails is
 * reported, and the run continues. `callbacks` may be NULL. DDL_E_IO after a failed write: the message says
 * from where --resume continues. DDL_E_INTERRUPTED after `stop`, with a checkpoint of the last step.
 * DDL_E_NUMERIC where a loss or a gradient is not finite: the message has the step, the micro-batch and the
 * first bad tensor with its layer, trouble-<step>/ is a dump that ddl_verify_run replays, and the state
 * before the step is saved as a further checkpoint unless it is not finite itself. `last` (may be NULL) gets
 * the last step's progress. */
DDL_API ddl_status ddl_train_run(const struct ddl_train_config *config,
                                 const struct ddl_train_callbacks *callbacks, struct ddl_train_progress *last,
                                 struct ddl_error *err);

/* A checkpoint of a run's folder. */
struct ddl_checkpoint {
    uint64_t step;   /* after which it was written */
    bool readable;   /* its state.json is valid; the other files are not checked */
    double loss;     /* of the step */
    bool has_val;    /* whether a validation followed the step */
    double val_loss; /* of that validation, nats */
};
/* Those in the folder `out`, n of them, oldest first; free *list with free. None, or no folder, is no error:
 * *list is then NULL. */
DDL_API ddl_status ddl_checkpoint_list(const char *out, struct ddl_checkpoint **list, size_t *n,
                                       struct ddl_error *err);
/* The index in `list` of the one of lowest validation loss, the earliest of equals; n if none has one. */
DDL_API size_t ddl_checkpoint_best(const struct ddl_checkpoint *list, size_t n);
/* Compares every file of the checkpoint in `folder` with the size and checksum it was written with. */
DDL_API ddl_status ddl_checkpoint_check(const char *folder, struct ddl_error *err);
/* The same for a model folder that may be a checkpoint, before its model is read: DDL_OK without a
 * state.json; with one, all but the optimizer's moments are verified. */
DDL_API ddl_status ddl_checkpoint_check_model(const char *folder, struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
