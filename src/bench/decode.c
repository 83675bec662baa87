/* Timing prefill and decoding beside the time that reading the weights takes. */
#include "bench/bench.h"

#include "base/mem.h"
#include "base/clock.h"
#include "ddl/session.h"
#include "model/pass/decode.h"
#include "model/pass/measure.h"
#include "model/pass/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `n` sequences that are decoded together, each in its slot. */
struct decoder {
    const struct ddl_bench_config *config;
    ddl_model *model;
    ddl_session *session;
    size_t n;
    size_t *slots;                    /* (n) 0, 1, ... */
    struct ddl_session_input *inputs; /* (n) prompts */
    int32_t *tokens;                  /* (n, seq) prompts; every step takes n from the start */
    float *logits;                    /* (n, V) of the last position */
    ddl_status status;
    struct ddl_error *err;
};

static ddl_status make(struct decoder *d, ddl_model *model, const struct ddl_bench_config *config, size_t n,
                       bool exact, struct ddl_error *err)
{
    size_t V = config->model.vocab_size, tokens, logits;
    const struct ddl_session_options options = { .slots = n,
                                                 .tokens = config->model.block_size,
                                                 .rows = config->seq,
                                                 .exact = exact,
                                                 .form = config->cache };
    *d = (struct decoder){ .config = config, .model = model, .n = n, .err = err };
    ddl_status status = ddl_session_create(&d->session, model, &options, err);
    if (status)
        return status;
    d->slots = calloc(n, sizeof *d->slots);
    d->inputs = calloc(n, sizeof *d->inputs);
    if (!d->slots || !d->inputs || !ddl_size_mul(n * config->seq, sizeof *d->tokens, &tokens) ||
        !ddl_size_mul(n * V, sizeof *d->logits, &logits) || !(d->tokens = malloc(tokens)) ||
        !(d->logits = malloc(logits)))
        return ddl_error_set(err, DDL_E_MEMORY, "bench decode: out of memory for %zu sequences", n);
    bench_tokens(d->tokens, n * config->seq, V);
    for (size_t i = 0; i < n; i++) {
        d->slots[i] = i;
        d->inputs[i] = (struct ddl_session_input){ .slot = i,
                                                   .n = config->seq,
                                                   .tokens = d->tokens + i * config->seq,
                                                   .n_logits = 1,
                                                   .logits = d->logits + i * V };
    }
    return DDL_OK;
}

static void unmake(struct decoder *d)
{
    free(d->slots);
    free(d->inputs);
    free(d->tokens);
    free(d->logits);
    ddl_session_free(d->session);
}

/* Keeps the first error. */
static void note(struct decoder *d, ddl_status status)
{
    d->status = d->status ? d->status : status;
}

static void step(struct decoder *d)
{
    note(d, ddl_session_step(d->session, d->n, d->slots, d->tokens, d->logits, d->status ? NULL : d->err));
}

/* Seconds of a step. */
static double time_step(struct decoder *d)
{
    const ddl_backend *backend = ddl_model_backend(d->model);
    double start = ddl_clock_seconds();
    step(d);
    backend->ops->synchronize(backend->ctx);
    return ddl_clock_seconds() - start;
}

static void prefill(void *user)
{
    struct decoder *d = user;
    for (size_t i = 0; i < d->n; i++)
        note(d, ddl_session_reset(d->session, i, d->status ? NULL : d->err));
    note(d, ddl_session_prefill(d->session, d->inputs, d->n, d->status ? NULL : d->err));
}

/* A step of decoding reads every weight once (ddl_model_pass_bytes), and the keys and values so far. */
static double cache_bytes(const struct decoder *d)
{
    const struct ddl_bench_config *config = d->config;
    size_t size = ddl_cache_is_bf16(config->precision, config->cache) ? sizeof(uint16_t) : sizeof(float);
    double mean = (double)config->seq + (double)config->warmup + (double)config->steps / 2;
    return 2 * (double)size * mean * (double)d->n *
           (double)(config->model.n_layers * config->model.n_heads * config->model.head_dim);
}

/* Further tokens, op by op. */
static void time_ops(struct decoder *d, struct ddl_bench_report *out)
{
    struct ddl_profile profile;
    ddl_backend *real = ddl_model_backend(d->model);
    ddl_profile_init(&profile, real);
    ddl_model_replace_backend(d->model, &profile.backend);
    double start = ddl_clock_seconds();
    for (size_t i = 0; i < d->config->profiled; i++)
        step(d);
    bench_shares(out, &profile, d->config->profiled, ddl_clock_seconds() - start);
    ddl_model_replace_backend(d->model, real);
}

static struct ddl_bench_row *decode(struct decoder *d, struct ddl_bench_report *out, const char *name)
{
    double seconds[DDL_BENCH_REPETITIONS];
    for (size_t i = 0; i < d->config->warmup; i++)
        step(d);
    for (size_t i = 0; i < d->config->steps; i++)
        seconds[i] = time_step(d);
    struct ddl_bench_row *row = bench_row(out, name, seconds, d->config->steps);
    row->bytes = (double)ddl_model_pass_bytes(d->model) + cache_bytes(d);
    row->flops = (double)d->n * ddl_config_flops_per_token(&d->config->model, d->config->seq, false);
    row->units = (double)d->n;
    snprintf(row->unit, sizeof row->unit, "tokens");
    return row;
}

