/* The workspace of a pass: its memory, and what is read of it after the pass. */
#include "model/pass/workspace.h"

#include "base/mem.h"
#include "model/observe/force.h"
#include "model/params/precision.h"
#include "model/pass/decode.h"
#include "model/pass/measure.h"
#include "model/residual/table.h"

#include <stdlib.h>

/* Tokens and targets, and the scale of the gradient. */
static size_t upload_bytes(const struct ddl_workspace_options *o)
{
    return 2 * o->batch * o->tokens * sizeof(int32_t) + sizeof(float);
}

ddl_status ddl_workspace_create(ddl_workspace **out, const ddl_model *model,
                                const struct ddl_workspace_options *options, struct ddl_error *err)
{
    *out = NULL;
    size_t batch = options->batch, tokens = options->tokens;
    const struct ddl_config *k = &model->config;
    ddl_backend *backend = model->backend;
    if (batch == 0 || tokens == 0 || tokens > k->block_size)
        return ddl_error_set(err, DDL_E_USAGE,
                             "%zu sequences of %zu tokens requested; the model's context is %zu", batch,
                             tokens, k->block_size);
    if (options->train && ddl_model_precision(model) == DDL_PRECISION_INT8)
        return ddl_error_set(err, DDL_E_USAGE,
                             "eight-bit weights cannot be trained: train in f32, tf32 or bf16");
    if (options->train && options->ranks)
        return ddl_error_set(err, DDL_E_USAGE, "workspace: ranks: expected a workspace without train");
    ddl_status status = options->train ? precision_check_values(model, "to train, load", err) : DDL_OK;
    if (status)
        return status;
    struct ddl_workspace *ws = ddl_mem_zalloc(sizeof *ws);
    if (!ws)
        return ddl_error_set(err, DDL_E_MEMORY, "workspace: out of memory");
    *ws = (struct ddl_workspace){ .model = model,
                                  .options = *options,
                                  .precision = ddl_model_precision(model),
                                  .logit_block = workspace_logit_block(backend) };
    struct ddl_arena arena = { 0 };
    status = workspace_measure(ws, k, &arena, err);
    if (!status) {
        struct ddl_limits limits = ddl_workspace_limits(k, options);
        status = backend->ops->reserve(backend->ctx, &limits, err);
    }
    if (!status && (!ddl_uploads_init(&ws->uploads, backend, upload_bytes(options)) ||
                    !(ws->memory = backend->ops->alloc(backend->ctx, arena.used))))
        status = ddl_error_set(err, DDL_E_MEMORY,
                               "workspace: out of memory for %zu bytes (%zu sequences of %zu tokens)",
                               arena.used, batch, tokens);
    if (!status)
        status = rope_make(&ws->rope, model, tokens, err);
    if (status) {
        ddl_workspace_free(ws);
        return status;
    }
    ws->bytes = arena.used;
    workspace_place(ws, &(struct ddl_arena){ .base = ws->memory }, k);
    *out = ws;
    return DDL_OK;
}

void ddl_workspace_fill(ddl_workspace *ws)
{
    const struct ddl_backend *backend = ws->model->backend;
    backend->ops->fill(backend->ctx, &(struct fill_args){ .n = ws->bytes / sizeof(float), .x = ws->memory });
}

void ddl_workspace_free(ddl_workspace *ws)
{
    if (!ws)
        return;
    ddl_backend *backend = ws->model->backend;
    ddl_uploads_free(&ws->uploads, backend);
    if (ws->memory)
        backend->ops->free(backend->ctx, ws->memory);
    force_release(ws);
    rope_free(&ws->rope, ws->model);
    free(ws->layer);
    ddl_mem_free(ws);
}

/* The tensors of a sublayer that was computed in the last pass. */
static struct ddl_sublayer_trace trace_of(const struct ddl_workspace *ws, size_t layer, int sub)
{
    const struct ddl_model *m = ws->model;
    const struct pass p = { .m = (struct ddl_model *)m, .config = &m->config };
    const struct sublayer s = { .p = &p,
                                .layer = layer,
                                .sub = sub,
                                .params = m->params.layer[layer].residual[sub],
                                .acts = &ws->layer[layer].sub[sub],
                                .force = model_forced(m, layer, sub) };
    struct ddl_sublayer_trace trace = { .layer = layer, .sub = sub };
    trace_collect(&s, &trace);
    return trace;
}

size_t ddl_workspace_n_steps(const ddl_workspace *ws)
{
    return ddl_config_steps(&ws->model->config);
}

/* The tensor of step *s of all, which becomes the number within the sublayer; NULL if there is none. */
static const struct ddl_traced *find_tensor(const struct ddl_workspace *ws, size_t *s, const char *tensor,
                                            struct ddl_sublayer_trace *out)
{
    for (size_t sublayer = 0; sublayer < 2 * ws->model->config.n_layers; sublayer++) {
        size_t steps = ddl_config_residual_steps(&ws->model->config, sublayer / 2);
        if (*s >= steps) {
            *s -= steps;
            continue;
        }
        *out = trace_of(ws, sublayer / 2, sublayer % 2 ? MLP : ATTN);
        const struct ddl_traced *found = ddl_trace_find(out, tensor);
        return found && found->x ? found : NULL;
    }
    return NULL;
}

size_t ddl_workspace_trace_width(const ddl_workspace *ws, size_t s, const char *tensor)
{
    struct ddl_sublayer_trace trace;
    const struct ddl_traced *found = find_tensor(ws, &s, tensor, &trace);
    return found ? found->width : 0;
}

/* Rows of `width` numbers, at most the channels, `stride` apart, to host memory: first side by side into the
 * stream, which no pass uses now. */
static void download_rows(const struct ddl_workspace *ws, float *host, const float *x, size_t width,
                          size_t stride)
{
    const ddl_backend *backend = ws->model->backend;
    size_t N = ws->trace_rows;
    if (width != stride) {
        backend->ops->copy(backend->ctx, &(struct copy_args){ .rows = N,
                                                              .width = width,
                                                              .src = x,
                                                              .src_stride = stride,
                                                              .dst = ws->X,
                                                              .dst_stride = width });
        x = ws->X;
    }
    backend->ops->download(backend->ctx, host, x, N * width * sizeof *host);
}

ddl_status ddl_workspace_read_trace(const ddl_workspace *ws, size_t s, const char *tensor, float *out,
                                    struct ddl_error *err)
{
    size_t step = s;
    struct ddl_sublayer_trace trace;
    const struct ddl_traced *found = find_tensor(ws, &step, tensor, &trace);
    if (!found)
        return ddl_error_set(err, DDL_E_USAGE,
                             "trace: expected a tensor of one of %zu steps, found %s of step %zu",
                             ddl_workspace_n_steps(ws), tensor, s);
    const ddl_backend *backend = ws->model->backend;
    size_t width = found->width;
    if (found->of->extent == TRACE_PARAMETER)
        backend->ops->download(backend->ctx, out, found->x, width * sizeof *out);
    else if (found->of->extent == TRACE_STEPS)
        download_rows(ws, out, found->x + step * width, width, trace.steps * width);
    else
        download_rows(ws, out, found->x, width, width);
    return backend->ops->check_error(backend->ctx, err);
}
