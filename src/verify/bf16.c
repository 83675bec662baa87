/* Model cases in bfloat16 (--dtype bf16). The expected numbers are of float32, so a case gives the weights
 * and the batch only: the backend is compared with "ref" in bfloat16, relative to the distance of that from
 * "ref" in float32 (base/noise.h), and every bfloat16 op with its exact result (ops/audit.h). */
#include "verify/internal.h"

#include "base/noise.h"
#include "ddl/model.h"
#include "ops/audit.h"
#include "train/step/optim.h"

#include <string.h>

enum { TRAIN_STEPS = 5, TENSORS = 6 };

/* What a model computes, in memory of the case's pool. */
struct sample {
    ddl_model *model;
    ddl_workspace *ws;
    float *gradients, *after; /* of all parameters, and their values after TRAIN_STEPS steps */
    struct tensor {
        const char *name;
        size_t n;
        float *values;
    } tensor[TENSORS];
    size_t n_tensors;
};

static void sample_free(struct sample *s)
{
    ddl_workspace_free(s->ws);
    ddl_model_free(s->model);
}

/* A tensor of n numbers, to be written by the caller. */
static ddl_status add_tensor(struct context *c, struct sample *s, const char *name, size_t n, float **out,
                             struct ddl_error *err)
{
    ddl_status status = take_floats(c, n, out, err);
    s->tensor[s->n_tensors++] = (struct tensor){ name, n, *out };
    return status;
}

static ddl_status open_model(struct context *c, struct sample *s, ddl_backend *backend,
                             enum ddl_precision precision, const struct ddl_batch *batch,
                             struct ddl_error *err)
{
    const struct ddl_workspace_options options = { .batch = batch->B,
                                                   .tokens = batch->T,
                                                   .train = true,
                                                   .recompute = (enum ddl_recompute)c->config->recompute };
    ddl_status status = ddl_model_load(&s->model, c->path, backend, NULL, NULL, err);
    if (!status)
        status = ddl_model_enable_grad(s->model, err);
    if (!status)
        status = ddl_model_set_precision(s->model, precision, err);
    return status ? status : ddl_workspace_create(&s->ws, s->model, &options, err);
}

/* Losses by row and gradients of the batch. */
static ddl_status backward(struct sample *s, const struct ddl_batch *batch, float *row_loss,
                           struct ddl_error *err)
{
    struct ddl_loss sum = { 0 };
    ddl_status status = ddl_model_loss(s->model, s->ws, batch, &sum, row_loss, err);
    double scale = sum.n_targets ? 1 / (double)sum.n_targets : 0;
    ddl_model_zero_grad(s->model);
    return status ? status : ddl_model_backward(s->model, s->ws, batch, scale, &sum, err);
}

typedef void read_fn(const ddl_model *model, size_t i, float *out);
static ddl_status read_params(struct context *c, const struct sample *s, read_fn *read, float **out,
                              struct ddl_error *err)
{
    ddl_status status = take_floats(c, ddl_model_size(s->model), out, err);
    float *at = *out;
    for (size_t i = 0; i < ddl_model_n_params(s->model) && !status; i++) {
        read(s->model, i, at);
        at += ddl_model_param(s->model, i)->count;
    }
    const ddl_backend *backend = ddl_model_backend(s->model);
    return status ? status : backend->ops->check_error(backend->ctx, err);
}

/* beta, readout and target of the pass just made. */
static ddl_status read_traces(struct context *c, struct sample *s, const struct ddl_batch *batch,
                              struct ddl_error *err)
{
    static const char *const names[] = { "beta", "readout", "target" };
    size_t S = 0, N = batch->B * batch->T, steps = ddl_workspace_n_steps(s->ws);
    ddl_status status = DDL_OK;
    for (size_t j = 0; j < steps; j++)
        S += ddl_workspace_trace_width(s->ws, j, "target") > 0;
    for (size_t i = 0; i < 3 && S && !status; i++) {
        size_t width = i ? N * ddl_model_config(s->model)->channels : N;
        float *out;
        status = add_tensor(c, s, names[i], S * width, &out, err);
        for (size_t j = 0; j < steps && !status; j++) {
            if (!ddl_workspace_trace_width(s->ws, j, "target"))
                continue;
            status = ddl_workspace_read_trace(s->ws, j, names[i], out, err);
            out += width;
        }
    }
    return status;
}

static ddl_status read_logits(struct context *c, struct sample *s, const struct ddl_batch *batch,
                              struct ddl_error *err)
{
    size_t n = batch->B * batch->T * ddl_model_config(s->model)->vocab_size;
    float *whole, *decoded;
    ddl_status status = add_tensor(c, s, "logits", n, &whole, err);
    if (!status)
        status = add_tensor(c, s, "decode", n, &decoded, err);
    if (!status)
        status = ddl_model_logits(s->model, s->ws, batch, batch->T, whole, err);
    return status ? status : decode_by_token(c, s->model, batch, decoded, err);
}

