#include "checkpoint/checkpoint.h"
#include "model/files/model_io.h"
#include "train/config/run_model.h"
#include "train/run/trainer.h"

#include <stdio.h>
#include <string.h>

static ddl_status check_state(const struct run *run, struct ddl_error *err)
{
    struct ddl_corrupted bad;
    char counts[128];
    ddl_status status = ddl_optim_find_corrupted(run->optim, &bad, err);
    if (status || !bad.kind)
        return trainer_at_step(run, status, "checkpoint", err);
    ddl_values_text(&bad.values, counts, sizeof counts);
    return ddl_error_set(
        err, DDL_E_NUMERIC, "step %llu: left the %s %s non-finite (%s); it is not saved; %s%.300s",
        (unsigned long long)run->state.step, bad.kind, ddl_model_param(run->model, bad.row)->name, counts,
        run->checkpoint[0] ? "the newest checkpoint is " : "there is no checkpoint yet", run->checkpoint);
}

/* `path`: the checkpoint that is reported, or NULL. */
static ddl_status prune(struct run *run, const struct ddl_checkpoint_keep *keep, const char *path,
                        struct ddl_error *err)
{
    struct ddl_error kept, message;
    bool best;
    ddl_status status = ddl_checkpoint_prune(run->config.out, run->state.step, keep, &best, &kept, err);
    ddl_error_set(&message, DDL_OK, "%.600s written%s", path ? path : "",
                  best && keep->best ? "; its validation loss is the lowest so far" : "");
    if (path)
        trainer_note(run, message.text);
    if (kept.status) { /* the run's own state is safe: it goes on */
        ddl_error_set(&message, DDL_OK, "could not remove an older checkpoint: %.600s", kept.text);
        trainer_note(run, message.text);
    }
    return status;
}

/* Before anything is saved. A run whose folder was moved goes on in it, since its files are used relative to
 * the folder's descriptor; one whose folder or lock was removed ends. */
static ddl_status check_folder(struct run *run, struct ddl_error *err)
{
    struct ddl_error message;
    char now[RUN_PATH_SIZE];
    bool moved;
    ddl_status status = ddl_lock_check(&run->lock, &moved, now, sizeof now, err);
    if (status || !moved || run->moved)
        return status;
    run->moved = true;
    ddl_error_set(&message, DDL_OK, "%.600s: the folder was moved to %.600s: the run goes on there",
                  run->config.out, now);
    trainer_note(run, message.text);
    return DDL_OK;
}

/* After a save that failed: that the folder was removed meanwhile, if that is why. */
static ddl_status explain(struct run *run, ddl_status status, struct ddl_error *err)
{
    struct ddl_error lost;
    if (status == DDL_E_IO && check_folder(run, &lost))
        *err = lost;
    return status;
}

void trainer_postpone_validation(struct run *run)
{
    const struct ddl_train_progress *p = &run->progress;
    run->state.pending = (struct ddl_pending){ true, p->lr, p->grad_norm, p->skipped };
}

/* What the steps have written is on the disk, so that no checkpoint is ahead of it after a power cut. */
static ddl_status sync_records(struct run *run, struct ddl_error *err)
{
    ddl_status status = ddl_metrics_sync(&run->metrics, err);
    if (!status)
        status = ddl_metrics_sync(&run->samples, err);
    return status ? status : ddl_tensorboard_sync(&run->tensorboard, err);
}

/* After a checkpoint by time that could not be written: the run does not need it and goes on, unless its
 * folder was removed. */
static ddl_status do_without(struct run *run, struct ddl_error *err)
{
    struct ddl_error message;
    const struct ddl_error why = *err;
    ddl_status status = check_folder(run, err);
    if (status)
        return status;
    ddl_error_set(&message, DDL_OK, "step %llu: no checkpoint by time: %.600s; the run goes on",
                  (unsigned long long)run->state.step, why.text);
    trainer_note(run, message.text);
    return DDL_OK;
}

