/* The runs of a sweep: entries x grid x seeds, and before them the candidates of a choice. */
#include "study/sweep_file.h"
#include "study/sweep_internal.h"

#include "base/file.h"
#include "train/config/configure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const ddl_sweep_state_names[DDL_SWEEP_STATES] = { "waiting",  "running", "stopped",
                                                              "finished", "failed",  "stale" };

static const char candidates_folder[] = "choose";

/* ---- names ---- */

/* Appends "_key=value"; other characters than those of names become '-'. False if it does not fit. */
static bool append_value(char *name, size_t size, const char *key, const char *value)
{
    static const char kept[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
    size_t used = strlen(name);
    int n = snprintf(name + used, size - used, "_%s=%s", key, value);
    for (char *at = name + used + strlen(key) + 2; n > 0 && (size_t)n < size - used && *at; at++) {
        if (!strchr(kept, *at))
            *at = '-';
    }
    return n > 0 && (size_t)n < size - used;
}

static ddl_status too_long(const struct ddl_sweep *sweep, size_t line, const char *name,
                           struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_USAGE, "%s:%zu: the name of a run is too long: %.80s...", sweep->path,
                         line, name);
}

/* ---- configurations ---- */

/* The entry of `keys` that sets the option `key`; NULL if none does. */
static const struct ddl_recipe_entry *find_key(const struct ddl_recipe *keys, const char *key)
{
    for (size_t i = 0; i < keys->n; i++) {
        if (sweep_same_key(keys->entries[i].key, key))
            return &keys->entries[i];
    }
    return NULL;
}

static const struct ddl_recipe *seeds_of(const struct ddl_sweep_file *file, const struct sweep_entry *entry)
{
    return entry->seeds.n ? &entry->seeds : &file->seeds;
}

/* Puts file, line and entry before a message that does not have them: about keys in combination. */
static ddl_status name_place(const struct ddl_sweep *sweep, const struct sweep_entry *entry,
                             ddl_status status, struct ddl_error *err)
{
    const char *base = sweep->file->base_path;
    char where[1200];
    if (!err || strncmp(err->text, sweep->path, strlen(sweep->path)) == 0 ||
        (base && strncmp(err->text, base, strlen(base)) == 0))
        return status;
    snprintf(where, sizeof where, "%s:%zu: %s", sweep->path, entry->line, entry->name);
    return ddl_error_prefix(err, status, where);
}

ddl_status sweep_configure(const struct ddl_sweep *sweep, struct ddl_sweep_run *run, size_t value,
                           struct ddl_error *err)
{
    enum { MOST = 7 };
    struct ddl_sweep_file *file = sweep->file;
    struct sweep_pick *pick = &file->picks[run->setting];
    struct sweep_entry *entry = &file->entries[pick->entry];
    struct ddl_recipe_entry seed;
    struct ddl_recipe only_seed = { &seed, 0, 0 };
    struct ddl_train_layer layers[MOST];
    size_t n = 0;
    const struct ddl_recipe *seeds = seeds_of(file, entry);
    if (run->is_candidate && file->choose.seed.n)
        seeds = &file->choose.seed;
    if (seeds->n) {
        seed = seeds->entries[run->is_candidate ? 0 : run->value];
        only_seed.n = 1;
    }
    const struct ddl_recipe *const recipes[MOST] = { &file->base,
                                                     &file->set,
                                                     &entry->keys,
                                                     &pick->values,
                                                     run->is_candidate ? &file->choose.keys : NULL,
                                                     pick->n_candidates ? &pick->candidates[value] : NULL,
                                                     &only_seed };
    for (size_t i = 0; i < MOST; i++) {
        bool is_file = i == 0 && file->base_path;
        if (recipes[i])
            layers[n++] = (struct ddl_train_layer){ is_file ? file->base_path : sweep->path, recipes[i],
                                                    !is_file && file->relative };
    }
    ddl_status status = ddl_train_configure_layers(run->config, layers, n, err);
    if (status)
        return name_place(sweep, entry, status, err);
    if (strlen(run->folder) >= sizeof run->config->out)
        return too_long(sweep, entry->line, run->folder, err);
    memcpy(run->config->out, run->folder, strlen(run->folder) + 1);
    return DDL_OK;
}

