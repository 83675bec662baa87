#define _POSIX_C_SOURCE 200809L
#include "train/run/trainer.h"

#include "base/file.h"
#include "base/held.h"
#include "base/path.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/files.h"
#include "ddl/run.h"
#include "model/files/model_io.h"
#include "train/nonfinite/divergence.h"
#include "train/config/freeze.h"
#include "train/config/run_data.h"
#include "train/run/run_folder.h"
#include "train/config/run_model.h"
#include "train/config/recipe_writer.h"
#include "train/config/train_config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Shards of up to this many tokens are checked against the vocabulary before the run; in larger ones a token
 * is checked when it is drawn. */
static const uint64_t check_limit = (uint64_t)1 << 28;

/* ---- before anything is written ---- */

static ddl_status check_shards(const struct run *run, const ddl_shards *shards, const char *key,
                               struct ddl_error *err)
{
    const struct ddl_train_callbacks *c = run->callbacks;
    if (ddl_shards_count(shards) < 2)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %s: 1 token in all, a sequence needs 2", key,
                             ddl_shards_file(shards, 0, NULL, NULL));
    if (ddl_shards_count(shards) > check_limit)
        return DDL_OK;
    ddl_status status = ddl_shards_check(shards, run->config.config.vocab_size, c->check, c->user, err);
    return status ? ddl_error_prefix(err, status, key) : DDL_OK;
}

/* Reports a selection among the files of train_data. */
static void note_selection(const struct run *run)
{
    size_t used = ddl_shards_n_files(run->train);
    size_t left_out = ddl_shards_n_left_out(run->train, true) + ddl_shards_n_left_out(run->train, false);
    char others[96];
    struct ddl_error message;
    if (left_out == 0)
        return;
    if (run->val && strcmp(run->config.val_data, "auto") == 0)
        snprintf(others, sizeof others, ", validating on %zu", ddl_shards_n_files(run->val));
    else
        snprintf(others, sizeof others, "; validation shards (val_*) there, not used: %zu", left_out);
    ddl_error_set(&message, DDL_OK, "train_data: %.600s: training on %zu file%s%s", run->config.train_data,
                  used, used == 1 ? "" : "s", others);
    trainer_note(run, message.text);
}

/* Reports files that were recognized without a header. */
static void note_assumed(const struct run *run, const char *key, const ddl_shards *shards)
{
    struct ddl_error message;
    const char *path = shards ? ddl_shards_assumed(shards) : NULL;
    if (!path)
        return;
    ddl_error_set(&message, DDL_OK, "%s: %.600s: no shard header: reading uint16 tokens in nanoGPT's format",
                  key, path);
    trainer_note(run, message.text);
}

static ddl_status check_data(struct run *run, struct ddl_error *err)
{
    ddl_status status = check_shards(run, run->train, "train_data", err);
    if (!status && run->val)
        status = check_shards(run, run->val, "val_data", err);
    if (!status) {
        note_assumed(run, "train_data", run->train);
        note_assumed(run, "val_data", run->val);
        note_selection(run);
    }
    return status;
}

/* val_every was given, not computed, and has no effect. */
static void note_no_validation(const struct run *run)
{
    const struct ddl_train_config *t = &run->config;
    struct ddl_error message;
    if (!run->train || run->val || t->val_every == 0 || t->val_every == DDL_OPTION_AUTO ||
        ddl_train_is_computed(ddl_option_find(ddl_train_options(), "val_every"), t) ||
        strcmp(t->val_data, "none") == 0)
        return;
    ddl_error_set(&message, DDL_OK,
                  "warning: val_every is %llu, but there is no validation data: expected val_data",
                  (unsigned long long)t->val_every);
    trainer_note(run, message.text);
}

/* head_dim was computed: reports what is unexpected about it. */
static void note_head_dim(const struct run *run)
{
    const struct ddl_train_config *t = &run->config;
    char message[256];
    if (t->head_dim_automatic &&
        ddl_config_head_dim_note(&t->config, t->named_head_dim, message, sizeof message))
        trainer_note(run, message);
}

