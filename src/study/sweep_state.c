/* The states of a sweep's runs on disk: their folders, and sweep.json, which records failures. */
#include "study/recipes.h"
#include "study/sweep_file.h"
#include "study/sweep_internal.h"

#include "base/file.h"
#include "base/json.h"
#include "base/lock.h"
#include "ddl/json.h"
#include "ddl/run.h"
#include "ddl/train.h"
#include "train/config/train_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char record_name[] = "sweep.json";
enum { RECORD_LIMIT = 1 << 26 };

static bool has_file(const struct ddl_sweep_run *run, const char *name)
{
    char path[2048];
    return ddl_path_join(path, sizeof path, run->folder, name) && ddl_file_exists(path);
}

bool sweep_has_started(const struct ddl_sweep_run *run)
{
    return has_file(run, "metrics.jsonl");
}

/* ---- one run ---- */

static ddl_status read_recipe(const struct ddl_sweep_run *run, struct ddl_train_config *out,
                              struct ddl_error *err)
{
    char path[2048], name[] = "", *argv[] = { name, NULL };
    int n;
    if (!ddl_path_join(path, sizeof path, run->folder, "recipe.yaml"))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", run->folder);
    ddl_status status = ddl_train_configure(out, path, 1, argv, NULL, NULL, &n, err);
    if (!status)
        *out = ddl_train_resolved(out);
    return status;
}

static ddl_status refuse_recipe(const struct ddl_sweep *sweep, const struct ddl_sweep_run *run,
                                const struct recipe_difference *d, struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_FORMAT,
                         "%.300s: the run there is not the one that %.200s plans: %s: expected %.120s, found "
                         "%.120s; remove the folder or choose another out",
                         run->folder, sweep->path, d->key, d->a, d->b);
}

/* Into *value: the index of the setting's value with which the recipe `found` was made; n_values if there is
 * none. */
static ddl_status find_value(const struct ddl_sweep *sweep, const struct ddl_sweep_run *run,
                             const struct ddl_train_config *found, size_t *value, struct ddl_error *err)
{
    const struct ddl_sweep_setting *setting = &sweep->settings[run->setting];
    struct ddl_train_config trial;
    struct ddl_sweep_run other = *run;
    struct recipe_difference d;
    other.config = &trial;
    for (*value = 0; *value < setting->n_values; ++*value) {
        ddl_status status = sweep_configure(sweep, &other, *value, err);
        if (status)
            return status;
        trial = ddl_train_resolved(&trial);
        if (!recipes_differ(&trial, found, NULL, 0, &d))
            return DDL_OK;
    }
    return DDL_OK;
}

/* Sets run->used to a value that the file no longer lists; any other difference is an error. */
static ddl_status find_unlisted(const struct ddl_sweep *sweep, struct ddl_sweep_run *run,
                                const struct ddl_train_config *planned, const struct ddl_train_config *found,
                                struct ddl_error *err)
{
    const struct ddl_recipe *keys = &sweep->file->picks[run->setting].candidates[0];
    const char *names[SWEEP_MAX_KEYS];
    struct recipe_difference d;
    *run->used = '\0';
    for (size_t i = 0; i < keys->n; i++) {
        const struct ddl_option *row = sweep_key_row(keys->entries[i].key);
        char value[RECIPE_VALUE_SIZE] = "";
        names[i] = row ? row->name : keys->entries[i].key;
        if (row)
            recipe_value(row, found, value, sizeof value);
        sweep_join(run->used, sizeof run->used, value);
    }
    return recipes_differ(planned, found, names, keys->n, &d) ? refuse_recipe(sweep, run, &d, err) : DDL_OK;
}

/* Sets run->used. A recipe with another value of the choice than the chosen one is *stale, also while none is
 * chosen; any other difference is an error. */
static ddl_status compare_recipe(const struct ddl_sweep *sweep, struct ddl_sweep_run *run, bool *stale,
                                 struct ddl_error *err)
{
    const struct ddl_sweep_setting *setting = &sweep->settings[run->setting];
    struct ddl_train_config found, planned = ddl_train_resolved(run->config);
    struct recipe_difference d;
    size_t value;
    *stale = false;
    ddl_status status = read_recipe(run, &found, err);
    if (status)
        return status;
    bool is_settled = !setting->n_values || run->is_candidate,
         differs = recipes_differ(&planned, &found, NULL, 0, &d);
    if (is_settled || (setting->is_chosen && !differs))
        return differs ? refuse_recipe(sweep, run, &d, err) : DDL_OK;
    status = find_value(sweep, run, &found, &value, err);
    if (status)
        return status;
    *stale = true;
    if (value < setting->n_values) {
        snprintf(run->used, sizeof run->used, "%s", setting->values[value].text);
        return DDL_OK;
    }
    return find_unlisted(sweep, run, &planned, &found, err);
}

