/* What a run will do: its summary, and a dry run, which estimates its time on a scratch model. */
#include "base/clock.h"
#include "ops/ops.h"
#include "train/config/train_config.h"
#include "train/run/plan.h"
#include "train/run/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void trainer_summary(const struct run *run, struct ddl_train_summary *out)
{
    *out = (struct ddl_train_summary){ .config = &run->config,
                                       .plan = run->plan,
                                       .model = ddl_config_preset_name(&run->config.config),
                                       .step = run->state.step,
                                       .train_seconds = run->state.train_seconds,
                                       .train_tokens = run->train ? ddl_shards_count(run->train) : 0,
                                       .val_tokens = run->val ? ddl_shards_count(run->val) : 0 };
    struct ddl_train_config matched = run->config;
    (void)ddl_train_match(&matched, &out->match, NULL); /* it succeeded when the run was configured */
    if (out->train_tokens)
        out->epochs = out->plan.tokens / (double)out->train_tokens;
    if (run->backend)
        snprintf(out->backend, sizeof out->backend, "%s", ddl_backend_description(run->backend));
}

/* ---- the time of a step ---- */

static const double budget = 3; /* seconds */

/* A micro-batch of B sequences of T tokens, and its duration. */
struct trial {
    size_t B, T;
    double seconds;
};

static double flops_of(const struct ddl_config *config, const struct trial *trial)
{
    double tokens = (double)trial->B * (double)trial->T;
    return tokens * ddl_config_flops_per_token(config, trial->T, true);
}

/* The next larger micro-batch, up to the run's; false at the end. */
static bool enlarge(const struct run *run, struct trial *trial)
{
    enum { FACTOR = 4 };
    const size_t seq = run->config.seq, batch = run->share.batch;
    if (trial->T < seq)
        trial->T = FACTOR * trial->T < seq ? FACTOR * trial->T : seq;
    else if (trial->B < batch)
        trial->B = FACTOR * trial->B < batch ? FACTOR * trial->B : batch;
    else
        return false;
    return true;
}

static ddl_status run_trial(struct run *run, struct trial *trial, struct ddl_error *err)
{
    struct ddl_batch batch = { trial->B, trial->T, run->tokens, run->targets };
    struct ddl_loss loss;
    run->loader.T = trial->T;
    double start = ddl_clock_seconds();
    ddl_loader_next(&run->loader, trial->B, run->tokens, run->targets);
    ddl_model_zero_grad(run->model);
    ddl_status status = ddl_model_backward(run->model, run->ws, &batch, 1, &loss, err);
    trial->seconds = ddl_clock_seconds() - start;
    return status;
}

/* The largest micro-batch that the budget allows. The smallest and the run's own are repeated: the first pass
 * touches their memory for the first time. */
static ddl_status measure_gradient(struct run *run, struct trial *out, struct ddl_error *err)
{
    enum { SHORT = 64, REPETITIONS = 3 };
    const struct ddl_train_config *t = &run->config;
    struct trial trial = { 1, t->seq < SHORT ? t->seq : SHORT, 0 };
    double start = ddl_clock_seconds();
    ddl_status status = run_trial(run, &trial, err);
    for (int repetition = 0; !status && repetition < REPETITIONS;) {
        status = run_trial(run, &trial, err);
        if (trial.B * trial.T > out->B * out->T || trial.seconds < out->seconds)
            *out = trial;
        if (!enlarge(run, &trial))
            repetition++;
        double expected = out->seconds * flops_of(&t->config, &trial) / flops_of(&t->config, out);
        if (ddl_clock_seconds() - start + expected > budget)
            break;
    }
    return status;
}

/* Seconds of an update; the first one touches the moments for the first time and does not count. */
static double measure_update(struct run *run)
{
    const ddl_backend *backend = run->backend;
    double seconds = 0;
    for (int i = 0; i < 2; i++) {
        double start = ddl_clock_seconds();
        ddl_optim_step(run->optim, 1e-6);
        backend->ops->synchronize(backend->ctx);
        seconds = ddl_clock_seconds() - start;
    }
    return seconds;
}

/* Halves the number of layers until the weights are small enough to be set up in a few seconds. */
static void limit_layers(struct ddl_config *config)
{
    enum { MOST = 1 << 28 }; /* bytes of weights */
    while (config->n_layers > 1 && ddl_config_weight_bytes(config, DDL_PRECISION_F32, NULL) > MOST) {
        config->n_layers /= 2;
        *config = ddl_config_without_idle(config); /* ddl_f_norm is an error where no layer uses it */
    }
}

