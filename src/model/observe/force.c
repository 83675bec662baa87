/* Forced updates: checked and stored in the model, applied by block.c and the residual rules. */
#include "model/observe/force.h"

#include "base/mem.h"
#include "model/residual/table.h"
#include "model/pass/workspace.h"

#include <math.h>
#include <string.h>

_Static_assert((int)DDL_SUBLAYER_ATTN == (int)ATTN && (int)DDL_SUBLAYER_MLP == (int)MLP,
               "the sublayers of pass.h");

const char *const ddl_force_mix_names[] = { [DDL_MIX_IDENTITY] = "identity", [DDL_MIXES] = NULL };
const char *const ddl_force_values_names[] = { [DDL_VALUES_OWN] = "own", [DDL_VALUES] = NULL };
const char *const ddl_force_average_names[] = { [DDL_AVERAGE_NONE] = "none", [DDL_AVERAGES] = NULL };
const char *const ddl_sublayer_names[] = { [DDL_SUBLAYER_ATTN] = "attn", [DDL_SUBLAYER_MLP] = "mlp", NULL };

unsigned ddl_config_force_keys(const struct ddl_config *config, size_t layer)
{
    unsigned values = ddl_config_mixes_values(config, layer) ? DDL_FORCE_VALUES : 0;
    unsigned average = ddl_config_average_follows(config, layer) ? DDL_FORCE_AVERAGE : 0;
    return residual_rule_of(config, layer)->force_keys | values | average;
}

/* Names of the keys, as messages have them. */
static const struct {
    unsigned key;
    const char *name;
} names[] = { { DDL_FORCE_BETA, "beta" },       { DDL_FORCE_SCALE, "scale" }, { DDL_FORCE_UPDATE, "update" },
              { DDL_FORCE_F_SCALE, "f_scale" }, { DDL_FORCE_MIX, "mix" },     { DDL_FORCE_VALUES, "values" },
              { DDL_FORCE_AVERAGE, "average" } };

static ddl_status check_factor(const struct ddl_force *force, unsigned key, const char *name, float value,
                               struct ddl_error *err)
{
    if (!(force->keys & key) || (isfinite(value) && value >= 0))
        return DDL_OK;
    return ddl_error_set(err, DDL_E_USAGE, "force: %s: expected a number of at least 0, found %g", name,
                         (double)value);
}

static ddl_status check_values(const struct ddl_force *force, struct ddl_error *err)
{
    ddl_status status = check_factor(force, DDL_FORCE_BETA, "beta", force->beta, err);
    if (!status)
        status = check_factor(force, DDL_FORCE_SCALE, "scale", force->scale, err);
    if (!status)
        status = check_factor(force, DDL_FORCE_F_SCALE, "f_scale", force->f_scale, err);
    if (!status && (force->keys & DDL_FORCE_UPDATE) &&
        (force->update < DDL_UPDATE_DELTA || force->update > DDL_UPDATE_ERASE))
        status = ddl_error_set(err, DDL_E_USAGE,
                               "force: update: expected a value of enum ddl_update, found %d", force->update);
    if (!status && (force->keys & DDL_FORCE_MIX))
        status = ddl_choice_check("force: mix", ddl_force_mix_names, force->mix, err);
    if (!status && (force->keys & DDL_FORCE_VALUES))
        status = ddl_choice_check("force: values", ddl_force_values_names, force->values, err);
    if (!status && (force->keys & DDL_FORCE_AVERAGE))
        status = ddl_choice_check("force: average", ddl_force_average_names, force->average, err);
    if (!status && (force->keys & DDL_FORCE_BETA) && (force->keys & DDL_FORCE_SCALE))
        status = ddl_error_set(err, DDL_E_USAGE, "force: expected one of beta and scale, found both");
    return status;
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
    if (force && force->keys & DDL_FORCE_VALUES && (sub != ATTN || !ddl_config_mixes_values(k, layer)))
        return ddl_error_set(
            err, DDL_E_USAGE,
            "force: values does not apply to layer %zu %s: expected attention in a layer above "
            "the first, with value_residual",
            layer, ddl_sublayer_names[sub]);
    if (force && force->keys & DDL_FORCE_AVERAGE && !ddl_config_average_follows(k, layer))
        return ddl_error_set(
            err, DDL_E_USAGE,
            "force: average does not apply to layer %zu: no weighted sum of states follows it", layer);
    if (force && force->keys & DDL_FORCE_AVERAGE && sub != MLP)
        return ddl_error_set(err, DDL_E_USAGE, "force: average: expected sublayer mlp, found %s",
                             ddl_sublayer_names[sub]);
    unsigned refused = force ? force->keys & ~ddl_config_force_keys(k, layer) : 0;
    for (size_t i = 0; refused && i < sizeof names / sizeof *names; i++) {
        if (refused & names[i].key)
            return ddl_error_set(err, DDL_E_USAGE,
                                 "force: %s does not apply to layer %zu: its residual rule is %s",
                                 names[i].name, layer, residual_rule_names[ddl_config_residual(k, layer)]);
    }
    if (refused)
        return ddl_error_set(err, DDL_E_USAGE, "force: keys: expected a sum of enum ddl_force_key, found %u",
                             force->keys);
    return force ? check_values(force, err) : DDL_OK;
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

const struct ddl_force *model_forced(const ddl_model *model, size_t layer, int sub)
{
    if (!model->n_forced)
        return NULL;
    const struct ddl_force *force = &model->forces[DDL_SUBLAYERS * layer + (size_t)sub];
    return force->keys ? force : NULL;
}

/* Whether F's output has a forced factor anywhere. */
static bool scales_f(const ddl_model *model)
{
    for (size_t s = 0; model->n_forced && s < DDL_SUBLAYERS * model->config.n_layers; s++) {
        if (model->forces[s].keys & DDL_FORCE_F_SCALE)
            return true;
    }
    return false;
}

/* One number for the factor, and its padding, before F's output. */
enum { FACTOR = DDL_ALIGN / sizeof(float) };

ddl_status force_reserve(ddl_workspace *ws, const ddl_model *model, struct ddl_error *err)
{
    if (ws->forced || !scales_f(model))
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
    p->ops->upload(p->ctx, p->ws->forced, &factor, sizeof factor);
    p->ops->scale_fwd(
        p->ctx,
        &(struct scale_args){
            .N = p->N, .d = p->config->d_model, .w = 1, .f = force_f(p), .lambda = p->ws->forced, .X = out });
}
