/* ddl eval --tasks: models on downstream tasks. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"
#include "cli/eval/eval.h"
#include "cli/eval/task_items.h"
#include "cli/output/terminal.h"

#include "ddl/file.h"
#include "ddl/text.h"
#include "ddl/tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- what is evaluated ---- */

struct evaluation {
    const struct eval_flags *flags;
    struct task_table table;
    struct ddl_task_list tasks;
    ddl_tokenizer *tokenizer;               /* of the tasks */
    struct ddl_tokenizer_identity identity; /* of tokenizer */
    bool has_noted;                         /* the tasks left out */
    struct items items;
    struct work_line work; /* documents; each task of each model is one */
};

/* The document being scored belongs to this task of this model. */
struct scoring {
    struct evaluation *e;
    const ddl_task *task;
    struct item_key key;
    char model[4 * 4096]; /* of the key */
    ddl_status status;    /* of writing items */
    struct ddl_error err;
};

/* ---- tokenizers ---- */

/* Tasks for the model's tokenizer: those of the model before, if it has the same one. Takes the tokenizer
 * over. */
static ddl_status load_tasks(struct evaluation *e, struct folder *folder, struct ddl_error *err)
{
    struct ddl_tokenizer_identity identity;
    ddl_status status = ddl_tokenizer_identify(folder->tokenizer, folder->found.path, &identity, err);
    if (status || (e->tokenizer && strcmp(identity.sha256, e->identity.sha256) == 0))
        return status;
    ddl_task_list_free(&e->tasks);
    ddl_tokenizer_free(e->tokenizer);
    e->tokenizer = folder->tokenizer;
    e->identity = identity;
    folder->tokenizer = NULL;
    status = ddl_task_list_load(&e->tasks, e->flags->tasks, &e->flags->task, e->tokenizer, err);
    if (status)
        return status;
    e->table.skipped = e->tasks.skipped;
    if (!e->has_noted && *e->tasks.skipped && !e->flags->quiet && !e->flags->json && !e->flags->csv)
        fprintf(stderr, "ddl: tasks left out:\n%s\n", e->tasks.skipped);
    e->has_noted = true;
    return DDL_OK;
}

/* ---- scoring ---- */

static int document_scored(void *user, size_t i, const struct ddl_task_score *scores)
{
    struct scoring *s = user;
    s->e->work.done++;
    s->e->work.task_done++;
    if (s->e->items.file)
        s->status = items_write(&s->e->items, &s->key, s->task, i, scores, &s->err);
    return s->status != DDL_OK;
}

static int show_progress(void *user, uint64_t done, uint64_t total)
{
    struct scoring *s = user;
    (void)done;
    (void)total;
    work_line_show(&s->e->work, s->key.model, s->key.task);
    return interrupted();
}

/* Scores the documents that are not done. An error in writing items, on rank 0, takes precedence over the
 * interruption that it causes. */
static ddl_status score_documents(struct scoring *s, ddl_model *model, const bool *done,
                                  struct ddl_task_score *scores, struct ddl_error *err)
{
    const struct ddl_task_score_options options = {
        .each = document_scored, .progress = show_progress, .user = s, .comm = s->e->flags->comm
    };
    ddl_status status = ddl_task_score(s->task, model, done, &options, scores, err);
    if (!s->status)
        return ddl_comm_agree(options.comm, status, err);
    *err = s->err;
    return ddl_comm_agree(options.comm, s->status, err);
}

/* The files that ddl_model_load reads weights from, and their indices. */
static bool is_weights(void *user, const char *name)
{
    (void)user;
    return strstr(name, ".safetensors") || strstr(name, ".bin") || strstr(name, ".pt");
}

/* Into *newest: when the folder's weights were last written. */
static ddl_status weights_modified(uint64_t *newest, const char *folder, struct ddl_error *err)
{
    struct ddl_file_names list;
    ddl_status status = ddl_file_list(&list, folder, is_weights, NULL, err);
    *newest = 0;
    for (size_t i = 0; !status && i < list.n; i++) {
        char path[4096];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", folder, list.names[i]);
        if (!ddl_file_exists(path)) /* a link to nothing */
            continue;
        if (stat(path, &st) != 0) {
            status = ddl_error_set(err, DDL_E_IO, "%s: cannot examine: %s", path, strerror(errno));
            break;
        }
        uint64_t time = (uint64_t)st.st_mtim.tv_sec * 1000000000U + (uint64_t)st.st_mtim.tv_nsec;
        *newest = time > *newest ? time : *newest;
    }
    ddl_file_names_free(&list);
    return status;
}

/* Returns an error on all ranks if one has an error, or other requests than rank 0. */
static ddl_status agree_on_task(ddl_comm *comm, const ddl_task *task, ddl_status status,
                                struct ddl_error *err)
{
    char text[256];
    snprintf(text, sizeof text, "task %.128s: %zu documents, %zu requests\n", ddl_task_title(task),
             ddl_task_n_documents(task), ddl_task_n_requests(task));
    status = ddl_comm_agree(comm, status, err);
    return status || !comm ? status : ddl_comm_compare(comm, text, err);
}

/* The path of the model in items: JSON has no bytes that are not UTF-8, so they become escapes. */
static void item_model(char *out, size_t size, const char *folder)
{
    size_t n = strlen(folder), at = 0, length = 1;
    while (at < n && (length = ddl_utf8_length(folder + at, n - at)))
        at += length;
    if (at < n)
        ddl_text_escape(out, size, folder, n);
    else
        snprintf(out, size, "%s", folder);
}

