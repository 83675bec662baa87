/* Scores of targets, and chosen tokens, from the logits of single rows. */
#include "model/pass/scores.h"

#include "base/mem.h"
#include "model/pass/cache.h"
#include "model/pass/workspace.h"

#include <string.h>

/* Bytes of a choice's settings: u, temperature, top_p, min_p, top_k. */
enum { SCORES = 4, CHANGES = 4, PICK_BYTES = 24, TOP_NUMBERS = 32 * DDL_MOST_TOP };

void scores_take(struct scores *scores, struct ddl_arena *arena, size_t rows, size_t V)
{
    scores->targets = ddl_arena_take(arena, rows, SCORES * sizeof *scores->targets);
    scores->u = ddl_arena_take(arena, rows, PICK_BYTES);
    scores->changed = ddl_arena_take(arena, V, CHANGES * sizeof *scores->changed);
    scores->top = ddl_arena_take(arena, TOP_NUMBERS, 2 * sizeof *scores->top);
}

size_t scores_host_bytes(size_t rows, size_t V)
{
    size_t bytes = rows * PICK_BYTES, changes = V * CHANGES * sizeof(int32_t),
           top = TOP_NUMBERS * 2 * sizeof(int32_t);
    bytes = bytes > changes ? bytes : changes;
    return bytes > top ? bytes : top;
}

/* Logits of `rows` rows to their places in host memory, adjacent ones together. */
static void download_logits(const struct pass *p, const struct ddl_decode_output *outputs, size_t rows)
{
    size_t V = p->config->vocab_size, n;
    for (size_t i = 0; i < rows; i += n) {
        float *to = outputs[i].logits;
        for (n = 1; to && i + n < rows && outputs[i + n].logits == to + n * V;)
            n++;
        if (to)
            p->ops->download(p->ctx, to, p->ws->logits + i * V, n * V * sizeof *to);
    }
}

/* What is computed at a time: of n outputs, their targets (or picks) number first to first + count - 1. An
 * output that has fewer has -1 as the others. */
struct scoring {
    const struct ddl_decode_output *outputs;
    size_t n, first, count;
    bool losses, ranks, entropies, picks; /* of any of them; entropies with the first targets only */
};

/* As many as the arrays hold, of those that an output has. */
static size_t count_at_once(const struct pass *p, const struct scoring *s)
{
    size_t capacity = p->cache->options.rows / s->n, most = 0;
    for (size_t i = 0; i < s->n; i++) {
        const struct ddl_decode_output *out = &s->outputs[i];
        most = out->n_targets > most ? out->n_targets : most;
        most = out->n_picks > most ? out->n_picks : most;
    }
    size_t left = most > s->first ? most - s->first : 0;
    return left < capacity ? left : capacity;
}

/* Uploads the targets: (count, n). */
static void upload_targets(const struct pass *p, const struct scoring *s)
{
    int32_t *host = p->cache->scores.host;
    for (size_t k = 0; k < s->count; k++) {
        for (size_t i = 0; i < s->n; i++) {
            const struct ddl_decode_output *out = &s->outputs[i];
            host[k * s->n + i] = s->first + k < out->n_targets ? out->targets[s->first + k] : -1;
        }
    }
    p->ops->upload(p->ctx, p->cache->scores.targets, host, s->count * s->n * sizeof *host);
}

/* Pick number `at` of (count, n), NULL if there is none. */
static const struct ddl_session_pick *pick_at(const struct scoring *s, size_t at)
{
    const struct ddl_decode_output *out = &s->outputs[at % s->n];
    size_t k = s->first + at / s->n;
    return k < out->n_picks ? &out->picks[k] : NULL;
}

