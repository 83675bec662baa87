/* Activations: measured and placed by one function. In training each layer has its own memory for what
 * backward does not recompute; the rest, and everything without training, is shared by the layers. */
#include "model/pass/measure.h"

#include "base/mem.h"
#include "ddl/option.h"
#include "model/params/precision.h"
#include "model/pass/compress.h"
#include "model/pass/layout.h"
#include "model/pass/workspace.h"
#include "model/residual/table.h"

#include <stdlib.h>

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

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

/* Rows in blocks of the backend's size. Without one, float32: in blocks of DDL_HOST_LOGITS; bfloat16: tiles
 * that stay in a cache, and as many rows as these have numbers. Ranks need whole rows. */
static void plan_logits(struct ddl_workspace *ws, size_t N, size_t V)
{
    enum { ROWS = 32 };
    size_t block = ws->logit_block ? ws->logit_block : DDL_HOST_LOGITS;
    const size_t least = block / V < ROWS ? 1 : ROWS; /* the vocabulary is large: as many rows as fit */
    size_t rows = alike(N, other_side(V, N, block, least), least);
    bool tiles = !ws->logit_block && ws->precision == DDL_PRECISION_BF16 && !ws->options.ranks;
    ws->tile = tiles ? other_side(N, V, (size_t)1 << 20, 256) : 0;
    size_t few = N <= SIZE_MAX / V ? ws->tile * N / V : rows;
    few = few ? few : 1;
    ws->logit_rows = ws->tile && few < rows ? few : rows;
    ws->logit_numbers = larger(ws->logit_rows * V, ws->tile * N);
}

const char *const ddl_recompute_names[] = { [DDL_RECOMPUTE_ELEMENTWISE] = "elementwise",
                                            [DDL_RECOMPUTE_NONE] = "none",
                                            [DDL_RECOMPUTE_BLOCK] = "block",
                                            NULL };

/* Numbers of a token's state. */
static size_t state_width(const struct ddl_config *k)
{
    return k->d_model * ddl_config_state_channels(k);
}

/* Numbers of F's output for a token. */
static size_t f_width(const struct ddl_config *k, size_t layer)
{
    return ddl_config_residual_steps(k, layer) * k->d_model;
}

static size_t widest_f(const struct ddl_config *k)
{
    size_t widest = 0;
    for (size_t layer = 0; layer < k->n_layers; layer++)
        widest = larger(widest, f_width(k, layer));
    return widest;
}

/* Whether the sublayers of a rule write the new state to memory of their own, and leave the one before where
 * it is. Otherwise the state is written in place, and a copy of it is kept unless the rule reverses it: the
 * states of weighted sums have places of their own. */
static bool moves_state(const struct layout *l, const struct residual_rule *rule)
{
    return l->train && rule->earlier == STREAM_KEPT && !l->config->dense_average;
}

/* Places what the residual rule of a layer keeps, and looks up what passes ask about the rule. */
static void place_residual(const struct layout *l, const struct ddl_workspace *ws, size_t layer,
                           struct layer_acts *acts)
{
    const struct ddl_config *k = l->config;
    const struct residual_rule *rule = residual_rule_of(k, layer);
    int number = ddl_config_residual(k, layer);
    bool sums_df = !ws->df.bf16 || residual_reads(k, layer) & RULE_SUMS_DF;
    acts->rule = rule;
    acts->scratch = ws->scratch[number];
    acts->scratch_factor = ws->scratch_factor[number];
    acts->f_width = f_width(k, layer);
    acts->normalizes_f = ddl_config_normalizes_f(k, layer);
    acts->df =
        sums_df ? (struct activation){ .value = ws->df.value } : (struct activation){ .bf16 = ws->df.bf16 };
    bool moves = moves_state(l, rule);
    bool copies = l->train && !moves && rule->earlier != STREAM_REVERSED && rule->earlier != STREAM_PLACED;
    for (int sub = 0; sub < 2; sub++) {
        struct sublayer_acts *of = &acts->sub[sub];
        bool shared = sub == ATTN && ws->options.recompute == DDL_RECOMPUTE_BLOCK;
        of->f = layout_rows(l, !rule->adds_in_place, acts->f_width);
        of->f_rstd = layout_rows(l, l->train && acts->normalizes_f, 1);
        of->state = layout_rows(l, copies, state_width(k));
        of->next = moves && shared ? ws->between : layout_rows(l, moves, state_width(k));
        if (rule->layout)
            rule->layout(l, of->rule);
        if (rule->layout_factors)
            rule->layout_factors(l, of->factor);
    }
}