/* ---- settings ---- */

/* The axes of an entry: the sweep's, unless it has its own of the same key, then its own. */
struct axes {
    const struct sweep_axis *axis[SWEEP_MAX_KEYS];
    size_t n;
};

static ddl_status append_axis(const struct ddl_sweep *sweep, struct axes *axes, const struct sweep_axis *axis,
                              const char *section, struct ddl_error *err)
{
    if (axes->n == SWEEP_MAX_KEYS)
        return ddl_error_set(err, DDL_E_USAGE, "%s:%zu: %s: more than %d keys", sweep->path, axis->line,
                             section, SWEEP_MAX_KEYS);
    axes->axis[axes->n++] = axis;
    return DDL_OK;
}

/* The keys that are chosen for an entry, with their values; none that it sets. */
static ddl_status collect_chosen(const struct ddl_sweep *sweep, const struct sweep_entry *entry,
                                 struct axes *out, struct ddl_error *err)
{
    const struct sweep_grid *chosen = &sweep->file->choose.axes;
    ddl_status status = DDL_OK;
    out->n = 0;
    for (size_t i = 0; !status && i < chosen->n; i++) {
        const struct sweep_axis *axis = &chosen->axes[i];
        const struct sweep_axis *own = sweep_find_axis(&entry->choose, axis->key);
        if (!find_key(&entry->keys, axis->key))
            status = append_axis(sweep, out, own ? own : axis, "choose", err);
    }
    return status;
}

/* Into *n: the number of combinations of the values; at least as many runs follow beside `other`. */
static ddl_status count_combinations(const struct ddl_sweep *sweep, const struct sweep_entry *entry,
                                     const struct axes *axes, size_t other, size_t *n, struct ddl_error *err)
{
    *n = 1;
    for (size_t i = 0; i < axes->n; i++) {
        *n *= axes->axis[i]->values.n;
        if (other + *n > SWEEP_MAX_RUNS)
            return ddl_error_set(err, DDL_E_USAGE, "%s:%zu: %s: more than %d runs", sweep->path, entry->line,
                                 entry->name, SWEEP_MAX_RUNS);
    }
    return DDL_OK;
}

/* Appends combination `index`, a value of each axis; the last axis changes fastest. */
static ddl_status append_combination(const struct axes *axes, size_t index, struct ddl_recipe *out,
                                     struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    size_t after = 1;
    for (size_t i = 0; i < axes->n; i++)
        after *= axes->axis[i]->values.n;
    for (size_t i = 0; !status && i < axes->n; i++) {
        const struct ddl_recipe *values = &axes->axis[i]->values;
        after /= values->n;
        const struct ddl_recipe_entry *value = &values->entries[index / after % values->n];
        status = ddl_recipe_append(out, axes->axis[i]->key, value->value, value->line, err);
    }
    return status;
}

static ddl_status check_axis(const struct ddl_sweep *sweep, const struct sweep_entry *entry,
                             const struct sweep_axis *axis, struct ddl_error *err)
{
    const struct ddl_recipe_entry *set = find_key(&entry->keys, axis->key);
    if (set)
        return ddl_error_set(
            err, DDL_E_USAGE,
            "%s:%zu: %s: the key is an axis of the grid (line %zu): expected a grid in the entry",
            sweep->path, set->line, set->key, axis->line);
    if (sweep_find_axis(&sweep->file->choose.axes, axis->key))
        return ddl_error_set(err, DDL_E_USAGE,
                             "%s:%zu: %s: expected a grid or a choice of this key, found both", sweep->path,
                             axis->line, axis->key);
    const struct ddl_recipe_entry *other = find_key(&sweep->file->choose.keys, axis->key);
    if (other && !sweep_same_key(axis->key, "steps"))
        return ddl_error_set(
            err, DDL_E_USAGE,
            "%s:%zu: %s: the key is an axis of the grid (line %zu): expected another in choose", sweep->path,
            other->line, other->key, axis->line);
    return DDL_OK;
}