static ddl_status score_task(struct evaluation *e, const struct folder *folder, struct task_row *row,
                             size_t t, struct ddl_error *err)
{
    const ddl_task *task = e->tasks.tasks[t];
    size_t n = ddl_task_n_documents(task), known = 0;
    struct ddl_task_score *scores = calloc(ddl_task_n_requests(task), sizeof *scores);
    bool *done = calloc(n, sizeof *done);
    struct scoring s = { .e = e, .task = task };
    item_model(s.model, sizeof s.model, row->model.folder);
    s.key = (struct item_key){ .model = s.model,
                               .saved = row->model.found.name,
                               .tokenizer_sha256 = e->identity.sha256,
                               .dtype = ddl_precision_names[e->flags->model.dtype],
                               .task = ddl_task_title(task),
                               .shots = e->flags->task.shots,
                               .seed = e->flags->task.seed };
    ddl_status status = weights_modified(&s.key.modified, row->model.found.path, err);
    if (!status && (!scores || !done))
        status = ddl_error_set(err, DDL_E_MEMORY, "task %s: out of memory", ddl_task_title(task));
    if (!status && e->items.file)
        status = items_read(&e->items, &s.key, task, done, scores, &known, err);
    e->work.task++;
    e->work.task_done = known;
    e->work.task_total = n;
    work_line_begin(&e->work, s.key.model, s.key.task);
    e->work.done += known;
    e->work.skipped += known;
    status = agree_on_task(e->flags->comm, task, status, err);
    if (!status)
        status = score_documents(&s, folder->model, done, scores, err);
    if (!status)
        row->results[t] = ddl_task_summarize(task, scores);
    free(scores);
    free(done);
    return status;
}

/* Applies the forced values, loads the tasks for the model's tokenizer, and checks that the model can score
 * them. */
static ddl_status prepare_model(struct evaluation *e, struct folder *folder, struct task_row *row,
                                struct ddl_error *err)
{
    ddl_status status = token_data_force(e->flags->force, NULL, folder, &e->flags->model, NULL, err);
    if (!status)
        status = load_tasks(e, folder, err);
    for (size_t t = 0; !status && t < e->tasks.n; t++)
        status = ddl_task_check(e->tasks.tasks[t], ddl_model_config(folder->model), err);
    if (status)
        return status;
    row->results = calloc(e->tasks.n, sizeof *row->results);
    return row->results ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "eval: out of memory");
}

/* Rank 0 has the file of items. */
static bool has_items(const struct evaluation *e)
{
    return *e->flags->items && ddl_comm_rank(e->flags->comm) == 0;
}

/* Loads the first model and its tasks before the file of items is created or changed: a command that is
 * refused leaves it as it is. */
static ddl_status prepare(struct evaluation *e, struct folder *folder, struct task_row *row,
                          struct ddl_error *err)
{
    ddl_status status = ddl_comm_agree(e->flags->comm, prepare_model(e, folder, row, err), err);
    if (status || e->items.path)
        return status;
    if (has_items(e))
        status = items_open(&e->items, e->flags->items, err);
    e->items.path = e->flags->items;
    return ddl_comm_agree(e->flags->comm, status, err);
}

static ddl_status score_model(struct evaluation *e, struct task_row *row, size_t models_left,
                              struct ddl_error *err)
{
    struct folder folder;
    exit_on_interrupt(true); /* nothing is written */
    ddl_status status = eval_open(&folder, e->flags, &row->model, true, err);
    if (!status)
        status = prepare(e, &folder, row, err);
    exit_on_interrupt(false);
    e->table.n_tasks = e->tasks.n;
    e->work.total = e->work.done;
    e->work.n_tasks = e->work.task + models_left * e->tasks.n;
    for (size_t t = 0; t < e->tasks.n; t++)
        e->work.total += models_left * ddl_task_n_documents(e->tasks.tasks[t]);
    for (size_t t = 0; t < e->tasks.n && !status; t++)
        status = score_task(e, &folder, row, t, err);
    folder_close(&folder);
    return status;
}

/* ---- the command ---- */

static ddl_status evaluate(struct evaluation *e, size_t n_folders, const char *const *folders,
                           struct ddl_error *err)
{
    struct task_table *table = &e->table;
    ddl_status status = DDL_OK;
    table->rows = calloc(n_folders, sizeof *table->rows);
    if (!table->rows)
        status = ddl_error_set(err, DDL_E_MEMORY, "eval: out of memory");
    if (!status && has_items(e))
        status = items_check(e->flags->items, err);
    status = ddl_comm_agree(e->flags->comm, status, err);
    for (; table->n_rows < n_folders && !status; table->n_rows++) {
        table->rows[table->n_rows].model.folder = folders[table->n_rows];
        status = score_model(e, &table->rows[table->n_rows], n_folders - table->n_rows, err);
    }
    ddl_status closed = items_close(&e->items, status ? NULL : err);
    return status ? status : ddl_comm_agree(e->flags->comm, closed, err);
}

int eval_tasks(const struct eval_flags *flags, size_t n_folders, const char *const *folders)
{
    struct ddl_error err = { 0 };
    struct evaluation e = { .flags = flags, .work = work_line_on_stderr("documents", flags->quiet) };
    ddl_status status = evaluate(&e, n_folders, folders, &err);
    progress_line_clear(&e.work.line);
    if (!status && ddl_comm_rank(flags->comm) == 0)
        print_tasks(flags, &e.table);
    ddl_task_list_free(&e.tasks);
    ddl_tokenizer_free(e.tokenizer);
    for (size_t m = 0; e.table.rows && m < n_folders; m++)
        free(e.table.rows[m].results);
    free(e.table.rows);
    return status ? report_agreed(flags->comm, &err) : EXIT_OK;
}
