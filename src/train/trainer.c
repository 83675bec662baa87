#include "train/trainer.h"

#include "base/clock.h"
#include "train/schedule.h"
#include "train/train_config.h"

#include <stdlib.h>
#include <string.h>

static bool due(uint64_t step, uint64_t every, uint64_t last)
{
    return every && (step % every == 0 || step == last);
}

static ddl_status step_failed(struct run *run, ddl_status status, const struct ddl_step_result *result,
                              struct ddl_error *err)
{
    char where[64];
    if (status == DDL_E_NUMERIC)
        return trainer_nonfinite_step(run, result, err);
    snprintf(where, sizeof where, "step %llu", (unsigned long long)run->state.step + 1);
    return ddl_error_prefix(err, status, where);
}

static void note_spike(const struct run *run, const struct ddl_step_result *result)
{
    const struct ddl_spike_figures *f = &result->spike;
    struct ddl_error message;
    if (result->decision == DDL_SPIKE_SKIP)
        ddl_error_set(
            &message, DDL_OK,
            "step %llu: the gradient norm %.4g is %.1f standard deviations above the mean %.4g of the last "
            "%zu applied steps: skipped (%llu so far)",
            (unsigned long long)run->state.step, result->grad_norm, f->z, f->mean, run->step.spike.window,
            (unsigned long long)run->state.spike.skipped);
    else if (result->decision == DDL_SPIKE_SHIFT)
        ddl_error_set(
            &message, DDL_OK,
            "step %llu: after %zu skipped steps in a row the gradient norm has shifted from %.4g to %.4g: "
            "applied, and the window is reset",
            (unsigned long long)run->state.step, run->step.spike.max_skip, f->mean, result->grad_norm);
    else
        return;
    trainer_note(run, message.text);
}

/* A write failed: adds where --resume continues. */
static ddl_status write_failed(const struct run *run, ddl_status status, struct ddl_error *err)
{
    struct ddl_error why = *err;
    if (status != DDL_E_IO)
        return status;
    return ddl_error_set(err, status, "%.500s; after that --resume %s%.300s", why.text,
                         run->checkpoint[0] ? "continues from " : "starts again: there is no checkpoint yet",
                         run->checkpoint);
}

/* One step and its progress. */
static ddl_status advance(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    struct ddl_train_progress *p = &run->progress;
    struct ddl_step_result result;
    double start = ddl_clock_seconds();
    ddl_loader_next(&run->loader, t->accumulate * t->batch, run->tokens, run->targets);
    double lr = ddl_schedule_lr(t, run->state.step);
    ddl_status status = ddl_step_run(&run->step, lr, &result, err);
    if (status)
        return step_failed(run, status, &result, err);
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
                                      .skipped = result.decision == DDL_SPIKE_SKIP,
                                      .tokens = run->state.tokens,
                                      .flops = run->state.flops,
                                      .seconds = run->state.seconds };
    p->tokens_per_s = since > 0 ? (double)(run->state.tokens - run->logged_tokens) / since : 0;
    if (p->tokens_per_s > 0)
        p->seconds_left = (double)(t->steps - p->step) * (double)tokens / p->tokens_per_s;
    note_spike(run, &result);
    return DDL_OK;
}

/* A line of metrics.jsonl: every log_every steps, with a validation, and for a skipped step. */
static ddl_status write_line(struct run *run, struct ddl_error *err)
{
    struct ddl_train_progress *p = &run->progress;
    p->peak_memory = ddl_clock_peak_memory();
    run->logged_tokens = run->state.tokens;
    run->logged_seconds = run->state.seconds;
    ddl_status status = ddl_metrics_write(&run->metrics, p, err);
    run->state.logged = p->step;
    if (!status && run->callbacks->progress)
        run->callbacks->progress(run->callbacks->user, p);
    return status;
}

static ddl_status validate(struct run *run, struct ddl_validation_result *val, struct ddl_error *err)
{
    struct ddl_train_progress *p = &run->progress;
    ddl_status status =
        ddl_validation_run(&run->validation, run->model, run->ws, run->tokens, run->targets, val, err);
    p->has_val = run->state.has_val = status == DDL_OK;
    p->val_loss = run->state.val_loss = val->loss;
    return status;
}

