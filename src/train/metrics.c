#define _POSIX_C_SOURCE 200809L
#include "train/metrics.h"

#include "base/file.h"
#include "base/machine.h"
#include "ddl/json.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The step of a whole line, or UINT64_MAX for anything else. *record: whether it is a telemetry record. */
static uint64_t step_of(const char *line, size_t length, bool *record)
{
    static const char key[] = "{\"step\":", kind[] = ",\"kind\":";
    if (length < sizeof key || memcmp(line, key, sizeof key - 1) != 0 || line[length - 1] != '}')
        return UINT64_MAX;
    char *end;
    uint64_t step = strtoull(line + sizeof key - 1, &end, 10);
    size_t left = (size_t)(line + length - end); /* the number ends before the brace at the latest */
    *record = left >= sizeof kind - 1 && memcmp(end, kind, sizeof kind - 1) == 0;
    return step;
}

/* How many bytes at the beginning are whole lines of steps before `end` and records before `records_end`;
 * *logged gets the last line's step. */
static size_t bytes_before(const struct ddl_file_map *map, uint64_t end, uint64_t records_end,
                           uint64_t *logged)
{
    size_t kept = 0;
    while (kept < map->size) {
        const char *line = (const char *)map->data + kept;
        const char *newline = memchr(line, '\n', map->size - kept);
        bool record = false;
        uint64_t step = newline ? step_of(line, (size_t)(newline - line), &record) : UINT64_MAX;
        if (step >= (record ? records_end : end))
            break;
        if (!record)
            *logged = step;
        kept += (size_t)(newline - line) + 1;
    }
    return kept;
}

ddl_status ddl_metrics_open(struct ddl_metrics *metrics, const char *path, uint64_t end, uint64_t records_end,
                            uint64_t *logged, struct ddl_error *err)
{
    struct ddl_file_map map = { 0 };
    uint64_t last = 0;
    *metrics = (struct ddl_metrics){ 0 };
    snprintf(metrics->path, sizeof metrics->path, "%s", path);
    ddl_status status = ddl_file_exists(path) ? ddl_file_map_open(&map, path, err) : DDL_OK;
    if (status)
        return status;
    size_t kept = bytes_before(&map, end, records_end, &last);
    if (kept < map.size)
        status = ddl_file_replace(path, map.data, kept, err);
    ddl_file_map_close(&map);
    if (status)
        return status;
    if (logged)
        *logged = last;
    metrics->stream = fopen(path, "ab");
    if (!metrics->stream)
        return ddl_file_error(err, path, "open");
    return DDL_OK;
}

static ddl_status end_line(struct ddl_metrics *metrics, struct ddl_error *err)
{
    putc('\n', metrics->stream);
    if (fflush(metrics->stream) != 0 || ferror(metrics->stream))
        return ddl_file_error(err, metrics->path, "write");
    return DDL_OK;
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
    return fsync(fileno(metrics->stream)) == 0 ? DDL_OK : ddl_file_error(err, metrics->path, "sync");
}

ddl_status ddl_metrics_last_step(const char *path, uint64_t *step, struct ddl_error *err)
{
    struct ddl_file_map map;
    *step = 0;
    ddl_status status = ddl_file_map_open(&map, path, err);
    if (status)
        return status;
    size_t end = map.size, begin;
    while (end > 0 && map.data[end - 1] != '\n')
        end--;
    for (begin = end ? end - 1 : 0; begin > 0 && map.data[begin - 1] != '\n';)
        begin--;
    bool record;
    uint64_t found = end ? step_of((const char *)map.data + begin, end - 1 - begin, &record) : UINT64_MAX;
    if (found != UINT64_MAX)
        *step = found;
    ddl_file_map_close(&map);
    return DDL_OK;
}

void ddl_metrics_close(struct ddl_metrics *metrics)
{
    if (metrics->stream)
        fclose(metrics->stream);
    metrics->stream = NULL;
}
