#include "ddl/bench.h"

#include "base/rng.h"
#include "model/internal.h"
#include "base/clock.h"
#include "run/profile.h"
#include "run/step.h"

#include <stdlib.h>

struct bench {
    struct ddl_profile profile;
    ddl_model *model;
    ddl_workspace *ws;
    struct ddl_optim *optim;
    int32_t *tokens; /* (batch, seq) tokens, then targets */
    struct ddl_step step;
};

static ddl_status set_up(struct bench *b, const struct ddl_bench_config *config, ddl_backend *backend,
                         struct ddl_error *err)
{
    struct ddl_optim_config optim = ddl_optim_defaults();
    size_t n, bytes;
    if (config->steps == 0 || config->steps > DDL_BENCH_STEPS)
        return ddl_error_set(err, DDL_E_USAGE, "bench: %zu steps, from 1 to %d can be timed", config->steps,
                             DDL_BENCH_STEPS);
    ddl_profile_init(&b->profile, backend);
    ddl_status status = ddl_model_create(&b->model, &config->model, &b->profile.backend, err);
    if (!status)
        status = ddl_model_init(b->model, 0, err);
    if (!status)
        status = ddl_model_enable_grad(b->model, err);
    if (!status)
        status = ddl_model_set_precision(b->model, config->precision, err);
    if (!status)
        status = ddl_workspace_create(&b->ws, b->model, config->batch, config->seq, true, err);
    if (!status)
        status = ddl_optim_create(&b->optim, b->model, &optim, err);
    if (status)
        return status;
    if (!ddl_size_mul(config->batch, config->seq, &n) || !ddl_size_mul(n, 2 * sizeof *b->tokens, &bytes) ||
        !(b->tokens = malloc(bytes)))
        return ddl_error_set(err, DDL_E_MEMORY, "bench: out of memory for the tokens");
    for (size_t i = 0; i < 2 * n; i++)
        b->tokens[i] = (int32_t)ddl_rng_below(ddl_rng_key(0, "bench"), i, config->model.vocab_size);
    b->step = (struct ddl_step){ .model = b->model,
                                 .ws = b->ws,
                                 .optim = b->optim,
                                 .batch = config->batch,
                                 .accumulate = 1,
                                 .seq = config->seq,
                                 .tokens = b->tokens,
                                 .targets = b->tokens + n };
    return DDL_OK;
}

static void tear_down(struct bench *b)
{
    free(b->tokens);
    ddl_optim_free(b->optim);
    ddl_workspace_free(b->ws);
    ddl_model_free(b->model);
}

/* One step's seconds. */
static ddl_status time_step(struct bench *b, double *seconds, struct ddl_error *err)
{
    struct ddl_step_result result;
    double start = ddl_clock_seconds();
    ddl_status status = ddl_step_run(&b->step, 1e-4, &result, err);
    *seconds = ddl_clock_seconds() - start;
    return status;
}

static int by_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int longest_first(const void *a, const void *b)
{
    return by_seconds(&((const struct ddl_bench_op *)b)->seconds, &((const struct ddl_bench_op *)a)->seconds);
}

static ddl_status time_ops(struct bench *b, const struct ddl_bench_config *config,
                           struct ddl_bench_result *out, struct ddl_error *err)
{
    ddl_profile_reset(&b->profile);
    double steps = (double)config->profiled;
    for (size_t s = 0; s < config->profiled; s++) {
        double seconds;
        ddl_status status = time_step(b, &seconds, err);
        if (status)
            return status;
        out->profiled += seconds / steps;
    }
    for (const struct ddl_profile_row *row = b->profile.rows; row->name && out->n_ops < DDL_BENCH_OPS;
         row++) {
        if (row->calls)
            out->op[out->n_ops++] =
                (struct ddl_bench_op){ row->name, row->seconds / steps, (double)row->calls / steps };
    }
    qsort(out->op, out->n_ops, sizeof *out->op, longest_first);
    return DDL_OK;
}

ddl_status ddl_bench_step(const struct ddl_bench_config *config, ddl_backend *backend,
                          struct ddl_bench_result *out, struct ddl_error *err)
{
    struct bench b = { 0 };
    double seconds[DDL_BENCH_STEPS];
    *out = (struct ddl_bench_result){ 0 };
    ddl_status status = set_up(&b, config, backend, err);
    if (!status) { /* timed steps run on the bare backend */
        b.model->backend = backend;
        out->n_params = ddl_model_size(b.model);
    }
    for (size_t s = 0; !status && s < config->warmup; s++)
        status = time_step(&b, seconds, err);
    for (size_t s = 0; !status && s < config->steps; s++)
        status = time_step(&b, &seconds[s], err);
    if (!status) {
        double tokens = (double)config->batch * (double)config->seq;
        qsort(seconds, config->steps, sizeof *seconds, by_seconds);
        out->median = seconds[config->steps / 2];
        out->best = seconds[0];
        out->worst = seconds[config->steps - 1];
        out->tokens_per_s = tokens / out->median;
        out->flops = tokens * ddl_config_flops_per_token(&config->model, config->seq, true);
        out->peak_memory = (double)ddl_clock_peak_memory();
        b.model->backend = &b.profile.backend;
        status = config->profiled ? time_ops(&b, config, out, err) : DDL_OK;
    }
    tear_down(&b);
    return status;
}
