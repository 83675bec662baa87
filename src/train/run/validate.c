#include "train/run/validate.h"

#include "model/pass/poll.h"

#include <math.h>

__extension__ typedef unsigned __int128 uint128;

struct ddl_validation ddl_validation_plan(const ddl_shards *shards, uint64_t val_tokens, size_t batch,
                                          size_t seq, int order)
{
    bool aligned = order != DDL_ORDER_RANDOM;
    uint64_t wanted = val_tokens / seq + (val_tokens % seq != 0),
             there = (ddl_shards_count(shards) - !aligned) / seq;
    uint64_t n = wanted < there ? wanted : there;
    return (struct ddl_validation){ shards, batch, seq, aligned, n ? n : 1 };
}

/* The first sequence is at the beginning, the last at the end. */
static uint64_t start_of(const struct ddl_validation *v, uint64_t i)
{
    uint64_t count = ddl_shards_count(v->shards), last = count > v->seq ? count - 1 - v->seq : 0;
    if (v->n < 2)
        return 0;
    return v->aligned ? (uint64_t)((uint128)(count / v->seq - 1) * i / (v->n - 1)) * v->seq
                      : (uint64_t)((uint128)last * i / (v->n - 1));
}

static void fill(const struct ddl_validation *v, uint64_t i, int32_t *tokens, int32_t *targets)
{
    uint64_t start = start_of(v, i), left = ddl_shards_count(v->shards) - start;
    ddl_shards_read(v->shards, start, v->seq, tokens);
    ddl_shards_read_targets(v->shards, start + 1, v->seq, targets);
    for (size_t t = left - 1 < v->seq ? (size_t)(left - 1) : v->seq; t < v->seq; t++)
        targets[t] = -1;
}

/* Sequences of the batch that begins with sequence `first`. */
static size_t sequences(const struct ddl_validation *v, uint64_t first)
{
    uint64_t left = first < v->n ? v->n - first : 0;
    return left < v->batch ? (size_t)left : v->batch;
}

/* The batch that begins with sequence `first`; `done` sequences are reported as evaluated. */
static ddl_status run_batch(const struct ddl_validation *v, const struct ddl_validation_work *p,
                            uint64_t first, uint64_t done, struct ddl_loss *loss, struct ddl_error *err)
{
    const struct ddl_poll poll = { p->progress, p->user, done * v->seq, v->n * v->seq };
    const struct ddl_batch batch = { sequences(v, first), v->seq, p->tokens, p->targets };
    for (size_t b = 0; b < batch.B; b++)
        fill(v, first + b, p->tokens + b * v->seq, p->targets + b * v->seq);
    ddl_status status = ddl_model_loss_polled(p->model, p->ws, &batch, &poll, loss, NULL, err);
    if (!status && !isfinite(loss->sum))
        status = ddl_error_set(err, DDL_E_NUMERIC, "the validation loss is not finite");
    return status;
}

/* One batch for each rank, from sequence `first` on; parts (ranks) get their results. */
static ddl_status run_round(const struct ddl_validation *v, const struct ddl_validation_work *work,
                            uint64_t first, struct ddl_validation_part *parts, struct ddl_error *err)
{
    ddl_comm *comm = v->comm;
    size_t rank = ddl_comm_rank(comm);
    uint64_t own = first + rank * v->batch;
    struct ddl_loss loss = { 0 };
    ddl_status status = own < v->n ? run_batch(v, work, own, first, &loss, err) : DDL_OK;
    parts[rank] = (struct ddl_validation_part){ loss.sum, loss.n_targets, (uint64_t)status };
    ddl_comm_gather(comm, sizeof *parts, &parts[rank], parts);
    for (size_t r = 0; r < ddl_comm_size(comm); r++) {
        if (parts[r].status)
            return comm ? ddl_comm_agree(comm, status, err) : status;
    }
    return DDL_OK;
}

ddl_status ddl_validation_run(const struct ddl_validation *v, const struct ddl_validation_work *work,
                              struct ddl_validation_result *out, struct ddl_error *err)
{
    struct ddl_validation_part one, *parts = v->parts ? v->parts : &one;
    size_t ranks = ddl_comm_size(v->comm);
    double sum = 0;
    uint64_t counted = 0;
    *out = (struct ddl_validation_result){ 0 };
    for (uint64_t first = 0; first < v->n; first += ranks * v->batch) {
        ddl_status status = run_round(v, work, first, parts, err);
        while (status && !parts[out->rank].status)
            out->rank++;
        if (status) {
            out->failed = sequences(v, first + out->rank * v->batch);
            return status;
        }
        for (size_t r = 0; r < ranks; r++) { /* in the order of the batches */
            sum += parts[r].sum;
            counted += parts[r].n_targets;
        }
    }
    if (counted == 0)
        return ddl_error_set(err, DDL_E_FORMAT, "val_data: the masks count none of the %zu validation tokens",
                             v->n * v->seq);
    out->loss = sum / (double)counted;
    return DDL_OK;
}
