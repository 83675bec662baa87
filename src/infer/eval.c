#define _POSIX_C_SOURCE 200809L
#include "ddl/eval.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/clock.h"
#include "comm/comm.h"
#include "infer/eval_groups.h"
#include "infer/text_ids.h"
#include "infer/token_source.h"
#include "model/pass/poll.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_BATCH = 8, MAX_BATCH = 4096 };

/* What a batch of windows adds to the result. */
struct part {
    double nats;
    uint64_t tokens, bytes, positions;
};

struct evaluation {
    ddl_model *model;
    ddl_workspace *ws;
    const ddl_tokenizer *tokenizer; /* or NULL */
    const struct ddl_token_source *source;
    uint64_t prefix; /* tokens before position 0 */
    size_t seq, batch, stride, vocab;
    uint64_t windows, total;     /* of the whole evaluation: windows, scored tokens */
    int32_t *tokens, *targets;   /* (batch, seq) */
    ddl_token_scored_fn *each;   /* or NULL */
    struct ddl_eval_sums sums;   /* its groups may be NULL; then, without `each`, `rows` is not allocated */
    struct ddl_row_scores rows;  /* (batch, seq) */
    struct ddl_eval_mark *marks; /* (ranks, batch, seq), or NULL without groups */
    unsigned char *groups;       /* (seq): bytes of the masks of a window, or NULL without groups */
    ddl_progress_fn *progress;
    void *user;
    ddl_comm *comm;
    struct part *parts; /* (ranks) */
};

/* The marks of this rank's batch. */
static struct ddl_eval_mark *own_marks(const struct evaluation *e)
{
    return e->marks + ddl_comm_rank(e->comm) * e->batch * e->seq;
}

/* Window w takes tokens [w stride, w stride + seq) and predicts the one after each; what the window before
 * has scored, and what lies beyond the end, is not counted, and its marks stay DDL_EVAL_NO_TOKEN. Fills row b
 * of the batch and adds to the counts of *out. */
static void fill_window(const struct evaluation *e, uint64_t w, size_t b, struct part *out)
{
    int32_t *tokens = e->tokens + b * e->seq, *targets = e->targets + b * e->seq;
    uint64_t start = w * e->stride, left = e->source->count - start; /* at least 2 */
    size_t n = left - 1 < e->seq ? (size_t)(left - 1) : e->seq;
    size_t first = w ? e->seq - e->stride : 0;
    ddl_token_source_read(e->source, start, n, tokens);
    ddl_token_source_read_targets(e->source, start + 1, n, targets);
    for (size_t t = 0; t < e->seq; t++) {
        if (t >= n)
            tokens[t] = 0; /* behind all that is scored: of no effect */
        if (t >= n || t < first)
            targets[t] = -1;
        out->tokens += targets[t] >= 0;
    }
    out->positions += n - first;
    if (!e->sums.groups)
        return;
    struct ddl_eval_mark *marks = own_marks(e) + b * e->seq;
    ddl_token_source_read_groups(e->source, start + 1, n, e->groups);
    for (size_t t = first; t < n; t++)
        marks[t].group = e->groups[t];
}

static ddl_status check_window(const struct evaluation *e, uint64_t w, const int32_t *tokens,
                               const int32_t *targets, struct ddl_error *err)
{
    for (size_t t = 0; t < e->seq; t++) {
        int32_t last = targets[t] < 0 ? tokens[t] : targets[t];
        if (tokens[t] < 0 || (size_t)tokens[t] >= e->vocab || (size_t)last >= e->vocab)
            return ddl_error_set(err, DDL_E_FORMAT,
                                 "token %ld near position %llu, the vocabulary has %zu tokens",
                                 (long)((size_t)tokens[t] >= e->vocab ? tokens[t] : last),
                                 (unsigned long long)w * e->stride + t, e->vocab);
    }
    return DDL_OK;
}

static bool is_special(const ddl_tokenizer *tokenizer, int32_t token)
{
    int32_t id;
    size_t size, i = 0;
    while (ddl_tokenizer_special(tokenizer, i, &id, &size) && id != token)
        i++;
    return ddl_tokenizer_special(tokenizer, i, &id, &size) != NULL;
}

