#define _POSIX_C_SOURCE 200809L
#include "study/run_log.h"

#include "base/file.h"
#include "base/json.h"
#include "ddl/compare.h"
#include "ddl/model.h"
#include "ddl/run.h"
#include "ddl/train.h"
#include "train/config/recipe.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The keys of a line, by the field they fill. Optional ones may be absent. */
static const struct {
    const char *name;
    size_t offset;
    bool optional;
} keys[] = {
    { "loss", offsetof(struct ddl_run_point, loss), false },
    { "val_loss", offsetof(struct ddl_run_point, val_loss), true },
    { "tokens", offsetof(struct ddl_run_point, tokens), false },
    { "flops", offsetof(struct ddl_run_point, flops), true },
    { "seconds", offsetof(struct ddl_run_point, seconds), true },
    { "train_seconds", offsetof(struct ddl_run_point, train_seconds), true },
    { "tokens_per_s", offsetof(struct ddl_run_point, tokens_per_s), true },
    { "peak_memory", offsetof(struct ddl_run_point, peak_memory), true },
};

/* Appends the main value of each task. Values without a number are left out. */
static ddl_status read_scores(struct ddl_run_log *out, uint64_t step, json_t *tasks, struct ddl_error *err)
{
    const char *task;
    json_t *values;
    size_t n = json_object_size(tasks);
    struct ddl_run_score *grown = n ? realloc(out->scores, (out->n_scores + n) * sizeof *grown) : out->scores;
    if (n && !grown)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu task scores", out->n_scores + n);
    out->scores = grown;
    json_object_foreach(tasks, task, values)
    {
        struct ddl_run_score *score = &out->scores[out->n_scores];
        const char *name = json_object_get(values, "acc_norm") ? "acc_norm" : "acc";
        const json_t *value = json_object_get(values, name);
        char key[32];
        snprintf(key, sizeof key, "%s_stderr", name);
        const json_t *error = json_object_get(values, key);
        if (!json_is_number(value))
            continue;
        *score = (struct ddl_run_score){ .step = step,
                                         .value = json_number_value(value),
                                         .error = json_is_number(error) ? json_number_value(error) : NAN };
        snprintf(score->task, sizeof score->task, "%s", task);
        snprintf(score->value_name, sizeof score->value_name, "%s", name);
        out->n_scores++;
    }
    return DDL_OK;
}

bool run_log_has_loss(const json_t *line)
{
    return json_number_value(json_object_get(line, "loss")) != 0 ||
           (json_integer_value(json_object_get(line, "step")) > 0 &&
            !json_is_true(json_object_get(line, "skipped")));
}

static ddl_status read_point(struct ddl_run_log *log, const char *line, size_t size, const char *path,
                             size_t number, struct ddl_error *err)
{
    struct ddl_run_point *out = &log->points[log->n];
    json_error_t why;
    json_t *object;
    ddl_status status = ddl_json_parse(&object, line, size, JSON_REJECT_DUPLICATES, &why);
    if (status)
        return ddl_error_set(err, status, "%s:%zu: not JSON: %s", path, number, why.text);
    json_t *step = json_object_get(object, "step");
    if (json_object_get(object, "kind")) { /* a telemetry record is no point */
        json_decref(object);
        return DDL_OK;
    }
    log->n++;
    if (!json_is_integer(step) || json_integer_value(step) < 0)
        status = ddl_error_set(err, DDL_E_FORMAT, "%s:%zu: no whole number 'step'", path, number);
    else
        out->step = (uint64_t)json_integer_value(step);
    for (size_t i = 0; !status && i < sizeof keys / sizeof *keys; i++) {
        json_t *value = json_object_get(object, keys[i].name);
        double *field = (double *)(void *)((char *)out + keys[i].offset);
        *field = json_is_number(value) ? json_number_value(value) : NAN;
        if (!json_is_number(value) && !(keys[i].optional && (!value || json_is_null(value))))
            status = ddl_error_set(err, DDL_E_FORMAT, "%s:%zu: no number '%s'", path, number, keys[i].name);
    }
    if (!run_log_has_loss(object))
        out->loss = NAN;
    if (isnan(out->train_seconds)) /* earlier versions wrote the steps' time only, as seconds */
        out->train_seconds = out->seconds;
    if (!status)
        status = read_scores(log, out->step, json_object_get(object, "tasks"), err);
    json_decref(object);
    return status;
}

static ddl_status read_points(struct ddl_run_log *out, const char *text, size_t size, const char *path,
                              struct ddl_error *err)
{
    size_t lines = 0;
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    out->points = calloc(lines ? lines : 1, sizeof *out->points);
    if (!out->points)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for %zu points", path, lines);
    const char *at = text;
    for (size_t number = 1; number <= lines; number++) {
        const char *end = memchr(at, '\n', size - (size_t)(at - text));
        ddl_status status = read_point(out, at, (size_t)(end - at), path, number, err);
        if (status)
            return status;
        at = end + 1;
    }
    return out->n
               ? DDL_OK
               : ddl_error_set(err, DDL_E_FORMAT, "%s: expected at least one logged step, found none", path);
}

