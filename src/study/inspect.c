/* Inspections: memory, passes, and the results of the sums. */
#include "study/inspection.h"

#include "base/mem.h"
#include "infer/text_ids.h"
#include "infer/token_source.h"
#include "study/spectrum.h"

#include <math.h>
#include <stdlib.h>

enum { PASS_ROWS = 2048 };

struct ddl_inspect_config ddl_inspect_defaults(void)
{
    return (struct ddl_inspect_config){ .max_tokens = 16384, .spectrum_tokens = 256 };
}

/* ---- memory ---- */

/* Counts the steps of all sublayers, and those of which singular values are computed. */
static void count_steps(struct ddl_inspection *in)
{
    in->n_sublayers = ddl_config_steps(in->k);
    for (size_t l = 0; l < in->k->n_layers; l++)
        in->n_delta += trace_has_update(in->k, l) ? DDL_SUBLAYERS * ddl_config_residual_steps(in->k, l) : 0;
}

/* A block that ddl_inspect_free frees; false in *fits if there is no memory. */
static void *take(bool *fits, size_t count, size_t size)
{
    size_t bytes;
    void *block = ddl_size_mul(count ? count : 1, size, &bytes) ? ddl_mem_zalloc(bytes) : NULL;
    *fits = *fits && block;
    return block;
}

/* Memory of the sums of each sublayer. */
static bool allocate_sums(struct ddl_inspection *in)
{
    bool fits = true;
    in->sums = take(&fits, in->n_sublayers, sizeof *in->sums);
    for (size_t s = 0, sublayer = 0; s < in->n_sublayers && fits; sublayer++) {
        size_t layer = sublayer / DDL_SUBLAYERS, steps = ddl_config_residual_steps(in->k, layer);
        for (size_t r = 0; r < steps; r++, s++) {
            struct sublayer_sums *sums = &in->sums[s];
            size_t means = inspection_means(in->k, layer, (int)(sublayer % DDL_SUBLAYERS));
            sums->figures.channel2 = take(&fits, in->c, sizeof *sums->figures.channel2);
            sums->steps = take(&fits, DDL_INSPECT_EXACT, sizeof *sums->steps);
            sums->means = take(&fits, 4 * means, sizeof *sums->means);
            if (fits)
                ddl_figures_begin(&sums->figures, in->c);
        }
    }
    return fits;
}

static bool allocate(struct ddl_inspection *in)
{
    size_t N = in->config.batch * in->config.seq, d = in->k->d_model, c = in->c;
    size_t sampled = in->every ? (size_t)((N - 1) / in->every + 1) : 0;
    bool fits = allocate_sums(in);
    struct ddl_arena arena = { 0 };
    in->copies =
        (struct ddl_rows){ .backend = ddl_model_backend(in->model), .config = in->k, .all = N, .most = N };
    ddl_rows_place(&in->copies, &arena);
    fits = fits && !arena.overflow;
    in->copies_memory = take(&fits, arena.used, 1);
    arena = (struct ddl_arena){ .base = in->copies_memory };
    ddl_rows_place(&in->copies, &arena);
    in->first_tokens = take(&fits, DDL_INSPECT_EXACT, sizeof *in->first_tokens);
    in->product = take(&fits, ddl_config_has_streams(in->k) ? N : 0, c * c * sizeof *in->product);
    in->k_now = take(&fits, N, d * sizeof *in->k_now);
    in->k_last = take(&fits, N, d * sizeof *in->k_last);
    in->spectrum_k = take(&fits, sampled * in->n_delta, d * sizeof *in->spectrum_k);
    in->spectrum_beta = take(&fits, sampled, in->n_delta * sizeof *in->spectrum_beta);
    in->spectrum_scratch =
        take(&fits, spectrum_scratch(in->n_delta, d) + 2 * in->n_delta, sizeof *in->spectrum_scratch);
    in->sigma_max = take(&fits, in->n_delta, sizeof *in->sigma_max);
    in->sigma_min = take(&fits, in->n_delta, sizeof *in->sigma_min);
    in->result = take(&fits, in->n_sublayers, sizeof *in->result);
    in->channel_rms = take(&fits, in->n_sublayers, c * sizeof *in->channel_rms);
    in->by_position = take(&fits, in->n_sublayers, in->config.seq * sizeof *in->by_position);
    return fits;
}

