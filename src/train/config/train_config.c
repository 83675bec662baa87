#include "train/config/train_config.h"

#include "base/mem.h"
#include "checkpoint/folder.h"
#include "comm/comm.h"
#include "ddl/run.h"
#include "ddl/tokenizer.h"
#include "train/config/freeze.h"
#include "train/step/schedule.h"
#include "train/step/spike.h"
#include "train/log/tensorboard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const order_names[] = { "random", "sequential", "aligned", NULL };

_Static_assert((int)DDL_COMM_F32 == (int)DDL_PRECISION_F32 && (int)DDL_COMM_BF16 == (int)DDL_PRECISION_BF16,
               "ddl_comm_dtype_names is in the order of both");
const char *const ddl_comm_dtype_names[] = { [DDL_COMM_F32] = "f32", [DDL_COMM_BF16] = "bf16", NULL };

static const char *const overlap_names[] = {
    [DDL_OVERLAP_AUTO] = "auto", [DDL_OVERLAP_OFF] = "false", [DDL_OVERLAP_ON] = "true", NULL
};

static const char *const val_words[] = { "auto", "none", NULL };
static const char *const tokenizer_words[] = { DDL_TOKENIZER_SHIPPED, NULL };

const char ddl_relative_to_key[] = "relative_to";
const char *const ddl_relative_to_names[] = {
    [DDL_RELATIVE_TO_WORKING_DIRECTORY] = "working_directory", [DDL_RELATIVE_TO_RECIPE] = "recipe", NULL
};

#define AT(field) offsetof(struct ddl_train_config, field)
/* The last argument of TEXT_ROW and ROW: the help text, then further members of the row. */
#define TEXT_ROW(key, word, ...)                                                                             \
    {                                                                                                        \
#key, DDL_OPTION_STRING, AT(key), sizeof(((struct ddl_train_config *)0)->key), 0, 0, NULL, word,     \
            __VA_ARGS__                                                                                      \
    }
/* words: values that are not paths, or NULL */
#define PATH_ROW(key, words, word, ...)                                                                      \
    {                                                                                                        \
#key, DDL_OPTION_PATH, AT(key), sizeof(((struct ddl_train_config *)0)->key), 0, 0, words, word,      \
            __VA_ARGS__                                                                                      \
    }
#define PATHS_ROW(key, words, ...)                                                                           \
    {                                                                                                        \
#key, DDL_OPTION_PATHS, AT(key), sizeof(((struct ddl_train_config *)0)->key), 0, 0, words, "PATH",   \
            __VA_ARGS__                                                                                      \
    }
#define ROW(key, type, lo, hi, ...)                                                                          \
    {                                                                                                        \
#key, type, AT(key), 0, lo, hi, NULL,                                                                \
            (type) == DDL_OPTION_DOUBLE || (type) == DDL_OPTION_FLOAT ? "X" : "N", __VA_ARGS__               \
    }
/* A number of steps or tokens that is computed by `rule` where it is "auto". */
#define AUTO_ROW(key, lo, rule, ...) ROW(key, DDL_OPTION_U64, lo, MAX_COUNT, __VA_ARGS__, .automatic = rule)
#define DECAY_ROW(name, group)                                                                               \
    {                                                                                                        \
        "weight_decay_" name, DDL_OPTION_FLOAT, AT(weight_decay_group[group]), 0, -1, 10, NULL, "X",         \
            "weight decay of the " name " group (-1: same as weight_decay)"                                  \
    }

