#include "ddl/generate.h"

#include "base/mem.h"
#include "base/rng.h"
#include "infer/detokenizer.h"
#include "infer/sampler.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PREFILL_ROWS = 512, MAX_SEQUENCES = 1024 };

#define AT(field) offsetof(struct ddl_generate_config, field)

static const struct ddl_option rows[] = {
    { "max_tokens", DDL_OPTION_SIZE, AT(max_tokens), 0, 1, 2147483647, NULL, "N", "new tokens at most" },
    { "temperature", DDL_OPTION_FLOAT, AT(temperature), 0, 0, 1000, NULL, "X", "0 is greedy" },
    { "top_k", DDL_OPTION_SIZE, AT(top_k), 0, 0, 2147483647, NULL, "N",
      "only the N likeliest tokens (0: all)" },
    { "top_p", DDL_OPTION_FLOAT, AT(top_p), 0, 0, 1, NULL, "X", "only the likeliest that together reach X" },
    { "seed", DDL_OPTION_U64, AT(seed), 0, 0, 0, NULL, "N", "of the random choices" },
    { "n", DDL_OPTION_SIZE, AT(n), 0, 1, MAX_SEQUENCES, NULL, "N", "sequences, side by side" },
    { "cache", DDL_OPTION_CHOICE, AT(cache), 0, 0, 0, ddl_cache_form_names, "NAME",
      "keys and values in f32 or bf16 (auto: f32 where the weights are)" },
    { 0 },
};

const struct ddl_option *ddl_generate_options(void)
{
    return rows;
}

struct ddl_generate_config ddl_generate_defaults(void)
{
    return (struct ddl_generate_config){ .max_tokens = 200, .temperature = 1, .top_p = 1, .n = 1 };
}

const char *ddl_finish_name(int finish)
{
    static const char *const names[] = { "length", "end", "stop", "context", "caller" };
    return finish >= 0 && finish <= DDL_FINISH_CANCELLED ? names[finish] : "unknown";
}

struct sequence {
    struct ddl_detokenizer emitter;
    struct ddl_generate_result result;
    bool done;
};

struct generation {
    ddl_model *model;
    const ddl_tokenizer *tokenizer;
    const struct ddl_generate_config *config;
    struct ddl_ids prompt;
    size_t V, choices; /* logits of a row; those that the tokenizer knows */
    size_t room;       /* tokens that still fit after the prompt          */
    size_t block;      /* tokens of one prefill pass                      */
    ddl_workspace *ws;
    ddl_cache *cache;
    struct sequence *sequences;
    float *logits;   /* (n, V)     */
    int32_t *tokens; /* (n, block) */
    struct ddl_sampler sampler;
    uint64_t key;
};

static ddl_status encode_prompt(struct generation *g, const char *prompt, size_t size, struct ddl_error *err)
{
    size_t context = ddl_model_config(g->model)->block_size;
    size_t known = ddl_tokenizer_vocab_size(g->tokenizer);
    if (known > g->V)
        return ddl_error_set(err, DDL_E_FORMAT, "the tokenizer has %zu tokens, the model's vocabulary %zu",
                             known, g->V);
    g->choices = known;
    const char *end = "<|endoftext|>";
    if (size == 0 && ddl_tokenizer_end_of_text(g->tokenizer) < 0)
        return ddl_error_set(err, DDL_E_USAGE,
                             "the prompt is empty, and the tokenizer has no %s to begin with", end);
    ddl_status status = size ? ddl_tokenizer_encode(g->tokenizer, prompt, size, false, &g->prompt, err)
                             : ddl_tokenizer_encode(g->tokenizer, end, strlen(end), true, &g->prompt, err);
    if (!status && g->prompt.n > context)
        return ddl_error_set(err, DDL_E_USAGE, "the prompt is %zu tokens, the model's context %zu",
                             g->prompt.n, context);
    /* The last token made is never fed back, so it needs no place. */
    g->room = status ? 0 : context - g->prompt.n + 1;
    return status;
}

static ddl_status make_room(struct generation *g, ddl_text_fn *text, void *user, struct ddl_error *err)
{
    const struct ddl_generate_config *k = g->config;
    size_t new_tokens = k->max_tokens < g->room ? k->max_tokens : g->room, logits;
    size_t per_pass = PREFILL_ROWS / k->n ? PREFILL_ROWS / k->n : 1;
    g->block = g->prompt.n < per_pass ? g->prompt.n : per_pass;
    if (!ddl_size_mul(k->n * sizeof *g->logits, g->V, &logits))
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu sequences", k->n);
    g->sequences = calloc(k->n, sizeof *g->sequences);
    g->logits = ddl_mem_alloc(logits);
    g->tokens = ddl_mem_alloc(k->n * g->block * sizeof *g->tokens);
    g->sampler.heap = ddl_mem_alloc(g->V * sizeof *g->sampler.heap);
    if (!g->sequences || !g->logits || !g->tokens || !g->sampler.heap)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu sequences", k->n);
    ddl_status status = ddl_cache_create(&g->cache, g->model,
                                         &(struct ddl_cache_options){ .batch = k->n,
                                                                      .tokens = g->prompt.n + new_tokens - 1,
                                                                      .form = (enum ddl_cache_form)k->cache },
                                         err);
    if (!status)
        status = ddl_workspace_create(
            &g->ws, g->model, &(struct ddl_workspace_options){ .batch = k->n, .tokens = g->block }, err);
    for (size_t s = 0; s < k->n && !status; s++) {
        struct ddl_detokenizer *emitter = &g->sequences[s].emitter;
        status = ddl_detokenizer_init(emitter, g->tokenizer, k->stop, k->n_stop, err);
        emitter->text = text;
        emitter->user = user;
        emitter->sequence = s;
        g->sequences[s].result.prompt_tokens = g->prompt.n;
    }
    return status;
}