static uint64_t bytes_of(const struct evaluation *e, const int32_t *targets, size_t n)
{
    uint64_t bytes = 0;
    for (size_t i = 0; e->tokenizer && i < n; i++) {
        size_t size = 0;
        if (targets[i] >= 0 && !is_special(e->tokenizer, targets[i]) &&
            ddl_tokenizer_bytes(e->tokenizer, targets[i], &size))
            bytes += size;
    }
    return bytes;
}

static ddl_status interrupted(const struct evaluation *e, uint64_t done, struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_INTERRUPTED, "the evaluation was stopped after %llu of %llu tokens",
                         (unsigned long long)done, (unsigned long long)e->total);
}

/* Passes on the scored tokens of B windows, the first of which is window w. */
static ddl_status pass_on(const struct evaluation *e, uint64_t w, size_t B, uint64_t done,
                          struct ddl_error *err)
{
    for (size_t i = 0; i < B * e->seq; i++) {
        const struct ddl_token_score score = {
            .position = (w + i / e->seq) * e->stride + i % e->seq + 1 - e->prefix,
            .id = e->targets[i],
            .rank = e->rows.ranks[i],
            .logprob = 0 - (double)e->rows.losses[i], /* 0, not -0 */
            .entropy = (double)e->rows.entropies[i],
        };
        if (score.id >= 0 && e->each(e->user, &score))
            return interrupted(e, done, err);
    }
    return DDL_OK;
}

/* The batch that begins with window w, after `done` scored tokens. */
static ddl_status run_batch(struct evaluation *e, uint64_t w, uint64_t done, struct part *out,
                            struct ddl_error *err)
{
    const struct ddl_poll poll = { e->progress, e->user, done, e->total };
    struct ddl_loss loss;
    size_t B = 0;
    for (; B < e->batch && w + B < e->windows; B++) {
        fill_window(e, w + B, B, out);
        ddl_status status = check_window(e, w + B, e->tokens + B * e->seq, e->targets + B * e->seq, err);
        if (status)
            return status;
    }
    const struct ddl_batch batch = { B, e->seq, e->tokens, e->targets };
    ddl_status status = ddl_model_loss_polled(e->model, e->ws, &batch, &poll, &loss, &e->rows, err);
    if (status == DDL_E_INTERRUPTED)
        return interrupted(e, done, err);
    if (!status && !isfinite(loss.sum))
        status =
            ddl_error_set(err, DDL_E_NUMERIC, "the loss is not finite: the model's numbers are corrupted");
    done += out->positions;
    for (size_t i = 0; !status && e->sums.groups && i < B * e->seq; i++) {
        own_marks(e)[i].loss = e->rows.losses[i];
        own_marks(e)[i].correct = e->rows.ranks[i] == 0;
    }
    if (!status && e->each)
        status = pass_on(e, w, B, done, err);
    if (status)
        return status;
    out->nats = loss.sum;
    out->bytes = bytes_of(e, e->targets, B * e->seq);
    return e->progress && e->progress(e->user, done, e->total) ? interrupted(e, done, err) : DDL_OK;
}

/* One batch for each rank, from window `first` on, added in the order of the windows. */
static ddl_status run_round(struct evaluation *e, uint64_t first, struct ddl_eval_result *out,
                            struct ddl_error *err)
{
    size_t rank = ddl_comm_rank(e->comm);
    uint64_t own = first + rank * e->batch;
    struct part part = { 0 };
    size_t rows = e->sums.groups ? e->batch * e->seq : 0;
    for (size_t i = 0; i < rows; i++)
        own_marks(e)[i] = (struct ddl_eval_mark){ .group = DDL_EVAL_NO_TOKEN };
    ddl_status status = own < e->windows ? run_batch(e, own, out->positions, &part, err) : DDL_OK;
    status = ddl_comm_agree(e->comm, status, err);
    if (status)
        return status;
    ddl_comm_gather(e->comm, sizeof part, &part, e->parts);
    for (size_t r = 0; r < ddl_comm_size(e->comm); r++) {
        out->nats += e->parts[r].nats;
        out->tokens += e->parts[r].tokens;
        out->bytes += e->parts[r].bytes;
        out->positions += e->parts[r].positions;
    }
    if (rows > 0) {
        ddl_comm_gather(e->comm, rows * sizeof *e->marks, own_marks(e), e->marks);
        ddl_eval_sums_add(&e->sums, e->marks, ddl_comm_size(e->comm) * rows);
    }
    return DDL_OK;
}

