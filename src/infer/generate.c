/* Text generation: one prompt, several sequences that share its prefill. */
#include "ddl/generate.h"

#include "base/mem.h"
#include "infer/generation.h"
#include "infer/sampling_rows.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 512, MAX_SEQUENCES = 1024 };

#define AT(field) offsetof(struct ddl_generate_config, field)

static const struct ddl_option rows[] = {
    SAMPLING_ROWS(struct ddl_generate_config, sampling.),
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
    return (struct ddl_generate_config){ .sampling = ddl_sampling_defaults(), .n = 1 };
}

/* Sequence s is slot s of the session. */
struct run {
    const struct ddl_generate_request *request;
    const struct ddl_generate_config *config;
    struct ddl_ids prompt;
    size_t space; /* new tokens that fit the context */
    ddl_session *session;
    struct generation *sequences; /* (n) */
    size_t *live;                 /* (n) sequences that have not ended, ascending; n_live of them */
    size_t n_live;
    int32_t *tokens;                /* (n) the last token of each live sequence */
    struct ddl_session_pick *picks; /* (n) the next one                         */
};

static ddl_status encode_prompt(struct run *g, struct ddl_error *err)
{
    const struct ddl_generate_request *r = g->request;
    size_t context = ddl_model_config(r->model)->block_size;
    const char *end = DDL_END_OF_TEXT;
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

/* The session for a prompt of so many tokens, after which `space` fit the context, and a tokenizer of
 * `tokens`. */
static struct ddl_session_options session_options(const struct ddl_generate_config *k, size_t prompt,
                                                  size_t space, size_t tokens)
{
    size_t new_tokens = k->sampling.max_tokens < space ? k->sampling.max_tokens : space;
    size_t most = prompt > k->n ? prompt : k->n;
    return (struct ddl_session_options){ .slots = k->n,
                                         .tokens = prompt + new_tokens - 1,
                                         .rows = most < MOST_ROWS ? most : MOST_ROWS,
                                         .ids = tokens,
                                         .form = (enum ddl_cache_form)k->cache };
}

size_t ddl_generate_bytes(const struct ddl_config *config, enum ddl_precision precision,
                          const struct ddl_generate_config *generate, size_t prompt,
                          const ddl_backend *backend)
{
    size_t context = config->block_size, V = config->vocab_size, more;
    if (prompt < 1 || prompt > context)
        prompt = prompt < 1 ? 1 : context;
    const struct ddl_session_options options = session_options(generate, prompt, context - prompt + 1, V);
    size_t bytes = ddl_session_bytes(config, precision, &options, backend);
    size_t each = generation_bytes(&generate->sampling, V) + sizeof(struct ddl_session_pick);
    bool fits =
        bytes < SIZE_MAX && ddl_size_mul(generate->n, each, &more) && ddl_size_add(bytes, more, &bytes);
    return fits ? bytes : SIZE_MAX;
}

static ddl_status allocate(struct run *g, struct ddl_error *err)
{
    const struct ddl_generate_config *k = g->config;
    size_t known = ddl_tokenizer_vocab_size(g->request->tokenizer);
    const struct ddl_session_options options = session_options(k, g->prompt.n, g->space, known);
    g->sequences = calloc(k->n, sizeof *g->sequences);
    g->live = calloc(k->n, sizeof *g->live);
    g->tokens = ddl_mem_alloc(k->n * sizeof *g->tokens);
    g->picks = ddl_mem_alloc(k->n * sizeof *g->picks);
    if (!g->sequences || !g->live || !g->tokens || !g->picks)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu sequences", k->n);
    ddl_status status = ddl_session_create(&g->session, g->request->model, &options, err);
    for (size_t s = 0; s < k->n && !status; s++) {
        struct ddl_sampling sampling = k->sampling;
        sampling.sequence += s;
        status = generation_init(&g->sequences[s],
                                 &(struct generation_start){ .tokenizer = g->request->tokenizer,
                                                             .sampling = &sampling,
                                                             .prompt = g->prompt.ids,
                                                             .n_prompt = g->prompt.n,
                                                             .space = g->space,
                                                             .text = g->request->text,
                                                             .user = g->request->user },
                                 err);
        g->sequences[s].detokenizer.sequence = s;
    }
    return status;
}

static void plan_picks(struct run *g)
{
    for (size_t i = 0; i < g->n_live; i++)
        g->picks[i] = generation_pick(&g->sequences[g->live[i]]);
}

/* The prompt into slot 0, copied to all others, and a choice of the first token for each. */
static ddl_status prefill(struct run *g, struct ddl_error *err)
{
    g->n_live = g->config->n;
    for (size_t s = 0; s < g->n_live; s++)
        g->live[s] = s;
    plan_picks(g);
    const struct ddl_session_input input = {
        .slot = 0, .n = g->prompt.n, .tokens = g->prompt.ids, .n_picks = g->n_live, .picks = g->picks
    };
    ddl_status status = ddl_session_prefill(g->session, &input, 1, err);
    for (size_t s = 1; s < g->n_live && !status; s++)
        status = ddl_session_fork(g->session, 0, s, err);
    return status;
}

/* Takes the next token of every live sequence; those that end are no longer live. */
static ddl_status take_all(struct run *g, bool *cancelled, struct ddl_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n_live; i++) {
        struct generation *sequence = &g->sequences[g->live[i]];
        ddl_status status = generation_take(sequence, g->picks[i].id, err);
        *cancelled = sequence->finish == DDL_FINISH_CANCELLED;
        if (status || *cancelled)
            return status;
        if (sequence->finish >= 0)
            continue;
        g->tokens[n] = sequence->last;
        g->live[n++] = g->live[i];
    }
    g->n_live = n;
    return DDL_OK;
}

