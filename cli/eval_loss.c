/* ddl eval --val-data and --text: the loss of models on tokens. */
#include "cli.h"
#include "eval.h"
#include "input.h"
#include "shards.h"
#include "terminal.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct evaluation {
    const struct eval_flags *flags;
    ddl_shards *shards; /* or NULL: */
    char *text;
    size_t text_size;
    const char *folder; /* of the model that is evaluated */
    size_t models_left; /* it and those after it */
    uint64_t done;      /* tokens, with the models before it */
    struct work_line work;
};

static int show_progress(void *user, uint64_t done, uint64_t total)
{
    struct evaluation *e = user;
    e->work.done = e->done + done;
    e->work.total = e->done + e->models_left * total;
    work_line_show(&e->work, e->folder, NULL);
    return 0;
}

static ddl_status open_shards(struct evaluation *e, struct ddl_error *err)
{
    const struct eval_flags *flags = e->flags;
    const struct ddl_shards_options options = { .split = DDL_SHARDS_VAL, .format = flags->format };
    ddl_status status = ddl_shards_open_with(&e->shards, flags->val_data, &options, err);
    if (status || flags->quiet)
        return status;
    report_assumed(e->shards);
    size_t n = ddl_shards_n_files(e->shards), left_out = ddl_shards_n_left_out(e->shards, false);
    if (left_out > 0)
        fprintf(stderr, "ddl: %s: evaluating the %zu validation shard%s of %zu files\n", flags->val_data, n,
                n == 1 ? "" : "s", n + left_out);
    return DDL_OK;
}

static ddl_status evaluate_shards(struct evaluation *e, const struct folder *f, struct ddl_eval_result *out,
                                  struct ddl_error *err)
{
    const struct eval_flags *flags = e->flags;
    const struct ddl_vocabulary vocabulary = { .vocab_size = ddl_model_config(f->model)->vocab_size,
                                               .tokenizer = f->tokenizer,
                                               .tokenizer_path = *flags->model.tokenizer
                                                                     ? flags->model.tokenizer
                                                                     : f->found.path,
                                               .val = e->shards };
    ddl_status status = ddl_vocabulary_check(&vocabulary, NULL, NULL, NULL, err);
    if (status)
        return status;
    status = ddl_eval_shards(f->model, f->tokenizer, e->shards, &flags->windows, show_progress, e, out, err);
    return status == DDL_E_FORMAT ? ddl_error_prefix(err, status, flags->val_data) : status;
}

static ddl_status evaluate_text(struct evaluation *e, const struct folder *f, struct ddl_eval_result *out,
                                struct ddl_error *err)
{
    ddl_status status = ddl_eval_text(f->model, f->tokenizer, e->text, e->text_size, &e->flags->windows,
                                      show_progress, e, out, err);
    return status == DDL_E_FORMAT ? ddl_error_prefix(err, status, input_name(e->flags->text)) : status;
}

static ddl_status evaluate_model(struct evaluation *e, struct loss_row *row, struct ddl_error *err)
{
    struct folder folder;
    e->folder = row->model.folder;
    ddl_status status = eval_open(&folder, e->flags, &row->model, e->text != NULL, err);
    if (!status)
        status = (e->text ? evaluate_text : evaluate_shards)(e, &folder, &row->result, err);
    folder_close(&folder);
    e->done += row->result.tokens;
    e->models_left--;
    return status;
}

static ddl_status evaluate(struct evaluation *e, struct loss_row *rows, const char *const *folders,
                           struct ddl_error *err)
{
    size_t n = e->models_left;
    ddl_status status = *e->flags->text ? read_input(e->flags->text, SIZE_MAX, &e->text, &e->text_size, err)
                                        : open_shards(e, err);
    for (size_t i = 0; i < n && !status; i++) {
        rows[i].model.folder = folders[i];
        status = evaluate_model(e, &rows[i], err);
    }
    progress_line_clear(&e->work.line);
    free(e->text);
    ddl_shards_close(e->shards);
    return status;
}

int eval_loss(const struct eval_flags *flags, size_t n_folders, const char *const *folders)
{
    struct ddl_error err = { 0 };
    struct evaluation e = { .flags = flags,
                            .models_left = n_folders,
                            .work = work_line_on_stderr("tokens", flags->quiet) };
    struct loss_row *rows = calloc(n_folders, sizeof *rows);
    catch_interrupts();
    exit_on_interrupt(true); /* nothing is written */
    ddl_status status =
        rows ? evaluate(&e, rows, folders, &err) : ddl_error_set(&err, DDL_E_MEMORY, "eval: out of memory");
    if (!status)
        print_losses(flags, rows, n_folders);
    free(rows);
    return status ? report_error(&err) : EXIT_OK;
}