static ddl_status open_tokenizer(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    ddl_status status = t->verify ? ddl_run_check_tokenizer(t->tokenizer, err) : DDL_OK;
    if (!status)
        status = ddl_tokenizer_load(&run->tokenizer, t->tokenizer, err);
    if (status)
        return status;
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

/* Shards, tokenizer and vocab_size fit together. */
static ddl_status check_vocabulary(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    const struct ddl_vocabulary vocabulary = { .vocab_size = t->config.vocab_size,
                                               .tokenizer = run->tokenizer,
                                               .tokenizer_path = t->tokenizer,
                                               .train = run->train,
                                               .val = run->val };
    ddl_status status =
        ddl_vocabulary_check(&vocabulary, &run->identity, run->callbacks->note, run->callbacks->user, err);
    if (!status && t->vocab_automatic && t->config.vocab_size != run->identity.vocab_size) {
        struct ddl_error message;
        ddl_error_set(&message, DDL_OK, "vocab_size is %zu: the %zu tokens of the tokenizer %.300s, padded",
                      t->config.vocab_size, run->identity.vocab_size, run->identity.name);
        trainer_note(run, message.text);
    }
    run->state.tokenizer = run->identity;
    return status;
}

/* A resumed run keeps its tokenizer. A checkpoint of an earlier version does not record it. */
static ddl_status compare_tokenizer(struct run *run, struct ddl_error *err)
{
    const struct ddl_tokenizer_identity *was = &run->state.tokenizer, *now = &run->identity;
    if (*was->sha256 && *now->sha256 && strcmp(was->sha256, now->sha256) != 0)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%.600s: the run has another tokenizer: expected %.200s (%zu tokens, SHA-256 "
                             "%.12s), found %.200s (%zu tokens, SHA-256 %.12s)",
                             run->checkpoint, was->name, was->vocab_size, was->sha256, now->name,
                             now->vocab_size, now->sha256);
    if (*now->sha256)
        run->state.tokenizer = *now;
    return DDL_OK;
}

/* Notes data that has changed since the checkpoint, which may be wanted. */
static void compare_data(struct run *run, const char *key, const ddl_shards *shards,
                         struct ddl_data_identity *was)
{
    const struct ddl_data_identity now = ddl_train_data_identity(shards);
    struct ddl_error message;
    if (was->tokens && now.tokens && (was->tokens != now.tokens || was->sample != now.sample)) {
        ddl_error_set(&message, DDL_OK,
                      "%s has changed since %.600s: it had %llu tokens (checksum of a sample %08lx), now it "
                      "has %llu (%08lx)",
                      key, run->checkpoint, (unsigned long long)was->tokens, (unsigned long)was->sample,
                      (unsigned long long)now.tokens, (unsigned long)now.sample);
        trainer_note(run, message.text);
    }
    *was = now;
}

ddl_status trainer_open_inputs(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    note_head_dim(run);
    ddl_status status = *t->train_data ? ddl_train_open_train(t, &run->train, err) : DDL_OK;
    if (!status && run->train)
        status = ddl_train_open_val(t, run->train, &run->val, err);
    if (!status && *t->tokenizer)
        status = open_tokenizer(run, err);
    if (!status)
        status = check_vocabulary(run, err);
    if (!status && run->train)
        status = check_data(run, err);
    if (!status && *t->tasks)
        status = trainer_tasks_open(run, err);
    run->state.train = ddl_train_data_identity(run->train);
    run->state.val = ddl_train_data_identity(run->val);
    if (!status)
        note_no_validation(run);
    return status;
}

/* A run that was stopped before its first checkpoint starts again. A folder without a run, or with a finished
 * model only, is an error. */
static ddl_status begin_again(struct run *run, struct ddl_error *err)
{
    const char *out = run->config.out;
    char recipe[RUN_PATH_SIZE], config[RUN_PATH_SIZE];
    if (!ddl_path_join(recipe, sizeof recipe, out, ddl_run_file_name(DDL_FILE_RECIPE)) ||
        !ddl_path_join(config, sizeof config, out, ddl_run_file_name(DDL_FILE_CONFIG)) ||
        !ddl_file_exists(recipe) || ddl_file_exists(config))
        return ddl_error_set(err, DDL_E_IO, "%.600s: no checkpoint to resume from%s", out,
                             ddl_file_exists(config)
                                 ? "; --init-from with this folder starts a new run from its final model"
                                 : "");
    if (run->config.skip)
        return ddl_error_set(err, DDL_E_USAGE,
                             "skip: %.600s has no checkpoint yet: only a run that has one skips data", out);
    struct ddl_error message;
    ddl_error_set(&message, DDL_OK, "%.600s: no checkpoint yet, starting again", out);
    trainer_note(run, message.text);
    run->config.resume = false;
    return DDL_OK;
}

/* The path of the tokenizer; NULL if there is none, or if it is the shipped one. */
static const char *tokenizer_file(const struct ddl_train_config *t)
{
    return *t->tokenizer && strcmp(t->tokenizer, DDL_TOKENIZER_SHIPPED) != 0 ? t->tokenizer : NULL;
}

/* Whether the run's tokenizer is read from this file of `out`, or from `out` as a folder. */
static bool is_own_tokenizer(const struct ddl_train_config *t, const char *path)
{
    char out[RUN_PATH_SIZE], file[RUN_PATH_SIZE], own[RUN_PATH_SIZE];
    return tokenizer_file(t) && ddl_path_canonical(t->out, out, sizeof out) &&
           ddl_path_canonical(path, file, sizeof file) && ddl_path_canonical(t->tokenizer, own, sizeof own) &&
           (strcmp(own, file) == 0 || strcmp(own, out) == 0);
}

/* The i-th file, if it is part of an earlier model in `out`; the run's own tokenizer is not. */
static bool is_earlier(const struct ddl_train_config *t, enum ddl_run_file i, char path[RUN_PATH_SIZE])
{
    return ddl_run_file_is(i, DDL_IS_RESULT) &&
           ddl_path_join(path, RUN_PATH_SIZE, t->out, ddl_run_file_name(i)) && ddl_file_exists(path) &&
           !(i == DDL_FILE_TOKENIZER && is_own_tokenizer(t, path));
}

/* A new run removes what an earlier one has left in `out`, if that is wanted; never what it begins with. */
static ddl_status check_new(const struct ddl_train_config *t, bool has_run, struct ddl_error *err)
{
    char path[RUN_PATH_SIZE];
    struct ddl_run_model from = { .path = "" };
    if (*t->init_from) /* an error is reported when it is read */
        (void)ddl_run_find(&from, t->init_from, t->init_which, false, NULL, NULL, NULL);
    const struct {
        const char *name, *path;
        bool kept;
    } inputs[] = { { "init_from", t->init_from, false },
                   { "init_from", from.path, false },
                   { "tokenizer", tokenizer_file(t) ? t->tokenizer : "",
                     ddl_path_join(path, sizeof path, t->out, ddl_run_file_name(DDL_FILE_TOKENIZER)) &&
                         is_own_tokenizer(t, path) } };
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        if (*inputs[i].path && !inputs[i].kept && ddl_checkpoint_is_lost(t->out, inputs[i].path))
            return ddl_error_set(err, DDL_E_USAGE,
                                 "out: expected another folder than that of %s, found %.600s", inputs[i].name,
                                 t->out);
    }
    if (t->overwrite)
        return DDL_OK;
    if (has_run)
        return ddl_error_set(err, DDL_E_USAGE,
                             "%.600s: there is a run already: --resume continues it, --overwrite removes it",
                             t->out);
    for (enum ddl_run_file i = 0; i < DDL_RUN_FILES; i++) {
        if (is_earlier(t, i, path))
            return ddl_error_set(err, DDL_E_USAGE, "%.600s: there is a %s already: --overwrite removes it",
                                 t->out, ddl_run_file_name(i));
    }
    return DDL_OK;
}

