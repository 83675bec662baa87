/* Cases of diagnostics: a .json file with the figures of a model's delta sublayers on the batch of a model
 * case, and the losses under forced updates. The model case `case` is a folder beside the file's folder. */
#include "verify/internal.h"

#include "base/file.h"
#include "base/json.h"
#include "ddl/force.h"
#include "ddl/inspect.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 16 << 20, MAX_PATH = 2048 };

struct inspect_case {
    struct context *c;
    json_t *expected;
    char folder[MAX_PATH]; /* of the model case */
    ddl_safetensors *expect;
    ddl_model *model;
    ddl_inspection *inspection;
    struct ddl_batch batch;
};

/* found against a number, or null for one that is not finite. */
static ddl_status compare_figure(struct inspect_case *t, const char *quantity, const char *name,
                                 const json_t *expected, double found, struct ddl_error *err)
{
    if (json_is_null(expected))
        measure(t->c, quantity, LIMIT_INSPECT, name, isfinite(found) ? (double)INFINITY : 0);
    else if (json_is_number(expected))
        compare_number(t->c, quantity, LIMIT_INSPECT, name, found, json_number_value(expected));
    else
        return ddl_error_set(err, DDL_E_FORMAT, "%s: %s: expected a number or null", t->c->path, name);
    return DDL_OK;
}

/* The sublayer of the inspection for an entry's layer and sub. */
static const struct ddl_inspect_sublayer *find_sublayer(const struct inspect_case *t, const json_t *entry)
{
    const char *sub = json_string_value(json_object_get(entry, "sub"));
    json_int_t layer = json_integer_value(json_object_get(entry, "layer"));
    for (size_t s = 0; sub && s < ddl_inspect_n_sublayers(t->inspection); s++) {
        const struct ddl_inspect_sublayer *sublayer = ddl_inspect_sublayer(t->inspection, s);
        if ((json_int_t)sublayer->layer == layer && strcmp(sub, ddl_sublayer_names[sublayer->sub]) == 0)
            return sublayer;
    }
    return NULL;
}

static ddl_status check_channels(struct inspect_case *t, const struct ddl_inspect_sublayer *sublayer,
                                 const json_t *list, struct ddl_error *err)
{
    size_t c = ddl_model_config(t->model)->channels;
    ddl_status status = DDL_OK;
    if (json_array_size(list) != c)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: channel_rms: expected %zu numbers, found %zu",
                             t->c->path, c, json_array_size(list));
    for (size_t j = 0; j < c && !status; j++)
        status = compare_figure(t, "figures", "channel_rms", json_array_get(list, j),
                                sublayer->channel_rms[j], err);
    return status;
}

/* Every figure of an entry but layer and sub. */
static ddl_status check_sublayer(struct inspect_case *t, json_t *entry, struct ddl_error *err)
{
    const struct ddl_inspect_sublayer *sublayer = find_sublayer(t, entry);
    const struct ddl_figure *list[DDL_MOST_FIGURES];
    size_t n = ddl_figure_list(list);
    const char *name;
    json_t *value;
    ddl_status status = DDL_OK;
    if (!sublayer)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: sublayers: expected layer and sub of the model",
                             t->c->path);
    json_object_foreach(entry, name, value)
    {
        char label[96];
        size_t figure = 0;
        if (status || strcmp(name, "layer") == 0 || strcmp(name, "sub") == 0)
            continue;
        while (figure < n && strcmp(list[figure]->name, name) != 0)
            figure++;
        snprintf(label, sizeof label, "%.40s, layer %zu %s", name, sublayer->layer,
                 ddl_sublayer_names[sublayer->sub]);
        if (figure < n)
            status = compare_figure(t, "figures", label, value, sublayer->figures.value[figure], err);
        else if (strcmp(name, "channel_rms") == 0)
            status = check_channels(t, sublayer, value, err);
        else
            status = ddl_error_set(err, DDL_E_FORMAT, "%s: unknown figure %.64s", t->c->path, name);
    }
    return status;
}

static ddl_status check_depth(struct inspect_case *t, struct ddl_error *err)
{
    const struct ddl_inspect_depth *found = ddl_inspect_depth(t->inspection);
    const json_t *depth = json_object_get(t->expected, "depth");
    if (!depth || !found)
        return DDL_OK;
    ddl_status status =
        compare_figure(t, "depth", "sigma_max", json_object_get(depth, "sigma_max"), found->sigma_max, err);
    if (!status)
        status = compare_figure(t, "depth", "sigma_min", json_object_get(depth, "sigma_min"),
                                found->sigma_min, err);
    if (!status)
        status =
            compare_figure(t, "depth", "log_det", json_object_get(depth, "log_det"), found->log_det, err);
    return status;
}

/* ---- forced updates ---- */

/* The keys of struct ddl_force that an object has. */
static ddl_status read_force(const struct inspect_case *t, const json_t *json, struct ddl_force *out,
                             struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    *out = (struct ddl_force){ 0 };
    for (const struct ddl_force_row *row = ddl_force_rows(); row->key && !status; row++) {
        const json_t *value = json_object_get(json, row->option.name);
        char text[64];
        if (!value)
            continue;
        if (json_is_string(value))
            snprintf(text, sizeof text, "%s", json_string_value(value));
        else
            snprintf(text, sizeof text, "%.9g", json_number_value(value));
        status = ddl_option_set(&row->option, out, text, row->option.name, err);
        out->keys |= row->key;
    }
    if (!status && !out->keys)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: force: expected a key of forced updates, found none",
                             t->c->path);
    return status;
}