/* `model` is that of the run, whose config has as many layers as are measured. */
static ddl_status measure_layers(struct run *run, const struct ddl_config *model,
                                 struct ddl_train_preview *out, struct ddl_error *err)
{
    const struct ddl_train_config *t = &run->config;
    struct trial largest = { 0 };
    ddl_status status = trainer_make(run, err);
    if (!status)
        status = measure_gradient(run, &largest, err);
    if (status)
        return status;
    const struct trial whole = { run->share.batch, t->seq, 0 };
    double gradient = largest.seconds * flops_of(model, &whole) / flops_of(&t->config, &largest);
    double weights = (double)ddl_config_weight_bytes(model, DDL_PRECISION_F32, NULL) /
                     (double)ddl_config_weight_bytes(&t->config, DDL_PRECISION_F32, NULL);
    ddl_timing_add_step(&run->timing, (double)run->share.most * gradient + weights * measure_update(run));
    out->measured_tokens = largest.B * largest.T;
    out->measured_layers = t->config.n_layers;
    out->seconds = ddl_timing_left(&run->timing, 0, t->steps);
    return DDL_OK;
}

static ddl_status measure(struct run *run, struct ddl_train_preview *out, struct ddl_error *err)
{
    const struct ddl_config model = run->config.config;
    limit_layers(&run->config.config);
    ddl_status status = measure_layers(run, &model, out, err);
    run->config.config = model;
    return status;
}

/* ---- the dry run ---- */

ddl_status ddl_train_check_inputs(const struct ddl_train_config *config,
                                  const struct ddl_train_callbacks *callbacks, struct ddl_error *err)
{
    struct run *run = trainer_new(config, callbacks);
    if (!run)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory");
    ddl_status status = ddl_train_check(config, err);
    if (!status && !*config->train_data)
        status = ddl_option_missing("train", "--train-data PATH (train_data in a recipe)", err);
    if (!status)
        status = trainer_open_inputs(run, err);
    if (!status)
        status = trainer_check_initial(run, err);
    if (!status)
        status = trainer_check_memory(run, false, err);
    trainer_free(run);
    return status;
}

static ddl_status dry_run(struct run *run, struct ddl_train_preview *out, struct ddl_error *err)
{
    ddl_status status = trainer_open_inputs(run, err);
    if (!status)
        status = trainer_check_initial(run, err);
    if (!status)
        status = trainer_check_memory(run, true, err);
    if (status)
        return status;
    run->config.init_from[0] = '\0'; /* the values do not change the time */
    run->config = ddl_train_resolved(&run->config);
    if (run->config.device_memory)
        out->not_measured = "no device is opened with --device-memory";
    else if (!run->train)
        out->not_measured = "train_data is not set";
    return out->not_measured ? DDL_OK : measure(run, out, err);
}

/* Appends the option with which a run can be planned without its device. */
static void suggest_memory(const struct ddl_train_config *config, struct ddl_error *err)
{
    ddl_backend *backend;
    size_t used = strlen(err->text);
    if (ddl_backend_plan(&backend, config->backend, 1, NULL))
        return;
    ddl_backend_free(backend);
    snprintf(err->text + used, sizeof err->text - used, "; --device-memory GIB plans without a device");
}

ddl_status ddl_train_dry_run(const struct ddl_train_config *config,
                             const struct ddl_train_callbacks *callbacks, struct ddl_train_preview *out,
                             struct ddl_error *err)
{
    struct ddl_error why = { 0 };
    *out = (struct ddl_train_preview){ .seconds = (double)NAN };
    struct run *run = trainer_new(config, callbacks);
    if (!run)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory");
    if (config->resume) /* init_from was read by the run, and may have been removed since */
        run->config.init_from[0] = '\0';
    run->config.resume = false;
    ddl_status status = ddl_train_plan_on(config, &run->backend, &run->plan, &why);
    if (status == DDL_E_UNSUPPORTED && !run->backend)
        suggest_memory(config, &why);
    if (!status)
        status = dry_run(run, out, &why);
    (void)ddl_train_open_backend(&run->config, &run->backend, NULL);
    trainer_summary(run, &out->summary);
    out->summary.config = config;
    trainer_free(run);
    if (status && err)
        *err = why;
    return status;
}