static ddl_status run_windows(struct evaluation *e, struct ddl_eval_result *out, struct ddl_error *err)
{
    size_t ranks = ddl_comm_size(e->comm);
    ddl_status status = DDL_OK;
    ddl_comm_describe(e->comm, "the losses of %zu batches", ranks);
    for (uint64_t first = 0; first < e->windows && !status; first += ranks * e->batch)
        status = run_round(e, first, out, err);
    if (!status && out->tokens == 0)
        status = ddl_error_set(err, DDL_E_FORMAT, "the masks count none of the %llu tokens",
                               (unsigned long long)out->positions);
    ddl_eval_sums_end(&e->sums);
    return status;
}

/* Sizes from the configuration; how many windows there are. */
static ddl_status plan(struct evaluation *e, const struct ddl_eval_config *config, struct ddl_error *err)
{
    size_t context = ddl_model_config(e->model)->block_size;
    e->vocab = ddl_model_config(e->model)->vocab_size;
    e->seq = config->seq ? config->seq : context;
    e->stride = config->stride ? config->stride : e->seq;
    e->batch = config->batch ? config->batch : DEFAULT_BATCH;
    if (e->seq > context)
        return ddl_error_set(err, DDL_E_USAGE, "seq: expected at most %zu, the model's context, found %zu",
                             context, e->seq);
    if (e->stride > e->seq)
        return ddl_error_set(err, DDL_E_USAGE, "stride: expected at most %zu, the value of seq, found %zu",
                             e->seq, e->stride);
    if (e->batch > MAX_BATCH)
        return ddl_error_set(err, DDL_E_USAGE, "batch: expected at most %d, found %zu", MAX_BATCH, e->batch);
    if (e->source->count < 2)
        return ddl_error_set(err, DDL_E_FORMAT, "expected at least 2 tokens, found %llu",
                             (unsigned long long)e->source->count);
    uint64_t targets = e->source->count - 1;
    if (config->max_tokens && config->max_tokens < targets)
        targets = config->max_tokens;
    uint64_t rest = targets > e->seq ? targets - e->seq : 0;
    e->windows = 1 + rest / e->stride + (rest % e->stride != 0);
    uint64_t end = e->seq + (e->windows - 1) * e->stride;
    e->total = end < e->source->count - 1 ? end : e->source->count - 1;
    if (e->windows < e->batch)
        e->batch = (size_t)e->windows;
    if (e->windows == 1 && e->total < e->seq)
        e->seq = e->stride = (size_t)e->total;
    return DDL_OK;
}

static ddl_status allocate(struct evaluation *e, struct ddl_error *err)
{
    size_t rows = e->batch * e->seq, ranks = ddl_comm_size(e->comm);
    bool scores = e->each || e->sums.groups;
    const struct ddl_workspace_options options = { .batch = e->batch, .tokens = e->seq, .ranks = scores };
    e->tokens = ddl_mem_alloc(rows * sizeof *e->tokens);
    e->targets = ddl_mem_alloc(rows * sizeof *e->targets);
    if (e->sums.groups) {
        e->groups = ddl_mem_alloc(e->seq);
        e->marks = ddl_mem_alloc(ranks * rows * sizeof *e->marks);
    }
    if (scores) {
        e->rows.losses = ddl_mem_alloc(rows * sizeof *e->rows.losses);
        e->rows.ranks = ddl_mem_alloc(rows * sizeof *e->rows.ranks);
        e->rows.entropies = ddl_mem_alloc(rows * sizeof *e->rows.entropies);
    }
    e->parts = ddl_mem_alloc(ranks * sizeof *e->parts);
    if (!e->parts || !e->tokens || !e->targets || (e->sums.groups && (!e->groups || !e->marks)) ||
        (scores && (!e->rows.losses || !e->rows.ranks || !e->rows.entropies)))
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu tokens", rows);
    return ddl_workspace_create(&e->ws, e->model, &options, err);
}

static void release(struct evaluation *e)
{
    ddl_workspace_free(e->ws);
    ddl_mem_free(e->parts);
    ddl_mem_free(e->groups);
    ddl_mem_free(e->marks);
    ddl_mem_free(e->tokens);
    ddl_mem_free(e->targets);
    ddl_mem_free(e->rows.losses);
    ddl_mem_free(e->rows.ranks);
    ddl_mem_free(e->rows.entropies);
}