/* A prefill of one sequence. Returns tokens per second. */
static double time_prefill(struct decoder *d, struct ddl_bench_report *out, const char *name)
{
    enum { PREFILLS = 5 };
    struct ddl_bench_row *row =
        bench_time(out, name, ddl_model_backend(d->model), prefill, d, 1, PREFILLS, 0);
    row->units = (double)d->config->seq;
    row->flops = row->units * ddl_config_flops_per_token(&d->config->model, d->config->seq, false);
    snprintf(row->unit, sizeof row->unit, "tokens");
    return row->units / row->median;
}

/* The prefill of an exact session, as an engine has. */
static ddl_status time_exact(ddl_model *model, const struct ddl_bench_config *config,
                             struct ddl_bench_report *out, struct ddl_error *err)
{
    struct decoder d;
    ddl_status status = make(&d, model, config, 1, true, err);
    if (!status) {
        bench_figure(out, "exact_prefill_tokens_per_s", time_prefill(&d, out, "prefill exact"));
        status = d.status;
    }
    unmake(&d);
    return status;
}

static ddl_status time_one(ddl_model *model, const struct ddl_bench_config *config,
                           struct ddl_bench_report *out, struct ddl_error *err)
{
    struct decoder d;
    ddl_status status = make(&d, model, config, 1, false, err);
    if (!status) {
        struct ddl_bench_row *row;
        bench_figure(out, "prefill_tokens_per_s", time_prefill(&d, out, "prefill"));
        prefill(&d);
        row = decode(&d, out, "decode 1");
        bench_figure(out, "tokens_per_s", 1 / row->median);
        bench_figure(out, "weight_bytes", (double)ddl_model_pass_bytes(model));
        if (config->profiled)
            time_ops(&d, out);
        status = d.status;
    }
    unmake(&d);
    return status;
}

static ddl_status time_several(ddl_model *model, const struct ddl_bench_config *config,
                               struct ddl_bench_report *out, struct ddl_error *err)
{
    struct decoder d;
    char name[32];
    ddl_status status = make(&d, model, config, config->batch, false, err);
    if (!status) {
        snprintf(name, sizeof name, "decode %zu", config->batch);
        prefill(&d);
        struct ddl_bench_row *row = decode(&d, out, name);
        bench_figure(out, "batch_tokens_per_s", row->units / row->median);
        status = d.status;
    }
    unmake(&d);
    return status;
}

/* How far decoding is from what the memory allows: after each token of one sequence, as many bytes are read
 * as the weights have. On a machine with other users, memory is faster at one time than at another. */
static ddl_status compare_with_memory(ddl_model *model, const struct ddl_bench_config *config,
                                      struct ddl_bench_report *out, struct ddl_error *err)
{
    struct decoder d;
    struct bench_reader reader;
    size_t bytes = ddl_model_pass_bytes(model);
    double read[DDL_BENCH_REPETITIONS], ratio[DDL_BENCH_REPETITIONS];
    ddl_status status = bench_reader_open(&reader, ddl_model_backend(model), bytes, err);
    if (status)
        return status;
    status = make(&d, model, config, 1, false, err);
    if (!status)
        prefill(&d);
    for (size_t i = 0; !status && i < config->warmup; i++)
        time_step(&d);
    for (size_t i = 0; !status && i < config->steps; i++) {
        double token = time_step(&d);
        read[i] = bench_read(&reader);
        ratio[i] = token / read[i];
    }
    status = status ? status : d.status;
    if (!status) {
        struct ddl_bench_row *row = bench_row(out, "read weights", read, config->steps);
        row->bytes = (double)bytes;
        bench_figure(out, "weights_read_s", row->median);
        bench_figure(out, "decode_over_read", bench_median(ratio, config->steps));
    }
    unmake(&d);
    bench_reader_close(&reader);
    return status;
}

ddl_status ddl_bench_decode(const struct ddl_bench_config *config, ddl_backend *backend,
                            struct ddl_bench_report *out, struct ddl_error *err)
{
    struct ddl_bench_config c = *config;
    ddl_model *model = NULL;
    bench_begin(out, "decode", backend);
    bench_set_model(out, config);
    bench_set(out, "dtype", "%s", ddl_precision_names[config->precision]);
    bench_set(out, "cache", "%s", ddl_cache_form_names[config->cache]);
    bench_set(out, "tokens", "%zu", config->steps);
    ddl_status status = bench_check_steps(config->steps, err);
    if (!status && (config->seq == 0 || config->batch == 0))
        status =
            ddl_error_set(err, DDL_E_USAGE, "bench decode: a prompt and a batch of at least 1 are needed");
    c.model.block_size = config->seq + config->warmup + config->steps + config->profiled;
    if (!status)
        status = bench_check_decoding(&c, backend, out->check, sizeof out->check, err);
    if (!status)
        status = ddl_model_create_for_inference(&model, &c.model, c.precision, backend, err);
    if (!status)
        status = ddl_model_init(model, 0, err);
    if (!status)
        status = time_one(model, &c, out, err);
    if (!status)
        status = time_exact(model, &c, out, err);
    if (!status && c.batch > 1)
        status = time_several(model, &c, out, err);
    if (!status) {
        bench_figure(out, "parameters", (double)ddl_model_size(model));
        bench_device(out, backend);
    }
    /* last: their memory is not decoding's */
    if (!status && c.roofline)
        status = compare_with_memory(model, &c, out, err);
    ddl_model_free(model);
    if (!status && c.roofline)
        status = bench_roofline(&out->roofline, backend, err);
    return status;
}