static void set_stale(const struct ddl_sweep *sweep, struct ddl_sweep_run *run)
{
    const struct ddl_sweep_setting *s = &sweep->settings[run->setting];
    run->state = DDL_SWEEP_STALE;
    if (s->is_chosen)
        snprintf(run->message, sizeof run->message, "trained with %s %s, but %s is chosen", s->key, run->used,
                 s->values[s->chosen].text);
    else
        snprintf(run->message, sizeof run->message, "trained with %s %s, but none is chosen yet", s->key,
                 run->used);
}

const char *sweep_planned_value(const struct ddl_sweep *sweep, const struct ddl_sweep_run *run)
{
    const struct ddl_sweep_setting *setting = &sweep->settings[run->setting];
    if (run->is_candidate)
        return setting->values[run->value].text;
    return setting->is_chosen ? setting->values[setting->chosen].text : "";
}

/* Whether the folder has only the record of a run that has finished, such as one unpacked from an archive:
 * its metrics reach the last step, and it has no log of a process and no checkpoint to continue from. */
static ddl_status find_archived(const struct ddl_sweep_run *run, bool *out, struct ddl_error *err)
{
    struct ddl_checkpoint *list;
    size_t n;
    *out = false;
    if (run->step != run->config->steps || has_file(run, "log.txt"))
        return DDL_OK;
    ddl_status status = ddl_checkpoint_list(run->folder, &list, &n, err);
    if (!status)
        free(list);
    *out = !status && n == 0;
    return status;
}

ddl_status sweep_read_run(const struct ddl_sweep *sweep, struct ddl_sweep_run *run, struct ddl_error *err)
{
    uint64_t step = 0;
    bool stale, archived = false;
    run->state = DDL_SWEEP_WAITING;
    run->is_blocked = run->is_diverged = false;
    *run->message = '\0';
    snprintf(run->used, sizeof run->used, "%s", sweep_planned_value(sweep, run));
    if (!has_file(run, "recipe.yaml"))
        return DDL_OK;
    ddl_status status = compare_recipe(sweep, run, &stale, err);
    if (!status)
        status = ddl_run_final_step(&step, run->folder, err);
    if (!status)
        status = sweep_read_progress(run, err);
    if (!status)
        status = find_archived(run, &archived, err);
    if (status)
        return status;
    if (stale && (step || sweep_has_started(run))) {
        set_stale(sweep, run);
    } else if (step == run->config->steps || archived) {
        run->state = DDL_SWEEP_FINISHED;
    } else if (sweep_has_started(run)) {
        struct ddl_error unreadable; /* without the record the run is continued */
        run->state = DDL_SWEEP_STOPPED;
        (void)ddl_run_diverged(&run->is_diverged, run->folder, run->message, sizeof run->message,
                               &unreadable);
    }
    return DDL_OK;
}

/* ---- sweep.json ---- */

static void write_run(struct ddl_json *json, const struct ddl_sweep *sweep, const struct ddl_sweep_run *run)
{
    ddl_json_open(json, NULL, '{');
    ddl_json_string(json, "name", run->name);
    ddl_json_string(json, "setting", sweep->settings[run->setting].name);
    ddl_json_bool(json, "candidate", run->is_candidate);
    ddl_json_count(json, "seed", run->config->seed);
    ddl_json_string(json, "state", ddl_sweep_state_names[run->state]);
    ddl_json_count(json, "step", run->step);
    ddl_json_count(json, "steps", run->config->steps);
    ddl_json_number(json, "loss", run->loss, 9);
    ddl_json_number(json, "val_loss", run->val_loss, 9);
    ddl_json_fixed(json, "seconds", run->seconds, 3);
    if (sweep->settings[run->setting].n_values)
        ddl_json_string(json, "value", *run->used ? run->used : NULL);
    if (run->state == DDL_SWEEP_STALE)
        ddl_json_string(json, "message", run->message);
    if (run->state == DDL_SWEEP_FAILED) {
        if (run->signal)
            ddl_json_count(json, "signal", (uint64_t)run->signal);
        else if (!run->is_blocked)
            ddl_json_count(json, "exit_status", (uint64_t)run->exit_status);
        ddl_json_string(json, "message", run->message);
        ddl_json_bool(json, "diverged", run->is_diverged);
    }
    ddl_json_close(json, '}');
}

