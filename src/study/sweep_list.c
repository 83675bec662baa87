/* What sweep.json says to those who read the runs of a sweep: their folders, and the protocol. */
#define _POSIX_C_SOURCE 200809L
#include "ddl/sweep.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char record_name[] = "sweep.json";
enum { RECORD_LIMIT = 1 << 26 };

struct list {
    const char *folder;
    char **names; /* (n) paths */
    size_t n;
    ddl_warn_fn *note; /* may be NULL */
    void *user;
};

/* Adds the folder `name` if a run there has logged something. */
static ddl_status add(struct list *list, const char *name, struct ddl_error *err)
{
    char path[4096], metrics[4200];
    struct stat st;
    if (!ddl_path_join(path, sizeof path, list->folder, name) ||
        !ddl_path_join(metrics, sizeof metrics, path, "metrics.jsonl") || !ddl_file_exists(metrics))
        return DDL_OK;
    if (stat(metrics, &st) != 0)
        return ddl_file_error(err, metrics, "examine");
    if (st.st_size == 0)
        return DDL_OK;
    char **grown = realloc(list->names, (list->n + 1) * sizeof *grown);
    if (grown)
        list->names = grown;
    char *copy = ddl_mem_strdup(path);
    if (!grown || !copy) {
        free(copy);
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its list of runs", list->folder);
    }
    list->names[list->n++] = copy;
    return DDL_OK;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static bool is_stale(const json_t *run)
{
    return strcmp(text_of(run, "state"), ddl_sweep_state_names[DDL_SWEEP_STALE]) == 0;
}

/* Reports the stale runs, by the first of them. */
static void note_stale(const struct list *list, const json_t *root, size_t n, const json_t *first)
{
    struct ddl_error message;
    if (n == 0 || !list->note)
        return;
    ddl_error_set(&message, DDL_OK,
                  "%.300s: %zu stale run%s left out: %.200s: %.200s; 'ddl sweep %.200s --retrain' trains "
                  "such runs again",
                  list->folder, n, n == 1 ? " is" : "s are", text_of(first, "name"),
                  text_of(first, "message"), text_of(root, "sweep"));
    list->note(list->user, message.text);
}

static ddl_status add_recorded(struct list *list, const char *record, struct ddl_error *err)
{
    json_t *root;
    ddl_status status = ddl_json_read(&root, record, RECORD_LIMIT, err);
    const json_t *runs = status ? NULL : json_object_get(root, "runs"), *first = NULL;
    size_t n_stale = 0;
    for (size_t i = 0; !status && i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        const char *name = json_string_value(json_object_get(run, "name"));
        if (is_stale(run)) {
            first = n_stale++ ? first : run;
            continue;
        }
        if (name && !json_is_true(json_object_get(run, "candidate")))
            status = add(list, name, err);
    }
    if (!status)
        note_stale(list, root, n_stale, first);
    json_decref(root);
    return status;
}

bool ddl_sweep_run_is_stale(const char *folder, char *out, size_t size)
{
    char path[4096], record[4200];
    json_t *root;
    if (!ddl_path_canonical(folder, path, sizeof path))
        return false;
    char *name = strrchr(path, '/');
    *name++ = '\0';
    if (!ddl_path_join(record, sizeof record, path, record_name) || !ddl_file_exists(record) ||
        ddl_json_read(&root, record, RECORD_LIMIT, NULL))
        return false;
    const json_t *runs = json_object_get(root, "runs"), *found = NULL;
    for (size_t i = 0; !found && i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        if (is_stale(run) && strcmp(text_of(run, "name"), name) == 0)
            found = run;
    }
    if (found)
        snprintf(out, size, "%s", text_of(found, "message"));
    json_decref(root);
    return found != NULL;
}

static bool is_visible(void *user, const char *name)
{
    (void)user;
    return name[0] != '.';
}

static ddl_status add_found(struct list *list, struct ddl_error *err)
{
    struct ddl_file_names found;
    ddl_status status = ddl_file_list(&found, list->folder, is_visible, NULL, err);
    for (size_t i = 0; !status && i < found.n; i++)
        status = add(list, found.names[i], err);
    ddl_file_names_free(&found);
    return status;
}

ddl_status ddl_sweep_list(const char *out, char ***names, size_t *n, ddl_warn_fn *note, void *user,
                          struct ddl_error *err)
{
    struct list list = { .folder = out, .note = note, .user = user };
    char record[4096];
    bool recorded = ddl_path_join(record, sizeof record, out, record_name) && ddl_file_exists(record);
    ddl_status status = recorded ? add_recorded(&list, record, err) : add_found(&list, err);
    if (status) {
        for (size_t i = 0; i < list.n; i++)
            free(list.names[i]);
        free(list.names);
        list = (struct list){ 0 };
    }
    *names = list.names;
    *n = list.n;
    return status;
}

/* ---- the protocol ---- */

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
    const json_t *level = json_object_get(protocol, "level"); /* earlier records have none */
    out->level = level ? json_number_value(level) : 0.05;
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