static ddl_status collect_axes(const struct ddl_sweep *sweep, const struct sweep_entry *entry,
                               struct axes *out, struct ddl_error *err)
{
    const struct sweep_grid *const grids[] = { &sweep->file->grid, &entry->grid };
    ddl_status status = DDL_OK;
    out->n = 0;
    for (size_t g = 0; g < 2; g++) {
        for (size_t i = 0; !status && i < grids[g]->n; i++) {
            const struct sweep_axis *axis = &grids[g]->axes[i];
            const struct sweep_axis *own = sweep_find_axis(&entry->grid, axis->key);
            if (g == 1 && sweep_find_axis(&sweep->file->grid, axis->key))
                continue; /* in the place of the sweep's */
            status = append_axis(sweep, out, own ? own : axis, "grid", err);
            if (!status)
                status = check_axis(sweep, entry, own ? own : axis, err);
        }
    }
    return status;
}

/* A value of a list. */
struct value {
    const char *text; /* that equal values share */
    size_t index;
};

static int by_text(const void *a, const void *b)
{
    const struct value *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

/* Refuses a list with a value that occurs twice, or with more values than a sweep has runs. */
static ddl_status check_values(const struct ddl_sweep *sweep, const char *key,
                               const struct ddl_recipe *values, struct ddl_error *err)
{
    const struct ddl_option *row = sweep_key_row(key);
    size_t n = values->n, used = 0, first = 0, second = n;
    if (n > SWEEP_MAX_RUNS)
        return ddl_error_set(err, DDL_E_USAGE, "%s:%zu: %s: expected at most %d values, found %zu",
                             sweep->path, values->entries[0].line, key, SWEEP_MAX_RUNS, n);
    if (!row || n == 0)
        return DDL_OK;
    struct value *list = calloc(n, sizeof *list);
    char(*texts)[128] = calloc(n, sizeof *texts);
    for (size_t i = 0; list && texts && i < n; i++) {
        const char *text = values->entries[i].value;
        if (!ddl_option_is_text(row))
            text = ddl_option_normalize(row, text, texts[i], sizeof texts[i]) ? texts[i] : NULL;
        if (text) /* what is no value is refused where it is used */
            list[used++] = (struct value){ text, i };
    }
    if (used)
        qsort(list, used, sizeof *list, by_text);
    for (size_t i = 1; i < used; i++) {
        if (strcmp(list[i - 1].text, list[i].text) == 0 && list[i].index < second) {
            first = list[i - 1].index;
            second = list[i].index;
        }
    }
    bool allocated = list && texts;
    free(list);
    free(texts);
    if (!allocated)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", sweep->path);
    const struct ddl_recipe_entry *a = &values->entries[first], *b = values->entries + second;
    return second == n
               ? DDL_OK
               : ddl_error_set(err, DDL_E_USAGE, "%s:%zu: %s: duplicate value %.80s: first at line %zu",
                               sweep->path, b->line, key, b->value, a->line);
}

void sweep_join(char *out, size_t size, const char *text)
{
    size_t used = strlen(out);
    snprintf(out + used, size - used, "%s%s", used ? "/" : "", text);
}

ddl_status sweep_append_value(struct ddl_sweep *sweep, size_t setting, struct ddl_recipe *combination,
                              bool is_added, struct ddl_error *err)
{
    struct ddl_sweep_setting *s = &sweep->settings[setting];
    struct sweep_pick *pick = &sweep->file->picks[setting];
    const size_t n = s->n_values;
    size_t size = 1;
    for (size_t i = 0; i < combination->n; i++)
        size += strlen(combination->entries[i].value) + 1;
    char *text = calloc(size, 1);
    struct ddl_sweep_value *values = realloc(s->values, (n + 1) * sizeof *values);
    if (values)
        s->values = values;
    struct ddl_recipe *candidates = realloc(pick->candidates, (n + 1) * sizeof *candidates);
    if (candidates)
        pick->candidates = candidates;
    if (!text || !values || !candidates) {
        free(text);
        ddl_recipe_free(combination);
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", sweep->path);
    }
    for (size_t i = 0; i < combination->n; i++)
        sweep_join(text, size, combination->entries[i].value);
    s->values[s->n_values++] = (struct ddl_sweep_value){ text, (double)NAN, is_added };
    pick->candidates[pick->n_candidates++] = *combination;
    *combination = (struct ddl_recipe){ 0 };
    return DDL_OK;
}

/* The values that a setting may choose from: all combinations of those of its keys. */
static ddl_status set_values(struct ddl_sweep *sweep, size_t setting, const struct axes *chosen,
                             struct ddl_error *err)
{
    struct ddl_sweep_setting *s = &sweep->settings[setting];
    const struct sweep_entry *entry = &sweep->file->entries[sweep->file->picks[setting].entry];
    ddl_status status = DDL_OK;
    size_t n = 0, other = 0;
    for (size_t i = 0; i < setting; i++)
        other += sweep->settings[i].n_values;
    for (size_t i = 0; !status && i < chosen->n; i++) {
        status = check_values(sweep, chosen->axis[i]->key, &chosen->axis[i]->values, err);
        sweep_join(s->key, sizeof s->key, chosen->axis[i]->key);
    }
    if (!status && chosen->n)
        status = count_combinations(sweep, entry, chosen, other, &n, err);
    for (size_t i = 0; !status && i < n; i++) {
        struct ddl_recipe combination = { 0 };
        status = append_combination(chosen, i, &combination, err);
        if (!status)
            status = sweep_append_value(sweep, setting, &combination, false, err);
        ddl_recipe_free(&combination);
    }
    s->loss_name = sweep->file->choose.loss == SWEEP_LOSS_VAL ? "val_loss" : "loss";
    s->max_added = sweep->file->choose.extend;
    return status;
}

/* The setting of combination `index` of the axes. */
static ddl_status add_setting(struct ddl_sweep *sweep, size_t entry_index, const struct axes *axes,
                              size_t index, struct ddl_error *err)
{
    struct ddl_sweep_file *file = sweep->file;
    const struct sweep_entry *entry = &file->entries[entry_index];
    struct ddl_sweep_setting *settings = realloc(sweep->settings, (sweep->n_settings + 1) * sizeof *settings);
    if (settings)
        sweep->settings = settings;
    struct sweep_pick *picks = realloc(file->picks, (file->n_picks + 1) * sizeof *picks);
    if (picks)
        file->picks = picks;
    if (!settings || !picks)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", sweep->path);
    struct ddl_sweep_setting *setting = &settings[sweep->n_settings++];
    struct sweep_pick *pick = &picks[file->n_picks++];
    struct axes chosen;
    *setting = (struct ddl_sweep_setting){ 0 };
    *pick = (struct sweep_pick){ .entry = entry_index };
    snprintf(setting->name, sizeof setting->name, "%s", entry->name);
    ddl_status status = collect_chosen(sweep, entry, &chosen, err);
    if (!status)
        status = set_values(sweep, sweep->n_settings - 1, &chosen, err);
    if (!status)
        status = append_combination(axes, index, &pick->values, err);
    for (size_t i = 0; !status && i < pick->values.n; i++) {
        const struct ddl_recipe_entry *value = &pick->values.entries[i];
        if (!append_value(setting->name, sizeof setting->name, value->key, value->value))
            status = too_long(sweep, value->line, setting->name, err);
    }
    return status;
}

static ddl_status add_entry(struct ddl_sweep *sweep, size_t index, struct ddl_error *err)
{
    const struct sweep_entry *entry = &sweep->file->entries[index];
    struct axes axes;
    size_t n = 0;
    ddl_status status = collect_axes(sweep, entry, &axes, err);
    for (size_t i = 0; !status && i < axes.n; i++)
        status = check_values(sweep, axes.axis[i]->key, &axes.axis[i]->values, err);
    if (!status)
        status = count_combinations(sweep, entry, &axes, 0, &n, err);
    if (!status)
        status = check_values(sweep, "seed", seeds_of(sweep->file, entry), err);
    for (size_t i = 0; !status && i < n; i++)
        status = add_setting(sweep, index, &axes, i, err);
    return status;
}

/* ---- runs ---- */

ddl_status sweep_add_run(struct ddl_sweep *sweep, size_t setting, bool is_candidate, size_t value,
                         struct ddl_error *err)
{
    const struct ddl_sweep_setting *s = &sweep->settings[setting];
    const struct sweep_entry *entry = &sweep->file->entries[sweep->file->picks[setting].entry];
    const struct ddl_recipe *seeds = seeds_of(sweep->file, entry);
    if (sweep->n_runs == SWEEP_MAX_RUNS)
        return ddl_error_set(err, DDL_E_USAGE, "%s: more than %d runs", sweep->path, SWEEP_MAX_RUNS);
    struct ddl_sweep_run *run = &sweep->runs[sweep->n_runs++];
    *run = (struct ddl_sweep_run){ .setting = setting,
                                   .is_candidate = is_candidate,
                                   .value = value,
                                   .config = calloc(1, sizeof *run->config),
                                   .loss = (double)NAN,
                                   .val_loss = (double)NAN,
                                   .seconds_left = (double)NAN };
    if (!run->config)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for run %zu", sweep->path, sweep->n_runs);
    snprintf(run->name, sizeof run->name, "%s%s%s", is_candidate ? candidates_folder : "",
             is_candidate ? "/" : "", s->name);
    bool fits = true;
    const struct ddl_recipe *tried = is_candidate ? &sweep->file->picks[setting].candidates[value] : NULL;
    for (size_t i = 0; tried && fits && i < tried->n; i++)
        fits = append_value(run->name, sizeof run->name, tried->entries[i].key, tried->entries[i].value);
    if (!tried && seeds->n)
        fits = append_value(run->name, sizeof run->name, "seed", seeds->entries[value].value);
    if (!fits || !ddl_path_join(run->folder, sizeof run->folder, sweep->out, run->name))
        return too_long(sweep, entry->line, run->name, err);
    return sweep_configure(sweep, run, is_candidate ? value : 0, err);
}

/* Candidates first, then seed by seed: a sweep that is stopped has runs of every setting. */
static ddl_status add_runs(struct ddl_sweep *sweep, struct ddl_error *err)
{
    const struct ddl_sweep_file *file = sweep->file;
    ddl_status status = DDL_OK;
    size_t most = 1;
    for (size_t s = 0; s < sweep->n_settings; s++) {
        size_t n = seeds_of(file, &file->entries[file->picks[s].entry])->n;
        most = n > most ? n : most;
        for (size_t v = 0; !status && v < sweep->settings[s].n_values; v++)
            status = sweep_add_run(sweep, s, true, v, err);
    }
    for (size_t seed = 0; !status && seed < most; seed++) {
        for (size_t s = 0; !status && s < sweep->n_settings; s++) {
            size_t n = seeds_of(file, &file->entries[file->picks[s].entry])->n;
            if (seed < (n ? n : 1))
                status = sweep_add_run(sweep, s, false, seed, err);
        }
    }
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct ddl_sweep_run *const *)a)->name,
                  (*(const struct ddl_sweep_run *const *)b)->name);
}

