/* The model: its memory, and the one forward pass and its mirror. */
#include "model/pass/model.h"

#include "base/mem.h"
#include "model/pass/average.h"
#include "model/pass/block.h"
#include "model/pass/embed.h"
#include "model/observe/force.h"
#include "model/params/gradients.h"
#include "model/pass/head.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"
#include "model/pass/requirements.h"
#include "model/residual/table.h"
#include "model/pass/workspace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static ddl_status alloc_flat(struct ddl_model *model, float **out, const char *what, struct ddl_error *err)
{
    size_t bytes = model->params.total * sizeof **out;
    *out = model->backend->ops->alloc(model->backend->ctx, bytes);
    if (!*out)
        return ddl_error_set(err, DDL_E_MEMORY, "model: out of memory for %zu bytes of %s", bytes, what);
    model->backend->ops->zero(model->backend->ctx, *out, bytes);
    return DDL_OK;
}

/* Whether the backend computes a model of this configuration in this precision. */
static ddl_status check_precision(const struct ddl_config *config, enum ddl_precision precision,
                                  const ddl_backend *backend, struct ddl_error *err)
{
    return precision_is_float32(precision)
               ? precision_check_backend(precision, backend, err)
               : requirements_check(config, precision == DDL_PRECISION_INT8 ? USE_INT8 : USE_BF16, backend,
                                    err);
}

ddl_status ddl_model_create_for_inference(ddl_model **out, const struct ddl_config *config,
                                          enum ddl_precision precision, ddl_backend *backend,
                                          struct ddl_error *err)
{
    bool inference_only = !precision_is_float32(precision);
    *out = NULL;
    ddl_status status = ddl_config_check(config, err);
    if (!status)
        status = precision_check(precision, err);
    if (!status)
        status = requirements_check(config, USE_FORWARD, backend, err);
    if (!status)
        status = check_precision(config, precision, backend, err);
    if (status)
        return status;
    struct ddl_model *model = ddl_mem_zalloc(sizeof *model);
    if (!model)
        return ddl_error_set(err, DDL_E_MEMORY, "model: out of memory");
    model->config = *config;
    model->backend = backend;
    model->precision = precision;
    status = params_plan(&model->params, config, err);
    if (!status && inference_only)
        params_leave_out_products(&model->params);
    if (!status)
        status = alloc_flat(model, &model->value, "parameters", err);
    if (!status && inference_only)
        status = precision_make_only(model, precision, err);
    if (status) {
        ddl_model_free(model);
        return status;
    }
    *out = model;
    return DDL_OK;
}

ddl_status ddl_model_create(ddl_model **out, const struct ddl_config *config, ddl_backend *backend,
                            struct ddl_error *err)
{
    return ddl_model_create_for_inference(out, config, DDL_PRECISION_F32, backend, err);
}

void ddl_model_free(ddl_model *model)
{
    if (!model)
        return;
    precision_drop(model);
    void *blocks[] = { model->value, model->grad };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        if (blocks[i])
            model->backend->ops->free(model->backend->ctx, blocks[i]);
    }
    params_free(&model->params);
    ddl_model_clear_forces(model);
    ddl_mem_free(model->grad_is_zero);
    ddl_mem_free(model);
}

ddl_status ddl_model_set_precision(ddl_model *model, enum ddl_precision precision, struct ddl_error *err)
{
    ddl_status status = precision_check(precision, err);
    if (status)
        return status;
    if (model->inference_only && precision != model->precision)
        return ddl_error_set(err, DDL_E_USAGE,
                             "the model holds its weights in %s alone; load it again for %s",
                             ddl_precision_names[model->precision], ddl_precision_names[precision]);
    if (model->inference_only)
        return DDL_OK;
    status = check_precision(&model->config, precision, model->backend, err);
    return status ? status : precision_change(model, precision, err);
}

/* Numbers of row i in the piece that starts at `start`. */
static size_t piece_at(const ddl_model *model, size_t i, size_t start)
{
    size_t left = model->params.row[i].count - start, piece = precision_piece(model, i);
    return left < piece ? left : piece;
}