ddl_status ddl_inspect_create(ddl_inspection **out, ddl_model *model, const struct ddl_inspect_config *config,
                              uint64_t total, struct ddl_error *err)
{
    const struct ddl_config *k = ddl_model_config(model);
    *out = NULL;
    struct ddl_inspection *in = ddl_mem_zalloc(sizeof *in);
    if (!in)
        return ddl_error_set(err, DDL_E_MEMORY, "inspect: out of memory");
    *in = (struct ddl_inspection){
        .model = model, .k = k, .config = *config, .c = ddl_config_state_channels(k), .total = total
    };
    count_steps(in);
    ddl_status status = DDL_OK;
    if (!in->config.seq)
        in->config.seq = k->block_size;
    if (in->config.seq > k->block_size)
        status = ddl_error_set(err, DDL_E_USAGE,
                               "inspect: seq: expected at most %zu (the model's context), found %zu",
                               k->block_size, in->config.seq);
    if (!in->config.batch)
        in->config.batch = in->config.seq < PASS_ROWS ? PASS_ROWS / in->config.seq : 1;
    if (config->spectrum_tokens && in->n_delta)
        in->every = total > config->spectrum_tokens ? total / config->spectrum_tokens : 1;
    if (!status && !allocate(in))
        status = ddl_error_set(err, DDL_E_MEMORY, "inspect: out of memory for passes of %zu tokens",
                               in->config.batch * in->config.seq);
    if (!status)
        status = saved_states_create(in, total, err);
    if (!status)
        status = ddl_workspace_create(
            &in->ws, model,
            &(struct ddl_workspace_options){ .batch = in->config.batch, .tokens = in->config.seq }, err);
    if (status) {
        ddl_inspect_free(in);
        return status;
    }
    *out = in;
    return DDL_OK;
}

void ddl_inspect_free(ddl_inspection *in)
{
    if (!in)
        return;
    for (size_t s = 0; in->sums && s < in->n_sublayers; s++) {
        struct sublayer_sums *sums = &in->sums[s];
        ddl_distribution_free(&sums->figures.values);
        ddl_mem_free(sums->figures.channel2);
        ddl_mem_free(sums->steps);
        ddl_mem_free(sums->means);
        ddl_mem_free(sums->gate_means);
        ddl_mem_free(sums->position_sum);
        ddl_mem_free(sums->position_count);
    }
    void *blocks[] = { in->first_tokens,     in->sums,       in->copies_memory, in->product,    in->k_now,
                       in->k_last,           in->spectrum_k, in->spectrum_beta, in->sigma_max,  in->sigma_min,
                       in->spectrum_scratch, in->result,     in->channel_rms,   in->by_position };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        ddl_mem_free(blocks[i]);
    saved_states_free(&in->saved);
    ddl_workspace_free(in->ws);
    ddl_mem_free(in);
}

/* ---- passes ---- */

static void add_spectra(struct ddl_inspection *in, size_t rows)
{
    size_t S = in->n_delta, d = in->k->d_model;
    for (size_t slot = 0; slot < inspection_sampled(in, in->rows, rows); slot++) {
        double *sigma_max = in->spectrum_scratch + spectrum_scratch(S, d), *sigma_min = sigma_max + S;
        spectrum_of(S, d, in->spectrum_k + slot * S * d, in->spectrum_beta + slot * S, in->spectrum_scratch,
                    sigma_max, sigma_min);
        for (size_t s = 0; s < S; s++) {
            in->sigma_max[s] += sigma_max[s];
            in->sigma_min[s] += sigma_min[s];
        }
        in->n_spectrum++;
    }
}