/* Uploads the settings of all choices: arrays of (count, n). */
static void upload_settings(const struct pass *p, const struct scoring *s)
{
    size_t n = s->count * s->n;
    double *u = p->cache->scores.host;
    float *temperature = (float *)(u + n), *top_p = temperature + n, *min_p = top_p + n;
    int32_t *top_k = (int32_t *)(min_p + n);
    for (size_t i = 0; i < n; i++) {
        const struct ddl_session_pick none = { .temperature = -1 }, *pick = pick_at(s, i);
        pick = pick ? pick : &none;
        u[i] = pick->u;
        temperature[i] = pick->temperature;
        top_p[i] = pick->top_p;
        min_p[i] = pick->min_p;
        top_k[i] = (int32_t)(pick->top_k < INT32_MAX ? pick->top_k : 0);
    }
    p->ops->upload(p->ctx, p->cache->scores.u, u, n * PICK_BYTES);
}

/* Uploads the changes of picks [at, at + n), `most` each. */
static void upload_changes(const struct pass *p, const struct scoring *s, size_t at, size_t n, size_t most)
{
    int32_t *changed = p->cache->scores.host;
    float *repeat = (float *)(changed + n * most), *shift = repeat + n * most;
    for (size_t i = 0; i < n; i++) {
        const struct ddl_session_pick *pick = pick_at(s, at + i);
        for (size_t j = 0; j < most; j++) {
            bool is_there = pick && j < pick->n_changes;
            changed[i * most + j] = is_there ? pick->changes[j].token : -1;
            repeat[i * most + j] = is_there ? pick->changes[j].repeat : 1;
            shift[i * most + j] = is_there ? pick->changes[j].shift : 0;
        }
    }
    if (most)
        p->ops->upload(p->ctx, p->cache->scores.changed, changed, 3 * n * most * sizeof *changed);
}

/* Chooses tokens for picks [at, at + n), which are of consecutive rows, and writes them as targets. */
static void choose(const struct pass *p, const struct scoring *s, size_t at, size_t n, size_t most)
{
    const struct scores *scores = &p->cache->scores;
    size_t all = s->count * s->n, V = p->config->vocab_size;
    const float *settings = (const float *)(scores->u + all);
    int32_t *changed = scores->changed;
    upload_changes(p, s, at, n, most);
    p->ops->choose(p->ctx, &(struct choose_args){ .N = n,
                                                  .V = V,
                                                  .n = p->cache->options.ids,
                                                  .changes = most,
                                                  .z = p->ws->logits + at % s->n * V,
                                                  .changed = changed,
                                                  .repeat = (const float *)(changed + n * most),
                                                  .shift = (const float *)(changed + 2 * n * most),
                                                  .before = (float *)(changed + 3 * n * most),
                                                  .temperature = settings + at,
                                                  .top_p = settings + all + at,
                                                  .min_p = settings + 2 * all + at,
                                                  .top_k = (const int32_t *)(settings + 3 * all) + at,
                                                  .u = scores->u + at,
                                                  .id = scores->targets + at });
}

/* Chooses tokens for all picks, as many at once as there is memory for their changes. */
static void choose_all(const struct pass *p, const struct scoring *s)
{
    size_t V = p->config->vocab_size, n;
    upload_settings(p, s);
    for (size_t at = 0; at < s->count * s->n; at += n) {
        size_t most = 0;
        for (n = 0; n < s->n - at % s->n; n++) {
            const struct ddl_session_pick *pick = pick_at(s, at + n);
            size_t wider = pick && pick->n_changes > most ? pick->n_changes : most;
            if (n > 0 && (n + 1) * wider > V)
                break;
            most = wider;
        }
        choose(p, s, at, n, most);
    }
}

/* Computes losses (count, n), ranks (count, n), entropies (n) behind the targets. */
static void score(const struct pass *p, const struct scoring *s)
{
    size_t all = s->count * s->n;
    int32_t *targets = p->cache->scores.targets, *ranks = targets + 2 * all;
    float *losses = (float *)(targets + all), *entropies = (float *)(ranks + all);
    for (size_t at = 0; at < all; at += s->n) {
        bool entropy = s->entropies && at == 0;
        p->ops->cross_entropy(p->ctx, &(struct cross_entropy_args){ .N = s->n,
                                                                    .V = p->config->vocab_size,
                                                                    .z = p->ws->logits,
                                                                    .targets = targets + at,
                                                                    .loss = losses + at });
        if (s->ranks || entropy)
            p->ops->rank(p->ctx, &(struct rank_args){ .N = s->n,
                                                      .V = p->config->vocab_size,
                                                      .z = p->ws->logits,
                                                      .targets = targets + at,
                                                      .rank = ranks + at,
                                                      .entropy = entropy ? entropies : NULL });
    }
}

