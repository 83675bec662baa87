/* The protocol of a sweep: what it is to decide, written before it starts. sweep_list.c reads it again. */
#include "study/recipes.h"
#include "study/contrast_terms.h"
#include "study/sweep_internal.h"

#include "base/json.h"
#include "base/locale.h"
#include "base/path.h"
#include "ddl/data.h"
#include "train/config/run_data.h"
#include "train/config/train_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ddl_sweep_protocol_is_set(const struct ddl_sweep_protocol *protocol)
{
    return *protocol->primary != '\0';
}

/* The lines of a text as values of an array. */
static void write_lines(struct ddl_json *json, const char *key, const char *lines)
{
    ddl_json_open(json, key, '[');
    while (*lines) {
        char line[sizeof((struct ddl_sweep_protocol *)0)->secondary];
        const size_t n = strcspn(lines, "\n");
        memcpy(line, lines, n);
        line[n] = '\0';
        ddl_json_string(json, NULL, line);
        lines += n + (lines[n] == '\n');
    }
    ddl_json_close(json, ']');
}

void sweep_write_protocol(struct ddl_json *json, const struct ddl_sweep_protocol *protocol)
{
    if (!ddl_sweep_protocol_is_set(protocol))
        return;
    ddl_json_open(json, "protocol", '{');
    ddl_json_string(json, "question", protocol->question);
    ddl_json_string(json, "primary", protocol->primary);
    write_lines(json, "secondary", protocol->secondary);
    ddl_json_number(json, "margin", protocol->margin, 10);
    ddl_json_number(json, "power", protocol->power, 10);
    ddl_json_number(json, "level", protocol->level, 10);
    ddl_json_string(json, "stopping", protocol->stopping);
    ddl_json_close(json, '}');
}

/* The first text that differs, and what is there; or numbers as text. */
struct change {
    const char *key;
    char before[160], after[160];
};

static bool find_change(const struct ddl_sweep_protocol *a, const struct ddl_sweep_protocol *b,
                        struct change *out)
{
    const struct {
        const char *key, *a, *b;
    } texts[] = { { "primary", a->primary, b->primary },
                  { "secondary", a->secondary, b->secondary },
                  { "stopping", a->stopping, b->stopping },
                  { "question", a->question, b->question } };
    const struct {
        const char *key;
        double a, b;
    } numbers[] = { { "margin", a->margin, b->margin },
                    { "power", a->power, b->power },
                    { "level", a->level, b->level } };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(texts[i].a, texts[i].b) == 0)
            continue;
        out->key = texts[i].key;
        snprintf(out->before, sizeof out->before, "'%.120s'", texts[i].a);
        snprintf(out->after, sizeof out->after, "'%.120s'", texts[i].b);
        return true;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (fabs(numbers[i].a - numbers[i].b) <= 1e-8 * fabs(numbers[i].b)) /* the record has 10 digits */
            continue;
        out->key = numbers[i].key;
        ddl_format_double(out->before, sizeof out->before, 10, 'g', numbers[i].a);
        ddl_format_double(out->after, sizeof out->after, 10, 'g', numbers[i].b);
        return true;
    }
    return false;
}

ddl_status sweep_check_recorded_protocol(const struct ddl_sweep *sweep,
                                         const struct ddl_sweep_protocol *recorded, struct ddl_error *err)
{
    struct change change;
    const bool was = ddl_sweep_protocol_is_set(recorded), is = ddl_sweep_protocol_is_set(&sweep->protocol);
    if (was != is)
        return ddl_error_set(
            err, DDL_E_USAGE,
            "%s: protocol: it was %s after runs have started: expected that of %s/sweep.json, "
            "or another out",
            sweep->path, is ? "added" : "removed", sweep->out);
    return is && find_change(recorded, &sweep->protocol, &change)
               ? ddl_error_set(err, DDL_E_USAGE,
                               "%s: protocol: %s was changed after runs have started: expected %s, found %s; "
                               "choose another out for another protocol",
                               sweep->path, change.key, change.before, change.after)
               : DDL_OK;
}

