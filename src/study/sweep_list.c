/* The run folders in a sweep's folder, for what reads several runs. */
#define _POSIX_C_SOURCE 200809L
#include "ddl/sweep.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct list {
    const char *folder;
    char **names; /* (n) paths */
    size_t n;
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

static ddl_status add_recorded(struct list *list, const char *record, struct ddl_error *err)
{
    json_t *root;
    ddl_status status = ddl_json_read(&root, record, (size_t)1 << 26, err);
    const json_t *runs = status ? NULL : json_object_get(root, "runs");
    for (size_t i = 0; !status && i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        const char *name = json_string_value(json_object_get(run, "name"));
        if (name && !json_is_true(json_object_get(run, "candidate")))
            status = add(list, name, err);
    }
    if (!status)
        json_decref(root);
    return status;
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

ddl_status ddl_sweep_list(const char *out, char ***names, size_t *n, struct ddl_error *err)
{
    struct list list = { .folder = out };
    char record[4096];
    bool recorded = ddl_path_join(record, sizeof record, out, "sweep.json") && ddl_file_exists(record);
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
