#define _POSIX_C_SOURCE 200809L
#include "base/file.h"
#include "base/mem.h"
#include "ddl/data.h"
#include "ddl/generate.h"
#include "ddl/train.h"
#include "model/io.h"
#include "run/checkpoint.h"
#include "run/clock.h"
#include "run/metrics.h"
#include "run/schedule.h"
#include "run/step.h"
#include "run/train_config.h"
#include "run/validate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 1280 };
/* Shards up to this many tokens are read once before the run, so that a vocabulary that does not fit shows at
 * the start; in larger ones it shows when such a token is drawn. */
static const uint64_t check_limit = (uint64_t)1 << 28;

struct run {
    struct ddl_train_config config;
    const struct ddl_train_callbacks *callbacks;
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
    uint64_t saved_step;        /* of the newest checkpoint, 0: none */
    char checkpoint[PATH_SIZE]; /* its folder, "" if there is none   */
};

static void note(const struct run *run, const char *sentence)
{
    if (run->callbacks->note)
        run->callbacks->note(run->callbacks->user, sentence);
}

/* ---- before anything is written ---- */

static ddl_status open_shards(ddl_shards **out, const char *key, const char *path, size_t vocab,
                              struct ddl_error *err)
{
    ddl_status status = ddl_shards_open(out, path, err);
    if (!status && ddl_shards_count(*out) < 2)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %s: 1 token in all, a sequence needs 2", key, path);
    if (!status && ddl_shards_count(*out) <= check_limit)
        status = ddl_shards_check(*out, vocab, err);
    return status ? ddl_error_prefix(err, status, key) : DDL_OK;
}

static ddl_status open_tokenizer(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    ddl_status status = ddl_tokenizer_load(&run->tokenizer, t->tokenizer, err);
    if (status)
        return status;
    size_t n = ddl_tokenizer_vocab_size(run->tokenizer), V = t->config.vocab_size;
    if (n > V)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: the tokenizer has %zu tokens, vocab_size is %zu",
                             t->tokenizer, n, V);
    if (!t->sample_every)
        return DDL_OK;
    struct ddl_ids prompt = { 0 };
    status =
        ddl_tokenizer_encode(run->tokenizer, t->sample_prompt, strlen(t->sample_prompt), false, &prompt, err);
    if (!status && prompt.n > t->config.block_size)
        status = ddl_error_set(err, DDL_E_USAGE, "sample_prompt is %zu tokens, the model's context %zu",
                               prompt.n, t->config.block_size);
    if (!status && prompt.n == 0 && ddl_tokenizer_end_of_text(run->tokenizer) < 0)
        status = ddl_error_set(
            err, DDL_E_USAGE, "sample_prompt is empty, and the tokenizer has no <|endoftext|> to begin with");
    ddl_ids_free(&prompt);
    return status;
}

static ddl_status open_inputs(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    if (!*t->train_data || !*t->out)
        return ddl_error_set(err, DDL_E_USAGE, "%s is not set, neither in a recipe nor as a flag",
                             *t->out ? "train_data" : "out");
    ddl_status status = open_shards(&run->train, "train_data", t->train_data, t->config.vocab_size, err);
    if (!status && *t->val_data)
        status = open_shards(&run->val, "val_data", t->val_data, t->config.vocab_size, err);
    if (!status && *t->tokenizer)
        status = open_tokenizer(run, err);
    return status;
}

/* A run that was stopped before its first checkpoint begins again; a folder that holds none, or a finished
 * model alone, is a mistake. */
static ddl_status begin_again(struct run *run, struct ddl_error *err)
{
    const char *out = run->config.out;
    char recipe[PATH_SIZE], config[PATH_SIZE];
    if (!ddl_path_join(recipe, sizeof recipe, out, "recipe.yaml") ||
        !ddl_path_join(config, sizeof config, out, "config.json") || !ddl_file_exists(recipe) ||
        ddl_file_exists(config))
        return ddl_error_set(err, DDL_E_IO, "%.600s: no checkpoint to resume from", out);
    struct ddl_error sentence;
    ddl_error_set(&sentence, DDL_OK, "%.600s: no checkpoint yet, beginning again", out);
    note(run, sentence.text);
    run->config.resume = false;
    return DDL_OK;
}

