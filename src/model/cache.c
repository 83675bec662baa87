/* The decode state: keys and values of past tokens, and the last states before each use of a causal
 * convolution. */
#include "model/cache.h"

#include "base/mem.h"
#include "ddl/option.h"
#include "model/compress.h"
#include "model/measure.h"

#include <stdlib.h>

static void carve(struct ddl_cache *cache, struct ddl_arena *arena)
{
    const struct ddl_config *k = &cache->model->config;
    size_t numbers = cache->B * cache->max_tokens * k->n_heads * k->head_dim, dc = k->d_model * k->channels;
    bool expanded = k->channels > 1;
    size_t taps = expanded ? compress_taps(k) : 1;
    for (size_t l = 0; l < k->n_layers; l++) {
        struct cache_layer *layer = &cache->layer[l];
        if (cache->halves) {
            layer->k16 = ddl_arena_take(arena, numbers, sizeof(uint16_t));
            layer->v16 = ddl_arena_take(arena, numbers, sizeof(uint16_t));
        } else {
            layer->k = ddl_arena_take(arena, numbers, sizeof(float));
            layer->v = ddl_arena_take(arena, numbers, sizeof(float));
        }
        for (int sub = 0; sub < 2; sub++)
            layer->compress[sub] = history_take(arena, cache->B, taps, dc);
    }
    cache->readout = history_take(arena, cache->B, taps, dc);
    bool conv = expanded && k->embed == DDL_EMBED_CONV;
    cache->embed = history_take(arena, cache->B, conv ? k->embed_kernel : 1, k->d_model);
}

const char *const ddl_cache_form_names[] = {
    [DDL_CACHE_AUTO] = "auto", [DDL_CACHE_F32] = "f32", [DDL_CACHE_BF16] = "bf16", [DDL_CACHE_FORMS] = NULL
};

bool ddl_model_cache_is_bf16(const ddl_model *model, enum ddl_cache_form form)
{
    return form == DDL_CACHE_AUTO ? model->precision != DDL_PRECISION_F32 : form == DDL_CACHE_BF16;
}

ddl_status ddl_cache_create(ddl_cache **out, const ddl_model *model, const struct ddl_cache_options *options,
                            struct ddl_error *err)
{
    *out = NULL;
    const struct ddl_config *k = &model->config;
    size_t batch = options->batch, max_tokens = options->tokens;
    if (batch == 0 || max_tokens == 0 || max_tokens > k->block_size)
        return ddl_error_set(err, DDL_E_USAGE,
                             "cache: %zu sequences of %zu tokens asked for; the model's context is %zu",
                             batch, max_tokens, k->block_size);
    ddl_status status = ddl_choice_check("cache", ddl_cache_form_names, (int)options->form, err);
    if (status)
        return status;
    ddl_backend *backend = model->backend;
    struct ddl_cache *cache = ddl_mem_zalloc(sizeof *cache);
    if (!cache)
        return ddl_error_set(err, DDL_E_MEMORY, "cache: out of memory");
    *cache = (struct ddl_cache){ .model = model, .B = batch, .max_tokens = max_tokens };
    cache->halves = ddl_model_cache_is_bf16(model, options->form);
    cache->layer = calloc(k->n_layers, sizeof *cache->layer);
    struct ddl_arena arena = { 0 };
    if (cache->layer) {
        carve(cache, &arena);
        cache->bytes = arena.used;
        if (!arena.overflow)
            cache->memory = backend->ops->alloc(backend->ctx, arena.used);
    }
    if (!cache->memory) {
        ddl_cache_free(cache);
        return ddl_error_set(err, DDL_E_MEMORY,
                             "cache: out of memory for %zu bytes (%zu sequences of %zu tokens)", arena.used,
                             batch, max_tokens);
    }
    const struct ddl_limits limits = { .T = max_tokens, .h = k->head_dim };
    status = backend->ops->reserve(backend->ctx, &limits, err);
    if (!status)
        status = rope_make(&cache->rope, model, max_tokens, err);
    if (status) {
        ddl_cache_free(cache);
        return status;
    }
    carve(cache, &(struct ddl_arena){ .base = cache->memory });
    ddl_cache_reset(cache);
    *out = cache;
    return DDL_OK;
}

void ddl_cache_free(ddl_cache *cache)
{
    if (!cache)
        return;
    ddl_backend *backend = cache->model->backend;
    if (cache->memory)
        backend->ops->free(backend->ctx, cache->memory);
    rope_free(&cache->rope, cache->model);
    free(cache->layer);
    ddl_mem_free(cache);
}

/* Zeros stand for what comes before the first token. */
void ddl_cache_reset(ddl_cache *cache)
{
    ddl_backend *backend = cache->model->backend;
    backend->ops->zero(backend->ctx, cache->memory, cache->bytes);
    cache->length = 0;
}

size_t ddl_cache_length(const ddl_cache *cache)
{
    return cache->length;
}