/* Names of other programs (docs/other-programs.md). */
#define OTHERS(row) static const struct ddl_other_name row##_others[]
/* Parts of other models that these do not have. */
OTHERS(model) = {
    { "dropout", "the models have no dropout", DDL_OTHER_NONE },
    { "bias", "linear maps have no bias", DDL_OTHER_NONE },
    { "num_key_value_heads", "every head has its own keys and values", DDL_OTHER_NONE },
    { "n_kv_head", "every head has its own keys and values", DDL_OTHER_NONE },
    { "n_kv_heads", "every head has its own keys and values", DDL_OTHER_NONE },
    { "tie_word_embeddings", "the output layer always uses the embedding", DDL_OTHER_NONE },
    { 0 },
};
OTHERS(steps) = {
    { "train_iters", NULL, DDL_OTHER_SAME },
    { "num_iterations", NULL, DDL_OTHER_SAME },
    { "num_train_epochs", "There are no epochs: steps = epochs x training tokens / (global_batch x seq)",
      DDL_OTHER_DIFFERS },
    { "num_epochs", "There are no epochs: steps = epochs x training tokens / (global_batch x seq)",
      DDL_OTHER_DIFFERS },
    { "epochs", "There are no epochs: steps = epochs x training tokens / (global_batch x seq)",
      DDL_OTHER_DIFFERS },
    { "tokens", "A run trains steps x global_batch x seq tokens", DDL_OTHER_DIFFERS },
    { "max_tokens", "A run trains steps x global_batch x seq tokens", DDL_OTHER_DIFFERS },
    { "train_tokens", "A run trains steps x global_batch x seq tokens", DDL_OTHER_DIFFERS },
    { "lr_decay_iters", "The learning rate decays until the last step", DDL_OTHER_DIFFERS },
    { 0 },
};
OTHERS(batch) = {
    { "per_device_train_batch_size", NULL, DDL_OTHER_SAME },
    { "per_device_eval_batch_size", "Validation uses it too", DDL_OTHER_DIFFERS },
    { "eval_batch_size", "Validation uses it too", DDL_OTHER_DIFFERS },
    { 0 },
};
OTHERS(global_batch) = {
    { "total_batch_size", "It counts sequences: tokens / seq", DDL_OTHER_DIFFERS },
    { "batch_size_tokens", "It counts sequences: tokens / seq", DDL_OTHER_DIFFERS },
    { 0 },
};
OTHERS(lr_min_ratio) = {
    { "min_lr_rate", NULL, DDL_OTHER_SAME },
    { "min_lr", "It is relative to the peak: min_lr / lr", DDL_OTHER_DIFFERS },
    { "lr_min", "It is relative to the peak: lr_min / lr", DDL_OTHER_DIFFERS },
    { "min_learning_rate", "It is relative to the peak: min_learning_rate / lr", DDL_OTHER_DIFFERS },
    { "eta_min", "It is relative to the peak: eta_min / lr", DDL_OTHER_DIFFERS },
    { 0 },
};
OTHERS(schedule) = {
    { "decay_lr", "decay_lr=False is the schedule constant", DDL_OTHER_DIFFERS },
    { 0 },
};
OTHERS(beta1) = {
    { "optimizer", "the optimizer is AdamW", DDL_OTHER_NONE },
    { "optim", "the optimizer is AdamW", DDL_OTHER_NONE },
    { 0 },
};
OTHERS(weight_decay) = {
    { "wd", NULL, DDL_OTHER_DIFFERS },
    { 0 },
};
OTHERS(warmup) = {
    { "lr_warmup_iters", NULL, DDL_OTHER_SAME },
    { "warmup_ratio", "It is a number of steps: warmup_ratio x steps", DDL_OTHER_DIFFERS },
    { "warmup_fraction", "It is a number of steps: warmup_fraction x steps", DDL_OTHER_DIFFERS },
    { 0 },
};
OTHERS(clip) = {
    { "clip_grad", NULL, DDL_OTHER_SAME },
    { 0 },
};
OTHERS(dtype) = {
    { "bf16", "bf16 is a value of it", DDL_OTHER_DIFFERS },
    { "tf32", "tf32 is a value of it", DDL_OTHER_DIFFERS },
    { "fp16", "the formats are f32, tf32 and bf16 (dtype)", DDL_OTHER_NONE },
    { "compile", "there is nothing to compile", DDL_OTHER_NONE },
    { "torch_compile", "there is nothing to compile", DDL_OTHER_NONE },
    { 0 },
};
OTHERS(train_data) = {
    { "dataset", "It takes shards of tokens, which ddl data build writes", DDL_OTHER_DIFFERS },
    { "dataset_name", "It takes shards of tokens, which ddl data build writes", DDL_OTHER_DIFFERS },
    { "data_dir", "It takes shards of tokens, which ddl data build writes", DDL_OTHER_DIFFERS },
    { "data_path", "It takes shards of tokens, which ddl data build writes", DDL_OTHER_DIFFERS },
    { "train_file", "It takes shards of tokens, which ddl data build writes", DDL_OTHER_DIFFERS },
    { "input_bin", "It takes shards of tokens, which ddl data build writes", DDL_OTHER_DIFFERS },
    { 0 },
};
OTHERS(val_data) = {
    { "validation_file", "It takes shards of tokens, which ddl data build writes", DDL_OTHER_DIFFERS },
    { "input_val_bin", "It takes shards of tokens, which ddl data build writes", DDL_OTHER_DIFFERS },
    { 0 },
};
OTHERS(init_from) = {
    { "model_name_or_path", "It takes the folder of a model or run", DDL_OTHER_DIFFERS },
    { 0 },
};
OTHERS(val_every) = {
    { "val_loss_every", NULL, DDL_OTHER_SAME },
    { "eval_strategy", "It is a number of steps; 0 is no validation", DDL_OTHER_DIFFERS },
    { "evaluation_strategy", "It is a number of steps; 0 is no validation", DDL_OTHER_DIFFERS },
    { 0 },
};
OTHERS(val_tokens) = {
    { "eval_iters", "It counts tokens: eval_iters x batch x seq", DDL_OTHER_DIFFERS },
    { "val_max_steps", "It counts tokens: val_max_steps x batch x seq", DDL_OTHER_DIFFERS },
    { "max_eval_samples", "It counts tokens: samples x seq", DDL_OTHER_DIFFERS },
    { 0 },
};
OTHERS(checkpoint_every) = {
    { "save_strategy", "It is a number of steps", DDL_OTHER_DIFFERS },
    { "always_save_checkpoint", "Checkpoints are saved regardless of the loss", DDL_OTHER_DIFFERS },
    { 0 },
};
OTHERS(keep_best) = {
    { "load_best_model_at_end", "ddl eval --which best uses the best of those that are kept",
      DDL_OTHER_DIFFERS },
    { 0 },
};
OTHERS(tensorboard) = {
    { "report_to", "It is a switch", DDL_OTHER_DIFFERS },
    { "wandb_log", "Weights & Biases is not supported", DDL_OTHER_DIFFERS },
    { "wandb_project", "Weights & Biases is not supported", DDL_OTHER_DIFFERS },
    { "wandb_run_name", "Weights & Biases is not supported", DDL_OTHER_DIFFERS },
    { 0 },
};