/* What stands in `out` already decides where the run begins. */
static ddl_status look_for_earlier(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    char metrics[PATH_SIZE];
    bool has_checkpoint =
        ddl_checkpoint_newest(t->out, UINT64_MAX, NULL, run->checkpoint, sizeof run->checkpoint);
    if (!ddl_path_join(metrics, sizeof metrics, t->out, "metrics.jsonl"))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", t->out);
    if (!t->resume) {
        run->checkpoint[0] = '\0';
        if ((has_checkpoint || ddl_file_exists(metrics)) && !t->overwrite)
            return ddl_error_set(err, DDL_E_USAGE,
                                 "%s: holds a run already; --resume goes on with it, --overwrite removes it",
                                 t->out);
        return DDL_OK;
    }
    if (!has_checkpoint)
        return begin_again(run, err);
    ddl_status status = ddl_checkpoint_read_newest(t, &run->state, run->checkpoint, sizeof run->checkpoint,
                                                   run->callbacks->note, run->callbacks->user, err);
    if (!status && run->state.step > t->steps)
        status =
            ddl_error_set(err, DDL_E_USAGE, "%s: the run has done %llu of %llu steps already",
                          run->checkpoint, (unsigned long long)run->state.step, (unsigned long long)t->steps);
    run->saved_step = run->state.step;
    return status;
}

static struct ddl_optim_config optim_config(const struct ddl_train_config *t)
{
    struct ddl_optim_config config = ddl_optim_defaults();
    config.beta1 = t->beta1;
    config.beta2 = t->beta2;
    config.eps = t->eps;
    config.clip = t->clip;
    for (int group = 0; group < DDL_GROUPS; group++)
        config.weight_decay[group] =
            t->weight_decay_group[group] < 0 ? t->weight_decay : t->weight_decay_group[group];
    return config;
}

/* Said before memory is taken: the system promises more than it has, and ends the process that uses it. */
static ddl_status check_memory(const struct run *run, struct ddl_error *err)
{
    struct ddl_train_plan plan;
    ddl_status status = ddl_train_plan(&run->config, &plan, err);
    size_t machine = ddl_mem_machine();
    if (!status && plan.bytes_total > machine)
        return ddl_error_set(err, DDL_E_MEMORY,
                             "the run needs %.1f GiB of memory, this machine has %.1f; --dry-run tells what "
                             "takes it",
                             (double)plan.bytes_total / 0x1p30, (double)machine / 0x1p30);
    return status;
}

static ddl_status make_model(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    const struct ddl_optim_config optim = optim_config(t);
    ddl_status status = ddl_backend_create(&run->backend, t->backend, t->threads, err);
    if (!status)
        status = ddl_model_create(&run->model, &t->config, run->backend, err);
    if (!status)
        status = ddl_model_enable_grad(run->model, err);
    if (!status)
        status = ddl_model_set_precision(run->model, (enum ddl_precision)t->precision, err);
    if (!status)
        status = ddl_optim_create(&run->optim, run->model, &optim, err);
    if (!status)
        status = ddl_workspace_create(&run->ws, run->model, t->batch, t->seq, true, err);
    if (status)
        return status;
    if (t->resume)
        return ddl_checkpoint_read_weights(run->checkpoint, run->model, run->optim, &run->state, err);
    if (*t->init_from)
        return ddl_model_read_weights_with(
            run->model, t->init_from,
            &(struct ddl_load_options){ t->ignore_extra, run->callbacks->note, run->callbacks->user },

            err);
    return ddl_model_init(run->model, t->seed, err);
}

