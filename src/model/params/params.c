/* The parameters: one row a tensor, with its name, shape, initial value, group and learning-rate scale. What
 * walks parameters (allocation, initial values, optimizer, files) walks these rows. The rows of a residual
 * rule are declared by the rule. */
#include "model/params/params.h"

#include "base/mem.h"
#include "base/rng.h"
#include "model/config/config.h"
#include "model/params/param_plan.h"
#include "model/pass/pass.h"
#include "model/observe/probe.h"
#include "model/residual/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes that a shape is made of; resolved by size_of, F_ (the width of F's output) by add_rows. */
enum dim { NONE, ONE, TWO, V_, D, F_, A, H_, M, C, DC, K_STATE, K_EMBED };

/* Conditions of a row on the configuration. */
enum {
    EXPANDED = 1 << 0, /* c > 1          */
    TOKEN = 1 << 1,
    CHANNEL = 1 << 2,
    MIX = 1 << 3,
    CONV = 1 << 4, /* conv embedding */
    QK_NORM = 1 << 5,
    VALUES = 1 << 6, /* values of attention are mixed with those of layer 0 */
};

/* Initial values, and the group for weight decay that goes with them. */
enum start { EMBEDDING, MATRIX, OUTPUT, KERNEL, READ, IDENTITY, ONES, HALVES };
static const int group_of[] = {
    [EMBEDDING] = DDL_GROUP_EMBEDDING, [MATRIX] = DDL_GROUP_MATRIX, [OUTPUT] = DDL_GROUP_MATRIX,
    [KERNEL] = DDL_GROUP_KERNEL,       [READ] = DDL_GROUP_KERNEL,   [IDENTITY] = DDL_GROUP_KERNEL,
    [ONES] = DDL_GROUP_NORM,           [HALVES] = DDL_GROUP_NORM,
};

enum {
    OF_F = 1 << 16, /* beside the flags of param_plan.h: takes part only where F's output does */
    PRODUCT = PARAM_PRODUCT,
    HIDDEN = PARAM_HIDDEN,
};

#define NOT_FUSED SIZE_MAX
struct row {
    const char *name; /* after the layer's prefix */
    size_t at;        /* offset of its index in struct model_params or layer_params */
    enum dim dims[3];
    int needs;
    enum start start;
    int flags;
    size_t fused_with; /* `at` of the first row of the fused matrix that it continues, or NOT_FUSED */
};

#define IN_MODEL(field) offsetof(struct model_params, field)
#define IN_LAYER(field) offsetof(struct layer_params, field)

/* clang-format off */
static const struct row embedding_rows[] = {
    { "transformer.wte.weight",     IN_MODEL(wte),             { V_, D },           0,                EMBEDDING, PRODUCT, NOT_FUSED },
};

static const struct row final_rows[] = {
    { "input_embed.conv.weight",    IN_MODEL(embed_conv),      { DC, ONE, K_EMBED }, EXPANDED | CONV, IDENTITY, 0, NOT_FUSED },
    { "readout.read",               IN_MODEL(readout.read),    { C },               TOKEN,            READ,     0, NOT_FUSED },
    { "readout.shortconv.weight",   IN_MODEL(readout.weight),  { DC, K_STATE },     TOKEN,            KERNEL,   0, NOT_FUSED },
    { "readout.read",               IN_MODEL(readout.read),    { C },               CHANNEL,          READ,     0, NOT_FUSED },
    { "readout.weight",             IN_MODEL(readout.weight),  { D, K_STATE },      CHANNEL,          KERNEL,   0, NOT_FUSED },
    { "readout.weight",             IN_MODEL(readout.weight),  { D, C },            MIX,              KERNEL,   0, NOT_FUSED },
    { "ln_f.weight",                IN_MODEL(ln_f),            { D },               0,                ONES,     0, NOT_FUSED },
};

