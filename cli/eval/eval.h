/* What the files of ddl eval share: its options, and the forms of its results. */
#ifndef DDL_CLI_EVAL_H
#define DDL_CLI_EVAL_H

#include "cli/model/folder.h"
#include "cli/model/force.h"
#include "cli/model/token_data.h"

#include "ddl/eval.h"
#include "ddl/tasks.h"

#include <stdbool.h>
#include <stddef.h>

struct eval_flags {
    struct token_flags tokens; /* they, or the tasks, are given */
    char tasks[4096], force[FORCE_SIZE];
    struct model_flags model;
    bool json, csv, markdown; /* at most one */
    bool groups;              /* of the masks: their losses and accuracies too */
    bool quiet;
    struct ddl_eval_config windows; /* of --val-data and --text; its comm is */
    ddl_comm *comm;                 /* the ranks that evaluate               */
    struct ddl_task_config task;
    char items[1024];
};

/* A model of the command line. */
struct eval_model {
    const char *folder;
    struct ddl_run_model found;
};

/* Opens the folder of a model as the flags say, on all ranks the same; close it after a failure too. */
ddl_status eval_open(struct folder *folder, const struct eval_flags *flags, struct eval_model *model,
                     bool needs_tokenizer, struct ddl_error *err);

/* Evaluate every folder, and print the results on rank 0: its loss on shards or a text; its scores on tasks.
 * Return the exit status. */
int eval_loss(const struct eval_flags *flags, size_t n_folders, const char *const *folders);
int eval_tasks(const struct eval_flags *flags, size_t n_folders, const char *const *folders);

/* ---- results (eval_print.c) ---- */

struct loss_row {
    struct eval_model model;
    struct ddl_eval_result result;
    struct ddl_eval_group groups[DDL_MASK_GROUPS]; /* of --groups */
};
void print_losses(const struct eval_flags *flags, const struct loss_row *rows, size_t n);

/* A model on every task. */
struct task_row {
    struct eval_model model;
    struct ddl_task_result *results; /* (n_tasks) */
};
struct task_table {
    size_t n_tasks, n_rows;
    struct task_row *rows; /* (n_rows) */
    const char *skipped;   /* as in struct ddl_task_list, or NULL */
};
void print_tasks(const struct eval_flags *flags, const struct task_table *table);

#endif
