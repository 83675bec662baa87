/* The protocol of a sweep: what it is to decide, written before it starts. */
#include "study/sweep_internal.h"

#include "base/file.h"
#include "base/json.h"
#include "base/path.h"

#include <stdlib.h>
#include <string.h>

static const char record_name[] = "sweep.json";
enum { RECORD_LIMIT = 1 << 26 };

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

static void copy_text(const json_t *object, const char *key, char *out, size_t size)
{
    const char *text = json_string_value(json_object_get(object, key));
    snprintf(out, size, "%s", text ? text : "");
}

static void count_runs(const json_t *runs, struct ddl_sweep_protocol *out)
{
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        const char *state = json_string_value(json_object_get(run, "state"));
        if (!state || json_is_true(json_object_get(run, "candidate")))
            continue;
        out->n_runs++;
        out->n_ended += strcmp(state, ddl_sweep_state_names[DDL_SWEEP_FINISHED]) == 0 ||
                        strcmp(state, ddl_sweep_state_names[DDL_SWEEP_FAILED]) == 0;
    }
}

ddl_status ddl_sweep_protocol_read(struct ddl_sweep_protocol *out, const char *folder, struct ddl_error *err)
{
    char path[4200];
    json_t *root;
    *out = (struct ddl_sweep_protocol){ 0 };
    if (!ddl_path_join(path, sizeof path, folder, record_name) || !ddl_file_exists(path))
        return DDL_OK;
    ddl_status status = ddl_json_read(&root, path, RECORD_LIMIT, err);
    if (status)
        return status;
    const json_t *protocol = json_object_get(root, "protocol");
    const json_t *secondary = json_object_get(protocol, "secondary");
    copy_text(protocol, "question", out->question, sizeof out->question);
    copy_text(protocol, "primary", out->primary, sizeof out->primary);
    copy_text(protocol, "stopping", out->stopping, sizeof out->stopping);
    out->margin = json_number_value(json_object_get(protocol, "margin"));
    out->power = json_number_value(json_object_get(protocol, "power"));
    for (size_t i = 0; i < json_array_size(secondary); i++) {
        const char *text = json_string_value(json_array_get(secondary, i));
        const size_t used = strlen(out->secondary);
        snprintf(out->secondary + used, sizeof out->secondary - used, "%s%s", used ? "\n" : "",
                 text ? text : "");
    }
    count_runs(json_object_get(root, "runs"), out);
    json_decref(root);
    return DDL_OK;
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
