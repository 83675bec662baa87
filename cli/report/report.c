#define _POSIX_C_SOURCE 200809L
#include "cli/report/report.h"

#include "cli/cli.h"
#include "cli/model/input.h"

#include "ddl/file.h"
#include "ddl/run.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of long runs every n-th line is kept, so that a page stays small: at most about MAX_STEPS and
 * MAX_TELEMETRY, and all lines with validations, scores, skipped updates and starts. */
enum { MAX_STEPS = 3000, MAX_TELEMETRY = 120, MAX_DUMP = 1 << 26 };

/* ---- lines ---- */

static ddl_status add_line(struct report_lines *lines, const char *text, size_t size, struct ddl_error *err)
{
    char **grown = realloc(lines->text, (lines->n + 1) * sizeof *grown);
    char *copy = grown ? strndup(text, size) : NULL;
    if (grown)
        lines->text = grown;
    if (!copy)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu lines of metrics.jsonl", lines->n + 1);
    lines->text[lines->n++] = copy;
    return DDL_OK;
}

static void free_lines(struct report_lines *lines)
{
    for (size_t i = 0; i < lines->n; i++)
        free(lines->text[i]);
    free(lines->text);
}

/* What a line is. */
enum line_kind { STEP, IMPORTANT_STEP, TELEMETRY };

static enum line_kind kind_of(const json_t *object)
{
    static const char *const important[] = { "val_loss", "tasks", "skipped", "start" };
    if (json_object_get(object, "kind"))
        return TELEMETRY;
    for (size_t i = 0; i < sizeof important / sizeof *important; i++) {
        if (json_object_get(object, important[i]))
            return IMPORTANT_STEP;
    }
    return STEP;
}

/* A pass over the file: counts its lines, or keeps some of them once they are counted. */
struct pass {
    struct report *report;
    bool keeps;
    size_t n_steps, n_telemetry; /* so far */
};

static bool is_due(size_t i, size_t total, size_t most)
{
    return i % ((total + most - 1) / most) == 0 || i + 1 == total;
}

static ddl_status take_line(struct pass *pass, const char *line, size_t size, struct ddl_error *err)
{
    struct report *r = pass->report;
    json_t *object = json_loadb(line, size, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(object)) { /* ddl_run_log_read has refused it */
        json_decref(object);
        return DDL_OK;
    }
    enum line_kind kind = kind_of(object);
    bool skipped = json_is_true(json_object_get(object, "skipped"));
    json_decref(object);
    struct report_lines *lines = kind == TELEMETRY ? &r->telemetry : &r->steps;
    size_t *i = kind == TELEMETRY ? &pass->n_telemetry : &pass->n_steps;
    if (!pass->keeps) {
        lines->total++;
        r->n_skipped += skipped;
        return DDL_OK;
    }
    bool kept =
        kind == IMPORTANT_STEP || is_due(*i, lines->total, kind == TELEMETRY ? MAX_TELEMETRY : MAX_STEPS);
    ++*i;
    return kept ? add_line(lines, line, size, err) : DDL_OK;
}

/* A last line without a newline is being written. */
static ddl_status pass_over(struct report *r, bool keeps, const char *text, size_t size,
                            struct ddl_error *err)
{
    struct pass pass = { .report = r, .keeps = keeps };
    ddl_status status = DDL_OK;
    const char *at = text, *end;
    while (!status && (end = memchr(at, '\n', size - (size_t)(at - text)))) {
        status = take_line(&pass, at, (size_t)(end - at), err);
        at = end + 1;
    }
    return status;
}

static ddl_status read_lines(struct report *r, struct ddl_error *err)
{
    char path[4200], *text;
    size_t size;
    snprintf(path, sizeof path, "%s/metrics.jsonl", r->folder);
    ddl_status status = read_input(path, (size_t)1 << 32, &text, &size, err);
    if (!status)
        status = pass_over(r, false, text, size, err);
    if (!status)
        status = pass_over(r, true, text, size, err);
    free(text);
    return status;
}

