/* ddl eval --tasks: models on downstream tasks. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"
#include "eval.h"
#include "task_items.h"
#include "terminal.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- what is evaluated ---- */

struct evaluation {
    const struct eval_flags *flags;
    struct task_table table;
    struct ddl_task_list tasks;
    ddl_tokenizer *tokenizer; /* of the tasks */
    struct items items;
    struct work_line work; /* documents of all models and tasks */
};

/* The document being scored belongs to this task of this model. */
struct scoring {
    struct evaluation *e;
    const ddl_task *task;
    struct item_key key;
    ddl_status status; /* of writing items */
    struct ddl_error err;
};

/* ---- tokenizers ---- */

static bool same_tokenizer(const ddl_tokenizer *a, const ddl_tokenizer *b)
{
    size_t n = ddl_tokenizer_vocab_size(a);
    if (n != ddl_tokenizer_vocab_size(b) || ddl_tokenizer_n_merges(a) != ddl_tokenizer_n_merges(b))
        return false;
    for (size_t id = 0; id < n; id++) {
        size_t size_a = 0, size_b = 0;
        const char *x = ddl_tokenizer_bytes(a, (int32_t)id, &size_a),
                   *y = ddl_tokenizer_bytes(b, (int32_t)id, &size_b);
        if (size_a != size_b || (!x) != (!y) || (x && memcmp(x, y, size_a) != 0))
            return false;
    }
    return true;
}

/* Tasks for the model's tokenizer: those of the model before, if it has the same one. Takes the tokenizer
 * over. */
static ddl_status load_tasks(struct evaluation *e, struct folder *folder, struct ddl_error *err)
{
    if (e->tokenizer && same_tokenizer(e->tokenizer, folder->tokenizer))
        return DDL_OK;
    ddl_task_list_free(&e->tasks);
    ddl_tokenizer_free(e->tokenizer);
    e->tokenizer = folder->tokenizer;
    folder->tokenizer = NULL;
    return ddl_task_list_load(&e->tasks, e->flags->tasks, &e->flags->task, e->tokenizer, err);
}

/* ---- scoring ---- */

static int document_scored(void *user, size_t i, const struct ddl_task_score *scores)
{
    struct scoring *s = user;
    s->e->work.done++;
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

/* When the folder's weights were last written. */
static uint64_t weights_modified(const char *folder)
{
    uint64_t newest = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        char path[4096];
        struct stat status;
        if (!strstr(entry->d_name, ".safetensors"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (stat(path, &status) != 0)
            continue;
        uint64_t time = (uint64_t)status.st_mtim.tv_sec * 1000000000U + (uint64_t)status.st_mtim.tv_nsec;
        newest = time > newest ? time : newest;
    }
    if (dir)
        closedir(dir);
    return newest;
}

static ddl_status score_task(struct evaluation *e, const struct folder *folder, struct task_row *row,
                             size_t t, struct ddl_error *err)
{
    const ddl_task *task = e->tasks.tasks[t];
    size_t n = ddl_task_n_documents(task), known = 0;
    struct ddl_task_score *scores = calloc(ddl_task_n_requests(task), sizeof *scores);
    bool *done = calloc(n, sizeof *done);
    struct scoring s = { .e = e, .task = task };
    s.key = (struct item_key){ .model = row->model.folder,
                               .saved = row->model.found.name,
                               .modified = weights_modified(row->model.found.path),
                               .dtype = ddl_precision_names[e->flags->model.dtype],
                               .task = ddl_task_title(task),
                               .shots = e->flags->task.shots,
                               .seed = e->flags->task.seed };
    ddl_status status = DDL_OK;
    if (!scores || !done)
        status = ddl_error_set(err, DDL_E_MEMORY, "task %s: out of memory", ddl_task_title(task));
    if (!status && e->items.file)
        status = items_read(&e->items, &s.key, task, done, scores, &known, err);
    e->work.done += known;
    e->work.skipped += known;
    if (!status)
        status = ddl_task_score(
            task, folder->model, done,
            &(struct ddl_task_callbacks){ .each = document_scored, .progress = show_progress, .user = &s },
            scores, err);
    if (s.status) {
        status = s.status;
        *err = s.err;
    }
    if (!status)
        row->results[t] = ddl_task_summarize(task, scores);
    free(scores);
    free(done);
    return status;
}

static ddl_status score_model(struct evaluation *e, struct task_row *row, size_t models_left,
                              struct ddl_error *err)
{
    struct folder folder;
    exit_on_interrupt(true); /* nothing is written */
    ddl_status status = eval_open(&folder, e->flags, &row->model, true, err);
    if (!status)
        status = token_data_force(e->flags->force, NULL, &folder, &e->flags->model, NULL, NULL, NULL, err);
    if (!status)
        status = load_tasks(e, &folder, err);
    exit_on_interrupt(false);
    e->table.n_tasks = e->tasks.n;
    if (!status) {
        row->results = calloc(e->tasks.n, sizeof *row->results);
        status = row->results ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "eval: out of memory");
    }
    e->work.total = e->work.done;
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
    if (!status && *e->flags->items)
        status = items_open(&e->items, e->flags->items, err);
    for (; table->n_rows < n_folders && !status; table->n_rows++) {
        table->rows[table->n_rows].model.folder = folders[table->n_rows];
        status = score_model(e, &table->rows[table->n_rows], n_folders - table->n_rows, err);
    }
    ddl_status closed = items_close(&e->items, status ? NULL : err);
    return status ? status : closed;
}

int eval_tasks(const struct eval_flags *flags, size_t n_folders, const char *const *folders)
{
    struct ddl_error err = { 0 };
    struct evaluation e = { .flags = flags, .work = work_line_on_stderr("documents", flags->quiet) };
    catch_interrupts();
    ddl_status status = evaluate(&e, n_folders, folders, &err);
    progress_line_clear(&e.work.line);
    if (!status)
        print_tasks(flags, &e.table);
    ddl_task_list_free(&e.tasks);
    ddl_tokenizer_free(e.tokenizer);
    for (size_t m = 0; e.table.rows && m < n_folders; m++)
        free(e.table.rows[m].results);
    free(e.table.rows);
    return status ? report_error(&err) : EXIT_OK;
}