/* Where the run begins, by what `out` already contains. */
static ddl_status look_for_earlier(struct run *run, struct ddl_error *err)
{
    struct ddl_train_config *t = &run->config;
    char metrics[RUN_PATH_SIZE];
    struct ddl_checkpoint *list;
    size_t n, skipped;
    ddl_status status = t->resume ? ddl_checkpoint_restore(t->out, err) : DDL_OK;
    if (status)
        return status;
    /* A folder that cannot be read is an error, not an empty folder. */
    status = ddl_checkpoint_list(t->out, &list, &n, err);
    free(list);
    if (status)
        return status;
    if (!ddl_path_join(metrics, sizeof metrics, t->out, ddl_run_file_name(DDL_FILE_METRICS)))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", t->out);
    if (t->skip && !t->resume)
        return ddl_error_set(err, DDL_E_USAGE, "skip: only a resumed run skips data");
    if (!t->resume) {
        run->checkpoint[0] = '\0';
        return check_new(t, n > 0 || ddl_file_exists(metrics), err);
    }
    if (n == 0)
        return begin_again(run, err);
    status = ddl_run_open_newest(t, &run->state, run->checkpoint, sizeof run->checkpoint,
                                 run->callbacks->note, run->callbacks->user, err);
    if (!status && run->state.step > t->steps)
        status =
            ddl_error_set(err, DDL_E_USAGE, "%s: the run has done %llu of %llu steps already",
                          run->checkpoint, (unsigned long long)run->state.step, (unsigned long long)t->steps);
    if (!status)
        status = compare_tokenizer(run, err);
    if (status)
        return status;
    compare_data(run, "train_data", run->train, &run->state.train);
    compare_data(run, "val_data", run->val, &run->state.val);
    if (!ddl_size_mul((size_t)ddl_train_resolved(t).global_batch, (size_t)t->skip, &skipped))
        return ddl_error_set(err, DDL_E_USAGE,
                             "skip: %llu steps exceed the limit of the position in the data",
                             (unsigned long long)t->skip);
    run->state.position += skipped;
    run->saved_step = run->state.pending.validation || skipped ? UINT64_MAX : run->state.step;
    return status;
}

