#include "cli/model/force.h"

#include "cli/model/layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A spec, as it is written. */
struct spec {
    bool layer[DDL_MAX_LAYERS]; /* unless all */
    bool all;
    int sub; /* enum ddl_sublayer, or ALL */
    struct ddl_force force;
    bool mean;
};

enum { ALL = DDL_SUBLAYERS };
static const char *const subs[] = { "attn", "mlp", "all", NULL };
static const char *const updates[] = { "delta", "write", "erase", NULL };

#define AT(field) offsetof(struct spec, field)
static const struct ddl_option rows[] = {
    { .name = "layers", .type = DDL_OPTION_STRING },
    { .name = "sub", .type = DDL_OPTION_CHOICE, .offset = AT(sub), .choices = subs },
    { .name = "beta", .type = DDL_OPTION_FLOAT, .offset = AT(force.beta), .max = 2 },
    { .name = "scale", .type = DDL_OPTION_FLOAT, .offset = AT(force.scale), .max = 1e6 },
    { .name = "update", .type = DDL_OPTION_CHOICE, .offset = AT(force.update), .choices = updates },
    { .name = "mix", .type = DDL_OPTION_CHOICE, .offset = AT(force.mix), .choices = ddl_force_mix_names },
    { .name = "f_scale", .type = DDL_OPTION_FLOAT, .offset = AT(force.f_scale), .max = 1e6 },
    { .name = "values",
      .type = DDL_OPTION_CHOICE,
      .offset = AT(force.values),
      .choices = ddl_force_values_names },
    { .name = "average",
      .type = DDL_OPTION_CHOICE,
      .offset = AT(force.average),
      .choices = ddl_force_average_names },
    { 0 },
};

/* The keys of a force: how messages name them, and the layers that accept them. */
static const struct {
    const char *name;
    unsigned key;
    const char *group, *layers;
} key_rows[] = {
    { "f_scale", DDL_FORCE_F_SCALE, "f_scale", "a rule other than delta" },
    { "mix", DDL_FORCE_MIX, "mix", "the rule hyper, mhc or laurel" },
    { "values", DDL_FORCE_VALUES, "values", "value_residual above the first, sub=attn" },
    { "average", DDL_FORCE_AVERAGE, "average", "a sum of dense_average after it, sub=mlp" },
    { "beta", DDL_FORCE_BETA, "beta, scale and update", "the rule delta" },
    { "scale", DDL_FORCE_SCALE, "beta, scale and update", "the rule delta" },
    { "update", DDL_FORCE_UPDATE, "beta, scale and update", "the rule delta" },
};
enum { N_KEYS = sizeof key_rows / sizeof *key_rows };

static unsigned key_of(const char *name)
{
    for (size_t i = 0; i < N_KEYS; i++) {
        if (strcmp(name, key_rows[i].name) == 0)
            return key_rows[i].key;
    }
    return 0;
}

/* ---- reading ---- */

/* "3", "3-7" or "all", added to the spec's layers. */
static ddl_status add_layers(struct spec *spec, const char *text, size_t n_layers, struct ddl_error *err)
{
    if (strcmp(text, "all") != 0)
        return select_layers(text, n_layers, spec->layer, err);
    spec->all = true;
    return DDL_OK;
}

static ddl_status add_value(struct spec *spec, const char *name, const char *value, size_t n_layers,
                            struct ddl_error *err)
{
    const struct ddl_option *row = ddl_option_find(rows, name);
    if (!row)
        return ddl_option_unknown(rows, NULL, "key", name, err);
    if (row == &rows[0])
        return add_layers(spec, value, n_layers, err);
    spec->force.keys |= key_of(row->name);
    if (strcmp(row->name, "beta") == 0 && strcmp(value, "mean") == 0) {
        spec->mean = true;
        return DDL_OK;
    }
    return ddl_option_set(row, spec, value, row->name, err);
}

/* KEY=VALUE pairs with commas between them; the value of layers may be a list with commas itself. `text` is
 * changed. */
