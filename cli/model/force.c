#include "cli/model/force.h"

#include "cli/model/layers.h"
#include "ddl/text.h"

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

/* What selects sublayers. */
static const struct ddl_option selectors[] = {
    { .name = "layers", .type = DDL_OPTION_STRING },
    { .name = "sub", .type = DDL_OPTION_CHOICE, .offset = offsetof(struct spec, sub), .choices = subs },
};
enum { LAYERS, SUB, SELECTORS };

/* The row of a key of struct ddl_force by its name; NULL if there is none. */
static const struct ddl_force_row *key_row(const char *name)
{
    const struct ddl_force_row *row = ddl_force_rows();
    while (row->key && strcmp(row->option.name, name) != 0)
        row++;
    return row->key ? row : NULL;
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

enum { MOST_KEYS = 32 };

static ddl_status unknown_key(const char *name, struct ddl_error *err)
{
    struct ddl_option all[MOST_KEYS + 1] = { selectors[LAYERS], selectors[SUB] };
    const struct ddl_force_row *row = ddl_force_rows();
    for (size_t i = SELECTORS; row->key && i < MOST_KEYS; i++, row++)
        all[i] = row->option;
    return ddl_option_unknown(all, NULL, "key", name, err);
}

static ddl_status add_value(struct spec *spec, const char *name, const char *value,
                            const struct ddl_config *config, struct ddl_error *err)
{
    const struct ddl_force_row *row = key_row(name);
    if (strcmp(name, selectors[LAYERS].name) == 0)
        return add_layers(spec, value, config->n_layers, err);
    if (strcmp(name, selectors[SUB].name) == 0)
        return ddl_option_set(&selectors[SUB], spec, value, name, err);
    if (!row)
        return unknown_key(name, err);
    spec->force.keys |= row->key;
    if (row->has_mean && strcmp(value, "mean") == 0) {
        spec->mean = true;
        return DDL_OK;
    }
    spec->mean = spec->mean && !row->has_mean;
    struct ddl_option option = row->option;
    option.max = row->most ? row->most(config) : option.max;
    return ddl_option_set(&option, &spec->force, value, option.name, err);
}

/* "expected one of a, b and c, found none". */
static ddl_status no_key(struct ddl_error *err)
{
    char names[256] = "";
    for (const struct ddl_force_row *row = ddl_force_rows(); row->key; row++)
        ddl_text_append(names, sizeof names, row[1].key ? ", " : " and ", row->option.name);
    return ddl_error_set(err, DDL_E_USAGE, "expected one of %s, found none", names);
}

/* KEY=VALUE pairs with commas between them; the value of layers may be a list with commas itself. `text` is
 * changed. */
static ddl_status read_spec(struct spec *spec, char *text, const struct ddl_config *config,
                            struct ddl_error *err)
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
            status = add_layers(spec, part, config->n_layers, err);
            continue;
        }
        if (!equals)
            return ddl_error_set(err, DDL_E_USAGE, "expected KEY=VALUE, found '%.40s'", part);
        *equals = '\0';
        in_layers = strcmp(part, "layers") == 0;
        layers = layers || in_layers;
        status = add_value(spec, part, equals + 1, config, err);
    }
    spec->all = spec->all || !layers;
    if (!status && !spec->force.keys)
        status = no_key(err);
    return status;
}

/* ---- what it applies to ---- */

/* The spec's keys for sublayer `sub`. */
static unsigned keys_of(const struct spec *spec, int sub)
{
    unsigned keys = spec->force.keys;
    for (const struct ddl_force_row *row = ddl_force_rows(); row->key; row++)
        keys &= row->sub == DDL_SUBLAYERS || row->sub == sub ? ~0U : ~row->key;
    return keys;
}

/* Adds keys of the spec to those of the sublayer. */
static void merge(struct sublayer_force *to, const struct spec *spec, unsigned keys)
{
    for (const struct ddl_force_row *row = ddl_force_rows(); row->key; row++) {
        if (!(keys & row->key))
            continue;
        memcpy((char *)&to->force + row->option.offset, (const char *)&spec->force + row->option.offset,
               row->option.type == DDL_OPTION_CHOICE ? sizeof(int) : sizeof(float));
        to->force.keys &= ~row->replaces;
        if (row->has_mean || row->replaces) /* the mean belongs to one of keys that replace each other */
            to->mean = spec->mean;
    }
    to->force.keys |= keys;
}