/* Forces the sublayers that layers ("all" or a number) and sub ("both" or a name) select, of those that
 * accept the keys. */
static ddl_status apply_force(struct inspect_case *t, const json_t *json, struct ddl_error *err)
{
    const char *layers = json_string_value(json_object_get(json, "layers"));
    const char *sub = json_string_value(json_object_get(json, "sub"));
    const struct ddl_config *k = ddl_model_config(t->model);
    struct ddl_force force;
    ddl_status status = read_force(t, json, &force, err);
    if (!status && (!layers || !sub))
        status = ddl_error_set(err, DDL_E_FORMAT, "%s: force: expected layers and sub", t->c->path);
    if (status)
        return status;
    size_t first = strcmp(layers, "all") == 0 ? 0 : strtoul(layers, NULL, 10);
    size_t end = strcmp(layers, "all") == 0 || first >= k->n_layers ? k->n_layers : first + 1;
    ddl_model_clear_forces(t->model);
    for (size_t l = first; l < end; l++) {
        bool accepts = (ddl_config_force_keys(k, l) & force.keys) == force.keys;
        for (int s = 0; s < DDL_SUBLAYERS && accepts && !status; s++) {
            if (strcmp(sub, "both") == 0 || strcmp(sub, ddl_sublayer_names[s]) == 0)
                status = ddl_model_force(t->model, l, s, &force, err);
        }
    }
    return status;
}

static ddl_status check_forced(struct inspect_case *t, struct ddl_error *err)
{
    const json_t *list = json_object_get(t->expected, "forced");
    const struct ddl_workspace_options options = { .batch = t->batch.B, .tokens = t->batch.T };
    ddl_workspace *ws;
    ddl_status status = ddl_workspace_create(&ws, t->model, &options, err);
    for (size_t i = 0; i < json_array_size(list) && !status; i++) {
        const json_t *entry = json_array_get(list, i);
        struct ddl_loss loss;
        char label[32];
        snprintf(label, sizeof label, "forced[%zu]", i);
        status = apply_force(t, json_object_get(entry, "force"), err);
        if (!status)
            status = ddl_model_loss(t->model, ws, &t->batch, &loss, NULL, err);
        if (!status)
            status = compare_figure(t, "forced", label, json_object_get(entry, "loss"),
                                    loss.sum / (double)loss.n_targets, err);
    }
    ddl_model_clear_forces(t->model);
    ddl_workspace_free(ws);
    return status;
}

/* ---- a case ---- */

/* Inspects the batch; the figures without a force, and the loss. */
static ddl_status check_figures(struct inspect_case *t, struct ddl_error *err)
{
    const struct ddl_inspect_config config = { .seq = t->batch.T, .batch = t->batch.B, .spectrum_tokens = 1 };
    const json_t *list = json_object_get(t->expected, "sublayers");
    ddl_status status = ddl_inspect_create(&t->inspection, t->model, &config, 0, err);
    if (!status)
        status = ddl_inspect_batch(t->inspection, &t->batch, err);
    if (!status)
        status = ddl_inspect_finish(t->inspection, err);
    if (status)
        return status;
    struct ddl_loss loss = ddl_inspect_loss(t->inspection);
    status = compare_figure(t, "loss", "loss", json_object_get(t->expected, "loss"),
                            loss.sum / (double)loss.n_targets, err);
    for (size_t i = 0; i < json_array_size(list) && !status; i++)
        status = check_sublayer(t, json_array_get(list, i), err);
    return status ? status : check_depth(t, err);
}

/* The folder of the model case, and its batch. */
static ddl_status open_case(struct inspect_case *t, struct ddl_error *err)
{
    char path[MAX_PATH];
    const char *name = json_string_value(json_object_get(t->expected, "case"));
    const char *slash = strrchr(t->c->path, '/');
    if (!name)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: case: expected the name of a model case", t->c->path);
    int n = snprintf(t->folder, sizeof t->folder, "%.*s/../%s", slash ? (int)(slash - t->c->path) : 1,
                     slash ? t->c->path : ".", name);
    if (n < 0 || (size_t)n >= sizeof t->folder ||
        !ddl_path_join(path, sizeof path, t->folder, "expect.safetensors"))
        return ddl_error_set(err, DDL_E_USAGE, "%s: the path is too long", t->c->path);
    if (!ddl_file_exists(path)) {
        t->c->result->outcome = DDL_VERIFY_SKIP;
        snprintf(t->c->result->message, sizeof t->c->result->message, "skipped: no model case %.900s",
                 t->folder);
        return DDL_OK;
    }
    ddl_status status = ddl_safetensors_open(&t->expect, path, err);
    if (!status)
        status = read_model_batch(t->c, t->expect, &t->batch, err);
    if (!status)
        status = ddl_model_load(&t->model, t->folder, t->c->backend, NULL, NULL, err);
    return status;
}

ddl_status check_inspect(struct context *c, struct ddl_error *err)
{
    struct inspect_case t = { .c = c };
    ddl_status status = ddl_json_read(&t.expected, c->path, FILE_LIMIT, err);
    if (!status)
        status = open_case(&t, err);
    if (!status && t.model)
        status = check_figures(&t, err);
    if (!status && t.model)
        status = check_forced(&t, err);
    ddl_inspect_free(t.inspection);
    ddl_model_free(t.model);
    ddl_safetensors_close(t.expect);
    json_decref(t.expected);
    return status;
}