static const struct row branch_rows[] = {
    { "compress.read",              IN_LAYER(compress.read),   { C },               TOKEN,            READ,   0, NOT_FUSED },
    { "compress.shortconv.weight",  IN_LAYER(compress.weight), { DC, K_STATE },     TOKEN,            KERNEL, 0, NOT_FUSED },
    { "compress.read",              IN_LAYER(compress.read),   { C },               CHANNEL,          READ,   0, NOT_FUSED },
    { "compress.weight",            IN_LAYER(compress.weight), { D, K_STATE },      CHANNEL,          KERNEL, 0, NOT_FUSED },
    { "compress.weight",            IN_LAYER(compress.weight), { D, C },            MIX,              KERNEL, 0, NOT_FUSED },
    { "attn.c_q.weight",            IN_LAYER(c_q),             { A, D },            0,                MATRIX, HIDDEN | OF_F, NOT_FUSED },
    { "attn.c_k.weight",            IN_LAYER(c_k),             { A, D },            0,                MATRIX, HIDDEN | OF_F, IN_LAYER(c_q) },
    { "attn.c_v.weight",            IN_LAYER(c_v),             { A, D },            0,                MATRIX, HIDDEN | OF_F, IN_LAYER(c_q) },
    { "attn.c_proj.weight",         IN_LAYER(attn_proj),       { F_, A },           0,                OUTPUT, HIDDEN | OF_F, NOT_FUSED },
    { "attn.v_mix",                 IN_LAYER(v_mix),           { TWO },             VALUES,           HALVES, OF_F, NOT_FUSED },
    { "attn.q_rms.weight",          IN_LAYER(q_rms),           { H_ },              QK_NORM,          ONES,   OF_F, NOT_FUSED },
    { "attn.k_rms.weight",          IN_LAYER(k_rms),           { H_ },              QK_NORM,          ONES,   OF_F, NOT_FUSED },
    { "mlp.c_fc1.weight",           IN_LAYER(fc1),             { M, D },            0,                MATRIX, HIDDEN | OF_F, NOT_FUSED },
    { "mlp.c_fc2.weight",           IN_LAYER(fc2),             { M, D },            0,                MATRIX, HIDDEN | OF_F, IN_LAYER(fc1) },
    { "mlp.c_proj.weight",          IN_LAYER(mlp_proj),        { F_, M },           0,                OUTPUT, HIDDEN | OF_F, NOT_FUSED },
};

static const struct row norm_rows[] = {
    { "ln_1.weight",                IN_LAYER(ln[ATTN]),        { D },               0,                ONES,   0, NOT_FUSED },
    { "ln_2.weight",                IN_LAYER(ln[MLP]),         { D },               0,                ONES,   0, NOT_FUSED },
};
/* clang-format on */

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

const char *ddl_param_group_name(int group)
{
    static const char *const names[] = { "embedding", "matrix", "kernel", "norm", "bias" };
    return group >= 0 && group < DDL_GROUPS ? names[group] : "unknown";
}

/* `layer` is DDL_NO_LAYER for parameters outside of the layers. */
static int features_of(const struct ddl_config *k, size_t layer)
{
    int have = k->qk_norm ? QK_NORM : 0;
    have |= ddl_config_mixes_values(k, layer) ? VALUES : 0;
    if (k->channels == 1)
        return have;
    have |= EXPANDED;
    have |= k->compress == DDL_COMPRESS_TOKEN ? TOKEN : k->compress == DDL_COMPRESS_CHANNEL ? CHANNEL : MIX;
    have |= k->embed == DDL_EMBED_CONV ? CONV : 0;
    return have;
}

static size_t size_of(const struct ddl_config *k, enum dim dim)
{
    switch (dim) {
    case ONE:
        return 1;
    case TWO:
        return 2;
    case V_:
        return k->vocab_size;
    case D:
        return k->d_model;
    case A:
        return k->n_heads * k->head_dim;
    case H_:
        return k->head_dim;
    case M:
        return ddl_config_mlp_size(k);
    case C:
        return k->channels;
    case DC:
        return k->d_model * k->channels;
    case K_STATE:
        return ddl_config_state_kernel(k);
    case K_EMBED:
        return k->embed_kernel;
    default: /* NONE */
        return 0;
    }
}

static struct param_init init_of(const struct ddl_config *k, enum start start)
{
    struct param_init matrix = param_init_matrix(k);
    switch (start) {
    case EMBEDDING:
        return (struct param_init){ INIT_NORMAL, (double)k->embedding_init_std };
    case OUTPUT:
        return (struct param_init){ INIT_NORMAL, matrix.value / sqrt((double)k->n_layers) *
                                                     (double)k->output_init_std_factor };
    case READ:
        return param_init_constant((double)ddl_config_read_init(k));
    case IDENTITY:
        return (struct param_init){ INIT_LAST_TAP, 1 };
    case ONES:
        return param_init_constant(1);
    case HALVES:
        return param_init_constant(0.5);
    default: /* MATRIX, KERNEL */
        return matrix;
    }
}

