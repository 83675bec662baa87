/* Forced updates: checked and stored in the model, applied by block.c and the residual rules. */
#include "model/observe/force.h"
#include "model/observe/force_set.h"

#include "base/mem.h"
#include "ddl/text.h"
#include "model/params/precision.h"
#include "model/residual/table.h"
#include "model/pass/workspace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

_Static_assert((int)DDL_SUBLAYER_ATTN == (int)ATTN && (int)DDL_SUBLAYER_MLP == (int)MLP,
               "the sublayers of pass.h");

const char *const ddl_force_mix_names[] = {
    [DDL_MIX_IDENTITY] = "identity", [DDL_MIX_LAST] = "last", [DDL_MIX_MEAN] = "mean", [DDL_MIXES] = NULL
};
const char *const ddl_force_values_names[] = { [DDL_VALUES_OWN] = "own", [DDL_VALUES] = NULL };
const char *const ddl_force_average_names[] = { [DDL_AVERAGE_NONE] = "none", [DDL_AVERAGES] = NULL };
const char *const ddl_sublayer_names[] = { [DDL_SUBLAYER_ATTN] = "attn", [DDL_SUBLAYER_MLP] = "mlp", NULL };

#define AT(field) offsetof(struct ddl_force, field)
#define NUMBER(name, field, max, help)                                                                       \
    {                                                                                                        \
        name, DDL_OPTION_FLOAT, AT(field), 0, 0, max, NULL, "X", help                                        \
    }
#define CHOICE(name, field, choices, help)                                                                   \
    {                                                                                                        \
        name, DDL_OPTION_CHOICE, AT(field), 0, 0, 0, choices, "NAME", help                                   \
    }

static double largest_gate(const struct ddl_config *config)
{
    return (double)config->beta_max;
}

static const struct ddl_force_row rows[] = {
    { .key = DDL_FORCE_BETA,
      .option = NUMBER("beta", beta, 1e6, "the gate of every token is this number"),
      .most = largest_gate,
      .replaces = DDL_FORCE_SCALE,
      .has_mean = true,
      .closes = true,
      .sub = DDL_SUBLAYERS },
    { .key = DDL_FORCE_SCALE,
      .option = NUMBER("scale", scale, 1e6, "the gate is multiplied by this factor"),
      .replaces = DDL_FORCE_BETA,
      .sub = DDL_SUBLAYERS },
    { .key = DDL_FORCE_UPDATE,
      .option = CHOICE("update", update, ddl_update_names, "the whole update, or only one of its terms"),
      .sub = DDL_SUBLAYERS },
    { .key = DDL_FORCE_F_SCALE,
      .option = NUMBER("f_scale", f_scale, 1e6, "the sublayer's output is multiplied by this factor"),
      .closes = true,
      .sub = DDL_SUBLAYERS },
    { .key = DDL_FORCE_MIX,
      .option = CHOICE("mix", mix, ddl_force_mix_names,
                       "how streams, or the sources of attention over depth, are mixed"),
      .sub = DDL_SUBLAYERS },
    { .key = DDL_FORCE_VALUES,
      .option = CHOICE("values", values, ddl_force_values_names, "attention reads its layer's own values"),
      .sub = DDL_SUBLAYER_ATTN,
      .applies = ddl_config_mixes_values,
      .where = "value_residual above the first, sub=attn" },
    { .key = DDL_FORCE_AVERAGE,
      .option =
          CHOICE("average", average, ddl_force_average_names, "the sum of states that follows is left out"),
      .sub = DDL_SUBLAYER_MLP,
      .applies = ddl_config_average_follows,
      .where = "a sum of dense_average after it, sub=mlp" },
    { 0 },
};

const struct ddl_force_row *ddl_force_rows(void)
{
    return rows;
}

unsigned ddl_config_force_keys(const struct ddl_config *config, size_t layer)
{
    unsigned keys = residual_rule_of(config, layer)->force_keys;
    for (const struct ddl_force_row *row = rows; row->key; row++)
        keys |= row->applies && row->applies(config, layer) ? row->key : 0;
    return keys;
}

unsigned ddl_config_force_mixes(const struct ddl_config *config, size_t layer)
{
    const struct residual_rule *rule = residual_rule_of(config, layer);
    return !(rule->force_keys & DDL_FORCE_MIX) ? 0 : rule->mixes ? rule->mixes : 1U << DDL_MIX_IDENTITY;
}

/* ---- where keys apply ---- */

/* Whether rule number `rule` has the key of a row. */
static bool has(int rule, const struct ddl_force_row *row)
{
    return residual_rule_at(rule)->force_keys & row->key;
}