ddl_status ddl_model_init(ddl_model *model, uint64_t seed, struct ddl_error *err)
{
    size_t largest = precision_largest_piece(model);
    float *host = ddl_mem_alloc(largest * sizeof *host);
    if (!host)
        return ddl_error_set(err, DDL_E_MEMORY, "model: out of memory for %zu initial values", largest);
    for (size_t i = 0; i < model->params.n; i++) {
        for (size_t at = 0, n; at < model->params.row[i].count; at += n) {
            n = piece_at(model, i, at);
            params_initial(&model->params, seed, i, at, n, host);
            precision_write(model, i, at, n, host);
        }
    }
    ddl_mem_free(host);
    return DDL_OK;
}

ddl_status ddl_model_enable_grad(ddl_model *model, struct ddl_error *err)
{
    ddl_status status = precision_check_values(model, "to train, load", err);
    if (!status)
        status = requirements_check(&model->config, USE_BACKWARD, model->backend, err);
    if (status || model->grad)
        return status;
    if (!model->grad_is_zero &&
        !(model->grad_is_zero = ddl_mem_zalloc(model->params.n * sizeof *model->grad_is_zero)))
        return ddl_error_set(err, DDL_E_MEMORY, "model: out of memory for its gradients");
    return alloc_flat(model, &model->grad, "gradients", err);
}

const struct ddl_config *ddl_model_config(const ddl_model *model)
{
    return &model->config;
}

ddl_backend *ddl_model_backend(const ddl_model *model)
{
    return model->backend;
}

ddl_backend *ddl_model_replace_backend(ddl_model *model, ddl_backend *backend)
{
    ddl_backend *present = model->backend;
    model->backend = backend;
    return present;
}

size_t ddl_model_n_params(const ddl_model *model)
{
    return model->params.n;
}

size_t ddl_model_size(const ddl_model *model)
{
    return model->params.size;
}

const struct ddl_param *ddl_model_param(const ddl_model *model, size_t i)
{
    return &model->params.row[i];
}

void ddl_model_read_param(const ddl_model *model, size_t i, float *out)
{
    for (size_t at = 0, n; at < model->params.row[i].count; at += n) {
        n = piece_at(model, i, at);
        precision_read(model, i, at, n, out + at);
    }
}

void ddl_model_write_param(ddl_model *model, size_t i, const float *values)
{
    for (size_t at = 0, n; at < model->params.row[i].count; at += n) {
        n = piece_at(model, i, at);
        precision_write(model, i, at, n, values + at);
    }
}

/* Every token in [0, V); every target in [-1, V). */
static ddl_status check_ids(const char *what, const struct ddl_batch *batch, const int32_t *ids,
                            int32_t lowest, size_t V, struct ddl_error *err)
{
    for (size_t n = 0; n < batch->B * batch->T; n++) {
        if (ids[n] < lowest || (ids[n] >= 0 && (size_t)ids[n] >= V))
            return ddl_error_set(err, DDL_E_USAGE, "%s %zu of sequence %zu is %d, the vocabulary has %zu",
                                 what, n % batch->T, n / batch->T, (int)ids[n], V);
    }
    return DDL_OK;
}

/* Uploads the batch, and what the gradient of its loss is multiplied with if that is not NULL. */
static void upload(const struct pass *p, const struct ddl_batch *batch, const float *grad_scale)
{
    struct ddl_workspace *ws = p->ws;
    const ddl_backend *backend = p->m->backend;
    int32_t *tokens = ddl_uploads_next(&ws->uploads, backend), *targets = tokens + p->N;
    float *scale = (float *)(targets + p->N);
    memcpy(tokens, batch->tokens, p->N * sizeof *tokens);
    ddl_uploads_send(&ws->uploads, backend, ws->tokens, tokens, p->N * sizeof *tokens);
    if (batch->targets) {
        memcpy(targets, batch->targets, p->N * sizeof *targets);
        ddl_uploads_send(&ws->uploads, backend, ws->targets, targets, p->N * sizeof *targets);
    }
    if (grad_scale) {
        *scale = *grad_scale;
        ddl_uploads_send(&ws->uploads, backend, ws->grad_scale, scale, sizeof *scale);
    }
}