/* Validation data as text, for shards that do not exist yet: `auto` is that of train_data, a path is the
 * file's or the folder's. */
static void name_val_data(const struct ddl_train_config *config, char *out, size_t size)
{
    const char *text = strcmp(config->val_data, "auto") == 0 ? config->train_data : config->val_data;
    if (!ddl_path_canonical(text, out, size))
        snprintf(out, size, "%s", text);
}

static bool have_same_name(const struct ddl_train_config *a, const struct ddl_train_config *b)
{
    char x[4096], y[4096];
    name_val_data(a, x, sizeof x);
    name_val_data(b, y, sizeof y);
    return strcmp(x, y) == 0;
}

static bool is_validated(const struct ddl_train_config *config)
{
    return *config->val_data && strcmp(config->val_data, "none") != 0;
}

/* Opens the validation shards of a run; *out is NULL if it has none. */
static ddl_status open_val(const struct ddl_train_config *config, ddl_shards **out, struct ddl_error *err)
{
    ddl_shards *train = NULL;
    const bool is_auto = strcmp(config->val_data, "auto") == 0;
    *out = NULL;
    ddl_status status = is_auto ? ddl_train_open_train(config, &train, err) : DDL_OK;
    if (!status)
        status = ddl_train_open_val(config, train, out, err);
    ddl_shards_close(train);
    return status;
}

static const char *canonical_file(const ddl_shards *shards, size_t i, char *out, size_t size)
{
    const char *path = ddl_shards_file(shards, i, NULL, NULL);
    return ddl_path_canonical(path, out, size) ? out : path;
}

static bool share_file(const ddl_shards *a, const ddl_shards *b)
{
    for (size_t i = 0; i < ddl_shards_n_files(a); i++) {
        char x[4096], y[4096];
        const char *file = canonical_file(a, i, x, sizeof x);
        for (size_t j = 0; j < ddl_shards_n_files(b); j++) {
            if (strcmp(file, canonical_file(b, j, y, sizeof y)) == 0)
                return true;
        }
    }
    return false;
}

/* Whether two runs are validated on the same file. Shards that cannot be opened are compared by name: before
 * runs start, their data is checked. */
static bool share_val_data(const struct ddl_train_config *a, const struct ddl_train_config *b)
{
    ddl_shards *x = NULL, *y = NULL;
    if (!is_validated(a) || !is_validated(b))
        return false;
    bool opened = !open_val(a, &x, NULL) && !open_val(b, &y, NULL);
    bool shared = opened ? x && y && share_file(x, y) : have_same_name(a, b);
    ddl_shards_close(x);
    ddl_shards_close(y);
    return shared;
}

/* Whether a pair of runs has the data of an earlier one: the last pair that was compared. */
static bool is_same_pair(const struct ddl_train_config *const *last,
                         const struct ddl_train_config *const *pair)
{
    for (size_t i = 0; i < 2; i++) {
        if (!last[i] || strcmp(last[i]->val_data, pair[i]->val_data) != 0 ||
            strcmp(last[i]->train_data, pair[i]->train_data) != 0 || last[i]->format != pair[i]->format)
            return false;
    }
    return true;
}

/* The contrasts in the lines: their groups are the settings. */
static ddl_status check_lines(const struct contrast_groups *groups, const char *lines, double *weights,
                              struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    while (!status && *lines) {
        char line[sizeof((struct ddl_sweep_protocol *)0)->secondary];
        const size_t n = strcspn(lines, "\n");
        memcpy(line, lines, n);
        line[n] = '\0';
        status = contrast_set_weights(groups, line, weights, err);
        lines += n + (lines[n] == '\n');
    }
    return status;
}