static ddl_status read_spec(struct spec *spec, char *text, size_t n_layers, struct ddl_error *err)
{
    bool layers = false, in_layers = false;
    ddl_status status = DDL_OK;
    *spec = (struct spec){ .sub = ALL };
    for (char *part = text, *next; part && !status; part = next) {
        next = strchr(part, ',');
        if (next)
            *next++ = '\0';
        char *equals = strchr(part, '=');
        if (!equals && in_layers) {
            status = add_layers(spec, part, n_layers, err);
            continue;
        }
        if (!equals)
            return ddl_error_set(err, DDL_E_USAGE, "expected KEY=VALUE, found '%.40s'", part);
        *equals = '\0';
        in_layers = strcmp(part, "layers") == 0;
        layers = layers || in_layers;
        status = add_value(spec, part, equals + 1, n_layers, err);
    }
    spec->all = spec->all || !layers;
    if (!status && !spec->force.keys)
        status = ddl_error_set(err, DDL_E_USAGE,
                               "expected one of beta, scale, update, f_scale, mix, values and average, found "
                               "none");
    return status;
}

/* ---- what it applies to ---- */

/* The spec's keys for sublayer `sub`: values are those of attention, and a sum of states follows an MLP. */
static unsigned keys_of(const struct spec *spec, int sub)
{
    unsigned other = sub == DDL_SUBLAYER_ATTN ? DDL_FORCE_AVERAGE : DDL_FORCE_VALUES;
    return spec->force.keys & ~other;
}

/* Adds keys of the spec to those of the sublayer. */
static void merge(struct sublayer_force *to, const struct spec *spec, unsigned keys)
{
    if (keys & (DDL_FORCE_BETA | DDL_FORCE_SCALE)) { /* one replaces the other */
        to->force.keys &= ~(unsigned)(DDL_FORCE_BETA | DDL_FORCE_SCALE);
        to->force.beta = spec->force.beta;
        to->force.scale = spec->force.scale;
        to->mean = spec->mean;
    }
    if (keys & DDL_FORCE_UPDATE)
        to->force.update = spec->force.update;
    if (keys & DDL_FORCE_F_SCALE)
        to->force.f_scale = spec->force.f_scale;
    if (keys & DDL_FORCE_MIX)
        to->force.mix = spec->force.mix;
    if (keys & DDL_FORCE_VALUES)
        to->force.values = spec->force.values;
    if (keys & DDL_FORCE_AVERAGE)
        to->force.average = spec->force.average;
    to->force.keys |= keys;
}

/* A message that names the first key of the spec that the layer does not accept. */
static ddl_status not_accepted(const struct spec *spec, const struct ddl_config *config, size_t layer,
                               struct ddl_error *err)
{
    unsigned rejected = spec->force.keys & ~ddl_config_force_keys(config, layer);
    size_t i = 0;
    while (!((rejected ? rejected : spec->force.keys) & key_rows[i].key))
        i++;
    const char *key = key_rows[i].group, *rules = key_rows[i].layers;
    if (spec->all)
        return ddl_error_set(err, DDL_E_USAGE, "%s: expected layers with %s, the model has none", key, rules);
    return ddl_error_set(err, DDL_E_USAGE, "%s: expected a layer with %s, layer %zu has the rule %s", key,
                         rules, layer, ddl_config_residual_name(config, layer));
}

static ddl_status add_spec(struct force_plan *plan, const struct spec *spec, const struct ddl_config *config,
                           struct ddl_error *err)
{
    size_t n = 0;
    if ((spec->force.keys & DDL_FORCE_BETA) && (spec->force.keys & DDL_FORCE_SCALE))
        return ddl_error_set(err, DDL_E_USAGE, "expected one of beta and scale, found both");
    for (size_t l = 0; l < config->n_layers; l++) {
        bool accepts = (spec->force.keys & ~ddl_config_force_keys(config, l)) == 0;
        if (!spec->all && spec->layer[l] && !accepts)
            return not_accepted(spec, config, l, err);
        for (int s = 0; s < DDL_SUBLAYERS && accepts && (spec->all || spec->layer[l]); s++) {
            unsigned keys = keys_of(spec, s);
            if ((spec->sub != ALL && spec->sub != s) || !keys)
                continue;
            merge(&plan->sublayer[DDL_SUBLAYERS * l + (size_t)s], spec, keys);
            n++;
        }
    }
    plan->needs_means = plan->needs_means || spec->mean;
    return n ? DDL_OK : not_accepted(spec, config, 0, err);
}