/* Writes the checkpoint on rank 0, with the moments of all ranks. *written: whether it is there. */
static ddl_status write(struct run *run, const struct ddl_run_state *state, char *path, size_t size,
                        bool *written, struct ddl_error *err)
{
    ddl_status status = check_folder(run, err);
    if (!status)
        status = sync_records(run, err);
    bool ready = !status;
    if (ready)
        status =
            ddl_run_save(&run->config, run->model, &run->moments, run->tokenizer, state, path, size, err);
    ddl_moments_end(&run->moments);
    *written = !status;
    if (status == DDL_E_IO && ready && state->by_time)
        return do_without(run, err);
    return explain(run, status, err);
}

/* What the checkpoint of a step replaces. */
static ddl_status remove_others(struct run *run, enum trainer_save kind, const char *path,
                                struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    const struct ddl_checkpoint_keep keep = { kind == SAVE_AND_KEEP_ALL ? 0 : t->keep_last, t->keep_best,
                                              kind == SAVE_BY_TIME };
    return prune(run, &keep, kind == SAVE_AND_PRUNE ? path : NULL, err);
}

ddl_status trainer_save(struct run *run, enum trainer_save kind, struct ddl_error *err)
{
    struct ddl_run_state state = run->state;
    state.by_time = kind == SAVE_BY_TIME;
    if (run->saved_step == state.step && run->checkpoint[0] && (state.by_time || !run->state.by_time))
        return DDL_OK;
    char path[RUN_PATH_SIZE] = "";
    ddl_comm_describe(run->config.comm, "the checkpoint of step %llu", (unsigned long long)run->state.step);
    ddl_status status = trainer_agree(run, check_state(run, err), err);
    if (status)
        return status;
    bool written = true;
    if (trainer_is_root(run))
        status = write(run, &state, path, sizeof path, &written, err);
    else
        status = ddl_moments_serve(&run->moments, err);
    status = trainer_agree(run, trainer_at_step(run, status, "checkpoint", err), err);
    if (status || trainer_any(run, !written))
        return status;
    ddl_comm_broadcast(run->config.comm, 0, sizeof path, path);
    run->saved_step = state.step;
    run->state.by_time = state.by_time;
    memcpy(run->checkpoint, path, sizeof path);
    return trainer_agree(run, trainer_is_root(run) ? remove_others(run, kind, path, err) : DDL_OK, err);
}

/* The result is not where the command was to put it: an error, so that no script takes another run's. */
static ddl_status check_place(const struct run *run, struct ddl_error *err)
{
    char now[RUN_PATH_SIZE];
    bool moved;
    ddl_status status = ddl_lock_check(&run->lock, &moved, now, sizeof now, err);
    if (status || !moved)
        return status;
    return ddl_error_set(err, DDL_E_IO,
                         "%.400s: the folder was moved to %.400s while the run used it: the run is finished, "
                         "and all its files are there",
                         run->config.out, now);
}

/* Writes the model on rank 0. */
static ddl_status write_model(struct run *run, struct ddl_error *err)
{
    ddl_status status = check_folder(run, err);
    if (!status)
        status = sync_records(run, err);
    if (!status && run->tokenizer)
        status = ddl_tokenizer_save(run->tokenizer, run->config.out, err);
    char step[32];
    snprintf(step, sizeof step, "%llu", (unsigned long long)run->state.step);
    const struct ddl_safetensors_metadata entry = { DDL_STEP_KEY, step };
    if (!status)
        status = ddl_model_save_with(run->model, run->config.out, &entry, err);
    const struct ddl_checkpoint_keep keep = { run->config.keep_last, run->config.keep_best, false };
    if (!status && run->state.by_time)
        status = prune(run, &keep, NULL, err);
    return status ? explain(run, status, err) : check_place(run, err);
}

ddl_status trainer_save_model(struct run *run, struct ddl_error *err)
{
    ddl_comm_describe(run->config.comm, "the end of the run");
    ddl_status status = trainer_agree(run, check_state(run, err), err);
    if (status)
        return status;
    if (trainer_is_root(run))
        status = trainer_at_step(run, write_model(run, err), "the model", err);
    return trainer_agree(run, status, err);
}
