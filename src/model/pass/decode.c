/* Forward passes of ragged batches with a cache. */
#include "model/pass/decode.h"

#include "model/pass/cache.h"
#include "model/observe/force.h"
#include "model/pass/model.h"
#include "model/pass/head.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"
#include "model/pass/workspace.h"

#include <string.h>

/* Rows of the batch as sequences, see ddl_cache_options.exact; their arrays at `host`. */
static void write_queries(const struct ddl_cache *cache, const struct ddl_decode_batch *batch, int32_t *host)
{
    int32_t *numbers = host + (cache->queries.first - cache->integers), n = 0;
    int32_t *slots = host + (cache->queries.slot - cache->integers);
    for (size_t b = 0; b < batch->n_sequences; b++) {
        for (size_t t = 0; t < batch->sequences[b].rows; t++) {
            numbers[n] = n;
            slots[n++] = (int32_t)batch->sequences[b].slot;
        }
    }
    numbers[n] = n;
}

/* The ragged batch that attention reads, for the batch `ragged`. */
static struct ddl_ragged queries_of(const struct ddl_cache *cache, const struct ddl_ragged *ragged)
{
    struct ddl_ragged queries = cache->queries;
    queries.B = queries.N = ragged->N;
    return cache->options.exact ? queries : *ragged;
}

/* Sizes of the batch, and its arrays in the cache's integers, the rows of its outputs last; its tokens go to
 * `tokens`. All are written in pinned host memory and uploaded from there. */
static struct ddl_ragged upload_ragged(struct ddl_cache *cache, const struct ddl_decode_batch *batch,
                                       int32_t *tokens)
{
    const struct ddl_backend *backend = cache->model->backend;
    struct ddl_ragged r = cache->ragged;
    const int32_t *base = cache->integers;
    int32_t *host = ddl_uploads_next(&cache->uploads, backend), *sequence = host + (r.sequence - base),
            *position = host + (r.position - base);
    int32_t *first = host + (r.first - base), *past = host + (r.past - base), *slot = host + (r.slot - base);
    int32_t *from = host + (r.from - base), *to = host + (r.to - base);
    r.B = batch->n_sequences;
    for (size_t b = 0; b < r.B; b++) {
        const struct ddl_decode_sequence *s = &batch->sequences[b];
        first[b] = (int32_t)r.N;
        past[b] = (int32_t)s->past;
        slot[b] = (int32_t)s->slot;
        from[b] = (int32_t)s->from;
        to[b] = (int32_t)s->to;
        for (size_t t = 0; t < s->rows; t++) {
            sequence[r.N + t] = (int32_t)b;
            position[r.N + t] = (int32_t)(s->past + t);
        }
        r.N += s->rows;
        r.max_rows = s->rows > r.max_rows ? s->rows : r.max_rows;
    }
    first[r.B] = (int32_t)r.N;
    if (cache->options.exact)
        write_queries(cache, batch, host);
    int32_t *outputs = host + (cache->outputs - base);
    for (size_t i = 0; i < batch->n_outputs; i++)
        outputs[i] = (int32_t)batch->outputs[i].row;
    const int32_t *end = batch->n_outputs       ? cache->outputs + batch->n_outputs
                         : cache->options.exact ? cache->queries.slot + r.N
                                                : r.sequence + r.N;
    size_t n = (size_t)(end - base);
    ddl_uploads_send(&cache->uploads, backend, cache->integers, host, n * sizeof *host);
    memcpy(host + n, batch->tokens, r.N * sizeof *host);
    ddl_uploads_send(&cache->uploads, backend, tokens, host + n, r.N * sizeof *host);
    return r;
}

ddl_status ddl_model_decode(ddl_model *model, ddl_workspace *ws, ddl_cache *cache,
                            const struct ddl_decode_batch *batch, struct ddl_error *err)
{
    if (model->precision != ws->precision)
        return ddl_error_set(err, DDL_E_USAGE,
                             "the model's precision was changed after the session was created");
    ddl_status status = force_reserve(ws, model, err);
    if (status)
        return status;
    struct pass p = { .m = model,
                      .ws = ws,
                      .cache = cache,
                      .probe = ws->probe,
                      .rope = &cache->rope,
                      .config = &model->config,
                      .ops = model->backend->ops,
                      .ctx = model->backend->ctx,
                      .ragged = upload_ragged(cache, batch, ws->tokens),
                      .B = 1 };
    p.queries = queries_of(cache, &p.ragged);
    p.N = p.T = p.ragged.N;
    ws->trace_rows = p.N;
    precision_refresh(model);
    struct stream stream;
    ddl_begin_graph(p.ops, p.ctx);
    const float *x_out = model_forward(&p, &stream);
    if (batch->n_outputs && !probe_stopped(&p))
        head_outputs(&p, x_out, batch);
    ddl_end_graph(p.ops, p.ctx);
    if (probe_stopped(&p))
        return ddl_error_set(err, DDL_E_INTERRUPTED, "interrupted");
    return p.ops->check_error(p.ctx, err);
}

size_t ddl_model_step_rows(const ddl_model *model)
{
    return model->backend->ops->step_rows;
}
