/* Text generation: one prompt, several sequences that share its prefill. */
#include "ddl/generate.h"

#include "base/mem.h"
#include "base/rng.h"
#include "infer/detokenizer.h"
#include "infer/sampler.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 512, MAX_SEQUENCES = 1024 };

#define AT(field) offsetof(struct ddl_generate_config, field)

static const struct ddl_other_name length_others[] = {
    { "-n", "In llama.cpp -n counts new tokens; --n is the number of texts", DDL_OTHER_DIFFERS },
    { "ctx_size", "the context is the model's block_size", DDL_OTHER_NONE },
    { "-c", "the context is the model's block_size", DDL_OTHER_NONE },
    { "max_length", "It counts new tokens, without the prompt", DDL_OTHER_DIFFERS },
    { 0 },
};
static const struct ddl_other_name temperature_others[] = {
    { "temp", NULL, DDL_OTHER_SAME },
    { "do_sample", "0 is greedy decoding, as do_sample=False", DDL_OTHER_DIFFERS },
    { "repeat_penalty", "tokens are not penalized for repetition", DDL_OTHER_NONE },
    { "repetition_penalty", "tokens are not penalized for repetition", DDL_OTHER_NONE },
    { "frequency_penalty", "tokens are not penalized for repetition", DDL_OTHER_NONE },
    { "presence_penalty", "tokens are not penalized for repetition", DDL_OTHER_NONE },
    { "min_p", "sampling is controlled by temperature, top_k and top_p", DDL_OTHER_NONE },
    { "num_beams", "there is no beam search; temperature 0 is greedy", DDL_OTHER_NONE },
    { 0 },
};

static const struct ddl_option rows[] = {
    { "max_tokens", DDL_OPTION_SIZE, AT(max_tokens), 0, 1, 2147483647, NULL, "N",
      "maximum number of new tokens", "max_new_tokens n_predict predict", .others = length_others },
    { "temperature", DDL_OPTION_FLOAT, AT(temperature), 0, 0, 1000, NULL, "X",
      "sampling temperature (0: greedy)", .others = temperature_others },
    { "top_k", DDL_OPTION_SIZE, AT(top_k), 0, 0, 2147483647, NULL, "N",
      "sample from the N most probable tokens only (0: all)" },
    { "top_p", DDL_OPTION_FLOAT, AT(top_p), 0, 0, 1, NULL, "X",
      "sample from the smallest set of most probable tokens with a total probability of X or more" },
    { "seed", DDL_OPTION_U64, AT(seed), 0, 0, 0, NULL, "N", "random seed" },
    { "n", DDL_OPTION_SIZE, AT(n), 0, 1, MAX_SEQUENCES, NULL, "N", "number of texts",
      "num_samples num_return_sequences" },
    { "cache", DDL_OPTION_CHOICE, AT(cache), 0, 0, 0, ddl_cache_form_names, "NAME",
      "format of keys and values (auto: f32 with f32 weights, else bf16)" },
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
    static const char *const names[] = { "length", "end", "stop", "context", "cancelled" };
    return finish >= 0 && finish <= DDL_FINISH_CANCELLED ? names[finish] : "unknown";
}

struct sequence {
    struct ddl_detokenizer detokenizer;
    struct ddl_generate_result result;
    bool done;
};

/* Sequence s is slot s of the session. */
struct generation {
    const struct ddl_generate_request *request;
    const struct ddl_generate_config *config;
    struct ddl_ids prompt;
    size_t V, known; /* logits of a row; tokens of the tokenizer, which are the first of them */
    size_t space;    /* new tokens that fit the context */
    ddl_session *session;
    struct sequence *sequences;
    size_t *live; /* (n) sequences that are not done, ascending; n_live of them */
    size_t n_live;
    int32_t *tokens; /* (n) the last token of each live sequence */
    float *logits;   /* (n, V) of each live sequence             */
    struct ddl_sampler sampler;
    uint64_t key;
};