ddl_status ddl_inspect_batch(ddl_inspection *in, const struct ddl_batch *batch, struct ddl_error *err)
{
    struct ddl_loss loss;
    struct ddl_probe probe = { .step = inspection_observe, .user = in };
    if (in->config.states_every && batch->B * batch->T > in->total - in->rows)
        return ddl_error_set(err, DDL_E_USAGE,
                             "inspect: expected at most %llu tokens, as announced, found more",
                             (unsigned long long)in->total);
    in->batch = batch;
    in->at = 0;
    in->last = NULL;
    in->delta_at = 0;
    in->has_product = false;
    ddl_workspace_set_probe(in->ws, &probe);
    ddl_status status = ddl_model_loss(in->model, in->ws, batch, &loss, NULL, err);
    ddl_workspace_set_probe(in->ws, NULL);
    if (!status && in->out_of_memory)
        status = ddl_error_set(err, DDL_E_MEMORY, "inspect: out of memory for the gates of a sublayer");
    if (status)
        return status;
    size_t rows = batch->B * batch->T;
    for (size_t n = 0; n < rows && in->rows + n < DDL_INSPECT_EXACT; n++)
        in->first_tokens[in->rows + n] = batch->tokens[n];
    add_spectra(in, rows);
    saved_states_end_pass(in);
    in->rows += rows;
    in->loss.sum += loss.sum;
    in->loss.n_targets += loss.n_targets;
    return DDL_OK;
}

static ddl_status check_tokens(const struct ddl_inspection *in, uint64_t start, size_t n,
                               const int32_t *tokens, struct ddl_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || (size_t)tokens[i] >= in->k->vocab_size)
            return ddl_error_set(err, DDL_E_FORMAT,
                                 "token %llu: expected an id below vocab_size %zu, found %ld",
                                 (unsigned long long)start + i, in->k->vocab_size, (long)tokens[i]);
    }
    return DDL_OK;
}

/* One pass over B sequences of T tokens from `start` on; the targets are the tokens after, -1 at the end of
 * the source. buffer (2 B T). */
static ddl_status run_pass(struct ddl_inspection *in, const struct ddl_token_source *source, uint64_t start,
                           size_t B, size_t T, int32_t *buffer, struct ddl_error *err)
{
    size_t N = B * T, rest = source->count - start > N ? N : N - 1;
    int32_t *tokens = buffer, *targets = buffer + N;
    ddl_token_source_read(source, start, N, tokens);
    ddl_token_source_read_targets(source, start + 1, rest, targets);
    if (rest < N)
        targets[N - 1] = -1;
    ddl_status status = check_tokens(in, start, N, tokens, err);
    if (!status && targets[N - 1] >= 0) /* the other targets are tokens */
        status = check_tokens(in, start + N, 1, targets + N - 1, err);
    return status ? status : ddl_inspect_batch(in, &(struct ddl_batch){ B, T, tokens, targets }, err);
}

/* Sequences of seq tokens, and a shorter one at the end of the source. */
static ddl_status run_source(struct ddl_inspection *in, const struct ddl_token_source *source, uint64_t total,
                             struct ddl_error *err)
{
    size_t seq = in->config.seq, N = in->config.batch * seq;
    int32_t *buffer = ddl_mem_alloc(2 * N * sizeof *buffer);
    ddl_status status =
        buffer ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "inspect: out of memory for %zu tokens", N);
    for (uint64_t at = 0; at < total && !status;) {
        uint64_t left = total - at;
        size_t B = left < N ? (size_t)(left / seq) : in->config.batch, T = B ? seq : (size_t)left;
        B = B ? B : 1;
        status = run_pass(in, source, at, B, T, buffer, err);
        at += B * T;
        if (!status && in->config.progress && in->config.progress(in->config.user, at, total))
            status = ddl_error_set(err, DDL_E_INTERRUPTED, "inspect: interrupted after %llu of %llu tokens",
                                   (unsigned long long)at, (unsigned long long)total);
    }
    ddl_mem_free(buffer);
    return status;
}