/* The prompt through the cache, block by block; logits of its last token for every sequence. */
static ddl_status prefill(struct generation *g, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t at = 0; at < g->prompt.n && !status; at += g->block) {
        size_t T = g->prompt.n - at < g->block ? g->prompt.n - at : g->block;
        for (size_t s = 0; s < g->config->n; s++)
            memcpy(g->tokens + s * T, g->prompt.ids + at, T * sizeof *g->tokens);
        struct ddl_batch batch = { .B = g->config->n, .T = T, .tokens = g->tokens };
        status = ddl_model_logits(g->model, g->ws, g->cache, &batch, at + T == g->prompt.n, g->logits, err);
    }
    return status;
}

/* Takes token number t of sequence s from its logits. */
static ddl_status take_token(struct generation *g, size_t s, size_t t, struct ddl_error *err)
{
    struct sequence *sequence = &g->sequences[s];
    bool stopped = false;
    double u = ddl_rng_uniform(g->key, (uint64_t)s << 32 | t);
    int32_t id = ddl_sampler_pick(&g->sampler, g->logits + s * g->V, g->choices, u);
    if (id < 0)
        return ddl_error_set(err, DDL_E_NUMERIC, "no logit of new token %zu is finite", t);
    g->tokens[s] = id;
    int finish = -1;
    if (id == ddl_tokenizer_end_of_text(g->tokenizer)) {
        finish = DDL_FINISH_END;
    } else {
        sequence->result.tokens++;
        if (ddl_detokenizer_push(&sequence->emitter, id, &stopped))
            finish = DDL_FINISH_CANCELLED;
        else if (stopped)
            finish = DDL_FINISH_STOP;
        else if (t + 1 == g->config->max_tokens)
            finish = DDL_FINISH_LENGTH;
        else if (t + 1 == g->room)
            finish = DDL_FINISH_CONTEXT;
    }
    if (finish < 0)
        return DDL_OK;
    sequence->done = true;
    sequence->result.finish = finish;
    if (finish != DDL_FINISH_CANCELLED && finish != DDL_FINISH_STOP &&
        ddl_detokenizer_flush(&sequence->emitter))
        sequence->result.finish = DDL_FINISH_CANCELLED;
    return DDL_OK;
}

/* All sequences go through the model together; one that is done is carried along and not looked at. */
static ddl_status decode(struct generation *g, struct ddl_error *err)
{
    size_t n = g->config->n, n_done = 0;
    ddl_status status = DDL_OK;
    for (size_t t = 0;; t++) {
        for (size_t s = 0; s < n && !status; s++) {
            struct sequence *sequence = &g->sequences[s];
            if (sequence->done)
                continue;
            status = take_token(g, s, t, err);
            n_done += sequence->done;
            if (sequence->done && sequence->result.finish == DDL_FINISH_CANCELLED)
                return status;
        }
        if (status || n_done == n)
            return status;
        struct ddl_batch batch = { .B = n, .T = 1, .tokens = g->tokens };
        status = ddl_model_logits(g->model, g->ws, g->cache, &batch, 1, g->logits, err);
    }
}

static void release(struct generation *g)
{
    for (size_t s = 0; g->sequences && s < g->config->n; s++)
        ddl_detokenizer_free(&g->sequences[s].emitter);
    free(g->sequences);
    ddl_ids_free(&g->prompt);
    ddl_workspace_free(g->ws);
    ddl_cache_free(g->cache);
    ddl_mem_free(g->logits);
    ddl_mem_free(g->tokens);
    ddl_mem_free(g->sampler.heap);
}

ddl_status ddl_generate(ddl_model *model, const ddl_tokenizer *tokenizer,
                        const struct ddl_generate_config *config, const char *prompt, size_t size,
                        ddl_text_fn *text, void *user, struct ddl_generate_result *results,
                        struct ddl_error *err)
{
    ddl_status status = ddl_option_check(rows, config, err);
    if (status)
        return status;
    struct generation g = { .model = model,
                            .tokenizer = tokenizer,
                            .config = config,
                            .V = ddl_model_config(model)->vocab_size,
                            .sampler = { config->temperature, config->top_k, config->top_p, NULL },
                            .key = ddl_rng_key(config->seed, "sample") };
    status = encode_prompt(&g, prompt, size, err);
    if (!status)
        status = make_room(&g, text, user, err);
    if (!status)
        status = prefill(&g, err);
    if (!status)
        status = decode(&g, err);
    for (size_t s = 0; results && !status && s < config->n; s++) {
        results[s] = g.sequences[s].result;
        if (!g.sequences[s].done)
            results[s].finish = DDL_FINISH_CANCELLED;
    }
    release(&g);
    return status;
}