/* Places the elementwise part of a layer: its own, or (a sublayer's input) the workspace's and the first
 * layer's. */
static void place_elementwise(const struct layout *l, const struct ddl_workspace *ws, struct layer_acts *acts)
{
    const struct ddl_config *k = l->config;
    bool none = l->train && ws->options.recompute == DDL_RECOMPUTE_NONE;
    bool bf16 = ws->precision == DDL_PRECISION_BF16;
    size_t a = k->n_heads * k->head_dim, d = k->d_model;
    unsigned reads = residual_reads(k, (size_t)(acts - ws->layer));
    bool ctx = !bf16 || reads & RULE_READS_CTX, x16 = bf16 && reads & RULE_MULTIPLIES_X_IN;
    for (int sub = 0; sub < 2; sub++) {
        struct sublayer_acts *of = &acts->sub[sub];
        of->x_in = none ? layout_rows(l, state_is_read(k), d) : ws->x_in;
        of->ctx.value = none ? layout_rows(l, ctx, d) : ctx ? ws->ctx : NULL;
        of->ctx.bf16 = none ? layout_bf16(l, bf16, l->N, d) : ws->ctx16;
        of->x16 = none ? layout_bf16(l, x16, l->N, d) : x16 ? ws->x_in16 : NULL;
        of->rstd = none ? layout_rows(l, true, 1) : ws->rstd;
    }
    if (!none && acts != ws->layer)
        return;
    acts->qn = layout_factor(l, true, a);
    acts->kn = layout_factor(l, true, a);
    acts->v = layout_factor(l, ddl_config_mixes_values(k, none ? (size_t)(acts - ws->layer) : 1), a);
    acts->s = layout_aligned_factor(l, true, ddl_config_mlp_size(k));
}

static void place_layer(const struct layout *l, struct ddl_workspace *ws, size_t layer)
{
    const struct ddl_config *k = l->config;
    struct layer_acts *acts = &ws->layer[layer];
    size_t a = k->n_heads * k->head_dim;
    *acts = ws->layer[0];
    place_residual(l, ws, layer, acts);
    place_elementwise(l, ws, acts);
    if (layer > 0 && ws->options.recompute == DDL_RECOMPUTE_BLOCK)
        return;
    acts->qkv = layout_factor(l, true, 3 * a);
    acts->y = layout_factor(l, true, a);
    acts->lse = layout_rows(l, l->train, k->n_heads);
    acts->ug = layout_aligned_factor(l, true, 2 * ddl_config_mlp_size(k));
}

/* Without training a layer uses the memory of the first layer, and that of the first layer of its rule. */
static void share_layer(const struct layout *l, struct ddl_workspace *ws, size_t layer)
{
    const struct residual_rule *rule = residual_rule_of(l->config, layer);
    for (size_t before = 0; before < layer; before++) {
        if (residual_rule_of(l->config, before) == rule) {
            ws->layer[layer] = ws->layer[before];
            return;
        }
    }
    ws->layer[layer] = ws->layer[0];
    place_residual(l, ws, layer, &ws->layer[layer]);
    place_elementwise(l, ws, &ws->layer[layer]);
}

/* The widest rows of a product of the rules' own parameters. */
static size_t widest_of_rules(const struct ddl_config *k)
{
    size_t widest = 0;
    for (size_t layer = 0; layer < k->n_layers; layer++) {
        const struct residual_rule *rule = residual_rule_of(k, layer);
        widest = larger(widest, rule->widest ? rule->widest(k) : 0);
    }
    return widest;
}

