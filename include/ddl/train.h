/* Training: a recipe, the run it describes, and what a run leaves behind. */
#ifndef DDL_TRAIN_H
#define DDL_TRAIN_H

#include "ddl/comm.h"
#include "ddl/config.h"
#include "ddl/data.h"
#include "ddl/model.h"
#include "ddl/option.h"
#include "ddl/status.h"
#include "ddl/tasks.h"

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

/* When gradients are exchanged between ranks. */
enum ddl_overlap {
    DDL_OVERLAP_AUTO, /* as DDL_OVERLAP_ON */
    DDL_OVERLAP_OFF,  /* after the backward pass */
    DDL_OVERLAP_ON,   /* while it runs */
};

/* "f32", "bf16", NULL: choices of comm_dtype, with the numbers of enum ddl_precision. */
DDL_API extern const char *const ddl_comm_dtype_names[];

/* A run. Each key of a recipe is a field of the same name. A field whose comment says "auto" may be
 * DDL_OPTION_AUTO: it is then computed from the other fields by the rule of its row (ddl_train_options),
 * once, when the run starts. A resumed run keeps the values that the run started with. */
struct ddl_train_config {
    /* the model: names give defaults, the keys of ddl_config_options change them */
    char model[64];            /* a preset's name, or ""                                     */
    char size[64];             /* a size's name, or ""                                       */
    char match_parameters[64]; /* a preset's name: config.mlp_size is chosen by ddl_config_match, or "" */
    char match_flops[64];      /* likewise; not both                                             */
    char init_from[1024];      /* a model or a run's folder to start from instead, or ""     */
    char init_which[32];       /* of a run: as ddl_run_find                                  */
    bool ignore_extra;         /* of it: ignore tensors that are not parameters              */
    bool verify;               /* of it and tokenizer: compare files with their checksums    */
    char ddl_residual_by_layer[4096]; /* "add,delta,...", or "": as config says, which init_from may set */
    struct ddl_config config;         /* the result of all of them                              */
    /* data */
    char train_data[4096]; /* shards, as ddl_shards_open_with with DDL_SHARDS_TRAIN     */
    char val_data[4096];   /* shards, with DDL_SHARDS_VAL; "auto": the validation shards of
                              train_data, if it has others too; "none" or "": no validation */
    int format;            /* enum ddl_shards_format, of both                           */
    char tokenizer[1024];  /* as ddl_tokenizer_load, or "": none is saved with the model */
    char out[1024];        /* the run's folder, or "": runs/MODEL-SIZE-N, N the first free number */
    /* size of a step: global_batch sequences of seq tokens, which the ranks divide; each takes its share in
     * micro-batches of at most batch sequences */
    uint64_t steps;                /* optimizer steps of the whole run                            */
    size_t batch, accumulate, seq; /* seq 0: the model's context                                  */
    uint64_t global_batch;         /* 0: batch * accumulate * ranks; else accumulate has no effect. A resumed
                                      run keeps it for any number of ranks */
    /* the optimizer */
    double lr, lr_min_ratio;              /* peak; final rate relative to it        */
    int schedule;                         /* enum ddl_schedule                      */
    double decay_ratio;                   /* wsd: share of the steps that decay     */
    uint64_t warmup;                      /* steps of linear warmup; auto           */
    float beta1, beta2, eps;              /* of AdamW                              */
    float weight_decay;                   /* of all parameters                     */
    float weight_decay_group[DDL_GROUPS]; /* negative: weight_decay. Keys weight_decay_embedding, ... */
    float clip;                           /* 0: none */
    char train_only[4096]; /* patterns of parameter names (*, ?, [...]), comma-separated: the optimizer leaves
                              all others untouched, decay included, and clips without them; "": all are
                              trained */
    char freeze[4096];     /* likewise, those that it leaves untouched; "": none */
    int precision;         /* enum ddl_precision, key dtype */
    int recompute;         /* enum ddl_recompute */
    double spike_z;        /* 0: off. Skip the update of a step whose gradient norm exceeds the mean   */
    size_t spike_window;   /* of the last spike_window applied steps by more than spike_z standard     */
    size_t spike_max_skip; /* deviations; after spike_max_skip consecutive skips the step is applied   */
    uint64_t seed;         /* of initial values and data order */
    int order;             /* enum ddl_order */
    /* how often; 0: never */
    uint64_t log_every;        /* steps between lines of metrics.jsonl; auto */
    uint64_t telemetry_every;  /* steps between telemetry records of metrics.jsonl; auto */
    bool tensorboard;          /* event files in out/tensorboard        */
    uint64_t val_every;        /* steps between validations; auto       */
    uint64_t val_tokens;       /* on a fixed set of positions, spread over val_data; auto */
    uint64_t sample_every;     /* steps between samples of text      */
    char sample_prompt[512];   /* what a sample begins with          */
    size_t sample_tokens;      /* and how long it is                 */
    char tasks[1024];          /* downstream tasks: names and files, comma-separated, or "all"; "": none */
    char tasks_data[1024];     /* folder with their files                */
    uint64_t tasks_every;      /* steps between evaluations on them; auto */
    uint64_t tasks_limit;      /* documents of each; 0: all              */
    size_t tasks_shots;        /* examples before each document          */
    uint64_t checkpoint_every; /* 0: only on a stop; auto            */
    double checkpoint_seconds; /* between checkpoints by time, replaced by the next checkpoint; 0: none */
    size_t keep_last;          /* checkpoints; 0: all                */
    size_t keep_best;          /* in addition, the ones of lowest validation loss; 0: none */
    /* the machine */
    char backend[32]; /* as ddl_backend_create */
    size_t threads;   /* of a rank; 0: one for each core, divided by the ranks of the host */
    /* ranks; without effect for one */
    int comm_dtype;      /* enum ddl_comm_dtype: format of gradients in messages                  */
    size_t comm_bucket;  /* bytes of gradients in a bucket, which are exchanged together          */
    int comm_overlap;    /* enum ddl_overlap */
    double comm_timeout; /* as ddl_comm_set_time_limit */
    /* not keys of a recipe */
    bool vocab_automatic; /* config.vocab_size is computed from the tokenizer: a resumed run keeps its own */
    bool head_dim_automatic; /* config.head_dim is hidden_size / num_attention_heads: a resumed run keeps its
                                own */
    size_t named_head_dim;   /* head_dim_automatic: that of the named size */
    uint64_t computed;       /* a bit for each key that may be "auto": its value was computed; in the order of
                                ddl_train_options */
    bool resume;             /* continue from the newest checkpoint in `out` that is not corrupted */
    bool overwrite;          /* an earlier run or model in `out` is removed */
    uint64_t skip;           /* steps whose data a resumed run skips because they make the run fail */
    ddl_comm *comm;          /* the ranks of the run, borrowed; NULL: one */
    size_t ranks;            /* the number of ranks that a dry run or plan is for; 0: of comm */
    size_t device_memory;    /* dry run or plan: for a device of the backend with so many bytes, as
                                ddl_backend_plan; 0: the device is opened */
};

