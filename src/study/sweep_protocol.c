/* The protocol of a sweep: what it is to decide, written before it starts. sweep_list.c reads it again. */
#include "study/sweep_internal.h"

#include "base/json.h"

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
    ddl_json_string(json, "stopping", protocol->stopping);
    ddl_json_close(json, '}');
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
            if (strcmp(a->config->val_data, b->config->val_data) == 0)
                return ddl_error_set(err, DDL_E_USAGE,
                                     "%s: protocol: %s and %s are validated on the same data: expected "
                                     "another val_data in choose.set than in base",
                                     sweep->path, a->name, b->name);
        }
    }
    return DDL_OK;
}
