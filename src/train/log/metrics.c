#define _POSIX_C_SOURCE 200809L
#include "train/log/metrics.h"

#include "base/file.h"
#include "base/json.h"
#include "base/machine.h"
#include "ddl/json.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- what an earlier process wrote ---- */

/* A line without its newline. *step is UINT64_MAX if it is not an object with a step; *record: whether it is
 * a telemetry record. DDL_E_MEMORY or DDL_OK. */
static ddl_status read_line(const char *line, size_t length, uint64_t *step, bool *record)
{
    json_t *object;
    json_error_t why;
    *step = UINT64_MAX;
    *record = false;
    /* a sample of text may have any character */
    if (ddl_json_parse(&object, line, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why) == DDL_E_MEMORY)
        return DDL_E_MEMORY;
    const json_t *number = json_object_get(object, "step");
    if (json_is_integer(number) && json_integer_value(number) >= 0)
        *step = (uint64_t)json_integer_value(number);
    *record = json_object_get(object, "kind") != NULL;
    json_decref(object);
    return DDL_OK;
}

/* Copies the lines of steps before `end` and the records of steps before `records_end` to out[map->size].
 * *size: their bytes. */
static ddl_status copy_before(const struct ddl_file_map *map, uint64_t end, uint64_t records_end, char *out,
                              size_t *size, struct ddl_metrics_kept *kept)
{
    const char *text = (const char *)map->data, *newline;
    size_t line = 0;
    *size = 0;
    for (size_t at = 0; at < map->size && (newline = memchr(text + at, '\n', map->size - at));) {
        size_t length = (size_t)(newline - (text + at)) + 1;
        uint64_t step;
        bool record;
        if (read_line(text + at, length - 1, &step, &record))
            return DDL_E_MEMORY;
        line++;
        if (step == UINT64_MAX && kept->removed++ == 0)
            kept->first_removed = line;
        if (step < (record ? records_end : end)) {
            memcpy(out + *size, text + at, length);
            *size += length;
            if (!record && step > kept->logged)
                kept->logged = step;
        }
        at += length;
    }
    return DDL_OK;
}

static ddl_status truncate_log(const char *path, uint64_t end, uint64_t records_end,
                               struct ddl_metrics_kept *kept, struct ddl_error *err)
{
    struct ddl_file_map map;
    size_t size = 0;
    if (!ddl_file_exists(path))
        return DDL_OK;
    ddl_status status = ddl_file_map_open(&map, path, err);
    if (status)
        return status;
    char *text = malloc(map.size + 1);
    if (!text || copy_before(&map, end, records_end, text, &size, kept))
        status = ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for %zu bytes", path, map.size);
    else if (size < map.size)
        status = ddl_file_replace(path, text, size, err);
    free(text);
    ddl_file_map_close(&map);
    return status;
}

ddl_status ddl_metrics_open(struct ddl_metrics *metrics, const char *path, uint64_t end, uint64_t records_end,
                            struct ddl_metrics_kept *kept, struct ddl_error *err)
{
    struct ddl_metrics_kept unused;
    kept = kept ? kept : &unused;
    *kept = (struct ddl_metrics_kept){ 0 };
    *metrics = (struct ddl_metrics){ 0 };
    snprintf(metrics->path, sizeof metrics->path, "%s", path);
    ddl_status status = truncate_log(path, end, records_end, kept, err);
    if (status)
        return status;
    return ddl_file_append(&metrics->stream, path, err);
}

/* ---- lines ---- */

static ddl_status end_line(struct ddl_metrics *metrics, struct ddl_error *err)
{
    putc('\n', metrics->stream);
    if (fflush(metrics->stream) == 0 && !ferror(metrics->stream))
        return DDL_OK;
    ddl_status status = ddl_file_error(err, metrics->path, "write");
    clearerr(metrics->stream); /* a later line may be written */
    return status;
}

void ddl_metrics_begin(struct ddl_metrics *metrics, uint64_t step, const char *backend)
{
    struct ddl_metrics_start *start = &metrics->start;
    time_t now = time(NULL);
    struct tm utc;
    *start = (struct ddl_metrics_start){ .step = step };
    if (gmtime_r(&now, &utc))
        strftime(start->time, sizeof start->time, "%Y-%m-%dT%H:%M:%SZ", &utc);
    ddl_machine_processor(start->processor, sizeof start->processor);
    snprintf(start->backend, sizeof start->backend, "%s", backend);
    metrics->starts = true;
}

static void write_start(struct ddl_json *json, const struct ddl_metrics_start *start)
{
    ddl_json_open(json, "start", '{');
    ddl_json_count(json, "step", start->step);
    ddl_json_string(json, "time", start->time);
    ddl_json_string(json, "processor", start->processor);
    ddl_json_string(json, "backend", start->backend);
    ddl_json_close(json, '}');
}