/* The paper's model and optimizer, with intervals relative to the number of steps. */
DDL_API struct ddl_train_config ddl_train_defaults(void);
/* The rows of a recipe, in addition to those of ddl_config_options, whose keys a recipe may have too. */
DDL_API const struct ddl_option *ddl_train_options(void);

/* Into *out: defaults, then the recipe (NULL: none), then flags of the same names. A name (model, size,
 * init_from) sets defaults; explicit keys override them, and options override the recipe. The recipe is a
 * flat YAML mapping; unknown and duplicate keys are errors that state file and line. Flags that are not keys
 * are looked up in `more` for `more_object` (both may be NULL). The positional arguments of argv (argc) are
 * moved to argv[1..*n_positional], as by ddl_option_parse; if `recipe` is NULL, the first of them, if any, is
 * the recipe. A run folder stands for its recipe.yaml. The result is checked. */
DDL_API ddl_status ddl_train_configure(struct ddl_train_config *out, const char *recipe, int argc,
                                       char **argv, const struct ddl_option *more, void *more_object,
                                       int *n_positional, struct ddl_error *err);
/* Applies match_parameters or match_flops to config->config, as ddl_train_configure does. *out: what was
 * matched; mlp_size 0 without either. DDL_E_USAGE for both, with init_from, and as ddl_config_match. */
DDL_API ddl_status ddl_train_match(struct ddl_train_config *config, struct ddl_match *out,
                                   struct ddl_error *err);
/* DDL_E_USAGE if a value is out of range, or for combinations of keys that no single row can check; files are
 * not checked. */
DDL_API ddl_status ddl_train_check(const struct ddl_train_config *config, struct ddl_error *err);

