#include "train/validate.h"

#include "model/poll.h"

#include <math.h>

__extension__ typedef unsigned __int128 uint128;

struct ddl_validation ddl_validation_plan(const ddl_shards *shards, uint64_t val_tokens, size_t batch,
                                          size_t seq)
{
    uint64_t wanted = val_tokens / seq + (val_tokens % seq != 0),
             there = (ddl_shards_count(shards) - 1) / seq;
    uint64_t n = wanted < there ? wanted : there;
    return (struct ddl_validation){ shards, batch, seq, n ? n : 1 };
}

/* The first sequence is at the beginning, the last at the end. */
static uint64_t start_of(const struct ddl_validation *v, uint64_t i)
{
    uint64_t count = ddl_shards_count(v->shards), last = count > v->seq ? count - 1 - v->seq : 0;
    return v->n > 1 ? (uint64_t)((uint128)last * i / (v->n - 1)) : 0;
}

static void fill(const struct ddl_validation *v, uint64_t i, int32_t *tokens, int32_t *targets)
{
    uint64_t start = start_of(v, i), left = ddl_shards_count(v->shards) - start;
    ddl_shards_read(v->shards, start, v->seq, tokens);
    ddl_shards_read(v->shards, start + 1, v->seq, targets);
    for (size_t t = left - 1 < v->seq ? (size_t)(left - 1) : v->seq; t < v->seq; t++)
        targets[t] = -1;
}

ddl_status ddl_validation_run(const struct ddl_validation *v, ddl_model *model, ddl_workspace *ws,
                              int32_t *tokens, int32_t *targets, ddl_progress_fn *progress, void *user,
                              struct ddl_validation_result *out, struct ddl_error *err)
{
    double sum = 0;
    uint64_t counted = 0;
    *out = (struct ddl_validation_result){ 0 };
    for (uint64_t i = 0; i < v->n;) {
        const struct ddl_poll poll = { progress, user, i * v->seq, v->n * v->seq };
        size_t B = 0;
        for (; B < v->batch && i < v->n; B++, i++)
            fill(v, i, tokens + B * v->seq, targets + B * v->seq);
        struct ddl_loss part;
        struct ddl_batch batch = { B, v->seq, tokens, targets };
        ddl_status status = ddl_model_loss_polled(model, ws, &batch, &poll, &part, NULL, err);
        if (status)
            return status;
        if (!isfinite(part.sum)) {
            out->failed = B;
            return ddl_error_set(err, DDL_E_NUMERIC, "the validation loss is not finite");
        }
        sum += part.sum;
        counted += part.n_targets;
    }
    out->loss = counted ? sum / (double)counted : 0;
    return DDL_OK;
}