static ddl_status encode_prompt(struct generation *g, struct ddl_error *err)
{
    const struct ddl_generate_request *r = g->request;
    size_t context = ddl_model_config(r->model)->block_size;
    const char *end = "<|endoftext|>";
    g->known = ddl_tokenizer_vocab_size(r->tokenizer);
    if (g->known > g->V)
        return ddl_error_set(err, DDL_E_FORMAT, "the tokenizer has %zu tokens, the model's vocabulary %zu",
                             g->known, g->V);
    if (r->size == 0 && ddl_tokenizer_end_of_text(r->tokenizer) < 0)
        return ddl_error_set(err, DDL_E_USAGE,
                             "the prompt is empty, and the tokenizer has no %s to begin with", end);
    ddl_status status = r->size
                            ? ddl_tokenizer_encode(r->tokenizer, r->prompt, r->size, false, &g->prompt, err)
                            : ddl_tokenizer_encode(r->tokenizer, end, strlen(end), true, &g->prompt, err);
    if (status == DDL_E_FORMAT)
        return ddl_error_prefix(err, status, "prompt");
    if (!status && g->prompt.n > context)
        return ddl_error_set(err, DDL_E_USAGE, "the prompt is %zu tokens, the model's context %zu",
                             g->prompt.n, context);
    /* The last new token is not fed back to the model and takes no position. */
    g->space = status ? 0 : context - g->prompt.n + 1;
    return status;
}

/* The session for a prompt of so many tokens, `space` of which fit the context after it. */
static struct ddl_session_options session_options(const struct ddl_generate_config *k, size_t prompt,
                                                  size_t space)
{
    size_t new_tokens = k->max_tokens < space ? k->max_tokens : space;
    size_t most = prompt > k->n ? prompt : k->n;
    return (struct ddl_session_options){ .slots = k->n,
                                         .tokens = prompt + new_tokens - 1,
                                         .rows = most < MOST_ROWS ? most : MOST_ROWS,
                                         .form = (enum ddl_cache_form)k->cache };
}

size_t ddl_generate_bytes(const struct ddl_config *config, enum ddl_precision precision,
                          const struct ddl_generate_config *generate, size_t prompt)
{
    size_t context = config->block_size, logits, heap = config->vocab_size * sizeof(int32_t);
    if (prompt < 1 || prompt > context)
        prompt = prompt < 1 ? 1 : context;
    const struct ddl_session_options options = session_options(generate, prompt, context - prompt + 1);
    size_t bytes = ddl_session_bytes(config, precision, &options);
    bool fits = bytes < SIZE_MAX && ddl_size_mul(generate->n * sizeof(float), config->vocab_size, &logits) &&
                ddl_size_add(bytes, logits, &bytes) && ddl_size_add(bytes, heap, &bytes);
    return fits ? bytes : SIZE_MAX;
}

static ddl_status allocate(struct generation *g, struct ddl_error *err)
{
    const struct ddl_generate_config *k = g->config;
    size_t logits;
    const struct ddl_session_options options = session_options(k, g->prompt.n, g->space);
    if (!ddl_size_mul(k->n * sizeof *g->logits, g->V, &logits))
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu sequences", k->n);
    g->sequences = calloc(k->n, sizeof *g->sequences);
    g->live = calloc(k->n, sizeof *g->live);
    g->logits = ddl_mem_alloc(logits);
    g->tokens = ddl_mem_alloc(k->n * sizeof *g->tokens);
    g->sampler.heap = ddl_mem_alloc(g->V * sizeof *g->sampler.heap);
    if (!g->sequences || !g->live || !g->logits || !g->tokens || !g->sampler.heap)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu sequences", k->n);
    ddl_status status = ddl_session_create(&g->session, g->request->model, &options, err);
    for (size_t s = 0; s < k->n && !status; s++) {
        struct ddl_detokenizer *detokenizer = &g->sequences[s].detokenizer;
        status = ddl_detokenizer_init(detokenizer, g->request->tokenizer, k->stop, k->n_stop, err);
        detokenizer->text = g->request->text;
        detokenizer->user = g->request->user;
        detokenizer->sequence = s;
        g->sequences[s].result.prompt_tokens = g->prompt.n;
    }
    return status;
}