static ddl_status make_step(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    size_t n = t->accumulate * t->batch * t->seq; /* ddl_train_check has seen that it fits */
    run->tokens = ddl_mem_alloc(2 * n * sizeof *run->tokens);
    if (!run->tokens)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu tokens", n);
    run->targets = run->tokens + n;
    run->loader = (struct ddl_loader){ run->train, t->order, t->seed, t->seq, run->state.position };
    run->step = (struct ddl_step){ .model = run->model,
                                   .ws = run->ws,
                                   .optim = run->optim,
                                   .batch = t->batch,
                                   .accumulate = t->accumulate,
                                   .seq = t->seq,
                                   .tokens = run->tokens,
                                   .targets = run->targets };
    if (run->val)
        run->validation = ddl_validation_plan(run->val, t->val_tokens, t->batch, t->seq);
    run->flops_per_token = ddl_config_flops_per_token(&t->config, t->seq, true);
    run->logged_tokens = run->state.tokens;
    run->logged_seconds = run->state.seconds;
    /* What there is to say if no step is left to do. */
    run->progress = (struct ddl_train_progress){ .step = run->state.step,
                                                 .steps = t->steps,
                                                 .loss = run->state.loss,
                                                 .has_val = run->state.has_val,
                                                 .val_loss = run->state.val_loss,
                                                 .tokens = run->state.tokens,
                                                 .flops = run->state.flops,
                                                 .seconds = run->state.seconds };
    return DDL_OK;
}

/* ---- the folder ---- */

static ddl_status remove_earlier(const struct run *run, struct ddl_error *err)
{
    static const char *const files[] = { "model.safetensors", "config.json", "tokenizer.json" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[PATH_SIZE];
        if (ddl_path_join(path, sizeof path, run->config.out, files[i]))
            (void)unlink(path); /* absent is fine; what stays is replaced in the end */
    }
    return ddl_checkpoint_remove_all(run->config.out, err);
}

static ddl_status open_folder(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    char recipe[PATH_SIZE], metrics[PATH_SIZE];
    uint64_t logged = 0;
    if (!ddl_path_join(recipe, sizeof recipe, t->out, "recipe.yaml") ||
        !ddl_path_join(metrics, sizeof metrics, t->out, "metrics.jsonl"))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", t->out);
    ddl_status status = ddl_file_make_dir(t->out, err);
    if (!status)
        status = t->resume ? ddl_checkpoint_remove_partial(t->out, err) : remove_earlier(run, err);
    if (!status)
        status = ddl_train_save_recipe(t, recipe, err);
    if (!status)
        status = ddl_metrics_open(&run->metrics, metrics, run->state.step, &logged, err);
    if (!status && logged < run->state.logged) {
        struct ddl_error sentence;
        ddl_error_set(&sentence, DDL_OK, "%.600s: the lines from step %llu to %llu are lost", metrics,
                      (unsigned long long)logged + 1, (unsigned long long)run->state.logged);
        note(run, sentence.text);
    }
    return status;
}

static ddl_status save_checkpoint(struct run *run, struct ddl_error *err)
{
    if (run->saved_step == run->state.step && run->checkpoint[0])
        return DDL_OK;
    char path[PATH_SIZE];
    struct ddl_error why, sentence;
    bool best;
    ddl_status status = ddl_metrics_sync(&run->metrics, err);
    if (!status)
        status = ddl_checkpoint_save(&run->config, run->model, run->optim, run->tokenizer, &run->state, path,
                                     sizeof path, err);
    if (status)
        return status;
    run->saved_step = run->state.step;
    memcpy(run->checkpoint, path, sizeof path);
    ddl_status pruned = ddl_checkpoint_prune(&run->config, run->state.step, &best, &why);
    ddl_error_set(&sentence, DDL_OK, "%.600s written%s", path,
                  best ? "; its validation loss is the lowest so far" : "");
    note(run, sentence.text);
    if (pruned) { /* no reason to end a run whose own state is safe */
        ddl_error_set(&sentence, DDL_OK, "an older checkpoint stays: %.600s", why.text);
        note(run, sentence.text);
    }
    return DDL_OK;
}