static void note_frozen(const struct run *run)
{
    const struct ddl_train_config *t = &run->config;
    struct ddl_error message;
    size_t trained = 0;
    if (!*t->train_only && !*t->freeze)
        return;
    for (size_t i = 0; i < ddl_model_n_params(run->model); i++) {
        const struct ddl_param *param = ddl_model_param(run->model, i);
        trained += param->active && !ddl_freeze_has(t, param->name) ? param->count : 0;
    }
    ddl_error_set(&message, DDL_OK, "training %zu of %zu parameters", trained, ddl_model_size(run->model));
    trainer_note(run, message.text);
}

/* Ranks with fewer sequences wait for the others in every step. */
static void note_shares(const struct run *run)
{
    const struct ddl_train_config *t = &run->config;
    size_t ranks = ddl_comm_size(t->comm), least = (size_t)(t->global_batch / ranks);
    struct ddl_error message;
    if (t->global_batch % ranks == 0)
        return;
    ddl_error_set(&message, DDL_OK, "global_batch: %llu sequences on %zu ranks: %zu or %zu each",
                  (unsigned long long)t->global_batch, ranks, least, least + 1);
    trainer_note(run, message.text);
}

/* ---- the folder ---- */

/* An earlier final model under the new recipe would make the run look finished. */
static ddl_status remove_earlier(const struct run *run, struct ddl_error *err)
{
    for (enum ddl_run_file i = 0; i < DDL_RUN_FILES; i++) {
        char path[RUN_PATH_SIZE];
        if (is_earlier(&run->config, i, path) && ddl_held_unlink(path) != 0)
            return ddl_file_error(err, path, "remove");
    }
    return ddl_checkpoint_remove_all(run->config.out, err);
}

static void note_kept(const struct run *run, const struct ddl_error *why)
{
    struct ddl_error message;
    ddl_error_set(&message, DDL_OK, "could not remove what an earlier process has left: %.600s", why->text);
    if (why->status)
        trainer_note(run, message.text);
}

