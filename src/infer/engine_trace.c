#include "infer/engine_trace.h"

#include "base/mem.h"
#include "infer/session_rows.h"
#include "ops/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of a token in the widest tensor, the state included. */
static size_t widest(const struct ddl_config *k)
{
    size_t widest = k->d_model * ddl_config_state_channels(k);
    const struct trace_tensor *of;
    for (size_t s = 0; s < DDL_SUBLAYERS * k->n_layers; s++) {
        size_t layer = s / DDL_SUBLAYERS;
        for (size_t i = 0; (of = trace_tensor_at(k, layer, i)); i++) {
            size_t n = trace_width(of, k, layer, (int)(s % DDL_SUBLAYERS));
            n *= of->extent == TRACE_STEPS ? ddl_config_residual_steps(k, layer) : 1;
            widest = n > widest ? n : widest;
        }
    }
    return widest;
}

static void download(const struct engine_trace *t, float *host, const float *x, size_t n)
{
    t->backend->ops->download(t->backend->ctx, host, x, n * sizeof *host);
}

/* Tensor i of the sublayer for the rows of a request. */
static void report_tensor(const struct engine_trace *t, const struct ddl_sublayer_trace *trace, size_t i,
                          const struct traced_request *request, const struct session_rows *rows)
{
    const struct ddl_traced *tensor = &trace->tensor[i], *owner = &trace->tensor[tensor->part];
    bool by_token = owner->of->extent != TRACE_PARAMETER;
    size_t steps = owner->of->extent == TRACE_STEPS ? trace->steps : 1, n = by_token ? rows->n : 1;
    struct ddl_trace_rows out = { .layer = trace->layer,
                                  .sub = trace->sub,
                                  .name = tensor->of->name,
                                  .about = tensor->of->about,
                                  .first = rows->past,
                                  .n = rows->n,
                                  .by_token = by_token,
                                  .steps = steps,
                                  .width = tensor->width,
                                  .x = t->numbers };
    if (!owner->x)
        return;
    size_t row = by_token ? rows->row * steps * owner->width : 0;
    download(t, t->numbers, owner->x + row, n * steps * owner->width);
    for (size_t r = 0; owner != tensor && r < n * steps; r++)
        memmove(t->numbers + r * tensor->width, t->numbers + r * owner->width + tensor->offset,
                tensor->width * sizeof *t->numbers);
    request->trace(request->user, request->sequence, &out);
}

/* |X' - X| / |X| of the rows of a request. */
static void report_steps(const struct engine_trace *t, const struct ddl_sublayer_trace *trace,
                         const struct traced_request *request, const struct session_rows *rows)
{
    size_t width = t->config->d_model * ddl_config_state_channels(t->config);
    struct ddl_trace_rows out = { .layer = trace->layer,
                                  .sub = trace->sub,
                                  .name = "step",
                                  .about = "‖X′ − X‖ / ‖X‖",
                                  .first = rows->past,
                                  .n = rows->n,
                                  .by_token = true,
                                  .steps = 1,
                                  .width = 1,
                                  .x = t->numbers };
    download(t, t->numbers, trace->X + rows->row * width, rows->n * width);
    for (size_t r = 0; r < rows->n; r++) {
        const float *x = t->before + (rows->row + r) * width, *after = t->numbers + r * width;
        double change = 0, length = 0;
        for (size_t i = 0; i < width; i++) {
            double step = (double)after[i] - (double)x[i];
            change += step * step;
            length += (double)x[i] * (double)x[i];
        }
        t->numbers[r] = (float)trace_ratio(sqrt(change), sqrt(length)); /* row r has been read */
    }
    request->trace(request->user, request->sequence, &out);
}

static void see_sublayer(void *user, const struct ddl_sublayer_trace *trace)
{
    const struct engine_trace *t = user;
    size_t width = t->config->d_model * ddl_config_state_channels(t->config);
    for (size_t i = 0; i < t->n; i++) {
        const struct traced_request *request = &t->request[i];
        struct session_rows rows;
        if (!session_rows_of(t->session, request->slot, &rows))
            continue;
        if (!trace->after) {
            download(t, t->before + rows.row * width, trace->X + rows.row * width, rows.n * width);
            continue;
        }
        report_steps(t, trace, request, &rows);
        for (size_t k = 0; k < trace->n; k++)
            report_tensor(t, trace, k, request, &rows);
    }
}

ddl_status engine_trace_create(struct engine_trace **out, ddl_session *session, ddl_model *model, size_t rows,
                               size_t slots, struct ddl_error *err)
{
    const struct ddl_config *k = ddl_model_config(model);
    size_t states, numbers;
    struct engine_trace *t = *out = ddl_mem_zalloc(sizeof *t);
    if (t && ddl_size_mul(rows * sizeof *t->before, k->d_model * ddl_config_state_channels(k), &states) &&
        ddl_size_mul(rows * sizeof *t->numbers, widest(k), &numbers)) {
        t->before = ddl_mem_alloc(states);
        t->numbers = ddl_mem_alloc(numbers);
        t->request = calloc(slots, sizeof *t->request);
    }
    if (!t || !t->before || !t->numbers || !t->request) {
        engine_trace_free(t);
        *out = NULL;
        return ddl_error_set(err, DDL_E_MEMORY, "engine: out of memory for traces of %zu tokens", rows);
    }
    t->session = session;
    t->backend = ddl_model_backend(model);
    t->config = k;
    t->probe = (struct ddl_probe){ .step = see_sublayer, .user = t };
    return DDL_OK;
}

void engine_trace_free(struct engine_trace *trace)
{
    if (!trace)
        return;
    ddl_mem_free(trace->before);
    ddl_mem_free(trace->numbers);
    free(trace->request);
    ddl_mem_free(trace);
}

void engine_trace_begin(struct engine_trace *trace)
{
    session_set_probe(trace->session, &trace->probe);
}

void engine_trace_end(struct engine_trace *trace)
{
    session_set_probe(trace->session, NULL);
    trace->n = 0;
}