static ddl_status check_contrasts(const struct ddl_sweep *sweep, struct ddl_error *err)
{
    const size_t n = sweep->n_settings;
    struct contrast_groups groups = { "protocol:", calloc(n, sizeof *groups.names),
                                      calloc(n, sizeof *groups.models), n };
    double *weights = calloc(n, sizeof *weights);
    ddl_status status = DDL_OK;
    if (groups.names && groups.models && weights) {
        for (size_t s = 0; s < n; s++)
            groups.names[s] = sweep->settings[s].name;
        for (size_t i = 0; i < sweep->n_runs; i++)
            groups.models[sweep->runs[i].setting] = ddl_config_preset_name(&sweep->runs[i].config->config);
        status = check_lines(&groups, sweep->protocol.primary, weights, err);
        if (!status)
            status = check_lines(&groups, sweep->protocol.secondary, weights, err);
        if (status)
            (void)ddl_error_prefix(err, status, sweep->path);
    } else {
        status = ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", sweep->path);
    }
    free(groups.names);
    free(groups.models);
    free(weights);
    return status;
}

/* `ddl compare` makes one group of settings that compute the same. */
static ddl_status check_settings(const struct ddl_sweep *sweep, struct ddl_error *err)
{
    const struct ddl_sweep_run **first = calloc(sweep->n_settings, sizeof *first); /* of each setting */
    ddl_status status = first ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", sweep->path);
    for (size_t i = 0; !status && i < sweep->n_runs; i++) {
        const struct ddl_sweep_run *run = &sweep->runs[i];
        if (!run->is_candidate && !first[run->setting])
            first[run->setting] = run;
    }
    for (size_t a = 0; !status && a < sweep->n_settings; a++) {
        for (size_t b = 0; b < a && !status; b++) {
            if (first[a] && first[b] && recipes_are_replicates(first[a]->config, first[b]->config))
                status = ddl_error_set(err, DDL_E_USAGE,
                                       "%s: protocol: %s and %s compute the same: expected one of them",
                                       sweep->path, sweep->settings[b].name, sweep->settings[a].name);
        }
    }
    free(first);
    return status;
}

/* A candidate and a run of the same setting. *checked: the configurations whose data was compared last.
 */
static ddl_status check_pair(const struct ddl_sweep *sweep, const struct ddl_sweep_run *a,
                             const struct ddl_sweep_run *b, const struct ddl_train_config **checked,
                             struct ddl_error *err)
{
    const struct ddl_train_config *const pair[2] = { a->config, b->config };
    if (is_same_pair(checked, pair))
        return DDL_OK;
    if (share_val_data(a->config, b->config))
        return ddl_error_set(err, DDL_E_USAGE,
                             "%s: protocol: %s and %s are validated on the same data: expected "
                             "other files as val_data in choose.set than in base",
                             sweep->path, a->name, b->name);
    memcpy(checked, pair, sizeof pair);
    return DDL_OK;
}

static ddl_status check_seeds(const struct ddl_sweep *sweep, const struct ddl_sweep_run *a,
                              const struct ddl_sweep_run *b, struct ddl_error *err)
{
    return a->config->seed != b->config->seed
               ? DDL_OK
               : ddl_error_set(err, DDL_E_USAGE,
                               "%s: protocol: seed %llu of %s is also that of %s: expected seeds that no "
                               "choice has seen: set choose.seed",
                               sweep->path, (unsigned long long)a->config->seed, a->name, b->name);
}

static ddl_status check_choice(const struct ddl_sweep *sweep, struct ddl_error *err)
{
    const struct ddl_train_config *checked[2] = { NULL, NULL };
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < sweep->n_runs; i++) {
        const struct ddl_sweep_run *a = &sweep->runs[i];
        for (size_t j = 0; a->is_candidate && !status && j < sweep->n_runs; j++) {
            const struct ddl_sweep_run *b = &sweep->runs[j];
            if (!b->is_candidate)
                status = check_seeds(sweep, a, b, err);
            if (!status && !b->is_candidate && a->setting == b->setting)
                status = check_pair(sweep, a, b, checked, err);
        }
    }
    return status;
}

ddl_status sweep_check_protocol(const struct ddl_sweep *sweep, struct ddl_error *err)
{
    if (!ddl_sweep_protocol_is_set(&sweep->protocol))
        return DDL_OK;
    ddl_status status = check_contrasts(sweep, err);
    if (!status)
        status = check_settings(sweep, err);
    return status ? status : check_choice(sweep, err);
}