static int *index_at(void *indices, size_t offset)
{
    return (int *)(void *)((char *)indices + offset);
}

/* F's output in the layer that rows belong to: whether it has an effect, and its width. */
struct branch {
    bool used;
    size_t width;
};
static const struct branch no_branch = { true, 0 };

/* Adds those of n rows that the configuration has in this layer. */
static void add_rows(struct param_plan *plan, size_t layer, const struct row *rows, size_t n, struct branch f,
                     void *indices)
{
    const struct ddl_config *k = plan->config;
    int have = features_of(k, layer);
    for (size_t i = 0; i < n; i++) {
        const struct row *row = &rows[i];
        if ((row->needs & have) != row->needs)
            continue;
        bool idle = row->flags & OF_F && !f.used;
        const struct param_row full = {
            .name = row->name,
            .shape = { row->dims[0] == F_ ? f.width : size_of(k, row->dims[0]), size_of(k, row->dims[1]),
                       size_of(k, row->dims[2]) },
            .group = group_of[row->start],
            .init = init_of(k, row->start),
            .flags = (row->flags & ~OF_F) | (idle ? PARAM_INACTIVE : 0),
            .fused_with = row->fused_with == NOT_FUSED ? NULL : index_at(indices, row->fused_with),
        };
        param_plan_add(plan, &full, index_at(indices, row->at));
    }
}

/* The weights of the sum that follows a layer. */
static void add_average(struct param_plan *plan, size_t layer, int *out)
{
    char name[48];
    snprintf(name, sizeof name, "transformer.dwa.%zu.weight", layer + 1);
    const struct param_row weight = { .name = name,
                                      .shape = { ddl_config_average_terms(plan->config, layer) },
                                      .group = DDL_GROUP_NORM,
                                      .init = { INIT_LAST_TAP, 1 } };
    param_plan_add(plan, &weight, out);
}

static void add_layer(struct param_plan *plan, size_t layer, struct layer_params *out)
{
    static const char *const sublayers[] = { [ATTN] = "attn", [MLP] = "mlp" };
    const struct residual_rule *rule = residual_rule_of(plan->config, layer);
    const struct branch f = { .used = !rule->uses_f || rule->uses_f(plan->config),
                              .width =
                                  ddl_config_residual_steps(plan->config, layer) * plan->config->d_model };
    char prefix[48];
    snprintf(prefix, sizeof prefix, "transformer.h.%zu.", layer);
    strcpy(plan->prefix, prefix);
    plan->layer = (long)layer;
    out->first = plan->out->n;
    add_rows(plan, layer, branch_rows, COUNT(branch_rows), f, out);
    for (int sub = 0; sub < 2 && rule->params; sub++) {
        snprintf(plan->prefix, sizeof plan->prefix, "%s%s_%s.", prefix, rule->prefix, sublayers[sub]);
        plan->sublayer = 2 * layer + (size_t)sub;
        rule->params(plan, out->residual[sub]);
    }
    strcpy(plan->prefix, prefix);
    add_rows(plan, layer, norm_rows, COUNT(norm_rows), no_branch, out);
    strcpy(plan->prefix, "");
    if (ddl_config_average_follows(plan->config, layer))
        add_average(plan, layer, &out->average);
    plan->layer = -1;
}

/* Adds the rows of the model in the order of its files. */
static void add_model(struct param_plan *plan)
{
    struct params *out = plan->out;
    struct layer_params ignored;
    strcpy(plan->prefix, "");
    add_rows(plan, DDL_NO_LAYER, embedding_rows, COUNT(embedding_rows), no_branch, &out->model);
    for (size_t l = 0; l < plan->config->n_layers; l++)
        add_layer(plan, l, out->layer ? &out->layer[l] : &ignored);
    size_t after = out->n;
    const struct state_form *form = state_form_of(plan->config);
    if (form->params) {
        strcpy(plan->prefix, "readout.");
        form->params(plan, out->model.readout_form);
    }
    strcpy(plan->prefix, "");
    add_rows(plan, DDL_NO_LAYER, final_rows, COUNT(final_rows), no_branch, &out->model);
    out->model.after_layers = after + (out->model.embed_conv == (int)after);
}

