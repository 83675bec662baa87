#include "infer/generation.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>

static bool has_penalties(const struct ddl_sampling *k)
{
    return k->repeat_penalty != 1 || k->presence_penalty != 0 || k->frequency_penalty != 0;
}

size_t generation_bytes(const struct ddl_sampling *sampling, size_t V)
{
    return has_penalties(sampling) ? V * (sizeof(uint32_t) + sizeof(int32_t)) : 0;
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
    if (status || !has_penalties(k))
        return status;
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
    g->seen = NULL;
    g->ids = NULL;
}

/* Penalties, then biases. */
static void adjust(const struct generation *g, float *logits)
{
    const struct ddl_sampling *k = &g->sampling;
    int32_t end = ddl_tokenizer_end_of_text(g->detokenizer.tokenizer);
    for (size_t i = 0; i < g->n_ids; i++) {
        int32_t id = g->ids[i];
        float z = logits[id], count = (float)(g->seen[id] - 1);
        z = z > 0 ? z / k->repeat_penalty : z * k->repeat_penalty;
        logits[id] = z - (count > 0 ? k->presence_penalty : 0) - count * k->frequency_penalty;
    }
    for (size_t i = 0; i < k->n_bias; i++)
        logits[k->bias[i].token] += k->bias[i].bias;
    if (k->ignore_end && end >= 0)
        logits[end] = -INFINITY;
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

ddl_status generation_choose(struct generation *g, float *logits, int32_t *heap, struct ddl_error *err)
{
    const struct ddl_sampling *k = &g->sampling;
    const struct ddl_sampler sampler = { k->temperature, k->top_k, k->top_p, k->min_p, heap };
    double u = ddl_rng_uniform(g->key, k->sequence << 32 | g->n);
    adjust(g, logits);
    int32_t id = ddl_sampler_pick(&sampler, logits, g->V, u);
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
