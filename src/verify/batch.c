/* The batch of a model case, and its decoding one token at a time. */
#include "verify/internal.h"

#include "ddl/model.h"
#include "ddl/session.h"

#include <string.h>

ddl_status read_model_batch(struct context *c, const ddl_safetensors *expect, struct ddl_batch *out,
                            struct ddl_error *err)
{
    const struct ddl_tensor *t;
    int32_t *tokens, *targets;
    ddl_status status = find_tensor(expect, c->path, "tokens", 2, &t, err);
    if (status)
        return status;
    size_t B = t->shape[0], T = t->shape[1];
    if (B == 0 || T == 0)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: tokens has shape (%zu, %zu), there is nothing to run",
                             c->path, B, T);
    status = read_ids(c, expect, (struct want){ "tokens", 2, { B, T } }, &tokens, err);
    if (!status)
        status = read_ids(c, expect, (struct want){ "targets", 2, { B, T } }, &targets, err);
    if (!status)
        *out = (struct ddl_batch){ B, T, tokens, targets };
    return status;
}

ddl_status decode_by_token(struct context *c, ddl_model *model, const struct ddl_batch *batch, float *out,
                           struct ddl_error *err)
{
    size_t B = batch->B, T = batch->T, V = ddl_model_config(model)->vocab_size;
    const struct ddl_session_options options = { .slots = B, .tokens = T, .rows = B };
    int32_t *column = pool_take(&c->pool, B, sizeof *column);
    size_t *slots = pool_take(&c->pool, B, sizeof *slots);
    float *row;
    ddl_session *session;
    if (!column || !slots)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for %zu tokens", c->path, B);
    ddl_status status = take_floats(c, B * V, &row, err);
    if (!status)
        status = ddl_session_create(&session, model, &options, err);
    if (status)
        return status;
    for (size_t t = 0; t < T && !status; t++) {
        for (size_t b = 0; b < B; b++) {
            slots[b] = b;
            column[b] = batch->tokens[b * T + t];
        }
        status = ddl_session_step(session, B, slots, column, row, err);
        for (size_t b = 0; b < B && !status; b++)
            memcpy(out + (b * T + t) * V, row + b * V, V * sizeof *row);
    }
    ddl_session_free(session);
    return status;
}
