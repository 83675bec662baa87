/* Traces of requests: the tensors that residual rules declare (src/model/observe/trace.h), read while the
 * passes of an engine's session compute them. */
#ifndef DDL_INFER_ENGINE_TRACE_H
#define DDL_INFER_ENGINE_TRACE_H

#include "ddl/engine.h"
#include "model/observe/probe.h"

/* Where the rows of one request go. */
struct traced_request {
    size_t slot;
    ddl_trace_fn *trace;
    void *user;
    uint64_t sequence;
};

struct engine_trace {
    ddl_session *session; /* borrowed, as the backend */
    const ddl_backend *backend;
    const struct ddl_config *config;
    struct ddl_probe probe;
    float *before;                  /* (rows, d, c) the state before a sublayer     */
    float *numbers;                 /* (rows, widest) after it, or one tensor       */
    struct traced_request *request; /* (slots) of the pass that runs; n of them     */
    size_t n;
};

/* Allocates what traces need in passes of `rows` tokens of at most `slots` requests. DDL_E_MEMORY. */
ddl_status engine_trace_create(struct engine_trace **out, ddl_session *session, ddl_model *model, size_t rows,
                               size_t slots, struct ddl_error *err);
void engine_trace_free(struct engine_trace *trace); /* NULL is allowed */

/* Passes between the two report trace->request. */
void engine_trace_begin(struct engine_trace *trace);
void engine_trace_end(struct engine_trace *trace);

#endif
