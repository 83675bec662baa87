/* The parameters: one row a tensor, with its name, shape, initial value, group and learning-rate scale.
 * Everything that walks parameters (allocation, initial values, optimiser, files) walks these rows. */
#include "model/params.h"

#include "base/mem.h"
#include "base/rng.h"
#include "model/pass.h"
#include "model/residual.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes that a shape is made of; resolved by sizes_of. */
enum dim { NONE, ONE, V_, D, A, H_, M, C, DC, K_STATE, K_EMBED, RANK, GATE, N_DIMS };

/* What a row needs the configuration to have. */
enum {
    EXPANDED = 1 << 0, /* c > 1                      */
    TOKEN = 1 << 1,
    CHANNEL = 1 << 2,
    MIX = 1 << 3,
    CONV = 1 << 4, /* conv embedding             */
    QK_NORM = 1 << 5,
    DELTA = 1 << 6, /* this layer's rule          */
    BETA_LINEAR = 1 << 7,
    BETA_MLP = 1 << 8,
    V_FULL = 1 << 9,  /* v-map with full phi_k      */
    V_RANK = 1 << 10, /* v-map with phi_k of rank r */
};

/* How a row starts, and the group it belongs to for weight decay. */
enum init { EMBEDDING, MATRIX, OUTPUT, KERNEL, READ, IDENTITY, ONES, BETA_BIAS, V_BIAS };
static const unsigned char group_of[] = {
    [EMBEDDING] = DDL_GROUP_EMBEDDING, [MATRIX] = DDL_GROUP_MATRIX,  [OUTPUT] = DDL_GROUP_MATRIX,
    [KERNEL] = DDL_GROUP_KERNEL,       [READ] = DDL_GROUP_KERNEL,    [IDENTITY] = DDL_GROUP_KERNEL,
    [ONES] = DDL_GROUP_NORM,           [BETA_BIAS] = DDL_GROUP_BIAS, [V_BIAS] = DDL_GROUP_BIAS,
};

enum {
    MUP = 1 << 0,       /* learning rate x d_base/d under muP                          */
    JOINED = 1 << 1,    /* stands right behind the row before: one matrix for products */
    OF_F = 1 << 2,      /* takes part only where F's output does                       */
    OF_TARGET = 1 << 3, /* takes part only where the target is read                    */
    PRODUCT = 1 << 4,   /* products read it, in whichever form it has (precision.c)    */
    HIDDEN = MUP | PRODUCT,
};

struct row {
    const char *name; /* after the layer's prefix */
    size_t slot;      /* where its index goes     */
    int dims[3];
    int needs;
    int init;
    int flags;
};

#define IN_MODEL(field) offsetof(struct model_slots, field)
#define IN_LAYER(field) offsetof(struct layer_slots, field)

/* clang-format off */
static const struct row embedding_rows[] = {
    { "transformer.wte.weight",     IN_MODEL(wte),             { V_, D },           0,                EMBEDDING, PRODUCT },
};

static const struct row final_rows[] = {
    { "input_embed.conv.weight",    IN_MODEL(embed_conv),      { DC, ONE, K_EMBED }, EXPANDED | CONV, IDENTITY, 0 },
    { "readout.read",               IN_MODEL(readout.read),    { C },               TOKEN,            READ,     0 },
    { "readout.shortconv.weight",   IN_MODEL(readout.weight),  { DC, K_STATE },     TOKEN,            KERNEL,   0 },
    { "readout.read",               IN_MODEL(readout.read),    { C },               CHANNEL,          READ,     0 },
    { "readout.weight",             IN_MODEL(readout.weight),  { D, K_STATE },      CHANNEL,          KERNEL,   0 },
    { "readout.weight",             IN_MODEL(readout.weight),  { D, C },            MIX,              KERNEL,   0 },
    { "ln_f.weight",                IN_MODEL(ln_f),            { D },               0,                ONES,     0 },
};