static ddl_status read_config(struct ddl_run_log *out, const char *folder, struct ddl_error *err)
{
    char path[1100];
    struct ddl_checkpoint *list;
    struct ddl_param *rows;
    size_t n;
    ddl_status status = ddl_checkpoint_list(folder, &list, &n, err);
    free(list);
    bool saved = n > 0 || (ddl_path_join(path, sizeof path, folder, "config.json") && ddl_file_exists(path));
    if (status || !saved)
        return status;
    status = ddl_run_config(&out->config, folder, false, NULL, NULL, err);
    if (!status)
        status = ddl_params_plan(&out->config, &rows, &n, err);
    if (status)
        return status;
    for (size_t i = 0; i < n; i++)
        out->n_params += rows[i].count;
    free(rows);
    out->has_config = true;
    return DDL_OK;
}

static ddl_status check_readable(const char *path, struct ddl_error *err)
{
    struct ddl_recipe recipe = { 0 };
    ddl_status status = ddl_recipe_read(&recipe, path, err);
    ddl_recipe_free(&recipe);
    return status == DDL_E_FORMAT || status == DDL_E_USAGE ? DDL_OK : status;
}

/* A recipe that cannot be read, and a lack of memory, are errors. One that does not apply is left out: it is
 * needed for groups only, and its init_from may have been removed since. */
static ddl_status read_recipe(struct ddl_run_log *out, const char *folder, struct ddl_error *err)
{
    char path[1100], name[] = "", *argv[] = { name, NULL };
    struct ddl_error why;
    int n;
    if (!ddl_path_join(path, sizeof path, folder, "recipe.yaml") || !ddl_file_exists(path))
        return DDL_OK;
    ddl_status status = check_readable(path, err);
    if (status)
        return status;
    out->recipe = malloc(sizeof *out->recipe);
    if (!out->recipe)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for the recipe", path);
    status = ddl_train_configure(out->recipe, path, 1, argv, NULL, NULL, &n, &why);
    if (status) {
        free(out->recipe);
        out->recipe = NULL;
        snprintf(out->recipe_error, sizeof out->recipe_error, "%s", why.text);
    }
    return status == DDL_E_MEMORY ? ddl_error_set(err, status, "%s", why.text) : DDL_OK;
}

ddl_status ddl_run_log_read(struct ddl_run_log *out, const char *folder, struct ddl_error *err)
{
    *out = (struct ddl_run_log){ 0 };
    char path[1100], *text = NULL;
    size_t size = 0;
    const size_t limit = (size_t)1 << 32;
    if (!ddl_path_join(path, sizeof path, folder, "metrics.jsonl"))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s...: path too long", folder);
    ddl_status status = ddl_file_read(path, limit, &text, &size, err);
    if (!status)
        status = read_points(out, text, size, path, err);
    free(text);
    if (!status)
        status = read_config(out, folder, err);
    if (!status)
        status = read_recipe(out, folder, err);
    if (status)
        ddl_run_log_free(out);
    return status;
}

ddl_status ddl_run_log_truncate(struct ddl_run_log *log, uint64_t step, const char *folder,
                                struct ddl_error *err)
{
    while (log->n > 0 && log->points[log->n - 1].step > step)
        log->n--;
    while (log->n_scores > 0 && log->scores[log->n_scores - 1].step > step)
        log->n_scores--;
    if (log->n > 0)
        return DDL_OK;
    return ddl_error_set(err, DDL_E_FORMAT, "%.600s: no line of metrics.jsonl is of step %llu or before",
                         folder, (unsigned long long)step);
}

void ddl_run_log_free(struct ddl_run_log *log)
{
    free(log->points);
    free(log->scores);
    free(log->recipe);
    *log = (struct ddl_run_log){ 0 };
}

const struct ddl_run_score *ddl_run_log_score(const struct ddl_run_log *log, const char *task)
{
    for (size_t i = log->n_scores; i-- > 0;) {
        if (strcmp(log->scores[i].task, task) == 0)
            return &log->scores[i];
    }
    return NULL;
}

double ddl_run_log_final_val(const struct ddl_run_log *log)
{
    for (size_t i = log->n; i-- > 0;) {
        if (!isnan(log->points[i].val_loss))
            return log->points[i].val_loss;
    }
    return NAN;
}

double ddl_run_log_final_train(const struct ddl_run_log *log)
{
    size_t n = 0, before = 0;
    double sum = 0;
    for (size_t i = 0; i < log->n; i++)
        n += isnan(log->points[i].loss) ? 0 : 1;
    const size_t count = n < 10 ? 1 : n / 10; /* the last of them */
    for (size_t i = 0; i < log->n; i++) {
        if (!isnan(log->points[i].loss) && before++ + count >= n)
            sum += log->points[i].loss;
    }
    return n ? sum / (double)count : NAN;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ddl_run_log_speed(const struct ddl_run_log *log)
{
    double *speeds = malloc((log->n ? log->n : 1) * sizeof *speeds);
    size_t n = 0;
    for (size_t i = 0; speeds && i < log->n; i++) {
        if (!isnan(log->points[i].tokens_per_s))
            speeds[n++] = log->points[i].tokens_per_s;
    }
    double median = NAN;
    if (n) {
        qsort(speeds, n, sizeof *speeds, by_value);
        median = n % 2 ? speeds[n / 2] : (speeds[n / 2 - 1] + speeds[n / 2]) / 2;
    }
    free(speeds);
    return median;
}
