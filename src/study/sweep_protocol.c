/* The protocol of a sweep: what it is to decide, written before it starts. sweep_list.c reads it again. */
#include "study/sweep_internal.h"

#include "base/json.h"
#include "base/locale.h"
#include "base/path.h"
#include "train/config/train_config.h"

#include <math.h>
#include <stdio.h>
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

/* Validation data as text that is equal for equal data: `auto` is that of train_data, a path is the file's or
 * the folder's. */
static void name_val_data(const struct ddl_train_config *config, char *out, size_t size)
{
    const char *text = strcmp(config->val_data, "auto") == 0 ? config->train_data : config->val_data;
    if (!ddl_path_canonical(text, out, size))
        snprintf(out, size, "%s", text);
}

static bool same_val_data(const struct ddl_sweep_run *a, const struct ddl_sweep_run *b)
{
    char x[4096], y[4096];
    name_val_data(a->config, x, sizeof x);
    name_val_data(b->config, y, sizeof y);
    return strcmp(x, y) == 0;
}

/* The candidates of a setting and its other runs. */
ddl_status sweep_check_protocol(const struct ddl_sweep *sweep, struct ddl_error *err)
{
    if (!ddl_sweep_protocol_is_set(&sweep->protocol))
        return DDL_OK;
    for (size_t i = 0; i < sweep->n_runs; i++) {
        for (size_t j = 0; j < sweep->n_runs; j++) {
            const struct ddl_sweep_run *a = &sweep->runs[i], *b = &sweep->runs[j];
            if (!a->is_candidate || b->is_candidate || a->setting != b->setting)
                continue;
            if (a->config->seed == b->config->seed)
                return ddl_error_set(
                    err, DDL_E_USAGE,
                    "%s: protocol: seed %llu of %s is also that of %s: expected seeds that no "
                    "choice has seen: set choose.seed",
                    sweep->path, (unsigned long long)a->config->seed, a->name, b->name);
            if (same_val_data(a, b))
                return ddl_error_set(err, DDL_E_USAGE,
                                     "%s: protocol: %s and %s are validated on the same data: expected "
                                     "another val_data in choose.set than in base",
                                     sweep->path, a->name, b->name);
        }
    }
    return DDL_OK;
}