static void write_choice(struct ddl_json *json, const struct ddl_sweep_setting *setting)
{
    ddl_json_open(json, NULL, '{');
    ddl_json_string(json, "setting", setting->name);
    ddl_json_string(json, "key", setting->key);
    ddl_json_string(json, "compared", setting->loss_name);
    ddl_json_open(json, "values", '[');
    for (size_t i = 0; i < setting->n_values; i++) {
        ddl_json_open(json, NULL, '{');
        ddl_json_string(json, "value", setting->values[i].text);
        ddl_json_number(json, "loss", setting->values[i].loss, 9);
        if (setting->values[i].is_added)
            ddl_json_bool(json, "added", true);
        ddl_json_close(json, '}');
    }
    ddl_json_close(json, ']');
    ddl_json_string(json, "chosen", setting->is_chosen ? setting->values[setting->chosen].text : NULL);
    ddl_json_bool(json, "at_edge", setting->is_chosen && setting->at_edge);
    ddl_json_close(json, '}');
}

void ddl_sweep_write_json(const struct ddl_sweep *sweep, FILE *out)
{
    struct ddl_json json = { out, false };
    ddl_json_open(&json, NULL, '{');
    ddl_json_string(&json, "sweep", sweep->path);
    ddl_json_string(&json, "out", sweep->out);
    for (int state = 0; state < DDL_SWEEP_STATES; state++)
        ddl_json_count(&json, ddl_sweep_state_names[state],
                       ddl_sweep_count(sweep, (enum ddl_sweep_state)state));
    ddl_json_fixed(&json, "seconds_left", sweep->seconds_left, 0);
    sweep_write_protocol(&json, &sweep->protocol);
    ddl_json_open(&json, "choices", '[');
    for (size_t i = 0; i < sweep->n_settings; i++) {
        if (sweep->settings[i].n_values)
            write_choice(&json, &sweep->settings[i]);
    }
    ddl_json_close(&json, ']');
    ddl_json_open(&json, "runs", '[');
    for (size_t i = 0; i < sweep->n_runs; i++)
        write_run(&json, sweep, &sweep->runs[i]);
    ddl_json_close(&json, ']');
    ddl_json_close(&json, '}');
    putc('\n', out);
}

ddl_status sweep_save(const struct ddl_sweep *sweep, struct ddl_error *err)
{
    char path[1100];
    struct ddl_file_writer w;
    if (!ddl_path_join(path, sizeof path, sweep->out, record_name))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", sweep->out);
    ddl_status status = ddl_file_writer_begin(&w, path, err);
    if (status)
        return status;
    ddl_sweep_write_json(sweep, w.stream);
    return ddl_file_writer_commit(&w, err);
}