enum { MAX_BATCH = 1 << 20 };
#define MAX_GLOBAL_BATCH 1099511627776.0            /* 2^40 */
static const double max_count = 9007199254740992.0; /* 2^53: exact in JSON everywhere */
#define MAX_COUNT 9007199254740992.0

/* The keys of a recipe. SAME, NOTED, ANY: what a resumed run may change (enum ddl_on_resume). */
#define ROWS(X)                                                                                              \
    X(ANY, TEXT_ROW(model, "NAME", "named model (ddl info lists the names)", .others = model_others))        \
    X(ANY, TEXT_ROW(size, "NAME", "named size: small, medium, mini, tiny, micro"))                           \
    X(ANY, TEXT_ROW(match_parameters, "NAME",                                                                \
                    "choose mlp_size so that the model has as many parameters as this named model"))         \
    X(ANY,                                                                                                   \
      TEXT_ROW(match_flops, "NAME",                                                                          \
               "choose mlp_size so that a token costs as many FLOPs in training as with this named model"))  \
    X(ANY, PATH_ROW(init_from, NULL, "DIR", "start from the weights and configuration of this model or run", \
                    .others = init_from_others))                                                             \
    X(ANY, TEXT_ROW(init_which, "MODEL", "init_from: " DDL_WHICH_HELP))                                      \
    X(ANY, { "ignore_extra", DDL_OPTION_BOOL, AT(ignore_extra), 0, 0, 0, NULL, NULL,                         \
             "ignore tensors of init_from that are not parameters" })                                        \
    X(ANY, { "verify", DDL_OPTION_BOOL, AT(verify), 0, 0, 0, NULL, NULL,                                     \
             "compare the files of init_from and tokenizer with the checksums saved with them" })            \
    X(ANY,                                                                                                   \
      TEXT_ROW(ddl_residual_by_layer, "LIST", "c = 1: residual rule of each layer, such as add,delta,..."))  \
    X(NOTED, PATHS_ROW(train_data, NULL,                                                                     \
                       "shards to train on: files, a folder, or a pattern "                                  \
                       "dir/prefix_*.bin; validation shards (val_*) are ignored if there are other shards",  \
                       .others = train_data_others))                                                         \
    X(NOTED, PATHS_ROW(val_data, val_words,                                                                  \
                       "shards to validate on; from a folder, its validation shards, if any (auto: "         \
                       "the validation shards of train_data; none: no validation)",                          \
                       .others = val_data_others))                                                           \
    X(NOTED, { "format", DDL_OPTION_CHOICE, AT(format), 0, 0, 0, ddl_shards_format_names, "NAME",            \
               "format of the shards (auto: by their header; without one, train.bin and val.bin are read "   \
               "as nanogpt)" })                                                                              \
    X(ANY, PATH_ROW(tokenizer, tokenizer_words, "PATH",                                                      \
                    "tokenizer to store with the model (" DDL_TOKENIZER_SHIPPED                              \
                    ": GPT-2's, which comes with ddl)"))                                                     \
    X(ANY, PATH_ROW(out, NULL, "DIR", "run folder (empty: runs/MODEL-SIZE-N, N the first free number)",      \
                    .aliases = "out_dir output_dir"))                                                        \
    X(NOTED, ROW(steps, DDL_OPTION_U64, 1, MAX_COUNT, "optimizer steps", .aliases = "max_steps max_iters",   \
                 .others = steps_others))                                                                    \
    X(SAME, ROW(batch, DDL_OPTION_SIZE, 1, MAX_BATCH, "sequences per micro-batch",                           \
                .aliases = DDL_BATCH_ALIASES, .others = batch_others))                                       \
    X(SAME, ROW(accumulate, DDL_OPTION_SIZE, 1, MAX_BATCH,                                                   \
                "micro-batches per step and rank (with global_batch: computed from it)",                     \
                .aliases = "gradient_accumulation_steps grad_accum_steps"))                                  \
    X(SAME, ROW(global_batch, DDL_OPTION_U64, 0, MAX_GLOBAL_BATCH,                                           \
                "sequences per step, all ranks together (0: batch x accumulate x ranks)",                    \
                .aliases = "global_batch_size", .others = global_batch_others))                              \
    X(SAME, ROW(seq, DDL_OPTION_SIZE, 0, 2147483647, "tokens per sequence (0: the model's context)",         \
                .aliases = DDL_SEQ_ALIASES))                                                                 \
    X(NOTED, ROW(lr, DDL_OPTION_DOUBLE, 0, 1000, "peak learning rate", .aliases = "learning_rate max_lr"))   \
    X(NOTED, ROW(lr_min_ratio, DDL_OPTION_DOUBLE, 0, 1,                                                      \
                 "final learning rate of the schedules cosine and wsd, relative to the peak",                \
                 .aliases = "min_lr_ratio", .others = lr_min_ratio_others))                                  \
    X(NOTED, { "schedule", DDL_OPTION_CHOICE, AT(schedule), 0, 0, 0, ddl_schedule_names, "NAME",             \
               "learning rate after the warmup: half a cosine, constant, or constant with linear decay at "  \
               "the end (wsd)",                                                                              \
               "lr_schedule lr_scheduler lr_scheduler_type", .others = schedule_others })                    \
    X(NOTED,                                                                                                 \
      ROW(decay_ratio, DDL_OPTION_DOUBLE, 0, 1, "fraction of the steps in which the schedule wsd decays"))   \
    X(NOTED, AUTO_ROW(warmup, 0, "steps/50, at most 2000", "linear warmup steps",                            \
                      .aliases = "warmup_steps warmup_iters", .others = warmup_others))                      \
    X(NOTED, ROW(beta1, DDL_OPTION_FLOAT, 0, 0.9999999, "AdamW: decay of the first moment",                  \
                 .aliases = "adam_beta1", .others = beta1_others))                                           \
    X(NOTED, ROW(beta2, DDL_OPTION_FLOAT, 0, 0.9999999, "AdamW: decay of the second moment",                 \
                 .aliases = "adam_beta2"))                                                                   \
    X(NOTED, ROW(eps, DDL_OPTION_FLOAT, 1e-30, 1, "AdamW: epsilon", .aliases = "adam_epsilon adam_eps"))     \
    X(NOTED, ROW(weight_decay, DDL_OPTION_FLOAT, 0, 10, "weight decay of all parameters",                    \
                 .others = weight_decay_others))                                                             \
    X(NOTED, DECAY_ROW("embedding", DDL_GROUP_EMBEDDING))                                                    \
    X(NOTED, DECAY_ROW("matrix", DDL_GROUP_MATRIX))                                                          \
    X(NOTED, DECAY_ROW("kernel", DDL_GROUP_KERNEL))                                                          \
    X(NOTED, DECAY_ROW("norm", DDL_GROUP_NORM))                                                              \
    X(NOTED, DECAY_ROW("bias", DDL_GROUP_BIAS))                                                              \
    X(NOTED, ROW(clip, DDL_OPTION_FLOAT, 0, 1e30, "maximum global gradient norm (0: no clipping)",           \
                 .aliases = "grad_clip max_grad_norm", .others = clip_others))                               \
    X(NOTED, ROW(spike_z, DDL_OPTION_DOUBLE, 0, 1e6,                                                         \
                 "skip a step whose gradient norm is more than this many standard deviations above the "     \
                 "mean of the window (0: never)"))                                                           \
    X(NOTED,                                                                                                 \
      ROW(spike_window, DDL_OPTION_SIZE, 2, DDL_SPIKE_WINDOW, "number of applied steps in the window"))      \
    X(NOTED, ROW(spike_max_skip, DDL_OPTION_SIZE, 1, MAX_BATCH,                                              \
                 "after this many consecutive skips, apply the step: the norm has risen for good"))          \
    X(NOTED, TEXT_ROW(train_only, "LIST",                                                                    \
                      "train only parameters whose names match one of these patterns, such as "              \
                      "transformer.h.3.*; comma-separated (empty: all)"))                                    \
    X(NOTED, TEXT_ROW(freeze, "LIST", "parameters that are not trained: patterns as in train_only"))         \
    X(NOTED,                                                                                                 \
      { "dtype", DDL_OPTION_CHOICE, AT(precision), 0, 0, 0, ddl_training_precision_names, "NAME",            \
        "operand type of matrix products (tf32: only with backend cuda); parameters, accumulators and "      \
        "optimizer state are f32",                                                                           \
        "precision", .others = dtype_others })                                                               \
    X(NOTED, { "recompute", DDL_OPTION_CHOICE, AT(recompute), 0, 0, 0, ddl_recompute_names, "NAME",          \
               "what the backward pass recomputes to save memory: elementwise results (elementwise, "        \
               "also accepted as cheap), nothing (none), or also attention and MLP (block)" })               \
    X(SAME, ROW(seed, DDL_OPTION_U64, 0, 0, "seed of initial values and data order"))                        \
    X(SAME, { "order", DDL_OPTION_CHOICE, AT(order), 0, 0, 0, order_names, "NAME",                           \
              "order of sequences: at random offsets; consecutive; at random multiples of seq" })            \
    X(ANY, AUTO_ROW(log_every, 1, "steps/1000, 1 to 10", "steps between lines of metrics.jsonl",             \
                    .aliases = "log_interval logging_steps"))                                                \
    X(ANY, AUTO_ROW(telemetry_every, 0, "steps/400, 25 to 1000",                                             \
                    "steps between telemetry records of metrics.jsonl (0: none)"))                           \
    X(ANY, { "tensorboard", DDL_OPTION_BOOL, AT(tensorboard), 0, 0, 0, NULL, NULL,                           \
             "write event files for TensorBoard to the folder tensorboard of the run",                       \
             .others = tensorboard_others })                                                                 \
    X(ANY, AUTO_ROW(val_every, 0, "steps/10, 1 to 1000", "steps between validations (0: never)",             \
                    .aliases = "eval_every eval_interval eval_steps", .others = val_every_others))           \
    X(NOTED, AUTO_ROW(val_tokens, 1, "a quarter of the tokens trained between validations, 4096 to 1048576", \
                      "tokens per validation", .others = val_tokens_others))                                 \
    X(ANY, ROW(sample_every, DDL_OPTION_U64, 0, MAX_COUNT, "steps between text samples (0: never)"))         \
    X(ANY, TEXT_ROW(sample_prompt, "TEXT", "prompt of the samples"))                                         \
    X(ANY, ROW(sample_tokens, DDL_OPTION_SIZE, 1, 1048576, "tokens per sample"))                             \
    X(ANY,                                                                                                   \
      { "tasks", DDL_OPTION_PATHS, AT(tasks), sizeof(((struct ddl_train_config *)0)->tasks), 0, 0, NULL,     \
        "LIST", "tasks to evaluate on: comma-separated names and .jsonl files, or all (empty: none)" })      \
    X(ANY, PATH_ROW(tasks_data, NULL, "DIR", "folder with the files of the tasks"))                          \
    X(ANY,                                                                                                   \
      AUTO_ROW(tasks_every, 0, "steps/10, 1 to 1000", "steps between evaluations on the tasks (0: never)"))  \
    X(ANY, ROW(tasks_limit, DDL_OPTION_U64, 0, MAX_COUNT,                                                    \
               "evaluate the first N documents of each task (0: all)"))                                      \
    X(ANY, ROW(tasks_shots, DDL_OPTION_SIZE, 0, 4096, "examples before each document"))                      \
    X(ANY, AUTO_ROW(checkpoint_every, 0, "steps/10, 1 to 1000, rounded up to a multiple of val_every",       \
                    "steps between checkpoints (0: only when stopped)",                                      \
                    .aliases = "save_every save_interval save_steps", .others = checkpoint_every_others))    \
    X(ANY, ROW(checkpoint_seconds, DDL_OPTION_DOUBLE, 0, 1e9,                                                \
               "seconds without a checkpoint until one is written that lasts until the next "                \
               "(0: never, as with checkpoint_every 0); at least 50 times what writing takes"))              \
    X(ANY, ROW(keep_last, DDL_OPTION_SIZE, 0, 1048576, "most recent checkpoints to keep (0: all)",           \
               .aliases = "save_total_limit"))                                                               \
    X(ANY, ROW(keep_best, DDL_OPTION_SIZE, 0, 1048576,                                                       \
               "additional checkpoints to keep, those with the lowest validation loss (0: none)",            \
               .others = keep_best_others))                                                                  \
    X(NOTED, TEXT_ROW(backend, "NAME", DDL_BACKEND_HELP, .aliases = DDL_BACKEND_ALIASES))                    \
    X(NOTED,                                                                                                 \
      ROW(threads, DDL_OPTION_SIZE, 0, 4096, "threads (0: one per core, divided by the ranks on the host)",  \
          .aliases = DDL_THREADS_ALIASES))                                                                   \
    X(NOTED, { "comm_dtype", DDL_OPTION_CHOICE, AT(comm_dtype), 0, 0, 0, ddl_comm_dtype_names, "NAME",       \
               "ranks: format of gradients in messages" })                                                   \
    X(NOTED, ROW(comm_bucket, DDL_OPTION_SIZE, 4096, 1073741824,                                             \
                 "ranks: bytes of gradients that are exchanged together"))                                   \
    X(ANY, { "comm_overlap", DDL_OPTION_CHOICE, AT(comm_overlap), 0, 0, 0, overlap_names, "NAME",            \
             "ranks: exchange gradients while the backward pass runs (true), after it (false), or "          \
             "whichever is usually faster (auto: currently true)" })                                         \
    X(ANY, ROW(comm_timeout, DDL_OPTION_DOUBLE, 0, 1e9,                                                      \
               "ranks: seconds to wait for another rank before the run is aborted (0: no limit)"))

