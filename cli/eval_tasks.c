#define _POSIX_C_SOURCE 200809L
#include "eval_tasks.h"

#include "cli.h"
#include "ddl/json.h"
#include "task_items.h"
#include "terminal.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define AT(field) offsetof(struct task_flags, field)
#define TEXT(field) DDL_OPTION_STRING, AT(field), sizeof((struct task_flags *)0)->field
const struct ddl_option task_rows[] = {
    { "tasks", TEXT(tasks), 0, 0, NULL, "LIST",
      "comma-separated names of tasks and .jsonl files of your own, or all" },
    { "shots", DDL_OPTION_SIZE, AT(config.shots), 0, 0, 4096, NULL, "K", "examples before each document" },
    { "data", TEXT(config.data), 0, 0, NULL, "DIR", "folder with the files of the tasks" },
    { "limit", DDL_OPTION_U64, AT(config.limit), 0, 0, 9e15, NULL, "N",
      "first N documents of each task (0: all)" },
    { "fewshot_seed", DDL_OPTION_U64, AT(config.seed), 0, 0, 9e15, NULL, "N",
      "seed of the random choice of examples" },
    { "any_revision", DDL_OPTION_BOOL, AT(config.any_revision), 0, 0, 0, NULL, NULL,
      "accept task files whose SHA-256 is not the known one" },
    { "items", TEXT(items), 0, 0, NULL, "FILE",
      "append each document's requests and scores to FILE as JSON lines; skip documents already in it" },
    { "csv", DDL_OPTION_BOOL, AT(csv), 0, 0, 0, NULL, NULL, "print a row per model and task as CSV" },
    { "markdown", DDL_OPTION_BOOL, AT(markdown), 0, 0, 0, NULL, NULL,
      "print a Markdown table: a row per model, a column per task" },
    { "quiet", DDL_OPTION_BOOL, AT(quiet), 0, 0, 0, NULL, NULL, "print nothing but errors and the result" },
    { 0 },
};

struct task_flags task_flags_defaults(void)
{
    struct task_flags flags = { .config = ddl_task_defaults() };
    return flags;
}

/* ---- what is evaluated ---- */

enum { MAX_TASKS = 64 };

/* One model on one task. */
struct result {
    struct ddl_task_value values[DDL_TASK_VALUES];
    size_t n_values, n_documents;
};

struct model_row {
    const char *folder;
    struct ddl_run_model found;
    struct result results[MAX_TASKS];
};

struct evaluation {
    const struct task_flags *flags;
    struct folder_request request;
    char names[sizeof((struct task_flags *)0)->tasks];
    const char *name[MAX_TASKS];
    ddl_task *task[MAX_TASKS];
    ddl_tokenizer *tokenizer; /* of the tasks */
    size_t n_tasks, n_rows;
    struct model_row *rows;
    struct items items;
    struct progress_line line;
    uint64_t done, scored,
        total; /* documents: done, of these scored by this process, of all models and tasks */
    double start;
};