/* The first error of all ranks. */
static ddl_status agree(const struct ddl_eval_config *config, ddl_status status, struct ddl_error *err)
{
    struct ddl_error unused;
    return ddl_comm_agree(config->comm, status, err ? err : &unused);
}

/* Ends the evaluation on all ranks if one has an error, or other tokens than rank 0. */
static ddl_status prepare_ranks(const struct evaluation *e, ddl_status status, struct ddl_error *err)
{
    char text[256];
    snprintf(text, sizeof text,
             "tokens: %llu\nwindows: %llu\nseq: %zu\nstride: %zu\nbatch: %zu\nvocabulary: %zu\ngroups: %d\n",
             (unsigned long long)e->source->count, (unsigned long long)e->windows, e->seq, e->stride,
             e->batch, e->vocab, e->sums.groups != NULL);
    status = ddl_comm_agree(e->comm, status, err);
    return status || !e->comm ? status : ddl_comm_compare(e->comm, text, err);
}

static ddl_status evaluate(struct evaluation *e, const struct ddl_eval_config *config,
                           struct ddl_eval_result *out, struct ddl_error *err)
{
    double start = ddl_clock_seconds();
    struct ddl_error unused;
    err = err ? err : &unused;
    *out = (struct ddl_eval_result){ 0 };
    e->each = config->each;
    e->progress = config->progress;
    e->user = config->user;
    e->comm = config->comm;
    e->sums.groups = config->groups;
    if (config->groups)
        memset(config->groups, 0, DDL_MASK_GROUPS * sizeof *config->groups);
    assert(ddl_comm_size(e->comm) == 1 || !e->each);
    ddl_status status = plan(e, config, err);
    if (!status)
        status = allocate(e, err);
    status = prepare_ranks(e, status, err);
    if (status) {
        release(e);
        return status;
    }
    status = run_windows(e, out, err);
    release(e);
    out->loss = out->nats / (double)out->tokens;
    out->perplexity = exp(out->loss);
    out->bits_per_byte = out->bytes ? out->nats / log(2) / (double)out->bytes : (double)NAN;
    out->seconds = ddl_clock_seconds() - start;
    return status;
}

ddl_status ddl_eval_shards(ddl_model *model, const ddl_tokenizer *tokenizer, const ddl_shards *shards,
                           const struct ddl_eval_config *config, struct ddl_eval_result *out,
                           struct ddl_error *err)
{
    const struct ddl_token_source source = { .shards = shards, .count = ddl_shards_count(shards) };
    struct evaluation e = { .model = model, .tokenizer = tokenizer, .source = &source };
    return evaluate(&e, config, out, err);
}

ddl_status ddl_eval_text(ddl_model *model, const ddl_tokenizer *tokenizer, const char *text, size_t size,
                         const struct ddl_eval_config *config, struct ddl_eval_result *out,
                         struct ddl_error *err)
{
    struct ddl_ids ids = { 0 };
    size_t prefix;
    ddl_status status = agree(config, ddl_text_ids(tokenizer, text, size, &ids, &prefix, err), err);
    if (!status) {
        const struct ddl_token_source source = { .ids = ids.ids, .count = ids.n };
        struct evaluation e = { .model = model, .tokenizer = tokenizer, .source = &source, .prefix = prefix };
        status = evaluate(&e, config, out, err);
    }
    ddl_ids_free(&ids);
    return status;
}

ddl_status ddl_eval_file(ddl_model *model, const ddl_tokenizer *tokenizer, const char *path,
                         const struct ddl_eval_config *config, struct ddl_eval_result *out,
                         struct ddl_error *err)
{
    struct ddl_file_map map;
    ddl_status opened = ddl_file_map_open(&map, path, err), status = agree(config, opened, err);
    if (status) {
        if (!opened)
            ddl_file_map_close(&map);
        return status;
    }
    status = ddl_eval_text(model, tokenizer, (const char *)map.data, map.size, config, out, err);
    if (status == DDL_E_FORMAT)
        status = ddl_error_prefix(err, status, path);
    ddl_file_map_close(&map);
    return status;
}