/* Takes the arrays for n rows. */
static void carve(struct param_plan *plan, struct ddl_arena *arena, size_t n)
{
    struct params *params = plan->out;
    size_t L = plan->config->n_layers;
    *params = (struct params){ .block = arena->base };
    params->row = ddl_arena_take(arena, n, sizeof *params->row);
    params->offset = ddl_arena_take(arena, n, sizeof *params->offset);
    params->layer = ddl_arena_take(arena, L, sizeof *params->layer);
    plan->names = ddl_arena_take(arena, n, sizeof *plan->names);
    params->init = ddl_arena_take(arena, n, sizeof *params->init);
    params->in_products = ddl_arena_take(arena, n, sizeof *params->in_products);
    params->row_offset = ddl_arena_take(arena, n, sizeof *params->row_offset);
    params->fused_next = ddl_arena_take(arena, n, sizeof *params->fused_next);
}

ddl_status params_plan(struct params *params, const struct ddl_config *config, struct ddl_error *err)
{
    struct param_plan plan = { .out = params, .config = config, .layer = -1 };
    *params = (struct params){ 0 };
    add_model(&plan);
    size_t n = params->n;
    struct ddl_arena arena = { 0 };
    carve(&plan, &arena, n);
    arena = (struct ddl_arena){ .base = ddl_mem_zalloc(arena.used) };
    if (!arena.base)
        return ddl_error_set(err, DDL_E_MEMORY, "parameters: out of memory for their table");
    carve(&plan, &arena, n);
    memset(&params->model, -1, sizeof params->model);
    memset(params->layer, -1, config->n_layers * sizeof *params->layer);
    add_model(&plan);
    param_plan_place(&plan);
    if (plan.overflow) {
        params_free(params);
        return ddl_error_set(err, DDL_E_USAGE,
                             "configuration: the parameters do not fit this machine's address space");
    }
    return DDL_OK;
}

void params_leave_out_products(struct params *params)
{
    const size_t line = DDL_ALIGN / sizeof(float);
    params->total = 0;
    for (size_t i = 0; i < params->n; i++) {
        params->offset[i] = DDL_NO_PLACE;
        if (params->in_products[i])
            continue;
        params->offset[i] = (params->total + line - 1) / line * line;
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
    struct ddl_param *copy = malloc(table + params.n * DDL_PARAM_NAME);
    if (!copy) {
        status = ddl_error_set(err, DDL_E_MEMORY, "parameters: out of memory for their table");
    } else {
        char *names = (char *)copy + table;
        for (size_t i = 0; i < params.n; i++) {
            copy[i] = params.row[i];
            copy[i].name = strcpy(names + i * DDL_PARAM_NAME, params.row[i].name);
        }
        *out = copy;
        *n = params.n;
    }
    params_free(&params);
    return status;
}

void params_initial(const struct params *params, uint64_t seed, size_t i, size_t start, size_t n, float *out)
{
    const struct ddl_param *param = &params->row[i];
    const struct param_init *init = &params->init[i];
    uint64_t key = ddl_rng_key(seed, param->name);
    size_t last = param->shape[param->ndim - 1];
    for (size_t j = 0; j < n; j++) {
        switch (init->kind) {
        case INIT_NORMAL:
            out[j] = (float)(init->value * ddl_rng_normal(key, start + j));
            break;
        case INIT_CONSTANT:
            out[j] = (float)init->value;
            break;
        case INIT_LAST_TAP:
            out[j] = (start + j) % last == last - 1 ? 1 : 0;
            break;
        case INIT_READ_ONE: {
            size_t row = (start + j) / last, column = (start + j) % last;
            out[j] = column ? column == row + 1 : row == (size_t)init->value;
            break;
        }
        case INIT_OFF_DIAGONAL: {
            size_t side = (size_t)lround(sqrt((double)param->count));
            out[j] = (start + j) % (side + 1) ? (float)init->value : 0;
            break;
        }
        default: /* INIT_UNIFORM */
            out[j] = (float)((2 * ddl_rng_uniform(key, start + j) - 1) / init->value);
        }
    }
}
