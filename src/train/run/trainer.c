#include "train/run/trainer.h"

#include "base/clock.h"
#include "train/nonfinite/divergence.h"
#include "train/step/schedule.h"
#include "train/config/train_config.h"

#include <stdlib.h>
#include <string.h>

/* Whether the part follows the current step. */
static bool due(const struct run *run, enum ddl_run_part part)
{
    return ddl_timing_due(run->state.step, run->timing.part[part].every, run->config.steps);
}

/* Whether the step after the current one has a telemetry record: as the first, the last, or a multiple of
 * telemetry_every. */
static bool observes_next(const struct run *run)
{
    uint64_t step = run->state.step + 1, every = run->config.telemetry_every;
    return every && (step == 1 || ddl_timing_due(step, every, run->config.steps));
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

static void note_skipped(const struct run *run, const struct ddl_step_result *result)
{
    const struct ddl_spike_figures *f = &result->spike;
    struct ddl_error message;
    if (result->scale == 0)
        ddl_error_set(&message, DDL_OK, "step %llu: the masks count no target of its batch: skipped",
                      (unsigned long long)run->state.step);
    else if (result->decision == DDL_SPIKE_SKIP)
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

/* A write failed, which all ranks know: adds where --resume continues, unless the folder is no longer there.
 */
static ddl_status write_failed(const struct run *run, ddl_status status, struct ddl_error *err)
{
    struct ddl_error why = *err, place;
    if (status != DDL_E_IO || trainer_any(run, ddl_lock_check_in_place(&run->lock, &place) != DDL_OK))
        return status;
    return ddl_error_set(err, status, "%.500s; --resume %s%.300s", why.text,
                         run->checkpoint[0] ? "continues from " : "starts again: there is no checkpoint yet",
                         run->checkpoint);
}

/* Brings the state and its progress up to the present. */
static void update_time(struct run *run)
{
    struct ddl_train_progress *p = &run->progress;
    run->state.seconds = p->seconds = ddl_timing_wall(&run->timing);
    p->train_seconds = run->state.train_seconds;
    p->seconds_left = ddl_timing_left(&run->timing, p->step, p->steps);
    double since = p->train_seconds - run->logged_seconds;
    if (since > 0)
        p->tokens_per_s = (double)(p->tokens - run->logged_tokens) / since;
    else /* no step since the last line */
        p->tokens_per_s = p->train_seconds > 0 ? (double)p->tokens / p->train_seconds : 0;
    p->mfu = run->plan.peak_rate > 0 ? p->tokens_per_s * run->plan.flops_per_token / run->plan.peak_rate : 0;
    p->peak_memory = ddl_clock_peak_memory();
}

/* Reads this rank's part of the global batch at a position. */
static void read_batch(struct run *run, uint64_t position, int32_t *tokens, int32_t *targets)
{
    run->loader.position = position + run->share.first;
    ddl_loader_next(&run->loader, run->share.n, tokens, targets);
}

/* Reads the batch of the step after the current one. */
static void read_next(struct run *run)
{
    if (run->state.step + 1 >= run->config.steps)
        return;
    run->next_position = run->state.position + run->config.global_batch;
    read_batch(run, run->next_position, run->next_tokens, run->next_targets);
    run->has_next = true;
}

static void swap(int32_t **a, int32_t **b)
{
    int32_t *tokens = *a;
    *a = *b;
    *b = tokens;
}

/* The batch of the step, which may have been read during the last one. */
static void load(struct run *run)
{
    if (run->has_next && run->next_position == run->state.position) {
        swap(&run->tokens, &run->next_tokens);
        swap(&run->targets, &run->next_targets);
    } else {
        read_batch(run, run->state.position, run->tokens, run->targets);
    }
    run->has_next = false;
    run->step.tokens = run->tokens;
    run->step.targets = run->targets;
}

/* One step and its progress. */
static ddl_status advance(struct run *run, bool observed, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    struct ddl_step_result result;
    double start = ddl_clock_seconds();
    load(run);
    double lr = ddl_schedule_lr(t, run->state.step);
    run->step.probe = observed && trainer_is_root(run) ? &run->telemetry.probe : NULL;
    ddl_comm_describe(t->comm, "step %llu", (unsigned long long)run->state.step + 1);
    ddl_status status = ddl_step_submit(&run->step, lr, &result, err);
    if (!status)
        read_next(run);
    status = ddl_step_finish(&run->step, status, lr, &result, err);
    if (status)
        return step_failed(run, status, &result, err);
    if (observed) {
        status = ddl_telemetry_take_gradients(&run->telemetry, run->optim, t->comm, err);
        if ((status = trainer_agree(run, status, err)))
            return step_failed(run, status, &result, err);
    }
    double seconds = ddl_clock_seconds() - start;
    uint64_t tokens = t->global_batch * t->seq;
    ddl_timing_add_step(&run->timing, seconds);
    run->state.step++;
    run->state.loss = result.loss;
    run->state.has_val = false;
    run->state.position += t->global_batch;
    run->state.tokens += tokens;
    run->state.flops += (double)tokens * run->plan.flops_per_token;
    run->state.train_seconds += seconds;
    run->progress = (struct ddl_train_progress){ .step = run->state.step,
                                                 .steps = t->steps,
                                                 .loss = result.loss,
                                                 .lr = lr,
                                                 .grad_norm = result.grad_norm,
                                                 .skipped = result.decision == DDL_SPIKE_SKIP,
                                                 .tokens = run->state.tokens,
                                                 .flops = run->state.flops };
    update_time(run);
    note_skipped(run, &result);
    return DDL_OK;
}

/* Writes a line of metrics.jsonl, and the same to TensorBoard. */
static ddl_status record(struct run *run, const struct ddl_train_progress *p, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    if (trainer_is_root(run))
        status = ddl_metrics_write(&run->metrics, p, err);
    if (!status && trainer_is_root(run))
        status = ddl_tensorboard_line(&run->tensorboard, p, err);
    return trainer_agree(run, status, err);
}

/* A line of metrics.jsonl: every log_every steps, with a validation or task scores, and for a skipped step.
 */
static ddl_status write_line(struct run *run, struct ddl_error *err)
{
    ddl_status status = record(run, &run->progress, err);
    run->logged_tokens = run->state.tokens;
    run->logged_seconds = run->state.train_seconds;
    run->state.logged = run->state.step;
    return status;
}

/* The step's telemetry record, if it was observed. It is written before the step's evaluations: they may be
 * interrupted, and a resumed run repeats them but not the step. */
static ddl_status write_telemetry(struct run *run, bool observed, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    if (!observed)
        return DDL_OK;
    if (trainer_is_root(run))
        status = ddl_metrics_write_telemetry(&run->metrics, run->state.step, run->state.tokens,
                                             &run->telemetry, err);
    if (!status && trainer_is_root(run))
        status = ddl_tensorboard_telemetry(&run->tensorboard, run->state.step, &run->telemetry, err);
    return trainer_agree(run, status, err);
}

static int validation_progress(void *user, uint64_t done, uint64_t total)
{
    const struct run *run = user;
    const struct ddl_train_callbacks *c = run->callbacks;
    return c->validation ? c->validation(c->user, &run->progress, done, total) : 0;
}

static ddl_status validate(struct run *run, struct ddl_validation_result *out, struct ddl_error *err)
{
    double start = ddl_clock_seconds();
    ddl_comm_describe(run->config.comm, "the validation after step %llu",
                      (unsigned long long)run->state.step);
    const struct ddl_validation_work work = { run->model,          run->ws, run->tokens, run->targets,
                                              validation_progress, run };
    ddl_status status = ddl_validation_run(&run->validation, &work, out, err);
    if (!status)
        ddl_timing_add_part(&run->timing, DDL_PART_VALIDATION, ddl_clock_seconds() - start);
    run->progress.has_val = run->state.has_val = status == DDL_OK;
    run->progress.val_loss = run->state.val_loss = out->loss;
    return trainer_at_step(run, status, "validation", err);
}

static void note_failure(const struct run *run, const char *what, const struct ddl_error *why)
{
    struct ddl_error message;
    ddl_error_set(&message, DDL_OK, "step %llu: no %s: %.600s", (unsigned long long)run->state.step, what,
                  why->text);
    trainer_note(run, message.text);
}

/* Without effect on the run: an evaluation that fails is reported. Returns DDL_OK or DDL_E_INTERRUPTED. */
static ddl_status score_tasks(struct run *run, struct ddl_error *err)
{
    double start = ddl_clock_seconds();
    ddl_status status = DDL_OK;
    ddl_comm_describe(run->config.comm, "the task scores after step %llu",
                      (unsigned long long)run->state.step);
    if (trainer_is_root(run)) {
        status = trainer_tasks_score(run, err);
        ddl_comm_done_working(run->config.comm);
    } else {
        ddl_comm_wait_for_root(run->config.comm);
        run->progress.n_tasks = run->tasks.n;
    }
    status = trainer_agree(run, status, err);
    run->progress.n_tasks = status ? 0 : run->progress.n_tasks;
    if (status == DDL_E_INTERRUPTED)
        return status;
    if (status)
        note_failure(run, "task scores", err);
    ddl_timing_add_part(&run->timing, DDL_PART_TASKS, ddl_clock_seconds() - start);
    return DDL_OK;
}

static ddl_status save(struct run *run, enum trainer_save kind, struct ddl_error *err)
{
    double start = ddl_clock_seconds();
    ddl_status status = trainer_save(run, kind, err);
    double end = ddl_clock_seconds();
    ddl_timing_set_saved(&run->timing, start, end);
    ddl_timing_add_part(&run->timing, DDL_PART_CHECKPOINT, end - start);
    return status;
}

static ddl_status stop(struct run *run, struct ddl_error *err)
{
    ddl_status status = save(run, SAVE_AND_PRUNE, err);
    if (status)
        return write_failed(run, status, err);
    return ddl_error_set(
        err, DDL_E_INTERRUPTED, "stopped after step %llu of %llu; saved as %s, --resume continues",
        (unsigned long long)run->state.step, (unsigned long long)run->config.steps, run->checkpoint);
}

/* Validates the initial parameters and scores the tasks. Until the first step there is nothing to save,
 * except that a run which is resumed from checkpoint-0 may begin at another place of the data. */
static ddl_status validate_start(struct run *run, struct ddl_error *err)
{
    struct ddl_validation_result val = { 0 };
    ddl_status status = DDL_OK;
    if (run->timing.part[DDL_PART_VALIDATION].every)
        status = validate(run, &val, err);
    if (!status && run->timing.part[DDL_PART_TASKS].every)
        status = score_tasks(run, err);
    update_time(run);
    run->start = run->progress;
    if (status == DDL_E_INTERRUPTED && run->checkpoint[0])
        return stop(run, err);
    if (status == DDL_E_INTERRUPTED)
        return ddl_error_set(err, status, "stopped before the first step; --resume starts again");
    return status == DDL_E_NUMERIC ? trainer_nonfinite_validation(run, &val, err) : status;
}

/* The line of step 0, after step 1: the loss of a step is computed before its update. */
static ddl_status report_start(struct run *run, struct ddl_error *err)
{
    struct ddl_train_progress *p = &run->start;
    p->loss = run->progress.loss;
    ddl_status status = record(run, p, err);
    if (!status && run->callbacks->progress)
        run->callbacks->progress(run->callbacks->user, p);
    return status;
}

/* The step's validation, task scores, line and progress. */
static ddl_status report(struct run *run, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    struct ddl_train_progress *p = &run->progress;
    struct ddl_validation_result val = { 0 };
    ddl_status status = due(run, DDL_PART_VALIDATION) ? validate(run, &val, err) : DDL_OK;
    if (status && status != DDL_E_NUMERIC)
        return status;
    struct ddl_error nonfinite = status ? *err : (struct ddl_error){ 0 };
    if (!status && due(run, DDL_PART_TASKS))
        status = score_tasks(run, err);
    if (status == DDL_E_INTERRUPTED)
        return status;
    update_time(run);
    status = DDL_OK;
    if (p->has_val || p->n_tasks || p->skipped || ddl_timing_due(p->step, t->log_every, t->steps))
        status = write_line(run, err); /* the step itself is valid even if its validation is not finite */
    if (!status && run->callbacks->progress)
        run->callbacks->progress(run->callbacks->user, p);
    if (status || !nonfinite.status)
        return status;
    *err = nonfinite;
    return trainer_nonfinite_validation(run, &val, err);
}

/* Without effect on the run: a sample that fails is reported. */
static void sample(struct run *run)
{
    struct ddl_error why;
    double start = ddl_clock_seconds();
    ddl_comm_describe(run->config.comm, "the sample of text after step %llu",
                      (unsigned long long)run->state.step);
    if (!trainer_is_root(run)) {
        ddl_comm_wait_for_root(run->config.comm);
        return;
    }
    if (trainer_sample(run, &why))
        note_failure(run, "sample of text", &why);
    ddl_comm_done_working(run->config.comm);
    ddl_timing_add_part(&run->timing, DDL_PART_SAMPLE, ddl_clock_seconds() - start);
}

/* A stop during the validation or the scoring that follows a step: the step is not logged, for its line has
 * their results. */
static ddl_status stop_in_evaluation(struct run *run, struct ddl_error *err)
{
    trainer_postpone_validation(run);
    update_time(run);
    return stop(run, err);
}

/* Whether it is time for a checkpoint, by the clock of rank 0. */
static bool save_due(const struct run *run)
{
    const struct ddl_train_config *t = &run->config;
    return trainer_is_root(run) && t->checkpoint_every &&
           ddl_timing_save_due(&run->timing, t->checkpoint_seconds, ddl_clock_seconds());
}

/* After a step that is not the last: stops the run if any rank requests that, or saves a checkpoint by
 * time. */
static ddl_status stop_or_save(struct run *run, struct ddl_error *err)
{
    enum { STOP, SAVE, REQUESTS };
    uint64_t requests[REQUESTS] = { 0 };
    requests[STOP] = run->callbacks->stop && run->callbacks->stop(run->callbacks->user) != 0;
    requests[SAVE] = save_due(run);
    ddl_comm_max_u64(run->config.comm, REQUESTS, requests);
    if (requests[STOP])
        return stop(run, err);
    return requests[SAVE] ? write_failed(run, save(run, SAVE_BY_TIME, err), err) : DDL_OK;
}

/* All that follows a step. The checkpoint comes last: a run that is resumed from it repeats nothing of the
 * step, and one that is killed before repeats all of it. */
static ddl_status complete(struct run *run, struct ddl_error *err)
{
    run->state.pending = (struct ddl_pending){ 0 };
    ddl_status status = report(run, err);
    if (status == DDL_E_INTERRUPTED)
        return stop_in_evaluation(run, err);
    if (!status && due(run, DDL_PART_SAMPLE))
        sample(run);
    if (!status && due(run, DDL_PART_CHECKPOINT))
        status = save(run, SAVE_AND_PRUNE, err);
    if (status)
        return write_failed(run, status, err);
    return run->state.step < run->config.steps ? stop_or_save(run, err) : DDL_OK;
}

static ddl_status loop(struct run *run, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    double now = ddl_clock_seconds();
    ddl_timing_set_saved(&run->timing, now, now);
    if (run->state.step == 0)
        status = validate_start(run, err);
    else if (run->state.pending.validation)
        status = complete(run, err);
    while (!status && run->state.step < run->config.steps) {
        bool observed = observes_next(run);
        status = advance(run, observed, err);
        if (!status && run->state.step == 1)
            status = write_failed(run, report_start(run, err), err);
        if (!status)
            status = write_failed(run, write_telemetry(run, observed, err), err);
        if (!status)
            status = complete(run, err);
    }
    if (!status && run->state.by_time && due(run, DDL_PART_CHECKPOINT))
        status = write_failed(run, save(run, SAVE_AND_PRUNE, err), err); /* resumed for no further step */
    return status ? status : write_failed(run, trainer_save_model(run, err), err);
}

/* Records on rank 0 that the run diverged. Without the record the run counts as unfinished. */
static void record_divergence(const struct run *run, const struct ddl_error *why)
{
    struct ddl_error failed, message;
    if (run->is_irreproducible || !trainer_is_root(run) ||
        !ddl_divergence_write(run->config.out, run->state.step, why->text, &failed))
        return;
    ddl_error_set(&message, DDL_OK, "the divergence is not recorded: %.600s", failed.text);
    trainer_note(run, message.text);
}

static void begin(struct run *run)
{
    struct ddl_train_summary summary;
    trainer_summary(run, &summary);
    if (trainer_is_root(run))
        ddl_metrics_begin(&run->metrics, run->state.step, summary.backend);
    if (run->callbacks->begin)
        run->callbacks->begin(run->callbacks->user, &summary);
}

ddl_status ddl_train_run(const struct ddl_train_config *config, const struct ddl_train_callbacks *callbacks,
                         struct ddl_train_progress *last, struct ddl_error *err)
{
    struct ddl_error why = { 0 }; /* messages are composed, whether the caller wants them or not */
    struct run *run = trainer_new(config, callbacks);
    if (!run) {
        ddl_status agreed =
            ddl_comm_agree(config->comm, ddl_error_set(&why, DDL_E_MEMORY, "out of memory"), &why);
        return ddl_error_set(err, agreed, "%s", why.text);
    }
    if (!trainer_is_root(run)) {
        run->own_callbacks = (struct ddl_train_callbacks){ .user = run->callbacks->user,
                                                           .begin = run->callbacks->begin,
                                                           .stop = run->callbacks->stop };
        run->callbacks = &run->own_callbacks;
    }
    ddl_comm_set_time_limit(config->comm, config->comm_timeout);
    ddl_timing_start(&run->timing);
    ddl_status status = trainer_agree(run, ddl_train_check(config, &why), &why);
    if (!status)
        status = trainer_open(run, &why);
    if (!status && !run->finished) {
        begin(run);
        status = loop(run, &why);
        if (status == DDL_E_NUMERIC)
            record_divergence(run, &why);
        if (!status)
            update_time(run);
    }
    if (last) {
        *last = run->progress;
        last->n_tasks = 0; /* the results end with the run */
        last->tasks = NULL;
    }
    trainer_free(run);
    if (status && err)
        *err = why;
    return status;
}