static ddl_status begin(struct force_plan *plan, const struct ddl_config *config, struct ddl_error *err)
{
    *plan = (struct force_plan){ .n = DDL_SUBLAYERS * config->n_layers };
    plan->sublayer = calloc(plan->n, sizeof *plan->sublayer);
    return plan->sublayer ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "--force: out of memory");
}

ddl_status force_plan_make(struct force_plan *plan, const char *specs, const struct ddl_config *config,
                           struct ddl_error *err)
{
    ddl_status status = begin(plan, config, err);
    for (const char *line = specs; *line && !status;) {
        char text[FORCE_SIZE], where[FORCE_SIZE + 16];
        size_t length = strcspn(line, "\n");
        struct spec spec;
        snprintf(text, sizeof text, "%.*s", (int)length, line);
        snprintf(where, sizeof where, "--force '%.200s'", text);
        status = read_spec(&spec, text, config->n_layers, err);
        if (!status)
            status = add_spec(plan, &spec, config, err);
        if (status)
            return ddl_error_prefix(err, status, where);
        line += length + (line[length] == '\n');
    }
    return status;
}

ddl_status force_plan_close_all(struct force_plan *plan, const struct ddl_config *config,
                                struct ddl_error *err)
{
    ddl_status status = begin(plan, config, err);
    for (size_t s = 0; s < plan->n && !status; s++) {
        unsigned keys = ddl_config_force_keys(config, s / DDL_SUBLAYERS);
        plan->sublayer[s].force.keys = keys & DDL_FORCE_BETA ? DDL_FORCE_BETA : keys & DDL_FORCE_F_SCALE;
    }
    return status;
}

void force_plan_free(struct force_plan *plan)
{
    free(plan->sublayer);
}

/* ---- applying ---- */

ddl_status force_plan_apply_one(const struct force_plan *plan, size_t s, ddl_model *model,
                                const ddl_inspection *means, struct ddl_error *err)
{
    const struct sublayer_force *force = &plan->sublayer[s];
    if (force->mean)
        return ddl_inspect_freeze(means, model, s, force->force, err);
    return ddl_model_force(model, s / DDL_SUBLAYERS, (int)(s % DDL_SUBLAYERS), &force->force, err);
}

ddl_status force_plan_apply(const struct force_plan *plan, ddl_model *model, const ddl_inspection *means,
                            struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t s = 0; s < plan->n && !status; s++) {
        if (plan->sublayer[s].force.keys)
            status = force_plan_apply_one(plan, s, model, means, err);
    }
    return status;
}

void force_describe(const struct sublayer_force *force, char *out, size_t size)
{
    size_t used = 0;
    *out = '\0';
    for (const struct ddl_option *row = rows; row->name && used < size; row++) {
        struct spec spec = { .force = force->force };
        char value[64];
        if (!(key_of(row->name) & force->force.keys))
            continue;
        ddl_option_format(row, &spec, value, sizeof value);
        bool mean = force->mean && strcmp(row->name, "beta") == 0;
        int n =
            snprintf(out + used, size - used, "%s%s=%s", used ? "," : "", row->name, mean ? "mean" : value);
        used += (size_t)n;
    }
}

void print_force_json(struct ddl_json *json, const char *specs)
{
    if (!*specs)
        return;
    ddl_json_open(json, "force", '[');
    for (size_t length; *specs; specs += length + (specs[length] == '\n')) {
        length = strcspn(specs, "\n");
        ddl_json_text(json, NULL, specs, length);
    }
    ddl_json_close(json, ']');
}