/* samples.jsonl, which a run without samples does not have; a line that is not JSON is left out. */
static ddl_status read_samples(struct report *r, struct ddl_error *err)
{
    char path[4200], *text;
    size_t size;
    snprintf(path, sizeof path, "%s/samples.jsonl", r->folder);
    if (!ddl_file_exists(path))
        return DDL_OK;
    ddl_status status = read_input(path, (size_t)1 << 32, &text, &size, err);
    const char *at = text, *end;
    while (!status && (end = memchr(at, '\n', size - (size_t)(at - text)))) {
        json_t *object = json_loadb(at, (size_t)(end - at), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        if (json_is_object(object))
            status = add_line(&r->samples, at, (size_t)(end - at), err);
        json_decref(object);
        at = end + 1;
    }
    free(text);
    return status;
}

/* ---- divergence dumps ---- */

static int by_step(const void *a, const void *b)
{
    char *const *x = a, *const *y = b;
    uint64_t s = strtoull(strrchr(*x, '-') + 1, NULL, 10), t = strtoull(strrchr(*y, '-') + 1, NULL, 10);
    return (s > t) - (s < t);
}

/* Replaces the name of each dump's folder by the content of its trouble.json; what is not JSON is left out.
 */
static ddl_status read_dumps(struct report *r, struct ddl_error *err)
{
    size_t kept = 0;
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < r->dumps.n; i++) {
        char path[4600], *bytes = NULL, *text = NULL;
        size_t size = 0;
        snprintf(path, sizeof path, "%s/%s/trouble.json", r->folder, r->dumps.text[i]);
        if (!status && ddl_file_exists(path))
            status = read_input(path, MAX_DUMP, &bytes, &size, err);
        json_t *object = bytes ? json_loadb(bytes, size, JSON_REJECT_DUPLICATES, NULL) : NULL;
        if (json_is_object(object))
            text = json_dumps(object, JSON_COMPACT);
        json_decref(object);
        free(bytes);
        free(r->dumps.text[i]);
        if (text)
            r->dumps.text[kept++] = text;
    }
    r->dumps.n = kept;
    return status;
}

static bool is_dump(void *user, const char *name)
{
    (void)user;
    return strncmp(name, "trouble-", 8) == 0;
}

static ddl_status find_dumps(struct report *r, struct ddl_error *err)
{
    struct ddl_file_names list;
    ddl_status status = ddl_file_list(&list, r->folder, is_dump, NULL, err);
    for (size_t i = 0; !status && i < list.n; i++)
        status = add_line(&r->dumps, list.names[i], strlen(list.names[i]), err);
    ddl_file_names_free(&list);
    if (status)
        return status;
    if (r->dumps.n)
        qsort(r->dumps.text, r->dumps.n, sizeof *r->dumps.text, by_step);
    return read_dumps(r, err);
}

/* ---- the run ---- */

uint64_t report_step(const struct report *r)
{
    return r->log.points[r->log.n - 1].step;
}

const struct ddl_run_point *report_best(const struct report *r)
{
    const struct ddl_run_point *best = NULL;
    for (size_t i = 0; i < r->log.n; i++) {
        const struct ddl_run_point *point = &r->log.points[i];
        if (isfinite(point->val_loss) && (!best || point->val_loss < best->val_loss))
            best = point;
    }
    return best;
}

static const char *status_of(const struct report *r)
{
    char message[1024];
    struct ddl_error unused;
    bool diverged;
    if (ddl_run_is_training(r->folder))
        return "running";
    if (ddl_run_diverged(&diverged, r->folder, message, sizeof message, &unused) == DDL_OK && diverged)
        return "diverged";
    return r->log.recipe && report_step(r) >= r->log.recipe->steps ? "finished" : "stopped";
}

ddl_status report_read(struct report *r, const char *folder, struct ddl_error *err)
{
    *r = (struct report){ .folder = folder };
    ddl_status status = ddl_run_log_read(&r->log, folder, err);
    if (status)
        return status;
    r->status = status_of(r);
    status = read_lines(r, err);
    if (!status)
        status = read_samples(r, err);
    if (!status)
        status = find_dumps(r, err);
    return status ? status : ddl_checkpoint_list(folder, &r->checkpoints, &r->n_checkpoints, err);
}

void report_free(struct report *r)
{
    struct report_lines *const lines[] = { &r->steps, &r->telemetry, &r->samples, &r->dumps };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        free_lines(lines[i]);
    free(r->checkpoints);
    ddl_run_log_free(&r->log);
}

/* ---- JSON ---- */

