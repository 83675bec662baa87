/* ddl eval --val-data and --text: the loss of models on tokens. */
#include "cli/cli.h"
#include "cli/eval/eval.h"
#include "cli/output/terminal.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct evaluation {
    const struct eval_flags *flags;
    struct token_data data;
    const char *folder; /* of the model that is evaluated */
    size_t models_left; /* it and those after it */
    uint64_t done;      /* tokens, with the models before it */
    struct work_line work;
    bool has_noted; /* that the tokenizer of the shards is not known */
};

static int show_progress(void *user, uint64_t done, uint64_t total)
{
    struct evaluation *e = user;
    e->work.done = e->done + done;
    e->work.total = e->done + e->models_left * total;
    work_line_show(&e->work, e->folder, NULL);
    return 0;
}

/* Once, if the bytes that the tokens stand for are not known although the model has a tokenizer. */
static void note_unknown_tokenizer(struct evaluation *e, const struct folder *folder)
{
    if (e->has_noted || e->flags->quiet || e->flags->json || e->flags->csv || !e->data.shards ||
        e->data.is_recorded || !folder->tokenizer)
        return;
    e->has_noted = true;
    fprintf(stderr,
            "ddl: %s: no record of the tokenizer (shards.json): the model's is not known to fit, and bits "
            "per byte "
            "are not computed\n",
            e->flags->tokens.val_data);
}

static ddl_status evaluate_model(struct evaluation *e, struct loss_row *row, struct ddl_error *err)
{
    struct folder folder;
    e->folder = row->model.folder;
    const struct eval_flags *flags = e->flags;
    struct ddl_eval_config config = flags->windows;
    config.progress = show_progress;
    config.user = e;
    config.groups = flags->groups ? row->groups : NULL;
    ddl_status status = eval_open(&folder, flags, &row->model, e->data.text != NULL, err);
    if (!status)
        status = ddl_comm_agree(
            flags->comm, token_data_force(flags->force, &e->data, &folder, &flags->model, &config, err), err);
    if (!status)
        note_unknown_tokenizer(e, &folder);
    if (!status)
        status = token_data_eval(&e->data, &folder, &flags->model, &config, &row->result, err);
    folder_close(&folder);
    e->done += row->result.positions;
    e->models_left--;
    return status;
}

static ddl_status evaluate(struct evaluation *e, struct loss_row *rows, const char *const *folders,
                           struct ddl_error *err)
{
    size_t n = e->models_left;
    ddl_status status = token_data_open(&e->data, &e->flags->tokens, e->flags->quiet, err);
    status = ddl_comm_agree(e->flags->comm, status, err);
    for (size_t i = 0; i < n && !status; i++) {
        rows[i].model.folder = folders[i];
        status = evaluate_model(e, &rows[i], err);
    }
    progress_line_clear(&e->work.line);
    token_data_close(&e->data);
    return status;
}

int eval_loss(const struct eval_flags *flags, size_t n_folders, const char *const *folders)
{
    struct ddl_error err = { 0 };
    struct evaluation e = { .flags = flags,
                            .models_left = n_folders,
                            .work = work_line_on_stderr("tokens", flags->quiet) };
    struct loss_row *rows = calloc(n_folders, sizeof *rows);
    exit_on_interrupt(true); /* nothing is written */
    ddl_status status = rows ? DDL_OK : ddl_error_set(&err, DDL_E_MEMORY, "eval: out of memory");
    status = ddl_comm_agree(flags->comm, status, &err);
    if (!status)
        status = evaluate(&e, rows, folders, &err);
    if (!status && ddl_comm_rank(flags->comm) == 0)
        print_losses(flags, rows, n_folders);
    free(rows);
    return status ? report_agreed(flags->comm, &err) : EXIT_OK;
}