/* The document being scored belongs to this task of this model. */
struct scoring {
    struct evaluation *e;
    const ddl_task *task;
    struct item_key key;
    struct ddl_error *err;
    ddl_status status; /* of writing items */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ddl_status add_name(struct evaluation *e, const char *name, struct ddl_error *err)
{
    if (e->n_tasks == MAX_TASKS)
        return ddl_error_set(err, DDL_E_USAGE, "--tasks: expected at most %d tasks, found more", MAX_TASKS);
    e->name[e->n_tasks++] = name;
    return DDL_OK;
}

static ddl_status split_names(struct evaluation *e, struct ddl_error *err)
{
    char *save = NULL;
    ddl_status status = DDL_OK;
    snprintf(e->names, sizeof e->names, "%s", e->flags->tasks);
    for (char *name = strtok_r(e->names, ",", &save); name && !status; name = strtok_r(NULL, ",", &save)) {
        if (strcmp(name, "all") != 0) {
            status = add_name(e, name, err);
            continue;
        }
        for (size_t i = 0; ddl_task_name(i) && !status; i++)
            status = add_name(e, ddl_task_name(i), err);
    }
    if (!status && e->n_tasks == 0)
        status = ddl_error_set(err, DDL_E_USAGE, "--tasks: expected at least one task, found none");
    return status;
}

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

static void free_tasks(struct evaluation *e)
{
    for (size_t t = 0; t < e->n_tasks; t++) {
        ddl_task_free(e->task[t]);
        e->task[t] = NULL;
    }
}

/* Tasks for the model's tokenizer: those of the model before, if it has the same one. Takes the tokenizer
 * over. */
static ddl_status load_tasks(struct evaluation *e, struct folder *folder, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    if (e->tokenizer && same_tokenizer(e->tokenizer, folder->tokenizer))
        return DDL_OK;
    free_tasks(e);
    ddl_tokenizer_free(e->tokenizer);
    e->tokenizer = folder->tokenizer;
    folder->tokenizer = NULL;
    for (size_t t = 0; t < e->n_tasks && !status; t++)
        status = ddl_task_load(&e->task[t], e->name[t], &e->flags->config, e->tokenizer, err);
    return status;
}

/* ---- scoring ---- */

static void show_progress(struct evaluation *e, const char *folder, const char *task)
{
    double seconds = now() - e->start;
    char left[32] = "?";
    if (!progress_line_due(&e->line))
        return;
    if (e->scored)
        format_seconds(seconds / (double)e->scored * (double)(e->total - e->done), left, sizeof left);
    struct line_fields fields = { 0 };
    add_field(&fields, 2, "%.24s", folder);
    add_field(&fields, 0, "%.20s", task);
    add_field(&fields, 0, "%llu/%llu documents", (unsigned long long)e->done, (unsigned long long)e->total);
    add_field(&fields, 1, "%s left", left);
    progress_line_show(&e->line, &fields);
}

static int document_scored(void *user, size_t i, const struct ddl_task_score *scores)
{
    struct scoring *s = user;
    s->e->done++;
    s->e->scored++;
    if (s->e->items.file)
        s->status = items_write(&s->e->items, &s->key, s->task, i, scores, s->err);
    show_progress(s->e, s->key.model, s->key.task);
    return s->status || interrupted();
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

static ddl_status score_task(struct evaluation *e, const struct folder *folder, struct model_row *row,
                             size_t t, struct ddl_error *err)
{
    const ddl_task *task = e->task[t];
    size_t n = ddl_task_n_documents(task), known = 0;
    struct ddl_task_score *scores = calloc(ddl_task_n_requests(task), sizeof *scores);
    bool *done = calloc(n, sizeof *done);
    struct scoring s = { .e = e, .task = task, .err = err };
    s.key = (struct item_key){ .model = row->folder,
                               .saved = row->found.name,
                               .modified = weights_modified(row->found.path),
                               .dtype = ddl_precision_names[e->request.model->dtype],
                               .task = ddl_task_title(task),
                               .shots = e->flags->config.shots,
                               .seed = e->flags->config.seed };
    ddl_status status = DDL_OK;
    if (!scores || !done)
        status = ddl_error_set(err, DDL_E_MEMORY, "task %s: out of memory", e->name[t]);
    if (!status && e->items.file)
        status = items_read(&e->items, &s.key, task, done, scores, &known, err);
    e->done += known;
    if (!status)
        status = ddl_task_score(task, folder->model, done, document_scored, &s, scores, err);
    status = s.status ? s.status : status;
    if (!status) {
        row->results[t].n_documents = n;
        row->results[t].n_values = ddl_task_values(task, scores, row->results[t].values);
    }
    free(scores);
    free(done);
    return status;
}

static ddl_status score_model(struct evaluation *e, struct model_row *row, size_t models_left,
                              struct ddl_error *err)
{
    struct folder folder;
    struct folder_request request = e->request;
    request.dir = row->folder;
    request.needs_tokenizer = true;
    ddl_status status = folder_open(&folder, &request, err);
    if (!status)
        status = load_tasks(e, &folder, err);
    if (!status) {
        row->found = folder.found;
        e->total = e->done;
        for (size_t t = 0; t < e->n_tasks; t++)
            e->total += models_left * ddl_task_n_documents(e->task[t]);
    }
    for (size_t t = 0; t < e->n_tasks && !status; t++)
        status = score_task(e, &folder, row, t, err);
    folder_close(&folder);
    return status;
}

/* ---- results ---- */

/* What the tables of the field show of a task: acc_norm where there is one, else the first value. */
static const struct ddl_task_value *main_value(const struct result *r)
{
    for (size_t i = 0; i < r->n_values; i++) {
        if (strcmp(r->values[i].name, "acc_norm") == 0)
            return &r->values[i];
    }
    return &r->values[0];
}

/* The mean of the tasks' main values with the standard error that independent tasks give. */
static struct ddl_task_value average_of(const struct evaluation *e, const struct model_row *row)
{
    struct ddl_task_value sum = { .name = "average" };
    for (size_t t = 0; t < e->n_tasks; t++) {
        const struct ddl_task_value *value = main_value(&row->results[t]);
        sum.value += value->value / (double)e->n_tasks;
        sum.error += value->error * value->error;
    }
    sum.error = sqrt(sum.error) / (double)e->n_tasks;
    return sum;
}

static void print_value(const struct ddl_task_value *value)
{
    printf("  %s %.4f", value->name, value->value);
    if (!isnan(value->error))
        printf(" ±%.4f", value->error);
}

static void print_table(const struct evaluation *e)
{
    for (size_t m = 0; m < e->n_rows; m++) {
        const struct model_row *row = &e->rows[m];
        printf("%s%s%s%s, %zu shot%s\n", m ? "\n" : "", row->folder, *row->found.name ? ", " : "",
               row->found.name, e->flags->config.shots, e->flags->config.shots == 1 ? "" : "s");
        for (size_t t = 0; t < e->n_tasks; t++) {
            const struct result *r = &row->results[t];
            printf("%-16s %6zu", ddl_task_title(e->task[t]), r->n_documents);
            for (size_t i = 0; i < r->n_values; i++)
                print_value(&r->values[i]);
            putchar('\n');
        }
        if (e->n_tasks > 1) {
            struct ddl_task_value average = average_of(e, row);
            average.name = "";
            printf("%-16s %6s", "average", "");
            print_value(&average);
            putchar('\n');
        }
    }
}

static void print_json(const struct evaluation *e)
{
    struct ddl_json json = { stdout, false };
    ddl_json_open(&json, NULL, '{');
    ddl_json_count(&json, "shots", e->flags->config.shots);
    ddl_json_count(&json, "fewshot_seed", e->flags->config.seed);
    ddl_json_string(&json, "dtype", ddl_precision_names[e->request.model->dtype]);
    ddl_json_open(&json, "models", '[');
    for (size_t m = 0; m < e->n_rows; m++) {
        const struct model_row *row = &e->rows[m];
        ddl_json_open(&json, NULL, '{');
        ddl_json_string(&json, "model", row->folder);
        print_saved_model_json(&json, &row->found);
        ddl_json_open(&json, "tasks", '{');
        for (size_t t = 0; t < e->n_tasks; t++) {
            const struct result *r = &row->results[t];
            ddl_json_open(&json, ddl_task_title(e->task[t]), '{');
            ddl_json_count(&json, "documents", r->n_documents);
            for (size_t i = 0; i < r->n_values; i++) {
                char key[32];
                snprintf(key, sizeof key, "%s_stderr", r->values[i].name);
                ddl_json_number(&json, r->values[i].name, r->values[i].value, 17);
                ddl_json_number(&json, key, r->values[i].error, 17);
            }
            ddl_json_close(&json, '}');
        }
        ddl_json_close(&json, '}');
        ddl_json_close(&json, '}');
    }
    ddl_json_close(&json, ']');
    ddl_json_close(&json, '}');
    putchar('\n');
}

/* A CSV field, quoted where RFC 4180 requires it. */
static void print_field(const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text; text++)
        printf(*text == '"' ? "\"\"" : "%c", *text);
    putchar('"');
}

static void print_csv(const struct evaluation *e)
{
    printf("model,saved_model,task,shots,documents,metric,value,stderr\n");
    for (size_t m = 0; m < e->n_rows; m++) {
        const struct model_row *row = &e->rows[m];
        for (size_t t = 0; t < e->n_tasks; t++) {
            const struct result *r = &row->results[t];
            for (size_t i = 0; i < r->n_values; i++) {
                print_field(row->folder);
                printf(",%s,", row->found.name);
                print_field(ddl_task_title(e->task[t]));
                printf(",%zu,%zu,%s,%.17g,", e->flags->config.shots, r->n_documents, r->values[i].name,
                       r->values[i].value);
                if (!isnan(r->values[i].error))
                    printf("%.17g", r->values[i].error);
                putchar('\n');
            }
        }
    }
}

static void print_cell(const struct ddl_task_value *value)
{
    printf(isnan(value->error) ? " %.2f |" : " %.2f ± %.2f |", 100 * value->value, 100 * value->error);
}

/* Percent, as the paper. */
static void print_markdown(const struct evaluation *e)
{
    printf("| model |");
    for (size_t t = 0; t < e->n_tasks; t++)
        printf(" %s %s |", ddl_task_title(e->task[t]), main_value(&e->rows[0].results[t])->name);
    printf(" average |\n|---|");
    for (size_t t = 0; t <= e->n_tasks; t++)
        printf("---|");
    putchar('\n');
    for (size_t m = 0; m < e->n_rows; m++) {
        const struct model_row *row = &e->rows[m];
        struct ddl_task_value average = average_of(e, row);
        printf("| %s |", row->folder);
        for (size_t t = 0; t < e->n_tasks; t++)
            print_cell(main_value(&row->results[t]));
        print_cell(&average);
        putchar('\n');
    }
}

/* ---- the command ---- */

static ddl_status evaluate(struct evaluation *e, size_t n_folders, const char *const *folders,
                           struct ddl_error *err)
{
    ddl_status status = split_names(e, err);
    e->rows = calloc(n_folders, sizeof *e->rows);
    if (!status && !e->rows)
        status = ddl_error_set(err, DDL_E_MEMORY, "eval: out of memory");
    if (!status && *e->flags->items)
        status = items_open(&e->items, e->flags->items, err);
    for (; e->n_rows < n_folders && !status; e->n_rows++) {
        e->rows[e->n_rows].folder = folders[e->n_rows];
        status = score_model(e, &e->rows[e->n_rows], n_folders - e->n_rows, err);
    }
    ddl_status closed = items_close(&e->items, status ? NULL : err);
    return status ? status : closed;
}

int eval_tasks(const struct task_flags *flags, struct folder_request request, size_t n_folders,
               const char *const *folders, bool json)
{
    struct ddl_error err = { 0 };
    struct evaluation e = {
        .flags = flags, .request = request, .line = progress_line_on_stderr(flags->quiet), .start = now()
    };
    catch_interrupts();
    ddl_status status = evaluate(&e, n_folders, folders, &err);
    progress_line_clear(&e.line);
    if (!status && json)
        print_json(&e);
    else if (!status && flags->csv)
        print_csv(&e);
    else if (!status && flags->markdown)
        print_markdown(&e);
    else if (!status)
        print_table(&e);
    free_tasks(&e);
    ddl_tokenizer_free(e.tokenizer);
    free(e.rows);
    return status ? report_error(&err) : EXIT_OK;
}