static ddl_status decode(struct run *g, struct ddl_error *err)
{
    bool cancelled = false;
    for (;;) {
        ddl_status status = take_all(g, &cancelled, err);
        if (status || cancelled || g->n_live == 0)
            return status;
        plan_picks(g);
        status = ddl_session_choose(g->session, g->n_live, g->live, g->tokens, g->picks, err);
        if (status)
            return status;
    }
}

static void release(struct run *g)
{
    for (size_t s = 0; g->sequences && s < g->config->n; s++)
        generation_free(&g->sequences[s]);
    free(g->sequences);
    free(g->live);
    ddl_ids_free(&g->prompt);
    ddl_session_free(g->session);
    ddl_mem_free(g->tokens);
    ddl_mem_free(g->picks);
}

ddl_status ddl_generate(const struct ddl_generate_request *request, struct ddl_generate_result *results,
                        struct ddl_error *err)
{
    const struct ddl_generate_config *config = request->config;
    size_t V = ddl_model_config(request->model)->vocab_size;
    size_t known = ddl_tokenizer_vocab_size(request->tokenizer);
    ddl_status status = ddl_option_check(rows, config, err);
    if (status)
        return status;
    if (known > V)
        return ddl_error_set(err, DDL_E_FORMAT, "the tokenizer has %zu tokens, the model's vocabulary %zu",
                             known, V);
    struct run g = { .request = request, .config = config };
    status = ddl_sampling_check(&config->sampling, known, err);
    if (!status && config->sampling.sequence + config->n - 1 > UINT32_MAX)
        status = ddl_error_set(err, DDL_E_USAGE, "sequence: expected numbers below 2^32, found %llu to %llu",
                               (unsigned long long)config->sampling.sequence,
                               (unsigned long long)config->sampling.sequence + config->n - 1);
    if (!status)
        status = encode_prompt(&g, err);
    if (!status)
        status = allocate(&g, err);
    if (!status)
        status = prefill(&g, err);
    if (!status)
        status = decode(&g, err);
    for (size_t s = 0; results && !status && s < config->n; s++) {
        generation_cancel(&g.sequences[s]);
        results[s] = (struct ddl_generate_result){ .prompt_tokens = g.prompt.n,
                                                   .tokens = g.sequences[s].tokens,
                                                   .finish = g.sequences[s].finish };
    }
    release(&g);
    return status;
}
