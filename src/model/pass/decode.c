/* Forward passes of ragged batches with a cache. */
#include "model/pass/decode.h"

#include "model/pass/cache.h"
#include "model/observe/force.h"
#include "model/pass/forward.h"
#include "model/pass/head.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"
#include "model/pass/workspace.h"

/* Sizes of the batch, and its arrays in the cache's integers, first in host memory, then uploaded. */
static struct ddl_ragged upload_ragged(const struct ddl_cache *cache, const struct ddl_decode_batch *batch)
{
    const struct ddl_backend *backend = cache->model->backend;
    struct ddl_ragged r = { .B = batch->n_sequences,
                            .slots = cache->options.slots,
                            .histories = cache->options.histories };
    for (size_t b = 0; b < r.B; b++) {
        const struct ddl_decode_sequence *s = &batch->sequences[b];
        r.N += s->rows;
        r.max_rows = s->rows > r.max_rows ? s->rows : r.max_rows;
        r.max_span = s->past + s->rows > r.max_span ? s->past + s->rows : r.max_span;
    }
    /* offsets of the arrays: sequence, position, then by sequence first, past, slot, from, to */
    size_t position = r.N, first = 2 * r.N, past = first + r.B + 1, slot = past + r.B, from = slot + r.B,
           to = from + r.B;
    int32_t *host = cache->host;
    size_t n = 0;
    for (size_t b = 0; b < r.B; b++) {
        const struct ddl_decode_sequence *s = &batch->sequences[b];
        host[first + b] = (int32_t)n;
        host[past + b] = (int32_t)s->past;
        host[slot + b] = (int32_t)s->slot;
        host[from + b] = (int32_t)s->from;
        host[to + b] = (int32_t)s->to;
        for (size_t t = 0; t < s->rows; t++, n++) {
            host[n] = (int32_t)b;
            host[position + n] = (int32_t)(s->past + t);
        }
    }
    host[first + r.B] = (int32_t)n;
    backend->ops->upload(backend->ctx, cache->integers, host, (to + r.B) * sizeof *host);
    const int32_t *at = cache->integers;
    r.sequence = at, r.position = at + position, r.first = at + first, r.past = at + past;
    r.slot = at + slot, r.from = at + from, r.to = at + to;
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
                      .ragged = upload_ragged(cache, batch),
                      .B = 1 };
    p.N = p.T = p.ragged.N;
    p.ops->upload(p.ctx, ws->tokens, batch->tokens, p.N * sizeof *ws->tokens);
    ws->trace_rows = p.N;
    precision_refresh(model);
    struct stream stream = model_stream(&p);
    const float *x_out = model_forward(&p, &stream);
    if (batch->n_outputs && !probe_stopped(&p))
        head_outputs(&p, x_out, batch);
    if (probe_stopped(&p))
        return ddl_error_set(err, DDL_E_INTERRUPTED, "interrupted");
    return p.ops->check_error(p.ctx, err);
}

size_t ddl_model_step_rows(const ddl_model *model)
{
    return model->backend->ops->step_rows;
}