/* Removes what a killed run has left. */
static ddl_status remove_leftovers(const struct run *run, struct ddl_error *err)
{
    bool best;
    struct ddl_error kept;
    const struct ddl_checkpoint_keep keep = { run->config.keep_last, run->config.keep_best, !run->finished };
    ddl_status status = ddl_checkpoint_remove_partial(run->config.out, &kept, err);
    note_kept(run, &kept);
    if (!status) {
        status = ddl_checkpoint_prune(run->config.out, run->state.step, &keep, &best, &kept, err);
        note_kept(run, &kept);
    }
    return status;
}

/* Locks the folder. All its files are used relative to its descriptor from here on. */
static ddl_status take_lock(struct run *run, struct ddl_error *err)
{
    const char *out = run->config.out;
    ddl_status status = ddl_lock_take(&run->lock, out, err);
    if (status || ddl_held_add(out, run->lock.folder))
        return status;
    ddl_lock_release(&run->lock);
    return ddl_error_set(err, DDL_E_MEMORY, "%.600s: out of memory to hold the folder", out);
}

static ddl_status choose_folder(struct run *run, struct ddl_error *err)
{
    struct ddl_error message;
    ddl_status status = ddl_run_folder_create(&run->config, err);
    if (status)
        return status;
    ddl_error_set(&message, DDL_OK, "run folder: %.600s", run->config.out);
    trainer_note(run, message.text);
    return DDL_OK;
}

/* The first step whose line and sample the run is going to write. A pending validation precedes both. */
static uint64_t first_line(const struct run *run)
{
    return run->config.resume ? run->state.step + !run->state.pending.validation : 0;
}

/* ddl_metrics_open, with a message about lines that are removed. */
static ddl_status open_log(const struct run *run, struct ddl_metrics *metrics, const char *path, uint64_t end,
                           uint64_t records_end, uint64_t *logged, struct ddl_error *err)
{
    struct ddl_metrics_kept kept;
    struct ddl_error message;
    ddl_status status = ddl_metrics_open(metrics, path, end, records_end, &kept, err);
    if (logged)
        *logged = kept.logged;
    if (status || !run->config.resume || kept.removed == 0)
        return status;
    ddl_error_set(&message, DDL_OK,
                  "%.600s:%zu: not a JSON object with a step: %zu %s removed, the lines after it are kept",
                  path, kept.first_removed, kept.removed, kept.removed == 1 ? "line" : "such lines");
    trainer_note(run, message.text);
    return DDL_OK;
}

/* samples.jsonl, if the run has samples. */
static ddl_status open_samples(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    char path[RUN_PATH_SIZE];
    uint64_t end = first_line(run);
    if (!ddl_path_join(path, sizeof path, t->out, ddl_run_file_name(DDL_FILE_SAMPLES)))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", t->out);
    if (t->sample_every)
        return open_log(run, &run->samples, path, end, end, NULL, err);
    if (!t->resume)
        (void)ddl_held_unlink(path); /* of an earlier run; may be absent */
    return DDL_OK;
}

/* The event files of TensorBoard: a run that starts removes earlier ones, a resumed one adds one. */
static ddl_status open_tensorboard(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    char folder[RUN_PATH_SIZE];
    ddl_status status = DDL_OK;
    if (!ddl_path_join(folder, sizeof folder, t->out, ddl_run_file_name(DDL_FILE_TENSORBOARD)))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", t->out);
    if (!t->resume)
        status = ddl_event_file_remove_all(folder, err);
    if (!status && t->tensorboard)
        status = ddl_tensorboard_open(&run->tensorboard, folder, t->resume ? run->state.step + 1 : 0, err);
    return status;
}