void ddl_force_group(const struct ddl_force_row *row, char *out, size_t size)
{
    const struct ddl_force_row *same[sizeof rows / sizeof *rows];
    size_t n = 0;
    for (const struct ddl_force_row *other = rows; other->key; other++) {
        bool differs = row->applies || other->applies;
        for (int rule = 0; rule < DDL_RESIDUALS; rule++)
            differs = differs || has(rule, row) != has(rule, other);
        if (other == row || !differs)
            same[n++] = other;
    }
    *out = '\0';
    for (size_t i = 0; i < n; i++)
        ddl_text_append(out, size, i + 1 < n ? ", " : " and ", same[i]->option.name);
}

void ddl_force_layers(const struct ddl_force_row *row, char *out, size_t size)
{
    size_t n = 0, at = 0;
    for (int rule = 0; rule < DDL_RESIDUALS; rule++)
        n += has(rule, row);
    bool others = 2 * n > DDL_RESIDUALS;
    snprintf(out, size, "%s", row->applies ? row->where : others ? "a rule other than " : "the rule ");
    n = others ? DDL_RESIDUALS - n : n;
    char names[256] = "";
    for (int rule = 0; rule < DDL_RESIDUALS && !row->applies; rule++) {
        if (has(rule, row) != others)
            ddl_text_append(names, sizeof names, ++at < n ? ", " : " or ", residual_rule_names[rule]);
    }
    size_t used = strlen(out);
    snprintf(out + used, size - used, "%s", names);
}

/* ---- checks ---- */

static ddl_status check_value(const struct ddl_force *force, const struct ddl_force_row *row,
                              struct ddl_error *err)
{
    const char *field = (const char *)force + row->option.offset;
    if (row->option.type == DDL_OPTION_CHOICE) {
        char where[64];
        snprintf(where, sizeof where, "force: %s", row->option.name);
        return ddl_choice_check(where, row->option.choices, *(const int *)(const void *)field, err);
    }
    float value = *(const float *)(const void *)field;
    if (isfinite(value) && value >= 0)
        return DDL_OK;
    return ddl_error_set(err, DDL_E_USAGE, "force: %s: expected a number of at least 0, found %g",
                         row->option.name, (double)value);
}

static ddl_status check_values(const struct ddl_force *force, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (const struct ddl_force_row *row = rows; row->key && !status; row++) {
        if (force->keys & row->key)
            status = check_value(force, row, err);
    }
    for (const struct ddl_force_row *row = rows; row->key && !status; row++) {
        for (const struct ddl_force_row *other = row; other->key && !status; other++) {
            if (force->keys & row->key && force->keys & other->key & row->replaces)
                status = ddl_error_set(err, DDL_E_USAGE, "force: expected one of %s and %s, found both",
                                       row->option.name, other->option.name);
        }
    }
    return status;
}

/* That the keys apply to the sublayer. */
static ddl_status check_keys(const struct ddl_config *k, size_t layer, int sub, unsigned keys,
                             struct ddl_error *err)
{
    unsigned known = 0;
    for (const struct ddl_force_row *row = rows; row->key; row++) {
        known |= row->key;
        if (!(keys & row->key))
            continue;
        if (row->applies && (!row->applies(k, layer) || sub != row->sub))
            return ddl_error_set(err, DDL_E_USAGE,
                                 "force: %s does not apply to layer %zu %s: expected a layer with %s",
                                 row->option.name, layer, ddl_sublayer_names[sub], row->where);
        if (!row->applies && !(residual_rule_of(k, layer)->force_keys & row->key))
            return ddl_error_set(err, DDL_E_USAGE,
                                 "force: %s does not apply to layer %zu: its residual rule is %s",
                                 row->option.name, layer, ddl_config_residual_name(k, layer));
    }
    return keys & ~known ? ddl_error_set(err, DDL_E_USAGE,
                                         "force: keys: expected a sum of enum ddl_force_key, found %u", keys)
                         : DDL_OK;
}

/* That the rule of the layer has such a mixture. */
static ddl_status check_mix(const struct ddl_config *k, size_t layer, const struct ddl_force *force,
                            struct ddl_error *err)
{
    unsigned mixes = ddl_config_force_mixes(k, layer);
    char names[64] = "";
    size_t n = 0, at = 0;
    if (!(force->keys & DDL_FORCE_MIX) || mixes >> force->mix & 1)
        return DDL_OK;
    for (int mix = 0; mix < DDL_MIXES; mix++)
        n += mixes >> mix & 1;
    for (int mix = 0; mix < DDL_MIXES; mix++) {
        if (mixes >> mix & 1)
            ddl_text_append(names, sizeof names, ++at < n ? ", " : " or ", ddl_force_mix_names[mix]);
    }
    return ddl_error_set(err, DDL_E_USAGE,
                         "force: mix: expected %s in layer %zu, whose residual rule is %s, found %s", names,
                         layer, ddl_config_residual_name(k, layer), ddl_force_mix_names[force->mix]);
}

