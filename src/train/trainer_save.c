#include "checkpoint/checkpoint.h"
#include "model/load.h"
#include "train/run_model.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

void trainer_note(const struct run *run, const char *message)
{
    if (run->callbacks->note)
        run->callbacks->note(run->callbacks->user, message);
}

static ddl_status check_state(const struct run *run, struct ddl_error *err)
{
    size_t row;
    struct ddl_values values;
    char counts[128];
    const char *bad = ddl_optim_spoiled(run->optim, &row, &values);
    if (!bad)
        return DDL_OK;
    ddl_values_text(&values, counts, sizeof counts);
    return ddl_error_set(
        err, DDL_E_NUMERIC, "step %llu: left the %s %s non-finite (%s); it is not saved; %s%.300s",
        (unsigned long long)run->state.step, bad, ddl_model_param(run->model, row)->name, counts,
        run->checkpoint[0] ? "the newest checkpoint is " : "there is no checkpoint yet", run->checkpoint);
}

static void prune(struct run *run, const char *path)
{
    struct ddl_error why, message;
    bool best;
    ddl_status pruned = ddl_checkpoint_prune(run->config.out, run->state.step, run->config.keep_last,
                                             run->config.keep_best, &best, &why);
    ddl_error_set(&message, DDL_OK, "%.600s written%s", path,
                  best ? "; its validation loss is the lowest so far" : "");
    trainer_note(run, message.text);
    if (pruned) { /* the run's own state is safe: it goes on */
        ddl_error_set(&message, DDL_OK, "could not remove an older checkpoint: %.600s", why.text);
        trainer_note(run, message.text);
    }
}

ddl_status trainer_save(struct run *run, bool keep_all, struct ddl_error *err)
{
    if (run->saved_step == run->state.step && run->checkpoint[0])
        return DDL_OK;
    char path[RUN_PATH_SIZE];
    ddl_status status = check_state(run, err);
    if (!status)
        status = ddl_metrics_sync(&run->metrics, err);
    if (!status)
        status = ddl_run_save(&run->config, run->model, run->optim, run->tokenizer, &run->state, path,
                              sizeof path, err);
    if (status)
        return status;
    run->saved_step = run->state.step;
    memcpy(run->checkpoint, path, sizeof path);
    if (!keep_all)
        prune(run, path);
    return DDL_OK;
}

ddl_status trainer_save_model(const struct run *run, struct ddl_error *err)
{
    ddl_status status = check_state(run, err);
    if (!status && run->tokenizer)
        status = ddl_tokenizer_save(run->tokenizer, run->config.out, err);
    char step[32];
    snprintf(step, sizeof step, "%llu", (unsigned long long)run->state.step);
    const struct ddl_safetensors_metadata entry = { DDL_STEP_KEY, step };
    return status ? status : ddl_model_save_with(run->model, run->config.out, &entry, err);
}