static ddl_status inspect_source(ddl_inspection **out, ddl_model *model,
                                 const struct ddl_token_source *source,
                                 const struct ddl_inspect_config *config, struct ddl_error *err)
{
    struct ddl_inspect_config c = *config;
    uint64_t total = source->count;
    *out = NULL;
    if (total == 0)
        return ddl_error_set(err, DDL_E_FORMAT, "inspect: expected at least one token, found none");
    c.seq = c.seq ? c.seq : ddl_model_config(model)->block_size;
    if (c.max_tokens && c.max_tokens < total) {
        uint64_t whole = (c.max_tokens - 1) / c.seq + 1;
        total = whole <= total / c.seq ? whole * c.seq : total;
    }
    if (total < c.seq)
        c.seq = (size_t)total;
    if (!c.batch && total / c.seq < PASS_ROWS / c.seq)
        c.batch = (size_t)(total / c.seq);
    struct ddl_inspection *in;
    ddl_status status = ddl_inspect_create(&in, model, &c, total, err);
    if (status)
        return status;
    status = run_source(in, source, total, err);
    if (!status)
        status = ddl_inspect_finish(in, err);
    if (status) {
        ddl_inspect_free(in);
        return status;
    }
    *out = in;
    return DDL_OK;
}

ddl_status ddl_inspect_shards(ddl_inspection **out, ddl_model *model, const ddl_shards *shards,
                              const struct ddl_inspect_config *config, struct ddl_error *err)
{
    const struct ddl_token_source source = { .shards = shards, .count = ddl_shards_count(shards) };
    return inspect_source(out, model, &source, config, err);
}

ddl_status ddl_inspect_ids(ddl_inspection **out, ddl_model *model, const int32_t *ids, size_t n,
                           const struct ddl_inspect_config *config, struct ddl_error *err)
{
    const struct ddl_token_source source = { .ids = ids, .count = n };
    return inspect_source(out, model, &source, config, err);
}

ddl_status ddl_inspect_text(ddl_inspection **out, ddl_model *model, const ddl_tokenizer *tokenizer,
                            const char *text, size_t size, const struct ddl_inspect_config *config,
                            struct ddl_error *err)
{
    struct ddl_ids ids = { 0 };
    size_t prefix;
    *out = NULL;
    ddl_status status = ddl_text_ids(tokenizer, text, size, &ids, &prefix, err);
    if (!status)
        status = ddl_inspect_ids(out, model, ids.ids, ids.n, config, err);
    ddl_ids_free(&ids);
    return status;
}

size_t ddl_inspect_n_sublayers(const ddl_inspection *in)
{
    return in->n_sublayers;
}

const struct ddl_inspect_sublayer *ddl_inspect_sublayer(const ddl_inspection *in, size_t s)
{
    return &in->result[s];
}

const struct ddl_inspect_depth *ddl_inspect_depth(const ddl_inspection *in)
{
    return in->n_delta ? &in->depth : NULL;
}

struct ddl_loss ddl_inspect_loss(const ddl_inspection *in)
{
    return in->loss;
}

uint64_t ddl_inspect_tokens(const ddl_inspection *in)
{
    return in->rows;
}

const int32_t *ddl_inspect_first_tokens(const ddl_inspection *in)
{
    return in->first_tokens;
}

size_t ddl_inspect_seq(const ddl_inspection *in)
{
    return in->config.seq;
}

ddl_status ddl_inspect_freeze(const ddl_inspection *in, ddl_model *model, size_t s, struct ddl_force force,
                              struct ddl_error *err)
{
    size_t layer = s / DDL_SUBLAYERS;
    int sub = (int)(s % DDL_SUBLAYERS);
    double mean = 0;
    for (size_t i = 0; i < in->n_sublayers; i++) {
        const struct ddl_inspect_sublayer *at = &in->result[i];
        for (size_t f = 0; f < in->copies.table.n && at->layer == layer && at->sub == sub; f++) {
            if (in->copies.table.row[f]->kind == DDL_FIGURE_MEAN && !isnan(at->figures.value[f]))
                mean += at->figures.value[f] / (double)at->n_steps;
        }
    }
    force.keys |= DDL_FORCE_BETA;
    force.beta = (float)mean;
    return ddl_model_force(model, layer, sub, &force, err);
}
