/* Activations: measured and placed by one function. In training every layer has its own of what is not made
 * again in backward; of everything else, and of all without training, layers share the memory of the first.
 */
#include "model/workspace.h"

#include "base/mem.h"
#include "ddl/option.h"
#include "model/compress.h"
#include "model/measure.h"
#include "model/precision.h"

#include <stdlib.h>

/* Blocks of about `numbers` logits with sides of at least `least`: how long the other side may be. */
static size_t other_side(size_t side, size_t most, size_t numbers, size_t least)
{
    size_t length = numbers / side / least * least;
    length = length < least ? least : length;
    return length < most ? length : most;
}

/* n rows in as few blocks of at most `most` as it takes, `least` or a multiple each: how long they are so
 * that the last is not a remnant. */
static size_t alike(size_t n, size_t most, size_t least)
{
    size_t blocks = n / most + (n % most != 0), length = n / blocks + (n % blocks != 0);
    length = (length / least + (length % least != 0)) * least;
    return length < most ? length : most;
}

/* float32: enough rows for full-speed products, few enough that logits never weigh more than a layer or two.
 * bfloat16: tiles that stay in a cache, and as many rows as these have numbers. */
static void plan_logits(struct ddl_workspace *ws, size_t N, size_t V)
{
    enum { ROWS = 32 };
    size_t rows = alike(N, other_side(V, N, (size_t)1 << 24, ROWS), ROWS);
    ws->tile = ws->precision == DDL_PRECISION_BF16 ? other_side(N, V, (size_t)1 << 20, 256) : 0;
    size_t few = N <= SIZE_MAX / V ? ws->tile * N / V : rows;
    few = few ? few : 1;
    ws->logit_rows = ws->tile && few < rows ? few : rows;
    ws->logit_numbers = ws->logit_rows * V > ws->tile * N ? ws->logit_rows * V : ws->tile * N;
}

static void *take_some(struct ddl_arena *arena, bool wanted, size_t rows, size_t width, size_t element)
{
    size_t n;
    if (!ddl_size_mul(rows, width, &n)) {
        arena->overflow = true;
        return NULL;
    }
    return wanted ? ddl_arena_take(arena, n, element) : NULL;
}

static float *take(struct ddl_arena *arena, bool wanted, size_t rows, size_t width)
{
    return take_some(arena, wanted, rows, width, sizeof(float));
}

static uint16_t *take16(struct ddl_arena *arena, bool wanted, size_t rows, size_t width)
{
    return take_some(arena, wanted, rows, width, sizeof(uint16_t));
}

const char *const ddl_recompute_names[] = {
    [DDL_RECOMPUTE_CHEAP] = "cheap", [DDL_RECOMPUTE_NONE] = "none", [DDL_RECOMPUTE_BLOCK] = "block", NULL
};

/* What the residual rule keeps. */
static void carve_residual(struct sublayer_acts *acts, struct ddl_arena *arena, const struct ddl_config *k,
                           size_t N, bool delta, bool train)
{
    bool v_map = k->map == DDL_MAP_V;
    acts->saved = take(arena, delta || train, N, k->d_model);
    acts->q = delta && v_map ? take(arena, true, N, k->d_model) : acts->saved;
    acts->low = take(arena, delta && v_map && k->k_rank, N, k->k_rank);
    acts->gate_hidden = take(arena, delta && !k->beta_linear, N, k->beta_hidden);
    acts->beta = take(arena, delta, N, 1);
    acts->readout = take(arena, delta, N, k->channels);
    acts->target = take(arena, delta, N, k->channels);
}