#define DELTA_ROWS(S, i) \
    { S ".beta.weight",             IN_LAYER(delta[i].beta_weight), { ONE, D },     DELTA | BETA_LINEAR, MATRIX, 0 }, \
    { S ".beta.bias",               IN_LAYER(delta[i].beta_bias),   { ONE },        DELTA | BETA_LINEAR, BETA_BIAS, 0 }, \
    { S ".beta_in.weight",          IN_LAYER(delta[i].beta_in),     { GATE, D },    DELTA | BETA_MLP, MATRIX, 0 }, \
    { S ".beta_out.weight",         IN_LAYER(delta[i].beta_weight), { ONE, GATE },  DELTA | BETA_MLP, MATRIX, 0 }, \
    { S ".beta_out.bias",           IN_LAYER(delta[i].beta_bias),   { ONE },        DELTA | BETA_MLP, BETA_BIAS, 0 }, \
    { S ".v_proj.weight",           IN_LAYER(delta[i].v_weight),    { C, D },       DELTA,            MATRIX, OF_TARGET }, \
    { S ".v_proj.bias",             IN_LAYER(delta[i].v_bias),      { C },          DELTA,            V_BIAS, OF_TARGET }, \
    { S ".k_proj.weight",           IN_LAYER(delta[i].k_proj),      { D, D },       DELTA | V_FULL,   MATRIX, HIDDEN }, \
    { S ".k_down.weight",           IN_LAYER(delta[i].k_down),      { RANK, D },    DELTA | V_RANK,   MATRIX, HIDDEN }, \
    { S ".k_up.weight",             IN_LAYER(delta[i].k_up),        { D, RANK },    DELTA | V_RANK,   MATRIX, HIDDEN }

static const struct row layer_rows[] = {
    { "compress.read",              IN_LAYER(compress.read),   { C },               TOKEN,            READ,   0 },
    { "compress.shortconv.weight",  IN_LAYER(compress.weight), { DC, K_STATE },     TOKEN,            KERNEL, 0 },
    { "compress.read",              IN_LAYER(compress.read),   { C },               CHANNEL,          READ,   0 },
    { "compress.weight",            IN_LAYER(compress.weight), { D, K_STATE },      CHANNEL,          KERNEL, 0 },
    { "compress.weight",            IN_LAYER(compress.weight), { D, C },            MIX,              KERNEL, 0 },
    { "attn.c_q.weight",            IN_LAYER(c_q),             { A, D },            0,                MATRIX, HIDDEN | OF_F },
    { "attn.c_k.weight",            IN_LAYER(c_k),             { A, D },            0,                MATRIX, HIDDEN | OF_F | JOINED },
    { "attn.c_v.weight",            IN_LAYER(c_v),             { A, D },            0,                MATRIX, HIDDEN | OF_F | JOINED },
    { "attn.c_proj.weight",         IN_LAYER(attn_proj),       { D, A },            0,                OUTPUT, HIDDEN | OF_F },
    { "attn.q_rms.weight",          IN_LAYER(q_rms),           { H_ },              QK_NORM,          ONES,   OF_F },
    { "attn.k_rms.weight",          IN_LAYER(k_rms),           { H_ },              QK_NORM,          ONES,   OF_F },
    { "mlp.c_fc1.weight",           IN_LAYER(fc1),             { M, D },            0,                MATRIX, HIDDEN | OF_F },
    { "mlp.c_fc2.weight",           IN_LAYER(fc2),             { M, D },            0,                MATRIX, HIDDEN | OF_F | JOINED },
    { "mlp.c_proj.weight",          IN_LAYER(mlp_proj),        { D, M },            0,                OUTPUT, HIDDEN | OF_F },
    DELTA_ROWS("ddl_attn", ATTN),
    DELTA_ROWS("ddl_mlp", MLP),
    { "ln_1.weight",                IN_LAYER(ln[ATTN]),        { D },               0,                ONES,   0 },
    { "ln_2.weight",                IN_LAYER(ln[MLP]),         { D },               0,                ONES,   0 },
};
/* clang-format on */

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))
enum {
    NAME_SIZE = 96,
    MAX_ROWS_PER_LAYER = COUNT(layer_rows),
    MAX_MODEL_ROWS = COUNT(embedding_rows) + COUNT(final_rows),
};

const char *ddl_param_group_name(int group)
{
    static const char *const names[] = { "embedding", "matrix", "kernel", "norm", "bias" };
    return group >= 0 && group < DDL_GROUPS ? names[group] : "unknown";
}