#define OPTION(on_resume, ...) __VA_ARGS__,
static const struct ddl_option rows[] = { ROWS(OPTION){ 0 } };
#define ON_RESUME(on_resume, ...) DDL_RESUME_##on_resume,
static const enum ddl_on_resume rows_on_resume[] = { ROWS(ON_RESUME) };

const struct ddl_option *ddl_train_options(void)
{
    return rows;
}

enum ddl_on_resume ddl_train_on_resume(const struct ddl_option *row)
{
    return rows_on_resume[row - rows];
}

const char *ddl_train_current_value(const char *key, const char *value)
{
    static const struct {
        const char *key, *former, *current;
    } renamed[] = { { "recompute", "cheap", "elementwise" } };
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
        if (strcmp(key, renamed[i].key) == 0 && strcmp(value, renamed[i].former) == 0)
            return renamed[i].current;
    }
    return value;
}

struct ddl_train_config ddl_train_defaults(void)
{
    struct ddl_train_config t = { .config = ddl_config_defaults(),
                                  .init_which = "last",
                                  .verify = true,
                                  .val_data = "auto",
                                  .steps = 100000,
                                  .batch = 8,
                                  .accumulate = 1,
                                  .lr = 1e-3,
                                  .lr_min_ratio = 0.1,
                                  .schedule = DDL_SCHEDULE_COSINE,
                                  .decay_ratio = 0.2,
                                  .warmup = DDL_OPTION_AUTO,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.95f,
                                  .eps = 1e-8f,
                                  .weight_decay = 0.1f,
                                  .clip = 1,
                                  .spike_window = 128,
                                  .spike_max_skip = 10,
                                  .order = DDL_ORDER_RANDOM,
                                  .log_every = DDL_OPTION_AUTO,
                                  .telemetry_every = DDL_OPTION_AUTO,
                                  .val_every = DDL_OPTION_AUTO,
                                  .val_tokens = DDL_OPTION_AUTO,
                                  .sample_tokens = 100,
                                  .tasks_every = DDL_OPTION_AUTO,
                                  .tasks_limit = 100,
                                  .checkpoint_every = DDL_OPTION_AUTO,
                                  .checkpoint_seconds = 60,
                                  .keep_last = 3,
                                  .keep_best = 1,
                                  .backend = "cpu",
                                  .comm_bucket = 4 << 20,
                                  .comm_timeout = 600 };
    for (int group = 0; group < DDL_GROUPS; group++)
        t.weight_decay_group[group] = -1;
    return t;
}

