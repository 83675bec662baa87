/* Model cases: a folder with config.json, model.safetensors and expect.safetensors. */
#include "verify/internal.h"

#include "base/file.h"
#include "ddl/model.h"
#include "ddl/session.h"
#include "ops/ops.h"
#include "train/step/optim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRAIN_STEPS = 5 };

/* What one case works with. */
struct work {
    struct context *c;
    ddl_safetensors *expect;
    ddl_model *model;
    ddl_workspace *ws;
    struct ddl_batch batch;
    size_t V, n_targets;
    float *logits; /* (B, T, V) of the full forward */
};

/* Mean loss of the batch, its gradient in place of the model's. */
static ddl_status loss_and_gradient(struct work *w, double *loss, struct ddl_error *err)
{
    struct ddl_loss sum = { 0 };
    double scale = w->n_targets ? 1 / (double)w->n_targets : 0;
    ddl_model_zero_grad(w->model);
    ddl_status status = ddl_model_backward(w->model, w->ws, &w->batch, scale, &sum, err);
    *loss = sum.sum * scale;
    return status;
}

static ddl_status check_loss(struct work *w, struct ddl_error *err)
{
    double *expected, found;
    ddl_status status = read_doubles(w->c, w->expect, (struct want){ "loss", 0, { 0 } }, &expected, err);
    if (!status)
        status = loss_and_gradient(w, &found, err);
    if (!status)
        compare_number(w->c, "loss", LIMIT_LOSS, "loss", found, *expected);
    return status;
}

/* prefix + a parameter's name, in the case's pool. */
static ddl_status name_of(struct work *w, const char *prefix, const struct ddl_param *param, char **out,
                          struct ddl_error *err)
{
    size_t size = strlen(prefix) + strlen(param->name) + 1;
    *out = pool_take(&w->c->pool, size, 1);
    if (!*out)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for a name", w->c->path);
    snprintf(*out, size, "%s%s", prefix, param->name);
    return DDL_OK;
}

/* Every tensor with the prefix belongs to a parameter, or to lm_head. */
static ddl_status check_names(struct work *w, const char *prefix, struct ddl_error *err)
{
    for (size_t i = 0; i < ddl_safetensors_count(w->expect); i++) {
        const char *name = ddl_safetensors_at(w->expect, i)->name;
        if (strncmp(name, prefix, strlen(prefix)) != 0)
            continue;
        bool known = strcmp(name + strlen(prefix), "lm_head.weight") == 0;
        for (size_t j = 0; j < ddl_model_n_params(w->model) && !known; j++)
            known = strcmp(name + strlen(prefix), ddl_model_param(w->model, j)->name) == 0;
        if (!known)
            return ddl_error_set(err, DDL_E_FORMAT, "%s: %s belongs to no parameter of this model",
                                 w->c->path, name);
    }
    return DDL_OK;
}

/* The expected tensor, named prefix + NAME, and what `read` gives for parameter i. */
typedef void read_fn(const ddl_model *model, size_t i, float *out);
static ddl_status read_pair(struct work *w, const char *prefix, size_t i, read_fn *read,
                            struct gradient *pair, struct ddl_error *err)
{
    const struct ddl_param *p = ddl_model_param(w->model, i);
    char *name;
    float *found;
    double *expected;
    ddl_status status = name_of(w, prefix, p, &name, err);
    if (status)
        return status;
    struct want want = { name, p->ndim, { 0 } };
    memcpy(want.shape, p->shape, p->ndim * sizeof *p->shape);
    status = read_doubles(w->c, w->expect, want, &expected, err);
    if (!status)
        status = take_floats(w->c, p->count, &found, err);
    if (status)
        return status;
    const ddl_backend *backend = ddl_model_backend(w->model);
    read(w->model, i, found);
    *pair = (struct gradient){ name, p->count, found, expected };
    return backend->ops->check_error(backend->ctx, err);
}