static int features_of(const struct ddl_config *k, size_t layer)
{
    int have = 0;
    if (k->channels > 1 && k->residual == DDL_RESIDUAL_DELTA) {
        have |= EXPANDED;
        have |= k->compress == DDL_COMPRESS_TOKEN     ? TOKEN
                : k->compress == DDL_COMPRESS_CHANNEL ? CHANNEL
                                                      : MIX;
        have |= k->embed == DDL_EMBED_CONV ? CONV : 0;
    }
    have |= k->qk_norm ? QK_NORM : 0;
    have |= ddl_config_residual(k, layer) == DDL_RESIDUAL_DELTA ? DELTA : 0;
    have |= k->beta_linear ? BETA_LINEAR : BETA_MLP;
    if (k->map == DDL_MAP_V)
        have |= k->k_rank ? V_RANK : V_FULL;
    return have;
}

static void sizes_of(const struct ddl_config *k, size_t size[N_DIMS])
{
    size[ONE] = 1;
    size[V_] = k->vocab_size;
    size[D] = k->d_model;
    size[A] = k->n_heads * k->head_dim;
    size[H_] = k->head_dim;
    size[M] = ddl_config_mlp_size(k);
    size[C] = k->channels;
    size[DC] = k->d_model * k->channels;
    size[K_STATE] = ddl_config_state_kernel(k);
    size[K_EMBED] = k->embed_kernel;
    size[RANK] = k->k_rank;
    size[GATE] = k->beta_hidden;
}

struct planner {
    struct params *out;
    const struct ddl_config *config;
    char (*names)[NAME_SIZE];
    size_t size[N_DIMS];
    bool overflow;
};

static bool takes_part(const struct ddl_config *config, int flags, size_t layer)
{
    return (!(flags & OF_F) || residual_uses_f(config, layer)) &&
           (!(flags & OF_TARGET) || residual_uses_target(config));
}

/* The next place on a cache line, in floats. */
static size_t aligned(size_t offset)
{
    const size_t line = DDL_ALIGN / sizeof(float);
    return (offset + line - 1) / line * line;
}

static void add_row(struct planner *plan, const struct row *row, size_t layer, const char *prefix, int *slot)
{
    struct params *out = plan->out;
    struct ddl_param *param = &out->row[out->n];
    *param = (struct ddl_param){
        .name = plan->names[out->n], .count = 1, .group = group_of[row->init], .lr_scale = 1
    };
    snprintf(plan->names[out->n], NAME_SIZE, "%s%s", prefix, row->name);
    for (; param->ndim < 3 && row->dims[param->ndim] != NONE; param->ndim++) {
        param->shape[param->ndim] = plan->size[row->dims[param->ndim]];
        plan->overflow |= !ddl_size_mul(param->count, param->shape[param->ndim], &param->count);
    }
    if (plan->config->mup && row->flags & MUP)
        param->lr_scale = (float)((double)plan->config->d_base / (double)plan->config->d_model);
    param->active = takes_part(plan->config, row->flags, layer);
    if (!(row->flags & JOINED))
        out->total = aligned(out->total);
    out->offset[out->n] = out->total;
    plan->overflow |= !ddl_size_add(out->total, param->count, &out->total) || out->total > SIZE_MAX / 64;
    out->size += param->count;
    out->init[out->n] = (unsigned char)row->init;
    out->in_products[out->n] = row->flags & PRODUCT;
    out->above[out->n] = row->flags & JOINED ? out->above[out->n - 1] + out->row[out->n - 1].shape[0] : 0;
    *slot = (int)out->n++;
}

static void add_rows(struct planner *plan, const struct row *rows, size_t n, int have, size_t layer,
                     const char *prefix, void *slots)
{
    for (size_t i = 0; i < n; i++) {
        if ((rows[i].needs & have) == rows[i].needs)
            add_row(plan, &rows[i], layer, prefix, (int *)(void *)((char *)slots + rows[i].slot));
    }
}