/* Different values may have the same name: "a b" and "a-b". */
static ddl_status check_names(const struct ddl_sweep *sweep, struct ddl_error *err)
{
    const struct ddl_sweep_run **sorted = malloc((sweep->n_runs + 1) * sizeof *sorted);
    ddl_status status = DDL_OK;
    if (!sorted)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", sweep->path);
    for (size_t i = 0; i < sweep->n_runs; i++)
        sorted[i] = &sweep->runs[i];
    qsort(sorted, sweep->n_runs, sizeof *sorted, by_name);
    for (size_t i = 1; !status && i < sweep->n_runs; i++) {
        const struct sweep_pick *pick = &sweep->file->picks[sorted[i]->setting];
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            status = ddl_error_set(err, DDL_E_USAGE, "%s:%zu: %s: two runs have the name '%s'", sweep->path,
                                   sweep->file->entries[pick->entry].line,
                                   sweep->file->entries[pick->entry].name, sorted[i]->name);
    }
    free(sorted);
    return status;
}

static ddl_status plan(struct ddl_sweep *sweep, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    sweep->runs = calloc(SWEEP_MAX_RUNS, sizeof *sweep->runs);
    if (!sweep->runs)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", sweep->path);
    for (size_t i = 0; !status && i < sweep->file->n_entries; i++)
        status = add_entry(sweep, i, err);
    if (!status)
        status = add_runs(sweep, err);
    if (!status)
        status = check_names(sweep, err);
    sweep->protocol = sweep->file->protocol;
    return status ? status : sweep_check_protocol(sweep, err);
}