static ddl_status save_model(const struct run *run, struct ddl_error *err)
{
    ddl_status status = run->tokenizer ? ddl_tokenizer_save(run->tokenizer, run->config.out, err) : DDL_OK;
    return status ? status : ddl_model_save(run->model, run->config.out, err);
}

/* ---- samples ---- */

struct text {
    char *bytes;
    size_t n, capacity;
    bool failed;
};

static int collect(void *user, size_t sequence, const char *piece, size_t size)
{
    (void)sequence;
    struct text *text = user;
    if (text->n + size > text->capacity) {
        size_t capacity = 2 * (text->n + size);
        char *grown = realloc(text->bytes, capacity);
        text->failed = !grown;
        if (!grown)
            return 1;
        text->bytes = grown;
        text->capacity = capacity;
    }
    memcpy(text->bytes + text->n, piece, size);
    text->n += size;
    return 0;
}

static ddl_status sample(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    struct ddl_generate_config g = ddl_generate_defaults();
    struct text text = { 0 };
    g.max_tokens = t->sample_tokens;
    g.temperature = 0.8f;
    g.seed = t->seed + run->state.step;
    ddl_status status = ddl_generate(run->model, run->tokenizer, &g, t->sample_prompt,
                                     strlen(t->sample_prompt), collect, &text, NULL, err);
    if (!status && text.failed)
        status = ddl_error_set(err, DDL_E_MEMORY, "out of memory for a sample of text");
    if (!status && run->callbacks->sample)
        run->callbacks->sample(run->callbacks->user, run->state.step, text.n ? text.bytes : "", text.n);
    free(text.bytes);
    return status;
}

/* ---- the loop ---- */

static bool due(uint64_t step, uint64_t every, uint64_t last)
{
    return every && (step % every == 0 || step == last);
}

static ddl_status step_failed(const struct run *run, ddl_status status, struct ddl_error *err)
{
    char where[64];
    snprintf(where, sizeof where, "step %llu", (unsigned long long)run->state.step + 1);
    if (err && status == DDL_E_NUMERIC) {
        struct ddl_error why = *err;
        ddl_error_set(err, status, "%.300s; %s%.300s", why.text,
                      run->checkpoint[0] ? "the newest checkpoint is " : "there is no checkpoint yet",
                      run->checkpoint);
    }
    return ddl_error_prefix(err, status, where);
}

/* A write failed: what was saved stands. */
static ddl_status write_failed(const struct run *run, ddl_status status, struct ddl_error *err)
{
    struct ddl_error why = *err;
    if (status != DDL_E_IO)
        return status;
    return ddl_error_set(err, status, "%.500s; after that --resume %s%.300s", why.text,
                         run->checkpoint[0] ? "goes on from " : "begins again: there is no checkpoint yet",
                         run->checkpoint);
}

/* One step, and what there is to say about it. */
static ddl_status advance(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    struct ddl_train_progress *p = &run->progress;
    struct ddl_step_result result;
    double start = ddl_clock_seconds();
    ddl_loader_next(&run->loader, t->accumulate * t->batch, run->tokens, run->targets);
    double lr = ddl_schedule(t->lr, t->lr * t->lr_min_ratio, t->warmup, t->steps, run->state.step);
    ddl_status status = ddl_step_run(&run->step, lr, &result, err);
    if (status)
        return step_failed(run, status, err);
    size_t tokens = t->accumulate * t->batch * t->seq;
    run->state.step++;
    run->state.loss = result.loss;
    run->state.has_val = false;
    run->state.position = run->loader.position;
    run->state.tokens += tokens;
    run->state.flops += (double)tokens * run->flops_per_token;
    run->state.seconds += ddl_clock_seconds() - start;
    double since = run->state.seconds - run->logged_seconds;
    *p = (struct ddl_train_progress){ .step = run->state.step,
                                      .steps = t->steps,
                                      .loss = result.loss,
                                      .lr = lr,
                                      .grad_norm = result.grad_norm,
                                      .tokens = run->state.tokens,
                                      .flops = run->state.flops,
                                      .seconds = run->state.seconds };
    p->tokens_per_s = since > 0 ? (double)(run->state.tokens - run->logged_tokens) / since : 0;
    if (p->tokens_per_s > 0)
        p->seconds_left = (double)(t->steps - p->step) * (double)tokens / p->tokens_per_s;
    return DDL_OK;
}