static ddl_status check_gradients(struct work *w, struct ddl_error *err)
{
    size_t n = ddl_model_n_params(w->model);
    struct gradient *list = pool_take(&w->c->pool, n, sizeof *list);
    if (!list)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for %zu gradients", w->c->path, n);
    ddl_status status = check_names(w, "grad.", err);
    for (size_t i = 0; i < n && !status; i++)
        status = read_pair(w, "grad.", i, ddl_model_read_grad, &list[i], err);
    if (!status)
        compare_gradients(w->c, LIMIT_GRADIENT, list, n);
    return status;
}

/* Delta steps of the sublayers. */
static size_t count_delta(const ddl_workspace *ws)
{
    size_t n = 0;
    for (size_t s = 0; s < ddl_workspace_n_steps(ws); s++)
        n += ddl_workspace_trace_width(ws, s, "target") > 0;
    return n;
}

/* beta (S, B, T), readout and target (S, B, T, c) of the pass just made. */
static ddl_status check_trace(struct work *w, struct ddl_error *err)
{
    size_t S = count_delta(w->ws), B = w->batch.B, T = w->batch.T, N = B * T;
    size_t channels = ddl_model_config(w->model)->channels;
    if (S == 0) {
        if (ddl_safetensors_find(w->expect, "beta"))
            return ddl_error_set(err, DDL_E_FORMAT, "%s: has beta, but the model has no delta sublayer",
                                 w->c->path);
        return DDL_OK;
    }
    struct want wants[3] = { { "beta", 3, { S, B, T } },
                             { "readout", 4, { S, B, T, channels } },
                             { "target", 4, { S, B, T, channels } } };
    size_t widths[3] = { N, N * channels, N * channels };
    float *found[3];
    double *expected[3];
    for (size_t i = 0; i < 3; i++) {
        ddl_status status = read_doubles(w->c, w->expect, wants[i], &expected[i], err);
        if (!status)
            status = take_floats(w->c, S * widths[i], &found[i], err);
        if (status)
            return status;
    }
    for (size_t s = 0, at = 0; s < ddl_workspace_n_steps(w->ws); s++) {
        ddl_status status = DDL_OK;
        if (!ddl_workspace_trace_width(w->ws, s, "target"))
            continue;
        for (size_t i = 0; i < 3 && !status; i++)
            status = ddl_workspace_read_trace(w->ws, s, wants[i].name, found[i] + at * widths[i], err);
        if (status)
            return status;
        at++;
    }
    for (size_t i = 0; i < 3; i++)
        compare(w->c, wants[i].name, LIMIT_TRACE, wants[i].name, S * widths[i], found[i], expected[i], 0);
    return DDL_OK;
}

static ddl_status check_logits(struct work *w, struct ddl_error *err)
{
    size_t B = w->batch.B, T = w->batch.T;
    double *expected;
    ddl_status status =
        read_doubles(w->c, w->expect, (struct want){ "logits", 3, { B, T, w->V } }, &expected, err);
    if (!status)
        status = take_floats(w->c, B * T * w->V, &w->logits, err);
    if (!status)
        status = ddl_model_logits(w->model, w->ws, &w->batch, T, w->logits, err);
    if (!status)
        compare(w->c, "logits", LIMIT_LOGITS, "logits", B * T * w->V, w->logits, expected, 0);
    return status;
}

/* One token at a time against the full forward of the same backend. */
static ddl_status check_decoding(struct work *w, struct ddl_error *err)
{
    size_t n = w->batch.B * w->batch.T * w->V;
    float *decoded;
    double *full = pool_take(&w->c->pool, n, sizeof *full);
    if (!full)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for %zu logits", w->c->path, n);
    ddl_status status = take_floats(w->c, n, &decoded, err);
    if (!status)
        status = decode_by_token(w->c, w->model, &w->batch, decoded, err);
    for (size_t i = 0; i < n; i++)
        full[i] = (double)w->logits[i];
    if (!status)
        compare(w->c, "decode", LIMIT_DECODE, "logits", n, decoded, full, 0);
    return status;
}