/* Work and memory of a run, memory and bytes of each rank. */
struct ddl_train_plan {
    size_t ranks;                            /* among which the run is divided                    */
    size_t params[DDL_GROUPS], params_total; /* numbers                                           */
    double flops_per_token;                  /* forward and backward                              */
    double tokens_per_step, tokens, flops;   /* of the whole run                                  */
    size_t bytes_params, bytes_grads, bytes_moments, bytes_workspace; /* memory, by what takes it */
    size_t bytes_exchange; /* buffers for the exchange with other ranks; 0 for one rank */
    size_t bytes_other;    /* program, libraries and their buffers, scratch, tables, pages of the shards */
    size_t bytes_total;    /* predicted peak resident memory; of a device with its own memory: there  */
    size_t bytes_capacity; /* memory of the backend: the machine's, or what is free on the device    */
    double bytes_sent;     /* by a rank to the others, each step                                  */
    double peak_rate;      /* operations per second of products in the run's dtype, of a device for each rank
                              at its largest clock; 0: unknown, as of a CPU and of a planned device */
};
/* The plan of a config that ddl_train_check accepts, into *out. Shards that can be opened are measured, not
 * read. */
DDL_API ddl_status ddl_train_plan(const struct ddl_train_config *config, struct ddl_train_plan *out,
                                  struct ddl_error *err);

/* A completed step. Step 0 is the state before the first step: lr, grad_norm, tokens_per_s and mfu are 0, and
 * `loss` is that of step 1, which is computed before its update. */
struct ddl_train_progress {
    uint64_t step, steps;                /* done, of all                                  */
    double loss;                         /* mean over the step's targets, nats            */
    double lr, grad_norm;                /* the norm before clipping                      */
    bool skipped;                        /* the norm was a spike: nothing was updated */
    bool has_val;                        /* a validation followed it                      */
    double val_loss;                     /* its loss, nats                                */
    size_t n_tasks;                      /* of `tasks`; 0 where no evaluation on tasks followed the step */
    const struct ddl_task_result *tasks; /* (n_tasks), valid during the call that passes this */
    uint64_t tokens;                     /* cumulative, as are flops                      */
    double flops;                        /* see tokens                                    */
    double seconds;       /* wall time of the run, with validations, tasks, checkpoints and samples,
                             over all processes that have continued it     */
    double train_seconds; /* of these, in steps                            */
    double tokens_per_s;  /* of the steps since the last line of metrics.jsonl: training time */
    double mfu;           /* model FLOPs utilization: FLOPs per second / the plan's peak_rate; 0: unknown */
    double seconds_left;  /* estimated wall time of the remaining run      */
    size_t peak_memory;   /* bytes, of the process                         */
};
/* What a run will do. */
struct ddl_train_summary {
    const struct ddl_train_config
        *config;                /* borrowed: all values, with the folder that is written in `out` */
    struct ddl_train_plan plan; /* of the whole run                                              */
    const char *model;          /* name of the model's preset, static; NULL: it has none         */
    struct ddl_match match;     /* of match_parameters or match_flops; mlp_size 0: neither is set */
    char backend[128];          /* ddl_backend_description: instruction set, threads, library    */
    uint64_t step;              /* steps that a resumed run has completed                        */
    double train_seconds;       /* seconds that it spent in them                                 */
    uint64_t train_tokens;      /* of the training data; 0: none is set                          */
    uint64_t val_tokens;        /* of the validation data; 0: none is set                        */
    double epochs; /* how often the run reads the training data: plan.tokens / train_tokens     */
};
/* All may be NULL; all are called from the caller's thread and handed `user`. Ranks other than 0 call only
 * begin and stop. */
struct ddl_train_callbacks {
    void *user;
    ddl_progress_fn *check; /* while the data is checked, in tokens, before anything is written */
    void (*begin)(void *user, const struct ddl_train_summary *summary);      /* before the first step */
    void (*progress)(void *user, const struct ddl_train_progress *progress); /* after every step      */
    /* Several times during the validation that follows the step: tokens done, of total. Not zero ends the run
     * after a checkpoint of the step (before the first step nothing is saved); the resumed run begins with
     * this validation. */
    int (*validation)(void *user, const struct ddl_train_progress *step, uint64_t done, uint64_t total);
    /* The same during an evaluation on tasks: documents done, of total. Also called within a pass. */
    int (*tasks)(void *user, const struct ddl_train_progress *step, uint64_t done, uint64_t total);
    /* Every sample_every steps: the text after the prompt, `size` bytes. */
    void (*sample)(void *user, uint64_t step, const char *prompt, const char *text, size_t size);
    ddl_warn_fn *note;       /* one message: warnings, checkpoints written                             */
    int (*stop)(void *user); /* called after each step: not zero ends the run after a checkpoint       */
};