/* Downloads what was computed, with the targets before it if there are picks. */
static void download_scores(const struct pass *p, const struct scoring *s)
{
    size_t all = s->count * s->n;
    size_t from = s->picks ? 0 : all, to = !s->losses     ? all
                                           : s->entropies ? 3 * all + s->n
                                           : s->ranks     ? 3 * all
                                                          : 2 * all;
    int32_t *ids = p->cache->scores.host;
    p->ops->download(p->ctx, ids + from, p->cache->scores.targets + from, (to - from) * sizeof *ids);
    const float *losses = (const float *)(ids + all), *entropies = losses + 2 * all;
    for (size_t i = 0; i < s->n; i++) {
        const struct ddl_decode_output *out = &s->outputs[i];
        for (size_t k = 0; k < s->count && s->first + k < out->n_targets; k++) {
            out->losses[s->first + k] = losses[k * s->n + i];
            if (out->ranks)
                out->ranks[s->first + k] = ids[2 * all + k * s->n + i];
        }
        for (size_t k = 0; k < s->count && s->first + k < out->n_picks; k++) {
            struct ddl_session_pick *pick = &out->picks[s->first + k];
            pick->id = ids[k * s->n + i];
            pick->loss = pick->scored ? losses[k * s->n + i] : 0;
        }
        if (s->entropies && out->entropy)
            *out->entropy = entropies[i];
    }
}

/* The likeliest tokens of rows from the first on; the number of rows. */
static size_t find_top(const struct pass *p, const struct ddl_decode_output *outputs, size_t first, size_t n,
                       size_t k)
{
    int32_t *top = p->cache->scores.top, *ids = p->cache->scores.host;
    size_t V = p->config->vocab_size, rows = TOP_NUMBERS / k, at = 0;
    rows = rows < n - first ? rows : n - first;
    p->ops->likeliest(p->ctx, &(struct likeliest_args){ .N = rows,
                                                        .V = V,
                                                        .k = k,
                                                        .z = p->ws->logits + first * V,
                                                        .id = top,
                                                        .logprob = (float *)(top + rows * k) });
    p->ops->download(p->ctx, ids, top, 2 * rows * k * sizeof *ids);
    const float *logprobs = (const float *)(ids + rows * k);
    for (size_t i = first; i < first + rows; i++, at += k) {
        for (size_t j = 0; j < outputs[i].n_top; j++)
            outputs[i].top[j] = (struct ddl_scored_token){ ids[at + j], logprobs[at + j] };
    }
    return rows;
}

void scores_of_rows(const struct pass *p, const struct ddl_decode_output *outputs, size_t n)
{
    struct scoring s = { .outputs = outputs, .n = n };
    size_t most_top = 0;
    download_logits(p, outputs, n);
    for (size_t i = 0; i < n; i++) {
        const struct ddl_decode_output *out = &outputs[i];
        s.losses = s.losses || out->n_targets;
        s.ranks = s.ranks || out->ranks;
        s.entropies = s.entropies || out->entropy;
        s.picks = s.picks || out->n_picks;
        for (size_t k = 0; k < out->n_picks; k++)
            s.losses = s.losses || out->picks[k].scored;
        most_top = out->n_top > most_top ? out->n_top : most_top;
    }
    for (; (s.count = count_at_once(p, &s)) > 0; s.first += s.count) {
        upload_targets(p, &s);
        if (s.picks)
            choose_all(p, &s);
        if (s.losses)
            score(p, &s);
        download_scores(p, &s);
        s.entropies = false;
    }
    for (size_t row = 0; most_top && row < n;)
        row += find_top(p, outputs, row, n, most_top);
}