/* The lines are JSON already. */
static void write_lines(struct ddl_json *json, const char *key, const struct report_lines *lines)
{
    ddl_json_open(json, key, '[');
    for (size_t i = 0; i < lines->n; i++)
        fprintf(json->out, "%s%s", i ? "," : "", lines->text[i]);
    ddl_json_close(json, ']');
}

/* Every key with its value, and the names of those that are not the default. */
static void write_options(struct ddl_json *json, const char *key, const char *changed_key,
                          const struct ddl_option *rows, const void *object, const void *defaults)
{
    ddl_json_open(json, key, '{');
    for (const struct ddl_option *row = rows; row->name; row++)
        ddl_json_option(json, row, object);
    ddl_json_close(json, '}');
    ddl_json_open(json, changed_key, '[');
    for (const struct ddl_option *row = rows; row->name; row++) {
        char value[8192], other[8192];
        ddl_option_format(row, object, value, sizeof value);
        ddl_option_format(row, defaults, other, sizeof other);
        if (strcmp(value, other) != 0)
            ddl_json_string(json, NULL, row->name);
    }
    ddl_json_close(json, ']');
}

static void write_recipe(struct ddl_json *json, const struct report *r)
{
    const struct ddl_train_config *recipe = r->log.recipe;
    if (!recipe)
        return;
    const struct ddl_train_config defaults = ddl_train_defaults();
    const struct ddl_config model_defaults = ddl_config_defaults();
    ddl_json_count(json, "steps_planned", recipe->steps);
    ddl_json_count(json, "seed", recipe->seed);
    write_options(json, "recipe", "recipe_changed", ddl_train_options(), recipe, &defaults);
    write_options(json, "config", "config_changed", ddl_config_options(), &recipe->config, &model_defaults);
}

static void write_checkpoints(struct ddl_json *json, const struct report *r)
{
    ddl_json_open(json, "checkpoints", '[');
    for (size_t i = 0; i < r->n_checkpoints; i++) {
        const struct ddl_checkpoint *c = &r->checkpoints[i];
        ddl_json_open(json, NULL, '{');
        ddl_json_count(json, "step", c->step);
        ddl_json_bool(json, "damaged", !c->readable);
        ddl_json_number(json, "loss", c->readable ? c->loss : NAN, 9);
        ddl_json_number(json, "val_loss", c->has_val ? c->val_loss : NAN, 9);
        ddl_json_close(json, '}');
    }
    ddl_json_close(json, ']');
}

void write_report_json(struct ddl_json *json, const char *key, const struct report *r)
{
    const struct ddl_run_point *last = &r->log.points[r->log.n - 1], *best = report_best(r);
    const char *preset = r->log.has_config ? ddl_config_preset_name(&r->log.config) : NULL;
    ddl_json_open(json, key, '{');
    ddl_json_string(json, "run", r->folder);
    ddl_json_string(json, "status", r->status);
    ddl_json_count(json, "step", last->step);
    ddl_json_string(json, "model", preset);
    ddl_json_count(json, "parameters", r->log.n_params);
    ddl_json_number(json, "train_loss", ddl_run_log_final_train(&r->log), 10);
    ddl_json_number(json, "val_loss", ddl_run_log_final_val(&r->log), 10);
    ddl_json_number(json, "best_val_loss", best ? best->val_loss : NAN, 10);
    if (best)
        ddl_json_count(json, "best_step", best->step);
    ddl_json_number(json, "tokens", last->tokens, 15);
    ddl_json_number(json, "flops", last->flops, 10);
    ddl_json_number(json, "tokens_per_s", ddl_run_log_speed(&r->log), 7);
    ddl_json_number(json, "seconds", last->seconds, 10);
    ddl_json_number(json, "train_seconds", last->train_seconds, 10);
    ddl_json_number(json, "peak_memory", last->peak_memory, 15);
    ddl_json_count(json, "skipped", r->n_skipped);
    write_recipe(json, r);
    write_checkpoints(json, r);
    ddl_json_count(json, "n_steps", r->steps.total);
    write_lines(json, "steps", &r->steps);
    ddl_json_count(json, "n_telemetry", r->telemetry.total);
    write_lines(json, "telemetry", &r->telemetry);
    write_lines(json, "samples", &r->samples);
    write_lines(json, "dumps", &r->dumps);
    ddl_json_close(json, '}');
}