/* A message that names the first key of the spec that the layer does not accept. */
static ddl_status not_accepted(const struct spec *spec, const struct ddl_config *config, size_t layer,
                               struct ddl_error *err)
{
    unsigned rejected = spec->force.keys & ~ddl_config_force_keys(config, layer);
    const struct ddl_force_row *row = ddl_force_rows();
    char keys[128], layers[256];
    while (!((rejected ? rejected : spec->force.keys) & row->key))
        row++;
    ddl_force_group(row, keys, sizeof keys);
    ddl_force_layers(row, layers, sizeof layers);
    if (spec->all)
        return ddl_error_set(err, DDL_E_USAGE, "%s: expected layers with %s, the model has none", keys,
                             layers);
    return ddl_error_set(err, DDL_E_USAGE, "%s: expected a layer with %s, layer %zu has the rule %s", keys,
                         layers, layer, ddl_config_residual_name(config, layer));
}

/* That no two keys of the spec replace each other. */
static ddl_status check_together(const struct spec *spec, struct ddl_error *err)
{
    for (const struct ddl_force_row *row = ddl_force_rows(); row->key; row++) {
        for (const struct ddl_force_row *other = row; other->key; other++) {
            if (spec->force.keys & row->key && spec->force.keys & other->key & row->replaces)
                return ddl_error_set(err, DDL_E_USAGE, "expected one of %s and %s, found both",
                                     row->option.name, other->option.name);
        }
    }
    return DDL_OK;
}

/* That some key applies to the sublayers that the spec names. */
static ddl_status check_sub(const struct spec *spec, struct ddl_error *err)
{
    const struct ddl_force_row *row = ddl_force_rows();
    if (spec->sub == ALL || keys_of(spec, spec->sub))
        return DDL_OK;
    while (!(spec->force.keys & row->key))
        row++;
    return ddl_error_set(err, DDL_E_USAGE, "%s: expected sub=%s, found sub=%s", row->option.name,
                         subs[row->sub], subs[spec->sub]);
}

static ddl_status add_spec(struct force_plan *plan, const struct spec *spec, const struct ddl_config *config,
                           struct ddl_error *err)
{
    size_t n = 0;
    ddl_status status = check_together(spec, err);
    if (!status)
        status = check_sub(spec, err);
    if (status)
        return status;
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
    return plan->sublayer ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "out of memory for forced updates");
}

ddl_status force_plan_make(struct force_plan *plan, const char *name, const char *specs,
                           const struct ddl_config *config, struct ddl_error *err)
{
    ddl_status status = begin(plan, config, err);
    for (const char *line = specs; *line && !status;) {
        char text[FORCE_SIZE], where[FORCE_SIZE];
        size_t length = strcspn(line, "\n");
        struct spec spec;
        snprintf(text, sizeof text, "%.*s", (int)length, line);
        snprintf(where, sizeof where, "%s '%.200s'", name, text);
        status = length < sizeof text
                     ? read_spec(&spec, text, config, err)
                     : ddl_error_set(err, DDL_E_USAGE, "expected at most %zu bytes, found %zu",
                                     sizeof text - 1, length);
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
        const struct ddl_force_row *row = ddl_force_rows();
        while (row->key && !(row->closes && keys & row->key))
            row++;
        plan->sublayer[s].force.keys = row->key;
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
    for (const struct ddl_force_row *row = ddl_force_rows(); row->key && used < size; row++) {
        char value[64];
        if (!(row->key & force->force.keys))
            continue;
        ddl_option_format(&row->option, &force->force, value, sizeof value);
        bool mean = force->mean && row->has_mean;
        int n = snprintf(out + used, size - used, "%s%s=%s", used ? "," : "", row->option.name,
                         mean ? "mean" : value);
        used += (size_t)n;
    }
}

const struct note *force_notes(void)
{
    static char names[MOST_KEYS][64], abouts[MOST_KEYS][384];
    static struct note notes[MOST_KEYS + 1];
    const struct ddl_force_row *row = ddl_force_rows();
    for (size_t i = 0; row->key && i < MOST_KEYS; i++, row++) {
        char layers[256];
        size_t used = (size_t)snprintf(names[i], sizeof names[i], "%s=", row->option.name);
        for (size_t c = 0; row->option.choices && row->option.choices[c]; c++)
            used += (size_t)snprintf(names[i] + used, sizeof names[i] - used, "%s%s", c ? "|" : "",
                                     row->option.choices[c]);
        snprintf(names[i] + used, sizeof names[i] - used, "%s%s",
                 row->option.choices ? "" : row->option.value, row->has_mean ? "|mean" : "");
        ddl_force_layers(row, layers, sizeof layers);
        snprintf(abouts[i], sizeof abouts[i], "%s%s; layers with %s", row->option.help,
                 row->has_mean ? " (mean: its mean on the same tokens)" : "", layers);
        notes[i] = (struct note){ names[i], abouts[i] };
    }
    return notes;
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