static ddl_status open_folder(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    char recipe[RUN_PATH_SIZE], metrics[RUN_PATH_SIZE];
    uint64_t logged = 0;
    ddl_status status = *t->out ? DDL_OK : choose_folder(run, err);
    if (status)
        return status;
    if (!ddl_path_join(recipe, sizeof recipe, t->out, ddl_run_file_name(DDL_FILE_RECIPE)) ||
        !ddl_path_join(metrics, sizeof metrics, t->out, ddl_run_file_name(DDL_FILE_METRICS)))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", t->out);
    status = ddl_file_make_dir(t->out, err);
    if (!status && !run->lock.held) {
        status = take_lock(run, err);
        if (!status) /* another run may have created the folder, and ended, meanwhile */
            status = look_for_earlier(run, err);
    }
    if (!status)
        status = t->resume ? remove_leftovers(run, err) : remove_earlier(run, err);
    if (!status)
        status = ddl_divergence_remove(t->out, err);
    if (!status)
        status = ddl_train_save_recipe(t, recipe, err);
    if (!status)
        status = open_log(run, &run->metrics, metrics, first_line(run), t->resume ? run->state.step + 1 : 0,
                          &logged, err);
    if (!status && logged < run->state.logged) {
        struct ddl_error message;
        ddl_error_set(&message, DDL_OK, "%.600s: the lines from step %llu to %llu are lost", metrics,
                      (unsigned long long)logged + 1, (unsigned long long)run->state.logged);
        trainer_note(run, message.text);
    }
    if (!status)
        status = open_samples(run, err);
    return status ? status : open_tensorboard(run, err);
}

/* On rank 0: locks an existing folder. */
static ddl_status lock_folder(struct run *run, struct ddl_error *err)
{
    const char *out = run->config.out;
    return *out && !run->lock.held && ddl_file_is_dir(out) ? take_lock(run, err) : DDL_OK;
}

/* Reports the run that was finished, as it is in its log. */
static ddl_status describe_finished(struct run *run, const struct ddl_run_final *final, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    char metrics[RUN_PATH_SIZE], checkpoint[RUN_PATH_SIZE], when[32] = "";
    struct ddl_train_progress last = { 0 };
    struct ddl_error message;
    struct tm utc;
    ddl_status status = DDL_OK;
    if (ddl_path_join(metrics, sizeof metrics, t->out, ddl_run_file_name(DDL_FILE_METRICS)) &&
        ddl_file_exists(metrics))
        status = ddl_metrics_last(metrics, &last, err);
    if (status)
        return status;
    run->progress = last.step == final->step ? last : (struct ddl_train_progress){ .step = final->step };
    run->progress.steps = t->steps;
    if (gmtime_r(&final->time, &utc))
        strftime(when, sizeof when, " on %Y-%m-%d at %H:%M UTC", &utc);
    ddl_error_set(&message, DDL_OK,
                  "%.600s: the run is finished: it ended%s after step %llu of %llu; its final model is "
                  "%.600s/%s%s",
                  t->out, when, (unsigned long long) final->step, (unsigned long long)t->steps, t->out,
                  ddl_run_file_name(DDL_FILE_MODEL),
                  ddl_checkpoint_newest(t->out, UINT64_MAX, NULL, checkpoint, sizeof checkpoint)
                      ? "; a larger --steps continues from its newest checkpoint"
                      : "");
    trainer_note(run, message.text);
    return DDL_OK;
}

/* On rank 0: a run that is resumed may be finished already. A corrupted final model does not count, nor one
 * that was being written: it is written again. */
static ddl_status look_for_end(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    struct ddl_run_final final;
    struct ddl_error why, message;
    ddl_status status = t->resume ? lock_folder(run, err) : DDL_OK;
    if (status || !t->resume)
        return status;
    status = ddl_run_read_final(&final, t->out, err);
    if (status || !final.exists || final.step < t->steps || ddl_model_save_is_pending(t->out))
        return status;
    if (final.step > t->steps)
        return ddl_error_set(err, DDL_E_USAGE, "%.600s: the run has done %llu of %llu steps already", t->out,
                             (unsigned long long) final.step, (unsigned long long)t->steps);
    status = ddl_checkpoint_check_model(t->out, &why);
    if (!status)
        status = ddl_run_compare_final(t, &why);
    if (status == DDL_E_FORMAT || status == DDL_E_IO) {
        ddl_error_set(&message, DDL_OK, "%.900s; the run continues from a checkpoint", why.text);
        trainer_note(run, message.text);
        return DDL_OK;
    }
    if (status) {
        *err = why;
        return status;
    }
    run->finished = true;
    run->state.step = final.step;
    status = remove_leftovers(run, err); /* its last step may have failed to remove an older checkpoint */
    return status ? status : describe_finished(run, &final, err);
}