/* The record of a folder; *out is NULL if there is none. */
static ddl_status read_record(const char *folder, json_t **out, struct ddl_error *err)
{
    char path[1100];
    *out = NULL;
    if (!ddl_path_join(path, sizeof path, folder, record_name))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", folder);
    return ddl_file_exists(path) ? ddl_json_read(out, path, RECORD_LIMIT, err) : DDL_OK;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* The record of a run, or NULL. */
static const json_t *find_record(const json_t *record, const char *name)
{
    const json_t *runs = json_object_get(record, "runs");
    for (size_t i = 0; i < json_array_size(runs); i++) {
        if (strcmp(text_of(json_array_get(runs, i), "name"), name) == 0)
            return json_array_get(runs, i);
    }
    return NULL;
}

static void set_failed(struct ddl_sweep_run *run, int signal, int exit_status)
{
    run->state = DDL_SWEEP_FAILED;
    run->signal = signal;
    run->exit_status = exit_status;
}

/* The state of a run that the last sweep recorded: a failure, or a process that still runs; and a divergence,
 * which the run's folder has. A run that was not started because no value could be chosen has no record. The
 * failure of a run that is stale beside a choice does not matter: it was that of another run. */
static void apply_record(const struct ddl_sweep *sweep, struct ddl_sweep_run *run, const json_t *record,
                         bool retry, bool running)
{
    const json_t *entry = find_record(record, run->name);
    const char *state = text_of(entry, "state");
    const json_t *signal = json_object_get(entry, "signal"), *status = json_object_get(entry, "exit_status");
    bool is_stale = run->state == DDL_SWEEP_STALE && sweep->settings[run->setting].is_chosen;
    if (run->state == DDL_SWEEP_FINISHED)
        return;
    if (running && strcmp(state, ddl_sweep_state_names[DDL_SWEEP_RUNNING]) == 0) {
        run->state = DDL_SWEEP_RUNNING;
    } else if (run->is_diverged && (!retry || run->is_candidate)) {
        set_failed(run, 0, 1);
    } else if (!retry && !is_stale && strcmp(state, ddl_sweep_state_names[DDL_SWEEP_FAILED]) == 0 &&
               (signal || status)) {
        set_failed(run, (int)json_integer_value(signal), (int)json_integer_value(status));
        snprintf(run->message, sizeof run->message, "%s", text_of(entry, "message"));
    }
}

/* What a record is applied with. */
struct record {
    json_t *content;     /* NULL: there is none                         */
    bool retry, running; /* see ddl_sweep_read; a sweep trains runs now */
};

static ddl_status read_run(struct ddl_sweep *sweep, struct ddl_sweep_run *run, const struct record *record,
                           struct ddl_error *err)
{
    ddl_status status = sweep_read_run(sweep, run, err);
    apply_record(sweep, run, record->content, record->retry, record->running);
    return status;
}

static ddl_status read_runs(struct ddl_sweep *sweep, bool candidates, const struct record *record,
                            struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = 0; !status && i < sweep->n_runs; i++) {
        struct ddl_sweep_run *run = &sweep->runs[i];
        if (run->is_candidate == candidates && !run->is_blocked)
            status = read_run(sweep, run, record, err);
    }
    return status;
}

/* The choice of a setting, from candidates that have been read and those by which its values are extended. */
static ddl_status read_choice(struct ddl_sweep *sweep, size_t setting, const struct record *record,
                              struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    bool extended = true;
    while (!status && extended && sweep_choice_is_due(sweep, setting)) {
        const size_t n = sweep->n_runs;
        status = sweep_choose(sweep, setting, err);
        extended = sweep->n_runs > n;
        if (!status && extended)
            status = read_run(sweep, &sweep->runs[n], record, err);
    }
    if (status || !extended || !sweep->settings[setting].n_values)
        return status;
    return sweep_read_losses(sweep, setting, err);
}

static bool any_has_started(const struct ddl_sweep *sweep)
{
    bool found = false;
    for (size_t i = 0; i < sweep->n_runs; i++)
        found = found || sweep_has_started(&sweep->runs[i]);
    return found;
}

ddl_status sweep_read_states(struct ddl_sweep *sweep, bool retry, bool running, struct ddl_error *err)
{
    struct record record = { .retry = retry, .running = running };
    struct ddl_sweep_protocol recorded;
    ddl_status status = read_record(sweep->out, &record.content, err);
    if (!status)
        status = ddl_sweep_protocol_read(&recorded, sweep->out, err);
    if (!status && record.content && any_has_started(sweep))
        status = sweep_check_recorded_protocol(sweep, &recorded, err);
    if (status) {
        json_decref(record.content);
        return status;
    }
    for (size_t i = 0; i < sweep->n_runs; i++)
        sweep->runs[i].is_blocked = false;
    for (size_t i = 0; i < sweep->n_settings; i++)
        sweep->settings[i].is_chosen = false;
    status = read_runs(sweep, true, &record, err);
    for (size_t i = 0; !status && i < sweep->n_settings; i++)
        status = read_choice(sweep, i, &record, err);
    if (!status)
        status = read_runs(sweep, false, &record, err);
    json_decref(record.content);
    sweep_estimate(sweep, 1);
    return status;
}

ddl_status ddl_sweep_read(struct ddl_sweep *sweep, bool retry, struct ddl_error *err)
{
    return sweep_read_states(sweep, retry, ddl_lock_is_held(sweep->out), err);
}
