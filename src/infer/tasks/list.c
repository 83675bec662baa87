/* Several tasks, named by a comma-separated list. */
#define _POSIX_C_SOURCE 200809L
#include "ddl/tasks.h"

#include <stdlib.h>
#include <string.h>

static ddl_status append(struct ddl_task_list *list, const char *name, const struct ddl_task_config *config,
                         const ddl_tokenizer *tokenizer, struct ddl_error *err)
{
    ddl_task **grown = realloc(list->tasks, (list->n + 1) * sizeof(ddl_task *));
    if (!grown)
        return ddl_error_set(err, DDL_E_MEMORY, "task %s: out of memory", name);
    list->tasks = grown;
    ddl_status status = ddl_task_load(&list->tasks[list->n], name, config, tokenizer, err);
    list->n += status == DDL_OK;
    return status;
}

/* An entry of the list: one task, or all. */
static ddl_status append_entry(struct ddl_task_list *list, const char *name,
                               const struct ddl_task_config *config, const ddl_tokenizer *tokenizer,
                               struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    if (strcmp(name, "all") != 0)
        return append(list, name, config, tokenizer, err);
    for (size_t i = 0; ddl_task_name(i) && !status; i++)
        status = append(list, ddl_task_name(i), config, tokenizer, err);
    return status;
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