/* On rank 0: takes the lock, and looks for an earlier run. */
static ddl_status open_earlier(struct run *run, struct ddl_error *err)
{
    ddl_status status = lock_folder(run, err);
    return status || !*run->config.out ? status : look_for_earlier(run, err);
}

/* The inputs of all ranks, and where the run begins. */
static ddl_status open_ranks(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    ddl_status status = trainer_compare_ranks(run, err);
    if (!status && !*t->train_data)
        status = ddl_option_missing("train", "--train-data PATH (train_data in a recipe)", err);
    else if (!status && t->resume && !*t->out)
        status = ddl_option_missing("train --resume", "--out DIR (out in a recipe), the run's folder", err);
    if (!status)
        status = trainer_agree(run, trainer_is_root(run) ? look_for_end(run, err) : DDL_OK, err);
    if (status || (run->finished = trainer_any(run, run->finished)))
        return status;
    status = trainer_agree(run, trainer_open_inputs(run, err), err);
    if (!status)
        status = trainer_compare_data(run, err);
    if (!status)
        status = trainer_agree(run, trainer_is_root(run) ? open_earlier(run, err) : DDL_OK, err);
    return status ? status : trainer_share_start(run, err);
}

/* Everything in memory, for the configuration with the values of the run that is resumed. */
static ddl_status make(struct run *run, struct ddl_error *err)
{
    ddl_status status = ddl_train_check(&run->config, err);
    if (!status)
        run->config = ddl_train_resolved(&run->config);
    if (!status)
        status = trainer_check_memory(run, false, err);
    if (!status)
        status = trainer_make(run, err);
    status = trainer_agree(run, status, err);
    if (!status)
        status = trainer_connect(run, err);
    return status ? status : trainer_compare_model(run, err);
}

ddl_status trainer_open(struct run *run, struct ddl_error *err)
{
    struct ddl_train_config *t = &run->config;
    ddl_comm_describe(t->comm, "the start of the run");
    ddl_status status = open_ranks(run, err);
    if (status || run->finished)
        return status;
    status = make(run, err);
    if (status)
        return status;
    note_shares(run);
    note_frozen(run);
    status = trainer_agree(run, trainer_is_root(run) ? open_folder(run, err) : DDL_OK, err);
    if (!status)
        ddl_comm_broadcast(t->comm, 0, sizeof t->out, t->out);
    ddl_timing_add_earlier(&run->timing, run->state.seconds);
    return status;
}

struct run *trainer_new(const struct ddl_train_config *config, const struct ddl_train_callbacks *callbacks)
{
    static const struct ddl_train_callbacks silent = { 0 };
    struct run *run = calloc(1, sizeof *run);
    if (run) {
        run->config = *config;
        run->callbacks = callbacks ? callbacks : &silent;
    }
    return run;
}

void trainer_free(struct run *run)
{
    ddl_metrics_close(&run->metrics);
    ddl_metrics_close(&run->samples);
    ddl_tensorboard_close(&run->tensorboard);
    ddl_telemetry_free(&run->telemetry);
    ddl_mem_free(run->buffers);
    free(run->validation.parts);
    ddl_mem_free(run->moments.scratch);
    ddl_exchange_free(run->exchange);
    ddl_step_release(&run->step);
    ddl_workspace_free(run->ws);
    ddl_optim_free(run->optim);
    ddl_model_free(run->model);
    ddl_backend_free(run->backend);
    trainer_tasks_close(run);
    ddl_tokenizer_free(run->tokenizer);
    ddl_shards_close(run->val);
    ddl_shards_close(run->train);
    if (run->lock.held)
        ddl_held_release(run->lock.folder);
    ddl_lock_release(&run->lock);
    free(run);
}