/* The widest rows that a product of the layers reads, and writes. */
static size_t widest_input(const struct ddl_config *k)
{
    size_t sublayers = larger(k->n_heads * k->head_dim, ddl_config_mlp_size(k));
    return larger(larger(k->d_model, widest_of_rules(k)), sublayers);
}

static size_t widest_output(const struct ddl_config *k)
{
    size_t sublayers = larger(3 * k->n_heads * k->head_dim, 2 * ddl_config_mlp_size(k));
    return larger(larger(widest_f(k), widest_of_rules(k)), sublayers);
}

/* What the rules of all layers read. */
static unsigned all_reads(const struct ddl_config *k)
{
    unsigned reads = 0;
    for (size_t layer = 0; layer < k->n_layers; layer++)
        reads |= residual_reads(k, layer);
    return reads;
}

/* Whether a rule adds f to the stream in place: then F's backward multiplies the stream's gradient. */
static bool any_adds_in_place(const struct ddl_config *k)
{
    for (size_t layer = 0; layer < k->n_layers; layer++) {
        if (residual_rule_of(k, layer)->adds_in_place)
            return true;
    }
    return false;
}

/* Whether something multiplies the stream's gradient: F's backward where f is added in place, or a rule. */
static bool multiplies_dX(const struct ddl_config *k)
{
    return all_reads(k) & RULE_MULTIPLIES_DX || any_adds_in_place(k);
}

static void place_bf16(const struct layout *l, struct ddl_workspace *ws)
{
    bool bf16 = ws->precision == DDL_PRECISION_BF16, folds = bf16 && !ws->options.ranks;
    size_t block = ws->logit_rows * l->config->vocab_size, dz = ws->tile;
    if (folds && !ws->tile)
        dz = block / l->N + (block % l->N != 0);
    ws->ctx16 = layout_bf16(l, bf16, l->N, l->config->d_model);
    ws->x_in16 =
        layout_bf16(l, bf16 && all_reads(l->config) & RULE_MULTIPLIES_X_IN, l->N, l->config->d_model);
    ws->dz16 = layout_bf16(l, bf16 && l->train && dz, l->N, dz);
    ws->dX16 = layout_bf16(l, bf16 && l->train && multiplies_dX(l->config), l->N, l->config->d_model);
    ws->top = layout_rows(l, folds, 1);
    ws->at_target = layout_rows(l, folds, 1);
    ws->total = folds ? ddl_arena_take(l->arena, l->N, sizeof *ws->total) : NULL;
}

/* Places the scratch of each rule that a layer has. */
static void place_scratch(const struct layout *l, struct ddl_workspace *ws)
{
    const struct ddl_config *k = l->config;
    bool used[DDL_RESIDUALS] = { false }, any_f = false;
    bool bf16 = ws->precision == DDL_PRECISION_BF16, summed = !bf16 || all_reads(k) & RULE_SUMS_DF;
    for (size_t layer = 0; layer < k->n_layers; layer++) {
        used[ddl_config_residual(k, layer)] = true;
        any_f |= !residual_rule_of(k, layer)->adds_in_place;
    }
    ws->df.value = layout_rows(l, any_f && summed, widest_f(k));
    ws->df.bf16 = layout_bf16(l, any_f && bf16, l->N, widest_f(k));
    for (int i = 0; i < DDL_RESIDUALS; i++) {
        if (used[i] && residual_rule_at(i)->scratch)
            residual_rule_at(i)->scratch(l, ws->scratch[i]);
        if (used[i] && residual_rule_at(i)->scratch_factors)
            residual_rule_at(i)->scratch_factors(l, ws->scratch_factor[i]);
    }
}

/* Whether the state in the middle of a layer is moved, for any layer. */
static bool any_moves(const struct layout *l)
{
    for (size_t layer = 0; layer < l->config->n_layers; layer++) {
        if (moves_state(l, residual_rule_of(l->config, layer)))
            return true;
    }
    return false;
}