/* Five AdamW steps on the same batch: one learning rate for all parameters, muP or not. */
static ddl_status train(struct work *w, double losses[TRAIN_STEPS], struct ddl_error *err)
{
    struct ddl_optim_config config = ddl_optim_defaults();
    config.use_lr_scale = false;
    struct ddl_optim *optim;
    ddl_status status = ddl_optim_create(&optim, w->model, &config, err);
    if (status)
        return status;
    for (size_t s = 0; s < TRAIN_STEPS && !status; s++) {
        status = loss_and_gradient(w, &losses[s], err);
        if (!status)
            ddl_optim_step(optim, 1e-3);
    }
    ddl_optim_free(optim);
    return status;
}

static bool has_prefix(const ddl_safetensors *file, const char *prefix)
{
    for (size_t i = 0; i < ddl_safetensors_count(file); i++) {
        if (strncmp(ddl_safetensors_at(file, i)->name, prefix, strlen(prefix)) == 0)
            return true;
    }
    return false;
}

/* Last, for it changes the parameters. In a case without after.* only the losses are compared. */
static ddl_status check_training(struct work *w, struct ddl_error *err)
{
    double *expected, losses[TRAIN_STEPS];
    ddl_status status =
        read_doubles(w->c, w->expect, (struct want){ "train_loss", 1, { TRAIN_STEPS } }, &expected, err);
    if (!status)
        status = train(w, losses, err);
    for (size_t s = 0; s < TRAIN_STEPS && !status; s++) {
        char step[32];
        snprintf(step, sizeof step, "train_loss[%zu]", s);
        compare_number(w->c, "train_loss", LIMIT_TRAIN_LOSS, step, losses[s], expected[s]);
    }
    if (status || !has_prefix(w->expect, "after."))
        return status;
    status = check_names(w, "after.", err);
    for (size_t i = 0; i < ddl_model_n_params(w->model) && !status; i++) {
        struct gradient pair;
        status = read_pair(w, "after.", i, ddl_model_read_param, &pair, err);
        if (!status)
            compare(w->c, "after", LIMIT_AFTER, pair.name, pair.n, pair.found, pair.expected, 0);
    }
    return status;
}

static ddl_status run_model(struct work *w, struct ddl_error *err)
{
    static ddl_status (*const checks[])(struct work *, struct ddl_error *) = {
        check_loss, check_gradients, check_trace, check_logits, check_decoding, check_training,
    };
    ddl_status status = ddl_model_load(&w->model, w->c->path, w->c->backend, NULL, NULL, err);
    if (!status)
        status = read_model_batch(w->c, w->expect, &w->batch, err);
    for (size_t i = 0; i < w->batch.B * w->batch.T; i++)
        w->n_targets += w->batch.targets[i] >= 0;
    const struct ddl_workspace_options options = { .batch = w->batch.B,
                                                   .tokens = w->batch.T,
                                                   .train = true,
                                                   .recompute = (enum ddl_recompute)w->c->config->recompute };
    if (!status)
        status = ddl_model_enable_grad(w->model, err);
    if (!status)
        status = ddl_workspace_create(&w->ws, w->model, &options, err);
    if (status)
        return status;
    w->V = ddl_model_config(w->model)->vocab_size;
    for (size_t i = 0; i < sizeof checks / sizeof *checks && !status; i++)
        status = checks[i](w, err);
    return status;
}

ddl_status check_model(struct context *c, struct ddl_error *err)
{
    char path[2048];
    struct work w = { .c = c };
    if (!ddl_path_join(path, sizeof path, c->path, "expect.safetensors"))
        return ddl_error_set(err, DDL_E_USAGE, "%s: the path is too long", c->path);
    ddl_status status = ddl_safetensors_open(&w.expect, path, err);
    if (!status && c->config->dtype == DDL_PRECISION_BF16)
        status = check_model_bf16(c, w.expect, err);
    else if (!status)
        status = run_model(&w, err);
    ddl_workspace_free(w.ws);
    ddl_model_free(w.model);
    ddl_safetensors_close(w.expect);
    return status;
}
