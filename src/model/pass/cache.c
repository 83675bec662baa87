/* The decode state: keys and values of past tokens by slot, and histories of the causal convolutions. */
#include "model/pass/cache.h"

#include "base/mem.h"
#include "model/params/precision.h"
#include "model/pass/compress.h"
#include "model/pass/requirements.h"
#include "ops/ops.h"

#include <stdlib.h>

const char *const ddl_cache_form_names[] = {
    [DDL_CACHE_AUTO] = "auto", [DDL_CACHE_F32] = "f32", [DDL_CACHE_BF16] = "bf16", [DDL_CACHE_FORMS] = NULL
};

bool ddl_cache_is_bf16(enum ddl_precision precision, enum ddl_cache_form form)
{
    return form == DDL_CACHE_AUTO ? !precision_is_float32(precision) : form == DDL_CACHE_BF16;
}

/* Sequences of a pass. */
static size_t most_sequences(const struct ddl_cache_options *o)
{
    return o->slots < o->rows ? o->slots : o->rows;
}

/* Integers of a pass: five arrays by sequence and two by row of struct ddl_ragged, two by row of its exact
 * form, and the head's rows. */
static size_t count_integers(const struct ddl_cache_options *o)
{
    return 5 * most_sequences(o) + 1 + 3 * o->rows + (o->exact ? 2 * o->rows + 1 : 0);
}

/* Places the arrays in `integers`. */
static void place_integers(struct ddl_cache *cache)
{
    const struct ddl_cache_options *o = &cache->options;
    size_t S = most_sequences(o);
    int32_t *first = cache->integers, *past = first + S + 1, *slot = past + S, *from = slot + S;
    int32_t *to = from + S, *position = to + S, *sequence = position + o->rows;
    cache->ragged = (struct ddl_ragged){ .max_span = o->tokens,
                                         .slots = o->slots,
                                         .histories = o->histories,
                                         .sequence = sequence,
                                         .position = position,
                                         .first = first,
                                         .past = past,
                                         .slot = slot,
                                         .from = from,
                                         .to = to };
    cache->outputs = sequence + o->rows;
    if (!o->exact)
        return;
    int32_t *numbers = sequence + o->rows, *slots = numbers + o->rows + 1;
    cache->queries = cache->ragged;
    cache->queries.max_rows = 1;
    cache->queries.sequence = cache->queries.first = numbers;
    cache->queries.past = position;
    cache->queries.slot = cache->queries.from = cache->queries.to = slots;
    cache->outputs = slots + o->rows;
}

static void take_layer(const struct ddl_cache *cache, struct cache_layer *layer, struct ddl_arena *arena,
                       size_t numbers)
{
    if (cache->options.bf16) {
        layer->k16 = ddl_arena_take(arena, numbers, sizeof *layer->k16);
        layer->v16 = ddl_arena_take(arena, numbers, sizeof *layer->v16);
    } else {
        layer->k = ddl_arena_take(arena, numbers, sizeof *layer->k);
        layer->v = ddl_arena_take(arena, numbers, sizeof *layer->v);
    }
}

/* Places everything in the arena, without `layer` only by size. */
static void carve(struct ddl_cache *cache, struct ddl_arena *arena, const struct ddl_config *k)
{
    const struct ddl_cache_options *o = &cache->options;
    size_t numbers, dc = k->d_model * k->channels, h = o->histories;
    bool expanded = k->channels > 1, conv = expanded && k->embed == DDL_EMBED_CONV;
    size_t taps = expanded ? compress_taps(k) : 1;
    if (!ddl_size_mul(o->tokens, k->n_heads * k->head_dim, &cache->slot_stride) ||
        !ddl_size_add(cache->slot_stride, cache->slot_stride & 1, &cache->slot_stride) ||
        !ddl_size_mul(cache->slot_stride, o->slots, &numbers)) {
        arena->overflow = true;
        return;
    }
    cache->integers = ddl_arena_take(arena, count_integers(o), sizeof *cache->integers);
    scores_take(&cache->scores, arena, o->rows, k->vocab_size);
    for (size_t l = 0; l < k->n_layers; l++) {
        struct cache_layer unplaced = { 0 }, *layer = cache->layer ? &cache->layer[l] : &unplaced;
        take_layer(cache, layer, arena, numbers);
        for (int sub = 0; sub < 2; sub++)
            layer->compress[sub] = history_take(arena, h, taps, dc);
    }
    cache->readout = history_take(arena, h, taps, dc);
    cache->embed = history_take(arena, h, conv ? k->embed_kernel : 1, k->d_model);
}

/* Bytes of the arena; SIZE_MAX: out of range. */
static size_t measure(const struct ddl_config *config, const struct ddl_cache_options *options)
{
    const size_t most = SIZE_MAX / 64;
    struct ddl_cache cache = { .options = *options };
    struct ddl_arena arena = { 0 };
    if (options->rows > most || options->slots > most || options->histories > most)
        return SIZE_MAX;
    carve(&cache, &arena, config);
    return arena.overflow ? SIZE_MAX : arena.used;
}

size_t ddl_cache_bytes(const struct ddl_config *config, const struct ddl_cache_options *options)
{
    size_t bytes = measure(config, options), tables = rope_bytes(config, options->tokens);
    return bytes != SIZE_MAX && tables != SIZE_MAX && ddl_size_add(bytes, tables, &bytes) ? bytes : SIZE_MAX;
}