static void place_backward(const struct layout *l, struct ddl_workspace *ws)
{
    const struct ddl_config *k = l->config;
    size_t d = k->d_model, c = k->channels, a = k->n_heads * k->head_dim;
    ws->dX = layout_rows(l, true, state_width(k));
    ws->dx_in = layout_rows(l, state_is_read(k), d);
    ws->between =
        layout_rows(l, any_moves(l) && ws->options.recompute == DDL_RECOMPUTE_BLOCK, state_width(k));
    ws->dctx = layout_rows(l, true, d);
    ws->dy = layout_rows(l, true, a);
    ws->ds = layout_rows(l, ws->precision == DDL_PRECISION_BF16, ddl_config_mlp_size(k));
    ws->dqkv = layout_factor(l, true, 3 * a);
    ws->dv0 = layout_rows(l, ddl_config_mixes_values(k, 1), a);
    ws->de = layout_floats(l, c > 1, compress_taps(k), d * c);
    place_scratch(l, ws);
}

void workspace_place(struct ddl_workspace *ws, struct ddl_arena *arena, const struct ddl_config *k)
{
    const struct layout layout = {
        .arena = arena,
        .config = k,
        .N = ws->options.batch * ws->options.tokens,
        .train = ws->options.train,
        .bf16 = ws->precision == DDL_PRECISION_BF16,
    };
    const struct layout *l = &layout;
    const struct state_form *form = ws->form = state_form_of(k);
    size_t d = k->d_model, c = k->channels, N = layout.N,
           states = form->states ? form->states(k, l->train) : 1;
    plan_logits(ws, N, k->vocab_size);
    ws->logit_numbers = larger(ws->logit_numbers, widest_output(k)); /* for probes */
    ws->tokens = ddl_arena_take(arena, N, sizeof *ws->tokens);
    ws->targets = ddl_arena_take(arena, N, sizeof *ws->targets);
    ws->grad_scale = ddl_arena_take(arena, 1, sizeof *ws->grad_scale);
    ws->averages = average_layout(l);
    ws->X = k->dense_average ? ws->averages.states : layout_rows(l, true, states * state_width(k));
    if (form->layout)
        form->layout(l, ws->readout);
    ws->x_in = layout_rows(l, state_is_read(k), d);
    ws->ctx = layout_rows(l, true, d);
    ws->rstd = layout_rows(l, true, 1);
    ws->v0 = layout_factor(l, ddl_config_mixes_values(k, 1), k->n_heads * k->head_dim);
    for (size_t i = 0; i < 2; i++)
        ws->e[i] = layout_floats(l, c > 1, compress_taps(k), d * c);
    ws->logits = layout_floats(l, true, ws->logit_numbers, 1);
    ws->losses = layout_rows(l, true, 1);
    ws->loss_sum = ddl_arena_take(arena, 1, sizeof *ws->loss_sum);
    ws->ranks = ws->options.ranks ? ddl_arena_take(arena, N, sizeof *ws->ranks) : NULL;
    ws->entropies = layout_rows(l, ws->options.ranks, 1);
    place_bf16(l, ws);
    if (l->train)
        place_backward(l, ws);
    place_layer(l, ws, 0);
    for (size_t layer = 1; layer < k->n_layers; layer++)
        (l->train ? place_layer : share_layer)(l, ws, layer);
}

struct ddl_limits ddl_workspace_limits(const struct ddl_config *k,
                                       const struct ddl_workspace_options *options)
{
    size_t taps = k->channels > 1 ? compress_taps(k) : 1;
    size_t embed = k->embed == DDL_EMBED_CONV ? k->embed_kernel : 1;
    size_t conv = k->d_model * k->channels * larger(larger(taps, embed), k->steps);
    size_t others = larger(k->steps * k->beta_hidden, k->head_dim); /* the gate's, QK-norm's */
    for (size_t layer = 0; layer < k->n_layers; layer++) {
        const struct residual_rule *rule = residual_rule_of(k, layer);
        others = larger(others, rule->most_sums ? rule->most_sums(k) : 0);
    }
    others = larger(others, k->n_layers + 1); /* weights of a sum of states */
    return (struct ddl_limits){ .summed = larger(conv, others),
                                .N = options->batch * options->tokens,
                                .T = options->tokens, /* a cache requests its own */
                                .H = options->train ? k->n_heads : 0,
                                .d = k->d_model,
                                .c = k->channels,
                                .h = k->head_dim,
                                .K = widest_input(k) };
}