static uint64_t between(uint64_t low, uint64_t value, uint64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* A validation then takes about a twelfth of the time of the steps before it: it has no backward pass. The
 * product is computed as a floating-point number because its factors are not checked yet. */
static uint64_t automatic_val_tokens(const struct ddl_train_config *t)
{
    const uint64_t low = 1 << 12, high = 1 << 20;
    double trained = (double)t->global_batch * (double)t->seq * (double)t->val_every;
    return t->val_every == 0 || trained / 4 >= (double)high ? high
                                                            : between(low, (uint64_t)(trained / 4), high);
}

size_t ddl_train_ranks(const struct ddl_train_config *config)
{
    return config->ranks ? config->ranks : ddl_comm_size(config->comm);
}

uint64_t *ddl_train_automatic_field(const struct ddl_option *row, struct ddl_train_config *config)
{
    return (uint64_t *)((char *)config + row->offset);
}

/* Its bit in ddl_train_config.computed: the rows that may be computed are counted. `row` may be a copy of
 * one, in a table of the caller's. */
static uint64_t computed_bit(const struct ddl_option *row)
{
    unsigned n = 0;
    for (const struct ddl_option *before = rows; before->offset != row->offset; before++)
        n += before->automatic != NULL;
    return UINT64_C(1) << n;
}

void ddl_train_set_computed(const struct ddl_option *row, struct ddl_train_config *config)
{
    if (row->automatic)
        config->computed |= computed_bit(row);
}

bool ddl_train_is_computed(const struct ddl_option *row, const struct ddl_train_config *config)
{
    return row->automatic && config->computed & computed_bit(row);
}

struct ddl_train_config ddl_train_resolved(const struct ddl_train_config *config)
{
    struct ddl_train_config t = *config;
    for (const struct ddl_option *row = rows; row->name; row++) {
        if (row->automatic && *ddl_train_automatic_field(row, &t) == DDL_OPTION_AUTO)
            ddl_train_set_computed(row, &t);
    }
    if (!*t.ddl_residual_by_layer)
        ddl_config_get_by_layer(&t.config, t.ddl_residual_by_layer, sizeof t.ddl_residual_by_layer);
    t.seq = t.seq ? t.seq : t.config.block_size;
    if (t.global_batch == 0)
        t.global_batch = (uint64_t)t.batch * t.accumulate * ddl_train_ranks(&t);
    if (t.warmup == DDL_OPTION_AUTO)
        t.warmup = between(0, t.steps / 50, 2000);
    if (t.log_every == DDL_OPTION_AUTO)
        t.log_every = between(1, t.steps / 1000, 10);
    if (t.telemetry_every == DDL_OPTION_AUTO)
        t.telemetry_every = between(25, t.steps / 400, 1000);
    if (t.val_every == DDL_OPTION_AUTO)
        t.val_every = between(1, t.steps / 10, 1000);
    if (t.val_tokens == DDL_OPTION_AUTO)
        t.val_tokens = automatic_val_tokens(&t);
    if (t.tasks_every == DDL_OPTION_AUTO)
        t.tasks_every = between(1, t.steps / 10, 1000);
    if (t.checkpoint_every == DDL_OPTION_AUTO) {
        uint64_t every = between(1, t.steps / 10, 1000), unit = t.val_every ? t.val_every : 1;
        t.checkpoint_every = every + (unit - every % unit) % unit;
    }
    return t;
}

struct ddl_share ddl_train_share(const struct ddl_train_config *t, size_t rank)
{
    uint64_t ranks = ddl_train_ranks(t), all = t->global_batch, most = all / ranks + (all % ranks != 0);
    struct ddl_share share = { .first = (size_t)(rank * all / ranks),
                               .batch = t->batch < most ? t->batch : (size_t)most };
    share.n = (size_t)((rank + 1) * all / ranks) - share.first;
    share.micro_batches = share.n / share.batch + (share.n % share.batch != 0);
    share.last = share.n - (share.micro_batches - 1) * share.batch;
    share.most = (size_t)(most / share.batch) + (most % share.batch != 0);
    return share;
}

struct ddl_workspace_options ddl_train_workspace(const struct ddl_train_config *config)
{
    return (struct ddl_workspace_options){ .batch = ddl_train_share(config, 0).batch,
                                           .tokens = config->seq,
                                           .train = true,
                                           .recompute = (enum ddl_recompute)config->recompute };
}

struct ddl_generate_config ddl_train_sample(const struct ddl_train_config *config, uint64_t step)
{
    struct ddl_generate_config generate = ddl_generate_defaults();
    generate.sampling.max_tokens = config->sample_tokens;
    generate.sampling.temperature = 0.8f;
    generate.sampling.seed = config->seed + step;
    return generate;
}

ddl_status ddl_train_check(const struct ddl_train_config *config, struct ddl_error *err)
{
    ddl_status status = ddl_config_check(&config->config, err);
    if (status)
        return status;
    struct ddl_train_config t = ddl_train_resolved(config);
    status = ddl_option_check(rows, &t, err);
    if (status)
        return status;
    status = ddl_run_check_which("init_which", t.init_which, err);
    if (status)
        return status;
    if (strlen(t.out) > DDL_CHECKPOINT_MAX_OUT)
        return ddl_error_set(err, DDL_E_USAGE,
                             "out: the path is too long for the files in the folder: expected at most %d "
                             "bytes, found %zu",
                             DDL_CHECKPOINT_MAX_OUT, strlen(t.out));
    if (t.seq > t.config.block_size)
        return ddl_error_set(err, DDL_E_USAGE, "seq is %zu, the model's context (block_size) %zu", t.seq,
                             t.config.block_size);
    size_t tokens;
    if (!ddl_size_mul(t.batch, t.seq, &tokens) || tokens > INT32_MAX ||
        !ddl_size_mul((size_t)t.global_batch, t.seq, &tokens) || (double)tokens * (double)t.steps > max_count)
        return ddl_error_set(
            err, DDL_E_USAGE,
            "%llu steps of %llu sequences of %zu tokens, in micro-batches of %zu, are too many",
            (unsigned long long)t.steps, (unsigned long long)t.global_batch, t.seq, t.batch);
    if (t.global_batch < ddl_train_ranks(&t))
        return ddl_error_set(err, DDL_E_USAGE,
                             "global_batch: expected at least one sequence for each of %zu ranks, found %llu",
                             ddl_train_ranks(&t), (unsigned long long)t.global_batch);
    if (t.warmup > t.steps)
        return ddl_error_set(err, DDL_E_USAGE, "warmup is %llu, more than steps %llu",
                             (unsigned long long)t.warmup, (unsigned long long)t.steps);
    if (t.sample_every && !*t.tokenizer)
        return ddl_error_set(err, DDL_E_USAGE, "sample_every is %llu, but no tokenizer is set",
                             (unsigned long long)t.sample_every);
    if (t.tensorboard && ddl_tensorboard_check(err))
        return DDL_E_USAGE;
    if (*t.tasks && !*t.tokenizer)
        return ddl_error_set(err, DDL_E_USAGE, "tasks are set, but no tokenizer is set");
    return ddl_freeze_check(&t, err);
}
