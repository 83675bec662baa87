/* Several tasks, named by a comma-separated list. */
#define _POSIX_C_SOURCE 200809L
#include "ddl/tasks.h"

#include "infer/tasks/task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ddl_status append(struct ddl_task_list *list, const char *name, const struct ddl_task_config *config,
                         const ddl_tokenizer *tokenizer, struct ddl_error *err)
{
    ddl_task **grown = realloc(list->tasks, (list->n + 1) * sizeof(ddl_task *));
    if (!grown)
        return ddl_error_set(err, DDL_E_MEMORY, "task %s: out of memory", name);
    list->tasks = grown;
    ddl_status status = ddl_task_load(&grown[list->n], name, config, tokenizer, err);
    if (status)
        return status;
    const char *title = ddl_task_title(grown[list->n++]);
    for (size_t i = 0; i + 1 < list->n; i++) {
        if (strcmp(ddl_task_title(grown[i]), title) == 0)
            return ddl_error_set(
                err, DDL_E_USAGE,
                "tasks: %s: there is a task named '%s' already: results are reported by name", name, title);
    }
    return DDL_OK;
}

/* Appends "NAME: PATH" to the lines in `text`, truncated. */
static void add_missing(char *text, size_t size, const char *name, const char *path)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s: %s", used ? "\n" : "", name, path);
}

/* Every task whose files exist; an error names all others unless only the available ones are wanted. */
static ddl_status append_all(struct ddl_task_list *list, bool available, const struct ddl_task_config *config,
                             const ddl_tokenizer *tokenizer, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    char path[512], lines[sizeof list->skipped] = "";
    for (size_t i = 0; ddl_task_name(i); i++) {
        if (task_missing_file(ddl_task_name(i), config, path, sizeof path))
            add_missing(lines, sizeof lines, ddl_task_name(i), path);
    }
    if (*lines && !available) {
        for (char *c = lines; *c; c++)
            *c = *c == '\n' ? ';' : *c;
        return ddl_error_set(
            err, DDL_E_IO,
            "tasks: all: files are missing: %s: docs/evaluation.md says where they come from; "
            "'available' leaves these tasks out",
            lines);
    }
    for (size_t i = 0; ddl_task_name(i) && !status; i++) {
        if (!task_missing_file(ddl_task_name(i), config, path, sizeof path))
            status = append(list, ddl_task_name(i), config, tokenizer, err);
    }
    if (!status && list->n == 0)
        return ddl_error_set(err, DDL_E_IO, "tasks: available: %s has the files of no task: the first is %s",
                             config->data, path);
    memcpy(list->skipped, lines, sizeof lines);
    return status;
}

/* An entry of the list: one task, or several. */
static ddl_status append_entry(struct ddl_task_list *list, const char *name,
                               const struct ddl_task_config *config, const ddl_tokenizer *tokenizer,
                               struct ddl_error *err)
{
    const bool available = strcmp(name, "available") == 0, several = available || strcmp(name, "all") == 0;
    if (!*config->data && (several || task_has_files(name)))
        return ddl_error_set(err, DDL_E_USAGE,
                             "tasks: %s: expected --data DIR (tasks_data), the folder with the files of the "
                             "tasks, found none",
                             name);
    return several ? append_all(list, available, config, tokenizer, err)
                   : append(list, name, config, tokenizer, err);
}

ddl_status ddl_task_list_load(struct ddl_task_list *out, const char *names,
                              const struct ddl_task_config *config, const ddl_tokenizer *tokenizer,
                              struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    char *copy = strdup(names), *rest = NULL;
    *out = (struct ddl_task_list){ 0 };
    if (!copy)
        return ddl_error_set(err, DDL_E_MEMORY, "tasks: out of memory");
    for (char *name = strtok_r(copy, ",", &rest); name && !status; name = strtok_r(NULL, ",", &rest))
        status = append_entry(out, name, config, tokenizer, err);
    free(copy);
    if (!status && out->n == 0)
        status = ddl_error_set(err, DDL_E_USAGE, "tasks: expected at least one task, found none");
    if (status)
        ddl_task_list_free(out);
    return status;
}

void ddl_task_list_free(struct ddl_task_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        ddl_task_free(list->tasks[i]);
    free(list->tasks);
    *list = (struct ddl_task_list){ 0 };
}