static ddl_status check_force(const ddl_model *model, size_t layer, int sub, const struct ddl_force *force,
                              struct ddl_error *err)
{
    const struct ddl_config *k = &model->config;
    if (layer >= k->n_layers)
        return ddl_error_set(err, DDL_E_USAGE, "force: layer: expected 0 to %zu, found %zu", k->n_layers - 1,
                             layer);
    if (sub < 0 || sub >= DDL_SUBLAYERS)
        return ddl_error_set(err, DDL_E_USAGE, "force: sublayer: expected attn or mlp, found number %d", sub);
    ddl_status status = force ? check_keys(k, layer, sub, force->keys, err) : DDL_OK;
    if (!status && force)
        status = check_values(force, err);
    return status || !force ? status : check_mix(k, layer, force, err);
}

ddl_status ddl_model_force(ddl_model *model, size_t layer, int sub, const struct ddl_force *force,
                           struct ddl_error *err)
{
    ddl_status status = check_force(model, layer, sub, force, err);
    if (status)
        return status;
    if (!model->forces &&
        !(model->forces = ddl_mem_zalloc(DDL_SUBLAYERS * model->config.n_layers * sizeof *model->forces)))
        return ddl_error_set(err, DDL_E_MEMORY, "model: out of memory for forced updates");
    struct ddl_force *at = &model->forces[DDL_SUBLAYERS * layer + (size_t)sub];
    model->n_forced -= at->keys != 0;
    *at = force ? *force : (struct ddl_force){ 0 };
    if ((at->keys & DDL_FORCE_F_SCALE) && at->f_scale == 1)
        at->keys &= ~(unsigned)DDL_FORCE_F_SCALE; /* F then adds to the stream as without a force */
    model->n_forced += at->keys != 0;
    return DDL_OK;
}

void ddl_model_clear_forces(ddl_model *model)
{
    ddl_mem_free(model->forces);
    model->forces = NULL;
    model->n_forced = 0;
}

void force_exchange(ddl_model *model, struct force_set *set)
{
    const struct force_set had = { model->forces, model->n_forced };
    model->forces = set->sublayer;
    model->n_forced = set->n;
    *set = had;
}

ddl_status force_set_make(struct force_set *out, ddl_model *model, const struct ddl_force *forces,
                          struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    *out = (struct force_set){ 0 };
    force_exchange(model, out);
    for (size_t s = 0; !status && s < DDL_SUBLAYERS * model->config.n_layers; s++)
        status = ddl_model_force(model, s / DDL_SUBLAYERS, (int)(s % DDL_SUBLAYERS), &forces[s], err);
    force_exchange(model, out);
    return status;
}

void force_set_free(struct force_set *set)
{
    ddl_mem_free(set->sublayer);
    *set = (struct force_set){ 0 };
}

const struct ddl_force *model_forced(const ddl_model *model, size_t layer, int sub)
{
    if (!model->n_forced)
        return NULL;
    const struct ddl_force *force = &model->forces[DDL_SUBLAYERS * layer + (size_t)sub];
    return force->keys ? force : NULL;
}

/* One number for the factor, and its padding, before F's output. */
enum { FACTOR = DDL_ALIGN / sizeof(float) };

ddl_status force_reserve(ddl_workspace *ws, const ddl_model *model, struct ddl_error *err)
{
    bool is_scaled = false;
    for (size_t s = 0; model->n_forced && s < DDL_SUBLAYERS * model->config.n_layers; s++)
        is_scaled |= (model->forces[s].keys & DDL_FORCE_F_SCALE) != 0;
    if (ws->forced || !is_scaled)
        return DDL_OK;
    size_t numbers = ws->options.batch * ws->options.tokens * model->config.d_model + FACTOR;
    ws->forced = model->backend->ops->alloc(model->backend->ctx, numbers * sizeof *ws->forced);
    if (!ws->forced)
        return ddl_error_set(err, DDL_E_MEMORY, "workspace: out of memory for %zu numbers of forced updates",
                             numbers);
    return DDL_OK;
}

void force_release(ddl_workspace *ws)
{
    if (ws->forced)
        ws->model->backend->ops->free(ws->model->backend->ctx, ws->forced);
}

float *force_f(const struct pass *p)
{
    return p->ws->forced + FACTOR;
}

void force_add_f(const struct pass *p, float factor, float *out)
{
    p->ops->fill(p->ctx, &(struct fill_args){ 1, factor, p->ws->forced });
    p->ops->scale_fwd(
        p->ctx,
        &(struct scale_args){
            .N = p->N, .d = p->config->d_model, .w = 1, .f = force_f(p), .lambda = p->ws->forced, .X = out });
}

const float *force_value_mix(const struct pass *p, size_t layer)
{
    const struct ddl_force *force = model_forced(p->m, layer, ATTN);
    bool own = force && force->keys & DDL_FORCE_VALUES;
    return own ? NULL : param_value(p, p->m->params.layer[layer].v_mix);
}