ddl_status ddl_sweep_open(struct ddl_sweep *out, const char *path, struct ddl_error *err)
{
    struct ddl_error why = { 0 };
    *out = (struct ddl_sweep){ .seconds_left = (double)NAN };
    if (strlen(path) >= sizeof out->path)
        return ddl_error_set(err, DDL_E_USAGE, "%.200s...: the path is too long", path);
    memcpy(out->path, path, strlen(path) + 1);
    ddl_status status = sweep_file_read(&out->file, out->path, &why);
    if (!status && strlen(out->file->out) >= sizeof out->out)
        status = ddl_error_set(&why, DDL_E_USAGE, "%s: out: the path is too long", path);
    if (!status) {
        memcpy(out->out, out->file->out, strlen(out->file->out) + 1);
        status = plan(out, &why);
    }
    if (status) {
        ddl_sweep_close(out);
        if (err)
            *err = why;
    }
    return status;
}

void ddl_sweep_close(struct ddl_sweep *sweep)
{
    for (size_t i = 0; i < sweep->n_runs; i++)
        free(sweep->runs[i].config);
    for (size_t i = 0; i < sweep->n_settings; i++) {
        for (size_t v = 0; v < sweep->settings[i].n_values; v++)
            free(sweep->settings[i].values[v].text);
        free(sweep->settings[i].values);
    }
    free(sweep->runs);
    free(sweep->settings);
    sweep_file_free(sweep->file);
    *sweep = (struct ddl_sweep){ 0 };
}