/* Validates the initial parameters. */
static ddl_status validate_start(struct run *run, struct ddl_error *err)
{
    struct ddl_validation_result val = { 0 };
    ddl_status status = DDL_OK;
    if (run->val && run->config.val_every)
        status = validate(run, &val, err);
    run->start = run->progress;
    return status == DDL_E_NUMERIC ? trainer_nonfinite_validation(run, val.failed, err) : status;
}

/* The line of step 0, after step 1: the loss of a step is computed before its update. */
static ddl_status report_start(struct run *run, struct ddl_error *err)
{
    struct ddl_train_progress *p = &run->start;
    p->loss = run->progress.loss;
    p->peak_memory = ddl_clock_peak_memory();
    ddl_status status = ddl_metrics_write(&run->metrics, p, err);
    if (!status && run->callbacks->progress)
        run->callbacks->progress(run->callbacks->user, p);
    return status;
}

static ddl_status report(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    struct ddl_train_progress *p = &run->progress;
    struct ddl_validation_result val = { 0 };
    ddl_status status = DDL_OK;
    if (run->val && due(p->step, t->val_every, t->steps))
        status = validate(run, &val, err);
    if (status && status != DDL_E_NUMERIC)
        return status;
    struct ddl_error nonfinite = status ? *err : (struct ddl_error){ 0 };
    if (p->has_val || p->skipped || due(p->step, t->log_every, t->steps))
        status = write_line(run, err); /* the step itself is valid even if its validation is not finite */
    if (status || !nonfinite.status)
        return status;
    *err = nonfinite;
    return trainer_nonfinite_validation(run, val.failed, err);
}

static ddl_status stop(struct run *run, struct ddl_error *err)
{
    ddl_status status = trainer_save(run, false, err);
    if (status)
        return write_failed(run, status, err);
    return ddl_error_set(
        err, DDL_E_INTERRUPTED, "stopped after step %llu of %llu; saved as %s, --resume continues",
        (unsigned long long)run->state.step, (unsigned long long)run->config.steps, run->checkpoint);
}

/* After the checkpoint of the step, and without effect on the run: a sample that fails is reported. */
static void sample(struct run *run)
{
    struct ddl_error why, message;
    if (trainer_sample(run, &why)) {
        ddl_error_set(&message, DDL_OK, "step %llu: no sample of text: %.600s",
                      (unsigned long long)run->state.step, why.text);
        trainer_note(run, message.text);
    }
}

static ddl_status loop(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    ddl_status started = run->state.step == 0 ? validate_start(run, err) : DDL_OK;
    if (started)
        return write_failed(run, started, err);
    while (run->state.step < t->steps) {
        ddl_status status = advance(run, err);
        if (!status && run->state.step == 1)
            status = report_start(run, err);
        if (!status)
            status = report(run, err);
        if (!status && due(run->state.step, t->checkpoint_every, t->steps))
            status = trainer_save(run, false, err);
        if (status)
            return write_failed(run, status, err);
        if (due(run->state.step, t->sample_every, t->steps))
            sample(run);
        bool last = run->state.step == t->steps;
        if (!last && run->callbacks->stop && run->callbacks->stop(run->callbacks->user))
            return stop(run, err);
    }
    return write_failed(run, trainer_save_model(run, err), err);
}

ddl_status ddl_train_run(const struct ddl_train_config *config, const struct ddl_train_callbacks *callbacks,
                         struct ddl_train_progress *last, struct ddl_error *err)
{
    static const struct ddl_train_callbacks silent = { 0 };
    struct ddl_error why = { 0 }; /* messages are composed, whether the caller wants them or not */
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory");
    run->config = *config;
    run->callbacks = callbacks ? callbacks : &silent;
    ddl_status status = ddl_train_check(config, &why);
    if (!status)
        status = trainer_open(run, &why);
    if (!status && run->callbacks->begin)
        run->callbacks->begin(run->callbacks->user, &run->config);
    if (!status)
        status = loop(run, &why);
    if (last)
        *last = run->progress;
    trainer_close(run);
    free(run);
    if (status && err)
        *err = why;
    return status;
}