ddl_status ddl_metrics_write(struct ddl_metrics *metrics, const struct ddl_train_progress *p,
                             struct ddl_error *err)
{
    struct ddl_json json = { metrics->stream, false };
    ddl_json_open(&json, NULL, '{');
    ddl_json_count(&json, "step", p->step);
    ddl_json_number(&json, "loss", p->loss, 9);
    if (p->step > 0) {
        ddl_json_number(&json, "lr", p->lr, 9);
        ddl_json_number(&json, "grad_norm", p->grad_norm, 9);
    }
    ddl_json_count(&json, "tokens", p->tokens);
    ddl_json_number(&json, "flops", p->flops, 9);
    if (p->skipped)
        ddl_json_bool(&json, "skipped", true);
    if (p->has_val)
        ddl_json_number(&json, "val_loss", p->val_loss, 9);
    if (p->n_tasks)
        ddl_json_open(&json, "tasks", '{');
    for (size_t i = 0; i < p->n_tasks; i++)
        ddl_task_write_json(&json, &p->tasks[i], 9);
    if (p->n_tasks)
        ddl_json_close(&json, '}');
    if (p->step > 0)
        ddl_json_number(&json, "tokens_per_s", p->tokens_per_s, 6);
    if (p->step > 0 && p->mfu > 0)
        ddl_json_number(&json, "mfu", p->mfu, 4);
    ddl_json_fixed(&json, "seconds", p->seconds, 6);
    ddl_json_fixed(&json, "train_seconds", p->train_seconds, 6);
    ddl_json_count(&json, "peak_memory", p->peak_memory);
    if (metrics->starts)
        write_start(&json, &metrics->start);
    metrics->starts = false;
    ddl_json_close(&json, '}');
    return end_line(metrics, err);
}

ddl_status ddl_metrics_write_telemetry(struct ddl_metrics *metrics, uint64_t step, uint64_t tokens,
                                       const struct ddl_telemetry *telemetry, struct ddl_error *err)
{
    struct ddl_json json = { metrics->stream, false };
    ddl_json_open(&json, NULL, '{');
    ddl_json_count(&json, "step", step);
    ddl_json_string(&json, "kind", "telemetry");
    ddl_json_count(&json, "tokens", tokens);
    ddl_telemetry_write_json(telemetry, &json);
    ddl_json_close(&json, '}');
    return end_line(metrics, err);
}

ddl_status ddl_metrics_write_sample(struct ddl_metrics *samples, uint64_t step, const char *prompt,
                                    const char *text, size_t size, struct ddl_error *err)
{
    struct ddl_json json = { samples->stream, false };
    ddl_json_open(&json, NULL, '{');
    ddl_json_count(&json, "step", step);
    ddl_json_string(&json, "prompt", prompt);
    ddl_json_text(&json, "text", text, size);
    ddl_json_close(&json, '}');
    return end_line(samples, err);
}

ddl_status ddl_metrics_sync(const struct ddl_metrics *metrics, struct ddl_error *err)
{
    return !metrics->stream || fsync(fileno(metrics->stream)) == 0
               ? DDL_OK
               : ddl_file_error(err, metrics->path, "sync");
}

/* The last whole line of a log, without its newline; NULL if there is none. */
static const char *last_line(const struct ddl_file_map *map, size_t *length)
{
    const char *text = (const char *)map->data;
    size_t end = map->size, begin;
    while (end > 0 && text[end - 1] != '\n')
        end--;
    for (begin = end ? end - 1 : 0; begin > 0 && text[begin - 1] != '\n';)
        begin--;
    *length = end ? end - 1 - begin : 0;
    return end ? text + begin : NULL;
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static uint64_t count_of(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? (uint64_t)value : 0;
}

ddl_status ddl_metrics_last(const char *path, struct ddl_train_progress *last, struct ddl_error *err)
{
    struct ddl_file_map map;
    size_t length;
    json_t *object = NULL;
    json_error_t why;
    *last = (struct ddl_train_progress){ 0 };
    ddl_status status = ddl_file_map_open(&map, path, err);
    if (status)
        return status;
    const char *line = last_line(&map, &length);
    if (line && ddl_json_parse(&object, line, length, JSON_REJECT_DUPLICATES, &why) == DDL_E_MEMORY)
        status = ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory to read its last line", path);
    else if (json_is_integer(json_object_get(object, "step")) && !json_object_get(object, "kind"))
        *last = (struct ddl_train_progress){ .step = count_of(object, "step"),
                                             .steps = count_of(object, "step"),
                                             .loss = number_of(object, "loss"),
                                             .lr = number_of(object, "lr"),
                                             .grad_norm = number_of(object, "grad_norm"),
                                             .has_val = json_is_number(json_object_get(object, "val_loss")),
                                             .val_loss = number_of(object, "val_loss"),
                                             .tokens = count_of(object, "tokens"),
                                             .flops = number_of(object, "flops"),
                                             .seconds = number_of(object, "seconds"),
                                             .train_seconds = number_of(object, "train_seconds"),
                                             .peak_memory = (size_t)count_of(object, "peak_memory") };
    json_decref(object);
    ddl_file_map_close(&map);
    return status;
}

ddl_status ddl_metrics_last_step(const char *path, uint64_t *step, struct ddl_error *err)
{
    struct ddl_file_map map;
    uint64_t found = UINT64_MAX;
    size_t length;
    bool record;
    *step = 0;
    ddl_status status = ddl_file_map_open(&map, path, err);
    if (status)
        return status;
    const char *line = last_line(&map, &length);
    if (line && read_line(line, length, &found, &record))
        status = ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory to read its last line", path);
    if (found != UINT64_MAX)
        *step = found;
    ddl_file_map_close(&map);
    return status;
}

void ddl_metrics_close(struct ddl_metrics *metrics)
{
    if (metrics->stream)
        fclose(metrics->stream);
    metrics->stream = NULL;
}