/* The prompt into slot 0, copied to all others: every sequence begins with the logits of its last token. */
static ddl_status prefill(struct generation *g, struct ddl_error *err)
{
    const struct ddl_session_input input = {
        .slot = 0, .n = g->prompt.n, .tokens = g->prompt.ids, .n_logits = 1, .logits = g->logits
    };
    ddl_status status = ddl_session_prefill(g->session, &input, 1, err);
    for (size_t s = 1; s < g->config->n && !status; s++) {
        status = ddl_session_fork(g->session, 0, s, err);
        memcpy(g->logits + s * g->V, g->logits, g->V * sizeof *g->logits);
    }
    for (size_t s = 0; s < g->config->n; s++)
        g->live[s] = s;
    g->n_live = g->config->n;
    return status;
}

/* Samples token number t of sequence s from its logits. */
static ddl_status sample(struct generation *g, size_t s, size_t t, const float *logits, int32_t *token,
                         struct ddl_error *err)
{
    struct sequence *sequence = &g->sequences[s];
    bool stopped = false;
    double u = ddl_rng_uniform(g->key, (uint64_t)s << 32 | t);
    int32_t id = ddl_sampler_pick(&g->sampler, logits, g->known, u);
    if (id < 0)
        return ddl_error_set(err, DDL_E_NUMERIC, "no logit of new token %zu is finite", t);
    *token = id;
    int finish = -1;
    if (id == ddl_tokenizer_end_of_text(g->request->tokenizer)) {
        finish = DDL_FINISH_END;
    } else {
        sequence->result.tokens++;
        if (ddl_detokenizer_push(&sequence->detokenizer, id, &stopped))
            finish = DDL_FINISH_CANCELLED;
        else if (stopped)
            finish = DDL_FINISH_STOP;
        else if (t + 1 == g->config->max_tokens)
            finish = DDL_FINISH_LENGTH;
        else if (t + 1 == g->space)
            finish = DDL_FINISH_CONTEXT;
    }
    if (finish < 0)
        return DDL_OK;
    sequence->done = true;
    sequence->result.finish = finish;
    if (finish != DDL_FINISH_CANCELLED && finish != DDL_FINISH_STOP &&
        ddl_detokenizer_flush(&sequence->detokenizer))
        sequence->result.finish = DDL_FINISH_CANCELLED;
    return DDL_OK;
}

/* Samples token number t of every live sequence; those that end are no longer live. */
static ddl_status sample_all(struct generation *g, size_t t, bool *cancelled, struct ddl_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n_live; i++) {
        size_t s = g->live[i];
        const struct sequence *sequence = &g->sequences[s];
        ddl_status status = sample(g, s, t, g->logits + i * g->V, &g->tokens[n], err);
        *cancelled = sequence->done && sequence->result.finish == DDL_FINISH_CANCELLED;
        if (status || *cancelled)
            return status;
        if (!sequence->done)
            g->live[n++] = s;
    }
    g->n_live = n;
    return DDL_OK;
}

static ddl_status decode(struct generation *g, struct ddl_error *err)
{
    bool cancelled = false;
    for (size_t t = 0;; t++) {
        ddl_status status = sample_all(g, t, &cancelled, err);
        if (status || cancelled || g->n_live == 0)
            return status;
        status = ddl_session_step(g->session, g->n_live, g->live, g->tokens, g->logits, err);
        if (status)
            return status;
    }
}

static void release(struct generation *g)
{
    for (size_t s = 0; g->sequences && s < g->config->n; s++)
        ddl_detokenizer_free(&g->sequences[s].detokenizer);
    free(g->sequences);
    free(g->live);
    ddl_ids_free(&g->prompt);
    ddl_session_free(g->session);
    ddl_mem_free(g->logits);
    ddl_mem_free(g->tokens);
    ddl_mem_free(g->sampler.heap);
}

ddl_status ddl_generate(const struct ddl_generate_request *request, struct ddl_generate_result *results,
                        struct ddl_error *err)
{
    const struct ddl_generate_config *config = request->config;
    ddl_status status = ddl_option_check(rows, config, err);
    if (status)
        return status;
    struct generation g = { .request = request,
                            .config = config,
                            .V = ddl_model_config(request->model)->vocab_size,
                            .sampler = { config->temperature, config->top_k, config->top_p, NULL },
                            .key = ddl_rng_key(config->seed, "sample") };
    status = encode_prompt(&g, err);
    if (!status)
        status = allocate(&g, err);
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