/* Losses by row before each step. */
static ddl_status train(struct context *c, struct sample *s, const struct ddl_batch *batch,
                        struct ddl_error *err)
{
    struct ddl_optim_config config = ddl_optim_defaults();
    config.use_lr_scale = false;
    size_t N = batch->B * batch->T;
    struct ddl_optim *optim;
    float *losses;
    ddl_status status = add_tensor(c, s, "train_loss", TRAIN_STEPS * N, &losses, err);
    if (!status)
        status = ddl_optim_create(&optim, s->model, &config, err);
    if (status)
        return status;
    for (size_t i = 0; i < TRAIN_STEPS && !status; i++) {
        status = backward(s, batch, losses + i * N, err);
        if (!status)
            ddl_optim_step(optim, 1e-3);
    }
    ddl_optim_free(optim);
    return status;
}

/* Free *s in any case. */
static ddl_status sample_run(struct context *c, struct sample *s, ddl_backend *backend,
                             enum ddl_precision precision, const struct ddl_batch *batch,
                             struct ddl_error *err)
{
    float *row_loss;
    ddl_status status = open_model(c, s, backend, precision, batch, err);
    if (!status)
        status = take_floats(c, batch->B * batch->T, &row_loss, err);
    if (!status)
        status = backward(s, batch, row_loss, err);
    if (!status)
        status = read_params(c, s, ddl_model_read_grad, &s->gradients, err);
    if (!status)
        status = read_traces(c, s, batch, err);
    if (!status)
        status = read_logits(c, s, batch, err);
    if (!status)
        status = train(c, s, batch, err);
    return status ? status : read_params(c, s, ddl_model_read_param, &s->after, err);
}

/* ---- judging ---- */

struct samples {
    struct sample found, ref, exact;
};

/* All parameters' tensors in one array each; `list` is scratch for a row a parameter. Returns the worst one.
 */
static struct ddl_noise measure_params(const struct samples *s, const float *found, const float *ref,
                                       const float *exact, struct ddl_noise_tensor *list)
{
    size_t n = ddl_model_n_params(s->ref.model), at = 0;
    for (size_t i = 0; i < n; i++) {
        size_t count = ddl_model_param(s->ref.model, i)->count;
        list[i] = (struct ddl_noise_tensor){ count, found + at, ref + at, exact + at };
        at += count;
    }
    return ddl_noise_measure(n, list);
}

static ddl_status judge(struct context *c, const struct samples *s, struct ddl_error *err)
{
    size_t n = ddl_model_n_params(s->ref.model);
    struct ddl_noise_tensor *list = pool_take(&c->pool, n, sizeof *list);
    if (!list)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for %zu gradients", c->path, n);
    struct ddl_noise noise =
        measure_params(s, s->found.gradients, s->ref.gradients, s->exact.gradients, list);
    measure(c, "gradients", DDL_NOISE_LIMIT_ALL, "all", noise.all);
    measure(c, "gradient", DDL_NOISE_LIMIT_ONE, ddl_model_param(s->ref.model, noise.worst)->name, noise.one);
    for (size_t i = 0; i < s->ref.n_tensors; i++) {
        const struct tensor *t = &s->ref.tensor[i];
        const struct ddl_noise_tensor one = { t->n, s->found.tensor[i].values, t->values,
                                              s->exact.tensor[i].values };
        measure(c, t->name, DDL_NOISE_LIMIT_ONE, t->name, ddl_noise_measure(1, &one).one);
    }
    /* AdamW divides a gradient by its size: where that is near 0, one rounding decides on a whole step, so
     * that a single tensor does not average over roundings. All tensors together do. */
    noise = measure_params(s, s->found.after, s->ref.after, s->exact.after, list);
    measure(c, "after", DDL_NOISE_LIMIT_ALL, "all", noise.all);
    return DDL_OK;
}

static ddl_status run_on(struct context *c, ddl_backend *ref, const struct ddl_batch *batch,
                         struct samples *s, struct ddl_audit *audit, struct ddl_error *err)
{
    ddl_audit_init(audit, c->backend);
    ddl_status status = sample_run(c, &s->found, &audit->profile.backend, DDL_PRECISION_BF16, batch, err);
    if (!status && audit->out_of_memory)
        status = ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for the operands of an op", c->path);
    if (!status)
        measure(c, "ops", 1, audit->op, audit->worst);
    if (!status)
        status = sample_run(c, &s->ref, ref, DDL_PRECISION_BF16, batch, err);
    if (!status)
        status = sample_run(c, &s->exact, ref, DDL_PRECISION_F32, batch, err);
    return status ? status : judge(c, s, err);
}

ddl_status check_model_bf16(struct context *c, const ddl_safetensors *expect, struct ddl_error *err)
{
    struct ddl_batch batch;
    struct samples s = { 0 };
    struct ddl_audit audit; /* its backend must outlive the samples */
    ddl_backend *ref;
    ddl_status status = read_model_batch(c, expect, &batch, err);
    if (!status)
        status = ddl_backend_create(&ref, "ref", 1, err);
    if (status)
        return status;
    status = run_on(c, ref, &batch, &s, &audit, err);
    sample_free(&s.found);
    sample_free(&s.ref);
    sample_free(&s.exact);
    ddl_backend_free(ref);
    return status;
}
