/* Timing a training step, the ops in it, and its matrix products alone. */
#include "bench/bench.h"
#include "bench/planned.h"

#include "base/mem.h"
#include "model/pass/measure.h"
#include "model/pass/model.h"
#include "base/clock.h"
#include "ops/profile.h"
#include "train/step/step.h"

#include <stdio.h>
#include <stdlib.h>

struct bench {
    const struct ddl_bench_step_config *config;
    ddl_backend *backend;
    struct ddl_profile profile;
    ddl_model *model;
    ddl_workspace *ws;
    struct ddl_optim *optim;
    int32_t *tokens; /* (batch, seq) tokens, then targets */
    struct ddl_step step;
    struct bench_products *products; /* NULL: not requested */
    struct bench_planned *planned;   /* NULL: the step is computed */
    double seconds[DDL_BENCH_REPETITIONS], products_seconds[DDL_BENCH_REPETITIONS];
};

static ddl_status set_up(struct bench *b, struct ddl_error *err)
{
    const struct ddl_bench_config *at = &b->config->at;
    const struct ddl_workspace_options options = {
        .batch = at->batch, .tokens = at->seq, .train = true, .recompute = at->recompute
    };
    struct ddl_optim_config optim = ddl_optim_defaults();
    size_t n, bytes;
    ddl_profile_init(&b->profile, b->backend);
    ddl_backend *backend = b->planned ? bench_planned_backend(b->planned) : &b->profile.backend;
    ddl_status status = ddl_model_create(&b->model, &at->model, backend, err);
    if (!status && !b->planned)
        status = ddl_model_init(b->model, 0, err);
    if (!status)
        status = ddl_model_enable_grad(b->model, err);
    if (!status)
        status = ddl_model_set_precision(b->model, at->precision, err);
    if (!status)
        status = ddl_workspace_create(&b->ws, b->model, &options, err);
    if (!status)
        status = ddl_optim_create(&b->optim, b->model, &optim, err);
    if (!status && b->config->products && !b->planned)
        status = bench_products_create(&b->products, b->backend, err);
    if (status)
        return status;
    if (!ddl_size_mul(at->batch, at->seq, &n) || !ddl_size_mul(n, 2 * sizeof *b->tokens, &bytes) ||
        !(b->tokens = malloc(bytes)))
        return ddl_error_set(err, DDL_E_MEMORY, "bench: out of memory for the tokens");
    bench_tokens(b->tokens, 2 * n, at->model.vocab_size);
    b->step = (struct ddl_step){ .model = b->model,
                                 .ws = b->ws,
                                 .optim = b->optim,
                                 .batch = at->batch,
                                 .accumulate = 1,
                                 .seq = at->seq,
                                 .tokens = b->tokens,
                                 .targets = b->tokens + n };
    return ddl_step_reserve(&b->step, err);
}

static void tear_down(struct bench *b)
{
    if (b->model && !b->planned)
        ddl_model_replace_backend(b->model, &b->profile.backend);
    ddl_step_release(&b->step);
    free(b->tokens);
    bench_products_free(b->products);
    ddl_optim_free(b->optim);
    ddl_workspace_free(b->ws);
    ddl_model_free(b->model);
    bench_planned_free(b->planned);
    free(b);
}

static ddl_status time_step(struct bench *b, double *seconds, struct ddl_error *err)
{
    struct ddl_step_result result;
    double start = ddl_clock_seconds();
    ddl_status status = ddl_step_run(&b->step, 1e-4, &result, err);
    b->backend->ops->synchronize(b->backend->ctx);
    *seconds = ddl_clock_seconds() - start;
    return status;
}

/* A step whose products are noted, on the profile's backend. */
static ddl_status note_products(struct bench *b, struct ddl_error *err)
{
    double seconds;
    b->profile.watch = bench_products_note;
    b->profile.watch_user = b->products;
    ddl_status status = time_step(b, &seconds, err);
    b->profile.watch = NULL;
    if (!status && !bench_products_complete(b->products))
        status = ddl_error_set(err, DDL_E_MEMORY, "bench: out of memory for the products of a step");
    return status;
}

/* A step and then its products, so that what slows the machine for a while slows both. */
static ddl_status time_both(struct bench *b, size_t i, struct ddl_error *err)
{
    ddl_status status = time_step(b, &b->seconds[i], err);
    if (status || !b->products)
        return status;
    double start = ddl_clock_seconds();
    bench_products_run(b->products);
    b->products_seconds[i] = ddl_clock_seconds() - start;
    return DDL_OK;
}

static ddl_status time_steps(struct bench *b, struct ddl_error *err)
{
    ddl_status status = b->products ? note_products(b, err) : DDL_OK;
    ddl_model_replace_backend(b->model, b->backend); /* timed steps run on the bare backend */
    for (size_t s = 0; !status && s < b->config->at.warmup; s++)
        status = time_both(b, 0, err);
    for (size_t s = 0; !status && s < b->config->at.steps; s++)
        status = time_both(b, s, err);
    return status;
}