ddl_status params_plan(struct params *params, const struct ddl_config *config, struct ddl_error *err)
{
    size_t L = config->n_layers, max = MAX_MODEL_ROWS + L * MAX_ROWS_PER_LAYER;
    struct ddl_arena arena = { 0 };
    struct planner plan = { .out = params, .config = config };
    for (int placing = 0; placing < 2; placing++) {
        *params = (struct params){ .block = arena.base };
        params->row = ddl_arena_take(&arena, max, sizeof *params->row);
        params->offset = ddl_arena_take(&arena, max, sizeof *params->offset);
        params->layer = ddl_arena_take(&arena, L, sizeof *params->layer);
        plan.names = ddl_arena_take(&arena, max, sizeof *plan.names);
        params->init = ddl_arena_take(&arena, max, 1);
        params->in_products = ddl_arena_take(&arena, max, sizeof *params->in_products);
        params->above = ddl_arena_take(&arena, max, sizeof *params->above);
        if (!placing) {
            arena = (struct ddl_arena){ .base = ddl_mem_zalloc(arena.used) };
            if (!arena.base)
                return ddl_error_set(err, DDL_E_MEMORY, "parameters: out of memory for their table");
        }
    }
    memset(&params->slots, -1, sizeof params->slots);
    memset(params->layer, -1, L * sizeof *params->layer);
    sizes_of(config, plan.size);
    add_rows(&plan, embedding_rows, COUNT(embedding_rows), features_of(config, 0), 0, "", &params->slots);
    for (size_t l = 0; l < L; l++) {
        char prefix[48];
        snprintf(prefix, sizeof prefix, "transformer.h.%zu.", l);
        add_rows(&plan, layer_rows, COUNT(layer_rows), features_of(config, l), l, prefix, &params->layer[l]);
    }
    add_rows(&plan, final_rows, COUNT(final_rows), features_of(config, 0), 0, "", &params->slots);
    if (plan.overflow) {
        params_free(params);
        return ddl_error_set(err, DDL_E_USAGE,
                             "configuration: the parameters do not fit this machine's address space");
    }
    return DDL_OK;
}

void params_leave_out_products(struct params *params)
{
    params->total = 0;
    for (size_t i = 0; i < params->n; i++) {
        params->offset[i] = DDL_NO_PLACE;
        if (params->in_products[i])
            continue;
        params->offset[i] = aligned(params->total);
        params->total = params->offset[i] + params->row[i].count;
    }
}

void params_free(struct params *params)
{
    ddl_mem_free(params->block);
    *params = (struct params){ 0 };
}

ddl_status ddl_params_plan(const struct ddl_config *config, struct ddl_param **out, size_t *n,
                           struct ddl_error *err)
{
    *out = NULL;
    *n = 0;
    struct params params;
    ddl_status status = ddl_config_check(config, err);
    if (!status)
        status = params_plan(&params, config, err);
    if (status)
        return status;
    size_t table = params.n * sizeof **out;
    struct ddl_param *copy = malloc(table + params.n * NAME_SIZE);
    if (!copy) {
        status = ddl_error_set(err, DDL_E_MEMORY, "parameters: out of memory for their table");
    } else {
        char *names = (char *)copy + table;
        for (size_t i = 0; i < params.n; i++) {
            copy[i] = params.row[i];
            copy[i].name = strcpy(names + i * NAME_SIZE, params.row[i].name);
        }
        *out = copy;
        *n = params.n;
    }
    params_free(&params);
    return status;
}

static void fill_normal(uint64_t key, size_t start, size_t n, double std, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(std * ddl_rng_normal(key, start + i));
}

/* b with 2 sigmoid(b) = beta0 */
static float beta_bias(double beta0)
{
    double p = fmin(fmax(beta0 / 2, 1e-6), 1 - 1e-6);
    return (float)log(p / (1 - p));
}

void params_initial(const struct params *params, const struct ddl_config *config, uint64_t seed, size_t i,
                    size_t start, size_t n, float *out)
{
    const struct ddl_param *param = &params->row[i];
    uint64_t key = ddl_rng_key(seed, param->name);
    double d = (double)config->d_model, hidden = (double)config->hidden_init_std_factor / sqrt(d);
    size_t last = param->shape[param->ndim - 1];
    switch (params->init[i]) {
    case EMBEDDING:
        fill_normal(key, start, n, (double)config->embedding_init_std, out);
        break;
    case MATRIX:
    case KERNEL:
        fill_normal(key, start, n, hidden, out);
        break;
    case OUTPUT:
        fill_normal(key, start, n, hidden / sqrt((double)config->n_layers), out);
        break;
    case ONES:
        for (size_t j = 0; j < n; j++)
            out[j] = 1;
        break;
    case READ:
        for (size_t j = 0; j < n; j++)
            out[j] = ddl_config_read_init(config);
        break;
    case IDENTITY:
        for (size_t j = 0; j < n; j++)
            out[j] = (start + j) % last == last - 1 ? 1 : 0;
        break;
    case BETA_BIAS:
        out[0] = beta_bias((double)config->beta_init);
        break;
    default: /* V_BIAS */
        for (size_t j = 0; j < n; j++)
            out[j] = (float)((2 * ddl_rng_uniform(key, start + j) - 1) / sqrt(d));
    }
}