ddl_status workspace_measure(struct ddl_workspace *ws, const struct ddl_config *config,
                             struct ddl_arena *arena, struct ddl_error *err)
{
    size_t N, batch = ws->options.batch, tokens = ws->options.tokens;
    ddl_status status = ddl_choice_check("recompute", ddl_recompute_names, (int)ws->options.recompute, err);
    if (status)
        return status;
    ws->layer = calloc(config->n_layers, sizeof *ws->layer);
    if (!ws->layer)
        return ddl_error_set(err, DDL_E_MEMORY, "workspace: out of memory");
    if (!ddl_size_mul(batch, tokens, &N) || N > INT32_MAX || N == 0)
        return ddl_error_set(err, DDL_E_USAGE,
                             "workspace: expected 1 to %d tokens, found %zu sequences of %zu", INT32_MAX,
                             batch, tokens);
    workspace_place(ws, arena, config);
    if (arena->overflow)
        return ddl_error_set(err, DDL_E_USAGE,
                             "workspace: %zu sequences of %zu tokens do not fit the address space", batch,
                             tokens);
    return DDL_OK;
}

size_t workspace_logit_block(const ddl_backend *backend)
{
    return backend && backend->ops->logit_block ? backend->ops->logit_block(backend->ctx) : 0;
}

ddl_status ddl_workspace_measure(const struct ddl_config *config, enum ddl_precision precision,
                                 const struct ddl_workspace_options *options, const ddl_backend *backend,
                                 size_t *bytes, struct ddl_error *err)
{
    struct ddl_workspace ws = { .options = *options,
                                .precision = precision,
                                .logit_block = workspace_logit_block(backend) };
    struct ddl_arena arena = { 0 };
    ddl_status status = backend ? precision_check_backend(precision, backend, err) : DDL_OK;
    if (!status)
        status = workspace_measure(&ws, config, &arena, err);
    free(ws.layer);
    *bytes = arena.used;
    return status;
}

size_t ddl_workspace_bytes(const struct ddl_config *config, enum ddl_precision precision,
                           const struct ddl_workspace_options *options, const ddl_backend *backend)
{
    size_t bytes;
    return ddl_workspace_measure(config, precision, options, backend, &bytes, NULL) ? SIZE_MAX : bytes;
}

size_t ddl_workspace_total_bytes(const struct ddl_config *config, enum ddl_precision precision,
                                 const struct ddl_workspace_options *options, const ddl_backend *backend)
{
    size_t bytes = ddl_workspace_bytes(config, precision, options, backend);
    size_t tables = rope_bytes(config, options->tokens);
    return bytes != SIZE_MAX && tables != SIZE_MAX && ddl_size_add(bytes, tables, &bytes) ? bytes : SIZE_MAX;
}

size_t ddl_model_pass_bytes(const ddl_model *model)
{
    size_t bytes = 0;
    for (size_t i = 0; i < model->params.n; i++)
        bytes += model->params.row[i].active
                     ? precision_row_bytes(&model->params, i, model->precision, model->backend)
                     : 0;
    return bytes;
}

double ddl_precision_peak_rate(enum ddl_precision precision, const ddl_backend *backend)
{
    enum ddl_rate rate = precision == DDL_PRECISION_BF16   ? DDL_RATE_BF16
                         : precision == DDL_PRECISION_TF32 ? DDL_RATE_TF32
                                                           : DDL_RATE_F32;
    return backend->ops->peak_rate ? backend->ops->peak_rate(backend->ctx, rate) : 0;
}