/* Allocates what *cache needs; the caller frees it after an error too. */
static ddl_status make(struct ddl_cache *cache, struct ddl_error *err)
{
    const struct ddl_cache_options *o = &cache->options;
    const struct ddl_config *k = &cache->model->config;
    const struct ddl_backend *backend = cache->model->backend;
    size_t bytes = measure(k, o);
    cache->layer = calloc(k->n_layers, sizeof *cache->layer);
    if (bytes != SIZE_MAX)
        cache->scores.host = ddl_mem_zalloc(scores_host_bytes(o->rows, k->vocab_size));
    if (cache->layer && cache->scores.host &&
        ddl_uploads_init(&cache->uploads, backend, (count_integers(o) + o->rows) * sizeof(int32_t)))
        cache->memory = backend->ops->alloc(backend->ctx, cache->bytes = bytes);
    if (!cache->memory)
        return ddl_error_set(err, DDL_E_MEMORY, "cache: out of memory for %zu sequences of %zu tokens",
                             o->slots, o->tokens);
    carve(cache, &(struct ddl_arena){ .base = cache->memory }, k);
    place_integers(cache);
    const struct ddl_limits limits = { .T = o->tokens,
                                       .c = k->channels,
                                       .h = k->head_dim,
                                       .queries = (o->exact ? o->rows : most_sequences(o)) * k->n_heads };
    ddl_status status = backend->ops->reserve(backend->ctx, &limits, err);
    return status ? status : rope_make(&cache->rope, cache->model, o->tokens, err);
}

ddl_status ddl_cache_create(ddl_cache **out, const ddl_model *model, const struct ddl_cache_options *options,
                            struct ddl_error *err)
{
    *out = NULL;
    ddl_status status = requirements_check(&model->config, USE_CACHE, model->backend, err);
    if (status)
        return status;
    struct ddl_cache *cache = ddl_mem_zalloc(sizeof *cache);
    if (!cache)
        return ddl_error_set(err, DDL_E_MEMORY, "cache: out of memory");
    *cache = (struct ddl_cache){ .model = model, .options = *options };
    status = make(cache, err);
    if (status) {
        ddl_cache_free(cache);
        return status;
    }
    *out = cache;
    return DDL_OK;
}

void ddl_cache_free(ddl_cache *cache)
{
    if (!cache)
        return;
    const struct ddl_backend *backend = cache->model->backend;
    ddl_uploads_free(&cache->uploads, backend);
    if (cache->memory)
        backend->ops->free(backend->ctx, cache->memory);
    rope_free(&cache->rope, cache->model);
    free(cache->layer);
    ddl_mem_free(cache->scores.host);
    ddl_mem_free(cache);
}

void ddl_cache_fill(ddl_cache *cache)
{
    const struct ddl_backend *backend = cache->model->backend;
    backend->ops->fill(backend->ctx,
                       &(struct fill_args){ .n = cache->bytes / sizeof(float), .x = cache->memory });
}

static void copy_floats(const struct ddl_backend *backend, const float *src, float *dst, size_t n)
{
    if (n && src != dst)
        backend->ops->copy(
            backend->ctx,
            &(struct copy_args){
                .rows = 1, .width = n, .src = src, .src_stride = n, .dst = dst, .dst_stride = n });
}

static void copy_history(const struct ddl_backend *backend, const struct history *h, size_t from, size_t to)
{
    size_t n = h->keep * h->width;
    copy_floats(backend, h->rows + from * n, h->rows + to * n, n);
}

bool ddl_cache_has_histories(const ddl_cache *cache)
{
    return cache->readout.keep || cache->embed.keep;
}

void ddl_cache_copy_histories(ddl_cache *cache, size_t from, size_t to)
{
    const struct ddl_backend *backend = cache->model->backend;
    for (size_t l = 0; l < cache->model->config.n_layers; l++) {
        for (int sub = 0; sub < 2; sub++)
            copy_history(backend, &cache->layer[l].compress[sub], from, to);
    }
    copy_history(backend, &cache->readout, from, to);
    copy_history(backend, &cache->embed, from, to);
}

void ddl_cache_copy(ddl_cache *cache, const struct ddl_decode_sequence *source, size_t slot, size_t to)
{
    const struct ddl_config *k = &cache->model->config;
    const struct ddl_backend *backend = cache->model->backend;
    size_t n = source->past * k->n_heads * k->head_dim, from = source->slot * cache->slot_stride;
    size_t at = slot * cache->slot_stride;
    for (size_t l = 0; l < k->n_layers; l++) {
        const struct cache_layer *layer = &cache->layer[l];
        if (layer->k16) {
            /* Two numbers of bfloat16 as one float; a slot has an even number of them. */
            copy_floats(backend, (void *)(layer->k16 + from), (void *)(layer->k16 + at), (n + 1) / 2);
            copy_floats(backend, (void *)(layer->v16 + from), (void *)(layer->v16 + at), (n + 1) / 2);
        } else {
            copy_floats(backend, layer->k + from, layer->k + at, n);
            copy_floats(backend, layer->v + from, layer->v + at, n);
        }
    }
    ddl_cache_copy_histories(cache, source->from, to);
}