static void fill_rows(struct bench *b, struct ddl_bench_report *out)
{
    const struct ddl_bench_config *at = &b->config->at;
    double tokens = (double)at->batch * (double)at->seq;
    struct ddl_bench_row *step = bench_row(out, "step", b->seconds, at->steps);
    step->flops = tokens * ddl_config_flops_per_token(&at->model, at->seq, true);
    step->units = tokens;
    snprintf(step->unit, sizeof step->unit, "tokens");
    bench_figure(out, "parameters", (double)ddl_model_size(b->model));
    bench_figure(out, "tokens_per_s", tokens / step->median);
    bench_figure(out, "step_s", step->median);
    double peak = ddl_precision_peak_rate(at->precision, b->backend);
    if (peak > 0)
        bench_figure(out, "mfu", step->flops / step->median / peak);
    bench_device(out, b->backend);
    if (b->products) {
        struct ddl_bench_row *products = bench_row(out, "products", b->products_seconds, at->steps);
        products->flops = bench_products_flops(b->products);
        bench_figure(out, "step_over_products", step->median / products->median);
    }
}

static ddl_status time_ops(struct bench *b, struct ddl_bench_report *out, struct ddl_error *err)
{
    double seconds, sum = 0;
    ddl_model_replace_backend(b->model, &b->profile.backend);
    ddl_profile_reset(&b->profile);
    for (size_t s = 0; s < b->config->at.profiled; s++) {
        ddl_status status = time_step(b, &seconds, err);
        if (status)
            return status;
        sum += seconds;
    }
    bench_shares(out, &b->profile, b->config->at.profiled, sum);
    return DDL_OK;
}

/* Counts the ops of the second step: the first one may initialize. */
static ddl_status plan_step(struct bench *b, struct ddl_bench_report *out, struct ddl_error *err)
{
    const struct ddl_bench_config *at = &b->config->at;
    double tokens = (double)at->batch * (double)at->seq, seconds;
    ddl_status status = time_step(b, &seconds, err);
    bench_planned_reset(b->planned);
    if (!status)
        status = time_step(b, &seconds, err);
    if (status)
        return status;
    double predicted = bench_planned_report(b->planned, out);
    double flops = tokens * ddl_config_flops_per_token(&at->model, at->seq, true);
    bench_figure(out, "parameters", (double)ddl_model_size(b->model));
    bench_figure(out, "predicted_step_s", predicted);
    bench_figure(out, "predicted_tokens_per_s", tokens / predicted);
    bench_figure(out, "predicted_flops_share", flops / predicted / b->config->device.flops_per_s);
    bench_figure(out, "profiled_s", predicted);
    return DDL_OK;
}

static ddl_status measure_step(struct bench *b, struct ddl_bench_report *out, struct ddl_error *err)
{
    ddl_status status = time_steps(b, err);
    if (!status)
        fill_rows(b, out);
    return !status && b->config->at.profiled ? time_ops(b, out, err) : status;
}

static bool is_planned(const struct ddl_bench_step_config *config)
{
    return config->device.bytes_per_s > 0 && config->device.flops_per_s > 0;
}

static ddl_status begin(const struct ddl_bench_step_config *config, ddl_backend *backend,
                        struct ddl_bench_report *out, struct ddl_error *err)
{
    bench_begin(out, "step", backend);
    bench_set_model(out, &config->at);
    bench_set(out, "dtype", "%s", ddl_precision_names[config->at.precision]);
    bench_set(out, "recompute", "%s", ddl_recompute_names[config->at.recompute]);
    ddl_status status = bench_check_steps(config->at.steps, err);
    if (!status && is_planned(config)) {
        bench_set(out, "device", "%.4g TB/s, %.4g TFLOP/s, %.4g us per call",
                  1e-12 * config->device.bytes_per_s, 1e-12 * config->device.flops_per_s,
                  1e6 * config->device.seconds_per_call);
        snprintf(out->check, sizeof out->check, "nothing: the ops of a step are counted, not computed");
    } else if (!status) {
        status = bench_check_gradients(&config->at, backend, out->check, sizeof out->check, err);
    }
    return status;
}

ddl_status ddl_bench_step(const struct ddl_bench_step_config *config, ddl_backend *backend,
                          struct ddl_bench_report *out, struct ddl_error *err)
{
    bool planned = is_planned(config);
    ddl_status status = begin(config, backend, out, err);
    if (status)
        return status;
    struct bench *b = calloc(1, sizeof *b);
    if (!b)
        return ddl_error_set(err, DDL_E_MEMORY, "bench: out of memory");
    b->config = config;
    b->backend = backend;
    if (planned && !(b->planned = bench_planned_create(backend, &config->device)))
        status = ddl_error_set(err, DDL_E_MEMORY, "bench: out of memory");
    if (!status)
        status = set_up(b, err);
    if (!status)
        status = (planned ? plan_step : measure_step)(b, out, err);
    tear_down(b);
    if (!status && config->at.roofline && !planned) /* last: its memory is not the step's */
        status = bench_roofline(&out->roofline, backend, err);
    return status;
}