/* Trains a model. With config->comm all ranks call it, and it returns the same status, error and loss on all
 * of them: it stops after a step for which `stop` of any rank is not zero, rank 0 has the run folder, and
 * ranks that differ in program, configuration or data are DDL_E_USAGE, by rank and name. Everything is
 * checked before anything is written. A resumed run needs `out`. `out` gets recipe.yaml, metrics.jsonl (one
 * object a logged step), samples.jsonl (with samples), checkpoint-<step>/ (model.safetensors, config.json,
 * tokenizer.json, optimizer.safetensors, state.json; written atomically) and at the end the model itself. A
 * resumed run gives the same parameters, moments and losses, bit for bit, as one that was never stopped,
 * wherever it was stopped: before the first checkpoint it starts again, after the last step only the model is
 * written. A corrupted checkpoint is reported and skipped. A text sample or an evaluation on tasks that fails
 * is reported, and the run continues. `callbacks` may be NULL. DDL_E_IO after a failed write: the message
 * says from where --resume continues. DDL_E_INTERRUPTED after `stop`, `validation` or `tasks`, with a
 * checkpoint of the last step, and after `check`. DDL_E_NUMERIC where a loss or a gradient is not finite: the
 * message has the step, the micro-batch and the first bad tensor with its layer, trouble-<step>/ is a dump
 * that ddl_verify_run replays, and the state before the step is saved as a further checkpoint unless it is
 * not finite itself. `last` (may be NULL) gets the last step's progress, without results of tasks. If a
 * resumed run is finished, whatever checkpoints it has, `note` reports it, `last` gets the values of its log,
 * and nothing is written but what an interrupted removal has left is removed. */
DDL_API ddl_status ddl_train_run(const struct ddl_train_config *config,
                                 const struct ddl_train_callbacks *callbacks, struct ddl_train_progress *last,
                                 struct ddl_error *err);

/* What a dry run finds out. */
struct ddl_train_preview {
    struct ddl_train_summary summary; /* of the run, as its header shows it */
    double seconds;           /* estimated wall time of the whole run; NaN: not measured                  */
    size_t measured_tokens;   /* of the largest micro-batch that was measured                             */
    size_t measured_layers;   /* of the scratch model                                                     */
    const char *not_measured; /* static text: the reason where seconds is NaN; else NULL                  */
};
/* Plans the run of a configuration without writing anything. Opens and checks data, tokenizer and init_from
 * as far as they are set, as ddl_train_run does, and trains a scratch model for some seconds on the data to
 * estimate the time: on micro-batches that grow up to the run's as long as the next one is expected to end
 * within three seconds of the first, and with fewer layers if the weights exceed 256 MiB. Smaller ones are
 * scaled by their FLOPs. Without data nothing is measured. `callbacks` (may be NULL): check, note.
 * DDL_E_MEMORY, with both sizes and options with which the run fits, if the memory does not suffice. The plan
 * in *out is valid, its params_total not 0, also then, and where one of these is in error. */
DDL_API ddl_status ddl_train_dry_run(const struct ddl_train_config *config,
                                     const struct ddl_train_callbacks *callbacks,
                                     struct ddl_train_preview *out, struct ddl_error *err);

/* What ddl_train_run checks before it writes: data, tokenizer, init_from (names and shapes of its tensors)
 * and the memory of a configuration. `callbacks` (may be NULL): check, note. */
DDL_API ddl_status ddl_train_check_inputs(const struct ddl_train_config *config,
                                          const struct ddl_train_callbacks *callbacks, struct ddl_error *err);

/* A checkpoint of a run's folder. */
struct ddl_checkpoint {
    uint64_t step;   /* after which it was written */
    bool readable;   /* its state.json is valid; the other files are not checked */
    double loss;     /* of the step */
    bool has_val;    /* whether a validation followed the step */
    double val_loss; /* of that validation, nats */
    bool by_time;    /* written because of checkpoint_seconds: the next checkpoint replaces it */
};
/* Those in the folder `out`, n of them, oldest first; free *list with free. None, or no folder, is no error:
 * *list is then NULL. */
DDL_API ddl_status ddl_checkpoint_list(const char *out, struct ddl_checkpoint **list, size_t *n,
                                       struct ddl_error *err);
/* The index in `list` of the one of lowest validation loss, the earliest of equals; n if none has one. Those
 * by time do not count. */
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
