/* ddl eval --tasks: models on downstream tasks. */
#ifndef DDL_CLI_EVAL_TASKS_H
#define DDL_CLI_EVAL_TASKS_H

#include "folder.h"

#include "ddl/option.h"
#include "ddl/tasks.h"

#include <stdbool.h>
#include <stddef.h>

enum { EVAL_TABLE, EVAL_JSON, EVAL_CSV, EVAL_MARKDOWN };

/* The options of eval that only tasks have. */
struct task_flags {
    char tasks[4096], items[1024];
    struct ddl_task_config config;
    bool csv, markdown, quiet;
};
extern const struct ddl_option task_rows[];
struct task_flags task_flags_defaults(void);

/* Evaluates every folder on every task and prints the results. `request` has what all folders share; json:
 * print JSON. Returns the exit status. */
int eval_tasks(const struct task_flags *flags, struct folder_request request, size_t n_folders,
               const char *const *folders, bool json);

#endif