/* Checks the batch against the workspace, uploads it and fills *p. */
static ddl_status begin(struct pass *p, ddl_model *model, ddl_workspace *ws, const struct ddl_batch *batch,
                        const float *grad_scale, struct ddl_error *err)
{
    const struct ddl_config *k = &model->config;
    if (ws->model != model)
        return ddl_error_set(err, DDL_E_USAGE, "the workspace was created for another model");
    if (model->precision != ws->precision)
        return ddl_error_set(err, DDL_E_USAGE, "the workspace was made for another precision of the model");
    if (batch->B > ws->options.batch || batch->T > ws->options.tokens)
        return ddl_error_set(err, DDL_E_USAGE, "a batch of %zu x %zu tokens, the workspace holds %zu x %zu",
                             batch->B, batch->T, ws->options.batch, ws->options.tokens);
    ddl_status status = check_ids("token", batch, batch->tokens, 0, k->vocab_size, err);
    if (!status && batch->targets)
        status = check_ids("target", batch, batch->targets, -1, k->vocab_size, err);
    if (!status)
        status = force_reserve(ws, model, err);
    if (status)
        return status;
    *p = (struct pass){ .m = model,
                        .ws = ws,
                        .probe = ws->probe,
                        .rope = &ws->rope,
                        .config = k,
                        .ops = model->backend->ops,
                        .ctx = model->backend->ctx,
                        .B = batch->B,
                        .T = batch->T,
                        .N = batch->B * batch->T };
    upload(p, batch, grad_scale);
    ws->trace_rows = p->N;
    precision_refresh(model);
    return DDL_OK;
}

const float *model_forward(const struct pass *p, struct stream *stream)
{
    const struct state_form *form = p->ws->form;
    bool averages = p->config->dense_average;
    *stream = (struct stream){ .X = p->ws->X,
                               .X_next = p->ws->X,
                               .dX = p->ws->dX,
                               .channels = form->channels(p->config),
                               .form = form,
                               .is_read = p->ws->x_in != NULL };
    embed_fwd(p, stream);
    if (averages)
        average_begin(p, stream);
    for (size_t s = 0; s < 2 * p->config->n_layers && !probe_stopped(p); s++) {
        sublayer_fwd(p, stream, s / 2, s % 2 ? MLP : ATTN);
        if (averages && s % 2)
            average_fwd(p, stream, s / 2);
    }
    probe_enter(p, false, DDL_NO_LAYER, "head");
    return stream->is_read ? stream->form->readout_fwd(p, stream) : stream->X;
}

/* The backward pass. On entry dx_in (the stream's gradient if the readout is the stream) holds the gradient
 * of the readout's output, and the stream is the last state. */
static void backward(const struct pass *p, struct stream *stream)
{
    const struct params *params = &p->m->params;
    bool averages = p->config->dense_average;
    if (stream->is_read)
        stream->form->readout_bwd(p, stream);
    size_t final = params->model.after_layers;
    gradients_are_final(p, final);
    for (size_t l = p->config->n_layers; l-- > 0;) {
        if (averages)
            average_bwd(p, stream, l);
        sublayer_bwd(p, stream, l, MLP);
        gradients_are_final(p, final);
        sublayer_bwd(p, stream, l, ATTN);
        final = params->layer[l].first;
        gradients_are_final(p, final);
    }
    if (averages)
        average_end(p, stream);
    embed_bwd(p, stream);
    gradients_are_final(p, 0);
}

static size_t count_targets(const struct ddl_batch *batch)
{
    size_t counted = 0;
    for (size_t n = 0; n < batch->B * batch->T; n++)
        counted += batch->targets[n] >= 0;
    return counted;
}

/* The sum of the rows' losses, and the number of rows with a target. */
static struct ddl_loss sum_losses(const struct pass *p, const struct ddl_batch *batch)
{
    const struct ddl_workspace *ws = p->ws;
    struct ddl_loss loss = { .n_targets = count_targets(batch) };
    p->ops->sum(p->ctx, &(struct sum_args){ .n = p->N, .x = ws->losses, .sum = ws->loss_sum });
    p->ops->download(p->ctx, &loss.sum, ws->loss_sum, sizeof loss.sum);
    return loss;
}

/* What a loss needs of the caller; with `grad` what gradients need too. */
static ddl_status check_loss(const ddl_model *model, const ddl_workspace *ws, const struct ddl_batch *batch,
                             bool grad, struct ddl_error *err)
{
    if (!batch->targets)
        return ddl_error_set(err, DDL_E_USAGE, "a loss needs targets");
    if (grad && (!model->grad || !ws->options.train))
        return ddl_error_set(err, DDL_E_USAGE,
                             "backward needs gradients enabled and a workspace for training");
    if (grad && model->n_forced)
        return ddl_error_set(err, DDL_E_USAGE,
                             "backward: expected a model without forced updates, found %zu forced sublayers",
                             model->n_forced);
    return DDL_OK;
}