/* The elementwise part of a layer: its own, or (a sublayer's input) the workspace's and the first layer's. */
static void carve_cheap(struct layer_acts *acts, struct ddl_arena *arena, const struct ddl_workspace *ws,
                        const struct ddl_config *k, size_t N)
{
    bool none = ws->options.train && ws->options.recompute == DDL_RECOMPUTE_NONE;
    size_t a = k->n_heads * k->head_dim;
    for (int sub = 0; sub < 2; sub++) {
        struct sublayer_acts *of = &acts->sub[sub];
        of->x_in = none ? take(arena, k->channels > 1, N, k->d_model) : ws->x_in;
        of->ctx = none ? take(arena, true, N, k->d_model) : ws->ctx;
        of->rstd = none ? take(arena, true, N, 1) : ws->rstd;
    }
    if (!none && acts != ws->layer)
        return;
    acts->qn = take(arena, true, N, a);
    acts->kn = take(arena, true, N, a);
    acts->s = take(arena, true, N, ddl_config_mlp_size(k));
}

static void carve_layer(struct ddl_workspace *ws, struct ddl_arena *arena, const struct ddl_config *k,
                        size_t N, size_t layer)
{
    struct layer_acts *acts = &ws->layer[layer];
    size_t a = k->n_heads * k->head_dim;
    bool train = ws->options.train;
    bool delta = train ? ddl_config_residual(k, layer) == DDL_RESIDUAL_DELTA
                       : k->residual == DDL_RESIDUAL_DELTA || k->by_layer;
    *acts = ws->layer[0];
    for (int sub = 0; sub < 2; sub++)
        carve_residual(&acts->sub[sub], arena, k, N, delta, train);
    carve_cheap(acts, arena, ws, k, N);
    if (layer > 0 && ws->options.recompute == DDL_RECOMPUTE_BLOCK)
        return;
    acts->qkv = take(arena, true, N, 3 * a);
    acts->y = take(arena, true, N, a);
    acts->lse = take(arena, train, N, k->n_heads);
    acts->ug = take(arena, true, N, 2 * ddl_config_mlp_size(k));
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The widest rows that a product of the layers reads, and writes. */
static size_t widest_input(const struct ddl_config *k)
{
    size_t sublayers = larger(k->n_heads * k->head_dim, ddl_config_mlp_size(k));
    return larger(larger(k->d_model, k->k_rank), sublayers);
}

static size_t widest_output(const struct ddl_config *k)
{
    size_t sublayers = larger(3 * k->n_heads * k->head_dim, 2 * ddl_config_mlp_size(k));
    return larger(larger(k->d_model, k->k_rank), sublayers);
}

static void carve_rounded(struct ddl_workspace *ws, struct ddl_arena *arena, const struct ddl_config *k,
                          size_t N)
{
    bool bf16 = ws->precision == DDL_PRECISION_BF16, tiles = ws->tile > 0;
    ws->x16 = take16(arena, bf16, N, widest_input(k));
    ws->dy16 = take16(arena, bf16 && ws->options.train, N, larger(widest_output(k), ws->tile));
    ws->top = take(arena, tiles, N, 1);
    ws->at_target = take(arena, tiles, N, 1);
    ws->total = tiles ? ddl_arena_take(arena, N, sizeof *ws->total) : NULL;
}

static void carve_backward(struct ddl_workspace *ws, struct ddl_arena *arena, const struct ddl_config *k,
                           size_t N)
{
    size_t d = k->d_model, c = k->channels, a = k->n_heads * k->head_dim;
    bool delta = k->residual == DDL_RESIDUAL_DELTA || k->by_layer;
    ws->dX = take(arena, true, N, d * c);
    ws->dx_in = take(arena, c > 1, N, d);
    ws->dctx = take(arena, true, N, d);
    ws->df = take(arena, delta, N, d);
    ws->dq = k->map == DDL_MAP_V ? take(arena, delta, N, d) : ws->df;
    ws->dy = take(arena, true, N, a);
    ws->dqkv = take(arena, true, N, 3 * a);
    ws->dlow = take(arena, delta && k->map == DDL_MAP_V && k->k_rank, N, k->k_rank);
    ws->dgate = take(arena, delta && !k->beta_linear, N, k->beta_hidden);
    ws->dbeta = take(arena, delta, N, 1);
    ws->dv = take(arena, delta, N, c);
    ws->de = take(arena, c > 1, compress_taps(k), d * c);
}

static void carve(struct ddl_workspace *ws, struct ddl_arena *arena, const struct ddl_config *k)
{
    size_t d = k->d_model, c = k->channels, N = ws->options.batch * ws->options.tokens;
    bool train = ws->options.train;
    plan_logits(ws, N, k->vocab_size);
    ws->tokens = ddl_arena_take(arena, N, sizeof *ws->tokens);
    ws->targets = ddl_arena_take(arena, N, sizeof *ws->targets);
    ws->X = take(arena, true, N, d * c);
    ws->x_in = take(arena, c > 1, N, d);
    ws->ctx = take(arena, true, N, d);
    ws->rstd = take(arena, true, N, 1);
    ws->e = take(arena, c > 1, compress_taps(k), d * c);
    ws->logits = take(arena, true, ws->logit_numbers, 1);
    ws->losses = take(arena, true, N, 1);
    ws->loss_sum = ddl_arena_take(arena, 1, sizeof *ws->loss_sum);
    carve_rounded(ws, arena, k, N);
    if (train)
        carve_backward(ws, arena, k, N);
    for (size_t l = 0; l < (train ? k->n_layers : 1); l++)
        carve_layer(ws, arena, k, N, l);
    for (size_t l = 1; !train && l < k->n_layers; l++)
        ws->layer[l] = ws->layer[0];
}

struct ddl_limits ddl_workspace_limits(const struct ddl_config *k, size_t tokens)
{
    size_t taps = k->channels > 1 ? compress_taps(k) : 1;
    size_t embed = k->embed == DDL_EMBED_CONV ? k->embed_kernel : 1;
    size_t widest = k->d_model * k->channels * (taps > embed ? taps : embed);
    size_t others = k->beta_hidden > k->head_dim ? k->beta_hidden : k->head_dim; /* the gate's, QK-norm's */
    return (struct ddl_limits){ .d_c_taps = widest > others ? widest : others,
                                .T = tokens, /* a cache asks for its own */
                                .h = k->head_dim,
                                .widest = widest_input(k) };
}

static ddl_status measure(struct ddl_workspace *ws, const struct ddl_config *config, struct ddl_arena *arena,
                          struct ddl_error *err)
{
    size_t N, batch = ws->options.batch, tokens = ws->options.tokens;
    ddl_status status = ddl_choice_check("recompute", ddl_recompute_names, (int)ws->options.recompute, err);
    if (status)
        return status;
    ws->layer = calloc(config->n_layers, sizeof *ws->layer);
    if (!ws->layer)
        return ddl_error_set(err, DDL_E_MEMORY, "workspace: out of memory");
    if (!ddl_size_mul(batch, tokens, &N) || N > INT32_MAX || N == 0)
        return ddl_error_set(err, DDL_E_USAGE, "workspace: %zu sequences of %zu tokens cannot be taken",
                             batch, tokens);
    carve(ws, arena, config);
    if (arena->overflow)
        return ddl_error_set(err, DDL_E_USAGE,
                             "workspace: %zu sequences of %zu tokens do not fit the address space", batch,
                             tokens);
    return DDL_OK;
}

ddl_status ddl_workspace_measure(const struct ddl_config *config, enum ddl_precision precision,
                                 const struct ddl_workspace_options *options, size_t *bytes,
                                 struct ddl_error *err)
{
    struct ddl_workspace ws = { .options = *options, .precision = precision };
    struct ddl_arena arena = { 0 };
    ddl_status status = measure(&ws, config, &arena, err);
    free(ws.layer);
    *bytes = arena.used;
    return status;
}

size_t ddl_workspace_bytes(const struct ddl_config *config, enum ddl_precision precision,
                           const struct ddl_workspace_options *options)
{
    size_t bytes;
    return ddl_workspace_measure(config, precision, options, &bytes, NULL) ? SIZE_MAX : bytes;
}

ddl_status ddl_workspace_create(ddl_workspace **out, const ddl_model *model,
                                const struct ddl_workspace_options *options, struct ddl_error *err)
{
    *out = NULL;
    size_t batch = options->batch, tokens = options->tokens;
    const struct ddl_config *k = &model->config;
    ddl_backend *backend = model->backend;
    if (batch == 0 || tokens == 0 || tokens > k->block_size)
        return ddl_error_set(err, DDL_E_USAGE,
                             "%zu sequences of %zu tokens asked for; the model's context is %zu", batch,
                             tokens, k->block_size);
    if (options->train && ddl_model_precision(model) == DDL_PRECISION_INT8)
        return ddl_error_set(err, DDL_E_USAGE, "eight-bit weights cannot be trained: train in f32 or bf16");
    ddl_status status = options->train ? precision_check_values(model, "to train, load", err) : DDL_OK;
    if (status)
        return status;
    struct ddl_workspace *ws = ddl_mem_zalloc(sizeof *ws);
    if (!ws)
        return ddl_error_set(err, DDL_E_MEMORY, "workspace: out of memory");
    *ws = (struct ddl_workspace){ .model = model,
                                  .options = *options,
                                  .precision = ddl_model_precision(model) };
    struct ddl_arena arena = { 0 };
    status = measure(ws, k, &arena, err);
    if (!status) {
        struct ddl_limits limits = ddl_workspace_limits(k, tokens);
        status = backend->ops->reserve(backend->ctx, &limits, err);
    }
    if (!status && !(ws->memory = backend->ops->alloc(backend->ctx, arena.used)))
        status = ddl_error_set(err, DDL_E_MEMORY,
                               "workspace: out of memory for %zu bytes (%zu sequences of %zu tokens)",
                               arena.used, batch, tokens);
    if (!status)
        status = rope_make(&ws->rope, model, tokens, err);
    if (status) {
        ddl_workspace_free(ws);
        return status;
    }
    carve(ws, &(struct ddl_arena){ .base = ws->memory }, k);
    *out = ws;
    return DDL_OK;
}

void ddl_workspace_free(ddl_workspace *ws)
{
    if (!ws)
        return;
    ddl_backend *backend = ws->model->backend;
    if (ws->memory)
        backend->ops->free(backend->ctx, ws->memory);
    rope_free(&ws->rope, ws->model);
    free(ws->layer);
    ddl_mem_free(ws);
}

size_t ddl_workspace_n_delta(const ddl_workspace *ws)
{
    size_t n = 0;
    for (size_t l = 0; l < ws->model->config.n_layers; l++)
        n += ddl_config_residual(&ws->model->config, l) == DDL_RESIDUAL_DELTA ? 2 : 0;
    return n;
}

/* Delta sublayer number s, counted over the delta layers. */
static const struct sublayer_acts *delta_sublayer(const struct ddl_workspace *ws, size_t s)
{
    size_t l = 0;
    for (;; l++) {
        if (ddl_config_residual(&ws->model->config, l) != DDL_RESIDUAL_DELTA)
            continue;
        if (s < 2)
            return &ws->layer[l].sub[s];
        s -= 2;
    }
}

void ddl_workspace_read_trace(const ddl_workspace *ws, size_t s, float *beta, float *readout, float *target)
{
    const struct sublayer_acts *acts = delta_sublayer(ws, s);
    ddl_backend *backend = ws->model->backend;
    size_t N = ws->trace_rows, c = ws->model->config.channels;
    if (beta)
        backend->ops->download(backend->ctx, beta, acts->beta, N * sizeof *beta);
    if (readout)
        backend->ops->download(backend->ctx, readout, acts->readout, N * c * sizeof *readout);
    if (target)
        backend->ops->download(backend->ctx, target, acts->target, N * c * sizeof *target);
}