static ddl_status report(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    struct ddl_train_progress *p = &run->progress;
    ddl_status status = DDL_OK;
    if (run->val && due(p->step, t->val_every, t->steps)) {
        status = ddl_validation_run(&run->validation, run->model, run->ws, run->tokens, run->targets,
                                    &p->val_loss, err);
        p->has_val = run->state.has_val = true;
        run->state.val_loss = p->val_loss;
    }
    if (status || !(p->has_val || due(p->step, t->log_every, t->steps)))
        return status;
    p->peak_memory = ddl_clock_peak_memory();
    run->logged_tokens = run->state.tokens;
    run->logged_seconds = run->state.seconds;
    status = ddl_metrics_write(&run->metrics, p, err);
    run->state.logged = p->step;
    if (!status && run->callbacks->progress)
        run->callbacks->progress(run->callbacks->user, p);
    return status;
}

static ddl_status stop(struct run *run, struct ddl_error *err)
{
    ddl_status status = save_checkpoint(run, err);
    if (status)
        return write_failed(run, status, err);
    return ddl_error_set(
        err, DDL_E_INTERRUPTED, "stopped after step %llu of %llu; %s holds it, --resume goes on",
        (unsigned long long)run->state.step, (unsigned long long)run->config.steps, run->checkpoint);
}

static ddl_status loop(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    while (run->state.step < t->steps) {
        ddl_status status = advance(run, err);
        if (!status)
            status = report(run, err);
        if (!status && due(run->state.step, t->sample_every, t->steps))
            status = sample(run, err);
        if (!status && due(run->state.step, t->checkpoint_every, t->steps))
            status = save_checkpoint(run, err);
        if (status)
            return write_failed(run, status, err);
        bool last = run->state.step == t->steps;
        if (!last && run->callbacks->stop && run->callbacks->stop(run->callbacks->user))
            return stop(run, err);
    }
    return write_failed(run, save_model(run, err), err);
}

static void release(struct run *run)
{
    ddl_metrics_close(&run->metrics);
    ddl_mem_free(run->tokens);
    ddl_workspace_free(run->ws);
    ddl_optim_free(run->optim);
    ddl_model_free(run->model);
    ddl_backend_free(run->backend);
    ddl_tokenizer_free(run->tokenizer);
    ddl_shards_close(run->val);
    ddl_shards_close(run->train);
}

ddl_status ddl_train_run(const struct ddl_train_config *config, const struct ddl_train_callbacks *callbacks,
                         struct ddl_train_progress *last, struct ddl_error *err)
{
    static const struct ddl_train_callbacks silent = { 0 };
    struct ddl_error why = { 0 }; /* sentences are put together, so there must be room for them */
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory");
    run->config = ddl_train_resolved(config);
    run->callbacks = callbacks ? callbacks : &silent;
    ddl_status status = ddl_train_check(config, &why);
    if (!status)
        status = open_inputs(run, &why);
    if (!status)
        status = look_for_earlier(run, &why);
    if (!status)
        status = check_memory(run, &why);
    if (!status)
        status = make_model(run, &why);
    if (!status)
        status = make_step(run, &why);
    if (!status)
        status = open_folder(run, &why);
    if (!status)
        status = loop(run, &why);
    if (last)
        *last = run->progress;
    release(run);
    free(run);
    if (status && err)
        *err = why;
    return status;
}