/* Downloads the rows' scores of a pass. */
static void download_scores(const struct pass *p, const struct ddl_row_scores *rows)
{
    const struct ddl_workspace *ws = p->ws;
    if (rows->losses)
        p->ops->download(p->ctx, rows->losses, ws->losses, p->N * sizeof *rows->losses);
    if (rows->ranks)
        p->ops->download(p->ctx, rows->ranks, ws->ranks, p->N * sizeof *rows->ranks);
    if (rows->entropies)
        p->ops->download(p->ctx, rows->entropies, ws->entropies, p->N * sizeof *rows->entropies);
}

ddl_status ddl_model_scores(ddl_model *model, ddl_workspace *ws, const struct ddl_batch *batch,
                            struct ddl_loss *loss, const struct ddl_row_scores *rows, struct ddl_error *err)
{
    struct pass p;
    ddl_status status = check_loss(model, ws, batch, false, err);
    if (!status && (rows->ranks || rows->entropies) && !ws->options.ranks)
        status = ddl_error_set(err, DDL_E_USAGE, "ranks and entropies need a workspace with ranks");
    if (!status)
        status = begin(&p, model, ws, batch, NULL, err);
    if (status)
        return status;
    struct stream stream;
    ddl_begin_graph(p.ops, p.ctx);
    head_loss(&p, model_forward(&p, &stream), false, NULL);
    ddl_end_graph(p.ops, p.ctx);
    if (probe_stopped(&p))
        return ddl_error_set(err, DDL_E_INTERRUPTED, "interrupted");
    *loss = sum_losses(&p, batch);
    download_scores(&p, rows);
    return p.ops->check_error(p.ctx, err);
}

ddl_status ddl_model_loss(ddl_model *model, ddl_workspace *ws, const struct ddl_batch *batch,
                          struct ddl_loss *loss, float *row_loss, struct ddl_error *err)
{
    return ddl_model_scores(model, ws, batch, loss, &(struct ddl_row_scores){ .losses = row_loss }, err);
}

ddl_status ddl_model_backward_into(ddl_model *model, ddl_workspace *ws, const struct ddl_batch *batch,
                                   double scale, double *loss_sum, struct ddl_error *err)
{
    const float grad_scale = (float)scale;
    struct pass p;
    ddl_status status = check_loss(model, ws, batch, true, err);
    if (!status)
        status = begin(&p, model, ws, batch, &grad_scale, err);
    if (status)
        return status;
    struct stream stream;
    ddl_begin_graph(p.ops, p.ctx);
    const float *x_out = model_forward(&p, &stream);
    head_loss(&p, x_out, true, stream.is_read ? ws->dx_in : stream.dX);
    stream.dX16 = stream.is_read ? NULL : ws->dX16;
    backward(&p, &stream);
    ddl_end_graph(p.ops, p.ctx); /* the next op depends on the micro-batch */
    p.ops->sum(p.ctx, &(struct sum_args){ .n = p.N, .x = ws->losses, .sum = loss_sum });
    return DDL_OK;
}

ddl_status ddl_model_backward(ddl_model *model, ddl_workspace *ws, const struct ddl_batch *batch,
                              double scale, struct ddl_loss *loss, struct ddl_error *err)
{
    ddl_status status = ddl_model_backward_into(model, ws, batch, scale, ws->loss_sum, err);
    if (status)
        return status;
    loss->n_targets = count_targets(batch);
    return ddl_download(model->backend, &loss->sum, ws->loss_sum, sizeof loss->sum, err);
}

ddl_status ddl_model_logits(ddl_model *model, ddl_workspace *ws, const struct ddl_batch *batch, size_t rows,
                            float *out, struct ddl_error *err)
{
    struct pass p;
    if (rows > batch->T)
        return ddl_error_set(err, DDL_E_USAGE,
                             "logits of the last %zu positions requested, the batch has %zu", rows, batch->T);
    ddl_status status = begin(&p, model, ws, batch, NULL, err);
    if (status)
        return status;
    struct stream stream;
    ddl_begin_graph(p.ops, p.ctx);
    head_logits(&p, model_forward(&p, &stream), rows, out);
    ddl_end_graph(p.ops, p.ctx);
    return p.ops->check_error(p.ctx, err);
}
