#include "infer/generation.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

static bool has_penalties(const struct ddl_sampling *k)
{
    return k->repeat_penalty != 1 || k->presence_penalty != 0 || k->frequency_penalty != 0;
}

/* Changes of logits at most: of biased tokens, or of all. */
static size_t most_changes(const struct ddl_sampling *k, size_t V)
{
    return has_penalties(k) || k->n_bias + 1 > V ? V : k->n_bias + 1;
}

size_t generation_bytes(const struct ddl_sampling *sampling, size_t V)
{
    size_t changes = most_changes(sampling, V), biases = sampling->n_bias + 1;
    return (has_penalties(sampling) ? V * (sizeof(uint32_t) + sizeof(int32_t)) : 0) +
           (changes + biases) * sizeof(struct ddl_logit_change);
}

static int by_token(const void *a, const void *b)
{
    const struct ddl_logit_change *x = a, *y = b;
    return (x->token > y->token) - (x->token < y->token);
}

/* The biases of the settings, those of one token added, and that of <|endoftext|> if it is ignored. */
static void collect_biases(struct generation *g)
{
    const struct ddl_sampling *k = &g->sampling;
    int32_t end = ddl_tokenizer_end_of_text(g->detokenizer.tokenizer);
    size_t n = 0, kept = 0;
    for (; n < k->n_bias; n++)
        g->biases[n] = (struct ddl_logit_change){ k->bias[n].token, 1, k->bias[n].bias };
    if (k->ignore_end && end >= 0)
        g->biases[n++] = (struct ddl_logit_change){ end, 1, -INFINITY };
    qsort(g->biases, n, sizeof *g->biases, by_token);
    for (size_t i = 0; i < n; i++) {
        if (kept && g->biases[kept - 1].token == g->biases[i].token)
            g->biases[kept - 1].shift += g->biases[i].shift;
        else
            g->biases[kept++] = g->biases[i];
    }
    g->n_biases = kept;
}

static void count_token(struct generation *g, int32_t id, bool is_new)
{
    if ((size_t)id >= g->V)
        return;
    if (g->seen[id] == 0) {
        g->seen[id] = 1;
        g->ids[g->n_ids++] = id;
    }
    g->seen[id] += is_new;
}

ddl_status generation_init(struct generation *g, const struct generation_start *start, struct ddl_error *err)
{
    const struct ddl_sampling *k = start->sampling;
    *g = (struct generation){ .sampling = *k,
                              .key = ddl_rng_key(k->seed, "sample"),
                              .V = ddl_tokenizer_vocab_size(start->tokenizer),
                              .space = start->space,
                              .finish = -1 };
    ddl_status status = ddl_detokenizer_init(&g->detokenizer, start->tokenizer, k->stop, k->n_stop, err);
    g->detokenizer.text = start->text;
    g->detokenizer.user = start->user;
    g->detokenizer.sequence = k->sequence;
    if (status)
        return status;
    g->biases = ddl_mem_alloc((k->n_bias + 1) * sizeof *g->biases);
    g->changes = ddl_mem_alloc(most_changes(k, g->V) * sizeof *g->changes);
    if (!g->biases || !g->changes)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for biases of %zu tokens", k->n_bias);
    collect_biases(g);
    if (!has_penalties(k))
        return DDL_OK;
    g->seen = ddl_mem_zalloc(g->V * sizeof *g->seen);
    g->ids = ddl_mem_alloc(g->V * sizeof *g->ids);
    if (!g->seen || !g->ids)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for penalties of %zu tokens", g->V);
    for (size_t t = 0; t < start->n_prompt; t++)
        count_token(g, start->prompt[t], false);
    return DDL_OK;
}

void generation_free(struct generation *g)
{
    ddl_detokenizer_free(&g->detokenizer);
    ddl_mem_free(g->seen);
    ddl_mem_free(g->ids);
    ddl_mem_free(g->biases);
    ddl_mem_free(g->changes);
    g->seen = NULL;
    g->ids = NULL;
    g->biases = g->changes = NULL;
}

static float bias_of(const struct generation *g, int32_t token)
{
    const struct ddl_logit_change key = { .token = token };
    const struct ddl_logit_change *bias = bsearch(&key, g->biases, g->n_biases, sizeof *g->biases, by_token);
    return bias ? bias->shift : 0;
}

struct ddl_session_pick generation_pick(struct generation *g)
{
    const struct ddl_sampling *k = &g->sampling;
    size_t n = 0;
    for (size_t i = 0; i < g->n_ids; i++) {
        float count = (float)(g->seen[g->ids[i]] - 1);
        float penalty = (count > 0 ? k->presence_penalty : 0) + count * k->frequency_penalty;
        g->changes[n++] =
            (struct ddl_logit_change){ g->ids[i], k->repeat_penalty, bias_of(g, g->ids[i]) - penalty };
    }
    for (size_t i = 0; i < g->n_biases; i++) {
        if (!g->seen || !g->seen[g->biases[i].token])
            g->changes[n++] = g->biases[i];
    }
    return (struct ddl_session_pick){ .temperature = k->temperature,
                                      .top_k = k->top_k,
                                      .top_p = k->top_p,
                                      .min_p = k->min_p,
                                      .u = ddl_rng_uniform(g->key, k->sequence << 32 | g->n),
                                      .changes = g->changes,
                                      .n_changes = n };
}

static bool ends_at(const struct ddl_sampling *k, int32_t id)
{
    for (size_t i = 0; i < k->n_stop_ids; i++) {
        if (k->stop_ids[i] == id)
            return true;
    }
    return false;
}

/* Passes on the text of the token; why the sequence ends with it, or -1. */
static int push(struct generation *g, int32_t id)
{
    bool stopped = false;
    g->tokens++;
    if (ddl_detokenizer_push(&g->detokenizer, id, &stopped))
        return DDL_FINISH_CANCELLED;
    return stopped                               ? DDL_FINISH_STOP
           : g->tokens == g->sampling.max_tokens ? DDL_FINISH_LENGTH
           : g->tokens == g->space               ? DDL_FINISH_CONTEXT
                                                 : -1;
}

ddl_status generation_take(struct generation *g, int32_t id, struct ddl_error *err)
{
    const struct ddl_sampling *k = &g->sampling;
    if (id < 0)
        return ddl_error_set(err, DDL_E_NUMERIC, "no logit of new token %zu is finite", g->n);
    g->last = id;
    if (g->chosen)
        g->chosen[g->n] = id;
    g->n++;
    if (g->seen)
        count_token(g, id, true);
    bool stops = ends_at(k, id);
    g->finish = stops                                                       ? DDL_FINISH_STOP
                : id == ddl_tokenizer_end_of_text(g->detokenizer.tokenizer) ? DDL_FINISH_END
                                                                            : push(g, id);
    bool complete = stops || g->finish == DDL_FINISH_END || g->finish == DDL_FINISH_LENGTH ||
                    g->finish == DDL_FINISH_CONTEXT;
    if (complete && ddl_detokenizer_flush(&g->detokenizer))
        g->finish = DDL_FINISH_CANCELLED;
    return DDL_OK;
}

void generation_cancel(struct generation *g)
{
    if (g->finish < 0)
        g->finish = DDL_FINISH_CANCELLED;
}
