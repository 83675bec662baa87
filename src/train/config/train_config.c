#define _POSIX_C_SOURCE 200809L
#include "train/config/train_config.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "checkpoint/folder.h"
#include "comm/comm.h"
#include "ddl/data.h"
#include "ddl/run.h"
#include "train/config/freeze.h"
#include "train/run/run_data.h"
#include "train/step/schedule.h"
#include "train/step/spike.h"
#include "train/log/tensorboard.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const order_names[] = { "random", "sequential", NULL };

static const char *const dtype_names[] = { [DDL_COMM_F32] = "f32", [DDL_COMM_BF16] = "bf16", NULL };

static const char *const overlap_names[] = {
    [DDL_OVERLAP_AUTO] = "auto", [DDL_OVERLAP_OFF] = "false", [DDL_OVERLAP_ON] = "true", NULL
};

static const char *const val_words[] = { "auto", "none", NULL };

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
#define PATH_ROW(key, word, ...)                                                                             \
    {                                                                                                        \
#key, DDL_OPTION_PATH, AT(key), sizeof(((struct ddl_train_config *)0)->key), 0, 0, NULL, word,       \
            __VA_ARGS__                                                                                      \
    }
/* words: values that are not paths, or NULL */
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
    { "fp16", "the formats are f32 and bf16 (dtype)", DDL_OTHER_NONE },
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
    X(ANY, PATH_ROW(init_from, "DIR", "start from the weights and configuration of this model or run",       \
                    .others = init_from_others))                                                             \
    X(ANY, TEXT_ROW(init_which, "MODEL", "init_from: " DDL_WHICH_HELP))                                      \
    X(ANY, { "ignore_extra", DDL_OPTION_BOOL, AT(ignore_extra), 0, 0, 0, NULL, NULL,                         \
             "ignore tensors of init_from that are not parameters" })                                        \
    X(ANY, { "verify", DDL_OPTION_BOOL, AT(verify), 0, 0, 0, NULL, NULL,                                     \
             "compare the files of init_from with the checksums saved with them" })                          \
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
    X(ANY, PATH_ROW(tokenizer, "PATH", "tokenizer to store with the model"))                                 \
    X(ANY, PATH_ROW(out, "DIR", "run folder (empty: runs/MODEL-SIZE-N, N the first free number)",            \
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
    X(NOTED, { "dtype", DDL_OPTION_CHOICE, AT(precision), 0, 0, 0, ddl_training_precision_names, "NAME",     \
               "operand type of matrix products; parameters, accumulators and optimizer state are f32",      \
               "precision", .others = dtype_others })                                                        \
    X(NOTED, { "recompute", DDL_OPTION_CHOICE, AT(recompute), 0, 0, 0, ddl_recompute_names, "NAME",          \
               "what the backward pass recomputes to save memory: elementwise results (elementwise, "        \
               "also accepted as cheap), nothing (none), or also attention and MLP (block)" })               \
    X(SAME, ROW(seed, DDL_OPTION_U64, 0, 0, "seed of initial values and data order"))                        \
    X(SAME, { "order", DDL_OPTION_CHOICE, AT(order), 0, 0, 0, order_names, "NAME", "order of sequences" })   \
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
    X(ANY, PATH_ROW(tasks_data, "DIR", "folder with the files of the tasks"))                                \
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
    X(NOTED, { "comm_dtype", DDL_OPTION_CHOICE, AT(comm_dtype), 0, 0, 0, dtype_names, "NAME",                \
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

enum { N_ROWS = sizeof rows / sizeof *rows - 1 };

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

/* The field of a row that may be computed. */
static uint64_t *automatic_field(const struct ddl_option *row, struct ddl_train_config *t)
{
    return (uint64_t *)((char *)t + row->offset);
}

/* Its bit in ddl_train_config.computed: the rows that may be computed are counted. */
static uint64_t computed_bit(const struct ddl_option *row)
{
    unsigned n = 0;
    for (const struct ddl_option *before = rows; before < row; before++)
        n += before->automatic != NULL;
    return UINT64_C(1) << n;
}

void ddl_train_set_computed(const struct ddl_option *row, struct ddl_train_config *config)
{
    if (row->automatic)
        config->computed |= computed_bit(row);
}

struct ddl_train_config ddl_train_resolved(const struct ddl_train_config *config)
{
    struct ddl_train_config t = *config;
    for (const struct ddl_option *row = rows; row->name; row++) {
        if (row->automatic && *automatic_field(row, &t) == DDL_OPTION_AUTO)
            ddl_train_set_computed(row, &t);
    }
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
    generate.max_tokens = config->sample_tokens;
    generate.temperature = 0.8f;
    generate.seed = config->seed + step;
    return generate;
}

/* ---- putting it together ---- */

/* Our rows and the model's in one table (malloc'ed), all offsets in struct ddl_train_config. */
static struct ddl_option *all_rows(struct ddl_error *err)
{
    const struct ddl_option *model = ddl_config_options();
    size_t n = 0;
    while (model[n].name)
        n++;
    struct ddl_option *table = calloc(N_ROWS + n + 1, sizeof *table);
    if (!table) {
        ddl_error_set(err, DDL_E_MEMORY, "out of memory for the table of options");
        return NULL;
    }
    memcpy(table, rows, N_ROWS * sizeof *table);
    for (size_t i = 0; i < n; i++) {
        table[N_ROWS + i] = model[i];
        table[N_ROWS + i].offset += AT(config);
    }
    return table;
}

/* nanoGPT's values of init_from, which are no folders here. */
static ddl_status check_init_from(const char *value, struct ddl_error *err)
{
    static const struct {
        const char *value, *advice;
    } others[] = { { "scratch", "leave init_from out: a model then starts from random weights" },
                   { "resume", "ddl train --resume continues the run in out" } };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(value, others[i].value) == 0 && !ddl_file_exists(value))
            return ddl_error_set(err, DDL_E_USAGE,
                                 "init_from: expected the folder of a model or run, found '%s'; %s", value,
                                 others[i].advice);
    }
    return DDL_OK;
}

/* The configuration that the names alone give. */
static ddl_status named_config(const struct ddl_train_config *t, struct ddl_config *out,
                               struct ddl_error *err)
{
    *out = ddl_config_defaults();
    ddl_status status = DDL_OK;
    if (*t->init_from && (*t->model || *t->size))
        return ddl_error_set(err, DDL_E_USAGE, "init_from determines the whole model: leave out %s '%s'",
                             *t->model ? "model" : "size", *t->model ? t->model : t->size);
    status = check_init_from(t->init_from, err);
    if (!status && *t->init_from)
        return ddl_run_config(out, t->init_from, t->verify, NULL, NULL, err);
    if (!status && *t->size)
        status = ddl_config_set_size(out, t->size, err);
    if (!status && *t->model)
        status = ddl_config_set_preset(out, t->model, err);
    return status;
}

/* An earlier line may not set the key of entry i by another name to another value. */
static ddl_status check_names(const struct ddl_recipe *recipe, size_t i, const struct ddl_option *table,
                              const char *where, struct ddl_error *err)
{
    const struct ddl_recipe_entry *entry = &recipe->entries[i];
    const struct ddl_option *row = ddl_option_find(table, entry->key);
    for (const struct ddl_recipe_entry *earlier = recipe->entries; earlier < entry; earlier++) {
        if (ddl_option_find(table, earlier->key) == row &&
            !ddl_option_same(row, earlier->value, entry->value))
            return ddl_error_set(
                err, DDL_E_USAGE,
                "%s: '%.80s' is the same key as '%.80s' at line %zu: expected %.80s, found %.80s", where,
                entry->key, earlier->key, earlier->line, earlier->value, entry->value);
    }
    return DDL_OK;
}

/* The keys that a recipe has and that are not keys of a run. */
struct file_keys {
    int relative_to;    /* enum ddl_relative_to */
    char computed[512]; /* keys, separated by commas */
};
static const char computed_key[] = "computed";
static const struct ddl_option file_rows[] = {
    { ddl_relative_to_key, DDL_OPTION_CHOICE, offsetof(struct file_keys, relative_to), 0, 0, 0,
      ddl_relative_to_names, "NAME", "what relative paths in the recipe are relative to" },
    { computed_key, DDL_OPTION_STRING, offsetof(struct file_keys, computed),
      sizeof(((struct file_keys *)0)->computed), 0, 0, NULL, "NAMES",
      "keys whose values in the recipe were computed: computed again for another number of steps" },
    { 0 },
};

static ddl_status read_file_keys(const struct ddl_train_layer *layer, struct file_keys *keys,
                                 struct ddl_error *err)
{
    const struct ddl_recipe *recipe = layer->recipe;
    ddl_status status = DDL_OK;
    *keys = (struct file_keys){ 0 };
    keys->relative_to = layer->relative ? DDL_RELATIVE_TO_RECIPE : DDL_RELATIVE_TO_WORKING_DIRECTORY;
    for (size_t i = 0; !status && i < recipe->n; i++) {
        const struct ddl_recipe_entry *entry = &recipe->entries[i];
        const struct ddl_option *row = ddl_option_find(file_rows, entry->key);
        char where[1200];
        if (!row)
            continue;
        snprintf(where, sizeof where, "%.1024s:%zu: %s", layer->path, entry->line, row->name);
        status = ddl_option_set(row, keys, entry->value, where, err);
    }
    return status;
}

/* Sets a key of a recipe in `folder` (NULL: paths are relative to the working directory). */
static ddl_status apply_entry(const struct ddl_option *row, const char *value, const char *folder,
                              const char *where, struct ddl_train_config *t, struct ddl_error *err)
{
    char mapped[DDL_PATHS_SIZE];
    if (!folder || !ddl_option_is_path(row))
        return ddl_option_set(row, t, ddl_train_current_value(row->name, value), where, err);
    if (!ddl_train_map_paths(row, DDL_PATHS_LOAD, folder, value, mapped, sizeof mapped))
        return ddl_error_set(err, DDL_E_USAGE, "%s: the path is too long: '%.200s'", where, value);
    return ddl_option_set(row, t, mapped, where, err);
}

static ddl_status unknown_key(const struct ddl_option *table, const char *where, const char *key,
                              struct ddl_error *err)
{
    struct ddl_error found;
    ddl_status status = ddl_option_unknown(table, where, "key", key, &found);
    return ddl_error_set(err, status, "%.900s%s", found.text,
                         found.has_no_hint ? "; 'ddl help train' lists the keys" : "");
}

static ddl_status apply_recipe(const struct ddl_train_layer *layer, const struct ddl_option *table,
                               struct ddl_train_config *t, struct ddl_error *err)
{
    const struct ddl_recipe *recipe = layer->recipe;
    const char *path = layer->path;
    struct file_keys keys;
    char folder[DDL_PATHS_SIZE] = ".";
    ddl_status status = read_file_keys(layer, &keys, err);
    if (!status && !ddl_path_folder(path, folder, sizeof folder))
        status = ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", path);
    const char *base = keys.relative_to == DDL_RELATIVE_TO_RECIPE ? folder : NULL;
    for (size_t i = 0; !status && i < recipe->n; i++) {
        const struct ddl_recipe_entry *entry = &recipe->entries[i];
        char where[1200];
        snprintf(where, sizeof where, "%.1024s:%zu", path, entry->line);
        const struct ddl_option *row = ddl_option_find(table, entry->key);
        if (ddl_option_find(file_rows, entry->key))
            continue;
        if (!row)
            return unknown_key(table, where, entry->key, err);
        status = row->aliases || row->others ? check_names(recipe, i, table, where, err) : DDL_OK;
        snprintf(where, sizeof where, "%.1024s:%zu: %s", path, entry->line, row->name);
        if (!status)
            status = apply_entry(row, entry->value, base, where, t, err);
    }
    return status;
}

struct sources {
    const struct ddl_option *table, *more;
    void *more_object;
    const struct ddl_train_layer *layers; /* n_layers recipes; a later one overrides the ones before */
    size_t n_layers;
    int argc;
    char **argv;
};

/* The recipes from `first` on, and the flags, onto *t. The flags are read from a copy: reading moves them
 * about. */
static ddl_status apply_from(const struct sources *s, size_t first, struct ddl_train_config *t, char **copy,
                             int *n_positional, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = first; !status && i < s->n_layers; i++)
        status = apply_recipe(&s->layers[i], s->table, t, err);
    if (status)
        return status;
    memcpy(copy, s->argv, (size_t)s->argc * sizeof *copy);
    return ddl_option_parse(s->table, t, s->more, s->more_object, s->argc, copy, n_positional, err);
}

static ddl_status apply_all(const struct sources *s, struct ddl_train_config *t, char **copy,
                            int *n_positional, struct ddl_error *err)
{
    return apply_from(s, 0, t, copy, n_positional, err);
}

/* block_size without seq, as an option or in a later recipe, sets the length of the sequences too: the first
 * recipe's seq was chosen for its own block_size. */
static ddl_status follow_block_size(const struct sources *s, struct ddl_train_config *t, char **copy,
                                    int *n_positional, struct ddl_error *err)
{
    struct ddl_train_config later = { .seq = SIZE_MAX };
    ddl_status status = apply_from(s, 1, &later, copy, n_positional, err);
    if (!status && later.config.block_size && later.seq == SIZE_MAX)
        t->seq = 0;
    return status;
}

/* accumulate without global_batch, as an option or in a later recipe, sets the size of a step too: the
 * global_batch of the first recipe would leave it without effect. */
static ddl_status follow_accumulate(const struct sources *s, struct ddl_train_config *t, char **copy,
                                    int *n_positional, struct ddl_error *err)
{
    struct ddl_train_config later = { .global_batch = UINT64_MAX };
    ddl_status status = apply_from(s, 1, &later, copy, n_positional, err);
    if (!status && later.accumulate && later.global_batch == UINT64_MAX)
        t->global_batch = 0;
    return status;
}

/* Whether `list`, names separated by commas, has the name. */
static bool is_listed(const char *list, const char *name)
{
    for (size_t n; *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        if (n == strlen(name) && memcmp(list, name, n) == 0)
            return true;
    }
    return false;
}

/* The values that layer l lists as computed: computed again if steps is set to another number than the
 * layer's, unless a later layer or a flag sets them. */
static ddl_status follow_steps(const struct sources *s, size_t l, struct ddl_train_config *t, char **copy,
                               int *n_positional, struct ddl_error *err)
{
    static const uint64_t unset = DDL_OPTION_AUTO - 1; /* beyond the range of every row */
    struct ddl_train_config own = ddl_train_defaults(), later = { 0 };
    struct file_keys keys;
    ddl_status status = read_file_keys(&s->layers[l], &keys, err);
    if (status || !*keys.computed)
        return status;
    for (const struct ddl_option *row = rows; row->name; row++) {
        if (row->automatic)
            *automatic_field(row, &later) = unset;
    }
    status = apply_recipe(&s->layers[l], s->table, &own, err);
    if (!status)
        status = apply_from(s, l + 1, &later, copy, n_positional, err);
    for (const struct ddl_option *row = rows; row->name && !status; row++) {
        if (!row->automatic || !is_listed(keys.computed, row->name) || *automatic_field(row, &later) != unset)
            continue;
        if (t->steps == own.steps)
            ddl_train_set_computed(row, t);
        else
            *automatic_field(row, t) = DDL_OPTION_AUTO;
    }
    return status;
}

/* The vocabulary of the tokenizer, or of the one that built the shards; 0 if neither can be read: the run
 * then reports why. */
static ddl_status vocabulary_of(const struct ddl_train_config *t, size_t *n, struct ddl_error *err)
{
    struct ddl_tokenizer_identity id = { 0 };
    ddl_tokenizer *tokenizer;
    ddl_shards *shards;
    ddl_status status = DDL_OK;
    *n = 0;
    if (*t->tokenizer) {
        status = ddl_tokenizer_load(&tokenizer, t->tokenizer, err);
        if (!status) {
            *n = ddl_tokenizer_vocab_size(tokenizer);
            ddl_tokenizer_free(tokenizer);
        }
    } else if (*t->train_data) {
        status = ddl_train_open_train(t, &shards, err);
        if (!status) {
            status = ddl_shards_identity(shards, &id, err);
            *n = id.vocab_size;
            ddl_shards_close(shards);
        }
    }
    return status == DDL_E_MEMORY ? status : DDL_OK;
}

/* vocab_size, if it is not among the given keys. */
static ddl_status default_vocabulary(const struct ddl_config *given, struct ddl_train_config *t,
                                     struct ddl_error *err)
{
    size_t n = 0;
    ddl_status status = DDL_OK;
    if (!given->vocab_size && !*t->init_from)
        status = vocabulary_of(t, &n, err);
    if (!status && n) {
        t->config.vocab_size = ddl_vocab_size_padded(n);
        t->vocab_automatic = true;
    }
    return status;
}

/* Whether an earlier version stored hidden_size or num_attention_heads in the recipe of a run without their
 * head_dim, which then is that of the named size. A stored recipe is one with both size and init_from: in a
 * recipe written by hand they exclude each other. */
static bool has_former_head_dim(const struct sources *s)
{
    for (size_t l = 0; l < s->n_layers; l++) {
        const struct ddl_recipe *recipe = s->layers[l].recipe;
        if (ddl_recipe_find(recipe, "size") && ddl_recipe_find(recipe, "init_from") &&
            (ddl_recipe_find(recipe, "hidden_size") || ddl_recipe_find(recipe, "num_attention_heads")))
            return true;
    }
    return false;
}

/* head_dim, if it is not among the given keys and one of those that it depends on is. */
static ddl_status default_head_dim(const struct sources *s, const struct ddl_config *given,
                                   struct ddl_train_config *t, struct ddl_error *err)
{
    if (given->head_dim || (!given->d_model && !given->n_heads) || *t->init_from || has_former_head_dim(s))
        return DDL_OK;
    t->head_dim_automatic = true;
    t->named_head_dim = t->config.head_dim;
    return ddl_config_set_head_dim(&t->config, given, err);
}

/* Once to learn the names, once more over what the names give, and once onto zeros to learn which keys are
 * given. */
static ddl_status configure(const struct sources *s, struct ddl_train_config *out, char **copy,
                            int *n_positional, struct ddl_error *err)
{
    struct ddl_train_config names = ddl_train_defaults(), t = names, given = { 0 };
    struct ddl_match match;
    ddl_status status = apply_all(s, &names, copy, n_positional, err);
    if (!status)
        status = named_config(&names, &t.config, err);
    if (!status)
        status = apply_all(s, &t, copy, n_positional, err);
    if (!status)
        status = follow_block_size(s, &t, copy, n_positional, err);
    if (!status)
        status = follow_accumulate(s, &t, copy, n_positional, err);
    for (size_t l = 0; !status && l < s->n_layers; l++)
        status = follow_steps(s, l, &t, copy, n_positional, err);
    if (!status)
        status = apply_all(s, &given, copy, n_positional, err);
    if (!status)
        status = default_vocabulary(&given.config, &t, err);
    if (!status)
        status = default_head_dim(s, &given.config, &t, err);
    if (!status && *t.ddl_residual_by_layer)
        status = ddl_config_set_by_layer(&t.config, t.ddl_residual_by_layer, "ddl_residual_by_layer", err);
    if (!status)
        status = ddl_train_match(&t, &match, err);
    if (!status)
        status = ddl_train_check(&t, err);
    if (!status)
        *out = t;
    return status;
}

/* The path of the recipe: `recipe`, or else the first argument that is no flag, or NULL. */
static ddl_status find_recipe(const struct sources *s, char **copy, const char **recipe,
                              struct ddl_error *err)
{
    struct ddl_train_config ignored = { 0 };
    int n = 0;
    if (*recipe)
        return DDL_OK;
    ddl_status status = apply_all(s, &ignored, copy, &n, err);
    if (!status && n > 0)
        *recipe = copy[1];
    return status;
}

ddl_status ddl_train_configure(struct ddl_train_config *out, const char *recipe, int argc, char **argv,
                               const struct ddl_option *more, void *more_object, int *n_positional,
                               struct ddl_error *err)
{
    struct ddl_option *table = all_rows(err);
    char **copy = calloc((size_t)argc + 1, sizeof *copy);
    struct ddl_recipe keys = { 0 };
    struct ddl_train_layer layer = { .recipe = &keys };
    struct sources s = {
        .table = table, .more = more, .more_object = more_object, .argc = argc, .argv = argv
    };
    ddl_status status = DDL_OK;
    *n_positional = 0;
    if (!table || !copy)
        status = ddl_error_set(err, DDL_E_MEMORY, "out of memory for the table of options");
    if (!status)
        status = find_recipe(&s, copy, &recipe, err);
    if (!status && recipe) {
        layer.path = recipe;
        s.layers = &layer;
        s.n_layers = 1;
        status = ddl_recipe_read(&keys, recipe, err);
    }
    if (!status)
        status = configure(&s, out, copy, n_positional, err);
    if (!status)
        memcpy(argv, copy, (size_t)argc * sizeof *argv);
    ddl_recipe_free(&keys);
    free(copy);
    free(table);
    return status;
}

ddl_status ddl_train_configure_layers(struct ddl_train_config *out, const struct ddl_train_layer *layers,
                                      size_t n, struct ddl_error *err)
{
    char name[] = "", *argv[] = { name, NULL }, *copy[] = { name, NULL };
    struct ddl_option *table = all_rows(err);
    const struct sources s = { .table = table, .layers = layers, .n_layers = n, .argc = 1, .argv = argv };
    int n_positional = 0;
    ddl_status status = table ? configure(&s, out, copy, &n_positional, err) : DDL_E_MEMORY;
    free(table);
    return status;
}

/* ---- checks ---- */

ddl_status ddl_train_check(const struct ddl_train_config *config, struct ddl_error *err)
{
    struct ddl_train_config t = ddl_train_resolved(config);
    ddl_status status = ddl_option_check(rows, &t, err);
    if (!status)
        status = ddl_config_check(&t.config, err);
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

/* ---- writing ---- */

/* Whether YAML accepts the character unescaped within quotes: no control, line break or byte order mark. */
static bool stands_in_quotes(uint32_t code)
{
    return code >= 0x20 && code != '"' && code != '\\' && !(code >= 0x7f && code <= 0x9f) && code != 0x2028 &&
           code != 0x2029 && code != 0xfeff && code != 0xfffe && code != 0xffff;
}

/* A double-quoted YAML scalar of a text that is UTF-8. */
static void write_quoted(FILE *out, const char *text)
{
    putc('"', out);
    for (size_t left = strlen(text), n; left > 0; text += n, left -= n) {
        uint32_t code;
        n = ddl_utf8_decode((const unsigned char *)text, left, &code);
        if (stands_in_quotes(code))
            fwrite(text, 1, n, out);
        else
            fprintf(out, "\\u%04lx", (unsigned long)code);
    }
    putc('"', out);
}

/* The line with the keys whose values are computed, if there are any. */
static void write_computed(FILE *out, const struct ddl_train_config *t)
{
    const char *before = "";
    for (const struct ddl_option *row = rows; row->name; row++) {
        bool computed = row->automatic && t->computed & computed_bit(row);
        if (computed && !*before)
            fprintf(out,
                    "# Computed values, computed again for another number of steps:\n%s: ", computed_key);
        if (computed)
            fprintf(out, "%s%s", before, row->name);
        before = computed ? "," : before;
    }
    if (*before)
        putc('\n', out);
}

/* Paths are bytes, YAML is not: what is not valid UTF-8 is left out. */
static void write_row(FILE *out, const struct ddl_option *row, const void *object)
{
    char value[DDL_RECIPE_VALUE];
    ddl_option_format(row, object, value, sizeof value);
    if (!ddl_utf8_is_valid(value, strlen(value))) {
        fprintf(out, "# %s is not valid UTF-8: left out\n", row->name);
        return;
    }
    fprintf(out, "%s: ", row->name);
    if (ddl_option_is_text(row))
        write_quoted(out, value);
    else
        fputs(value, out);
    putc('\n', out);
}

ddl_status ddl_train_save_recipe(const struct ddl_train_config *config, const char *path,
                                 struct ddl_error *err)
{
    struct ddl_config named;
    struct ddl_file_writer w;
    struct ddl_train_config stored = *config;
    char folder[DDL_PATHS_SIZE];
    if (!ddl_path_folder(path, folder, sizeof folder))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", path);
    ddl_status status = named_config(config, &named, err);
    if (!status)
        status = ddl_train_store_paths(rows, &stored, folder, err);
    if (!status)
        status = ddl_file_writer_begin(&w, path, err);
    if (status)
        return status;
    fprintf(w.stream, "# Relative paths are relative to the folder of this file.\n%s: %s\n",
            ddl_relative_to_key, ddl_relative_to_names[DDL_RELATIVE_TO_RECIPE]);
    write_computed(w.stream, config);
    for (const struct ddl_option *row = rows; row->name; row++)
        write_row(w.stream, row, &stored);
    /* Read again, hidden_size or num_attention_heads alone would change head_dim. */
    bool heads = config->config.d_model != named.d_model || config->config.n_heads != named.n_heads;
    for (const struct ddl_option *row = ddl_config_options(); row->name; row++) {
        char value[64], implied[64];
        ddl_option_format(row, &config->config, value, sizeof value);
        ddl_option_format(row, &named, implied, sizeof implied);
        if (strcmp(value, implied) != 0 || strcmp(row->name, "vocab_size") == 0 ||
            (heads && strcmp(row->name, "head_dim") == 0))
            write_row(w.stream, row, &config->config);
    }
    return ddl_file_writer_commit(&w, err);
}