/* Whether the notes about two runs' widths of heads are the same. */
static bool same_heads(const struct ddl_train_config *a, const struct ddl_train_config *b)
{
    return a->head_dim_automatic == b->head_dim_automatic && a->named_head_dim == b->named_head_dim &&
           a->config.head_dim == b->config.head_dim && a->config.d_model == b->config.d_model &&
           a->config.n_heads == b->config.n_heads;
}

void ddl_sweep_note(const struct ddl_sweep *sweep, ddl_warn_fn *note, void *user)
{
    for (size_t i = 0; i < sweep->n_runs; i++) {
        const struct ddl_train_config *t = sweep->runs[i].config;
        char text[256], message[512];
        size_t first = 0;
        while (first < i && !same_heads(sweep->runs[first].config, t))
            first++;
        if (first < i || !t->head_dim_automatic ||
            !ddl_config_head_dim_note(&t->config, t->named_head_dim, text, sizeof text))
            continue;
        snprintf(message, sizeof message, "%.200s: %s", sweep->runs[i].name, text);
        note(user, message);
    }
}

size_t ddl_sweep_count(const struct ddl_sweep *sweep, enum ddl_sweep_state state)
{
    size_t n = 0;
    for (size_t i = 0; i < sweep->n_runs; i++)
        n += sweep->runs[i].state == state;
    return n;
}

bool ddl_sweep_is_missing(const struct ddl_sweep_run *run)
{
    return run->is_candidate && run->state == DDL_SWEEP_FAILED && !run->is_diverged;
}

bool ddl_sweep_matters(const struct ddl_sweep *sweep, const struct ddl_sweep_run *run)
{
    return run->state == DDL_SWEEP_FAILED && !(run->is_candidate && sweep->settings[run->setting].is_chosen);
}
