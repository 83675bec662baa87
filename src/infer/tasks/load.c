/* From files to requests: documents, few-shot examples, tokens. */
#include "ddl/tasks.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "ddl/text.h"
#include "infer/tasks/random.h"
#include "infer/tasks/task.h"
#include "infer/tasks/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ddl_task {
    const struct task *row;
    char title[128];
    struct task_pool pool; /* texts, requests, documents */
    struct task_records documents, examples;
    struct ddl_task_document *document; /* (n) */
    size_t *first_request;              /* (n) */
    size_t n, n_requests;
};

const char *ddl_task_name(size_t i)
{
    const struct task *row = task_row(i);
    return row ? row->name : NULL;
}

const char *ddl_task_about(size_t i)
{
    const struct task *row = task_row(i);
    return row ? row->about : NULL;
}

struct ddl_task_config ddl_task_defaults(void)
{
    return (struct ddl_task_config){ .seed = 1234 };
}

/* ---- files ---- */

static ddl_status check_revision(const char *path, const char *sha256, struct ddl_error *err)
{
    struct ddl_file_map map;
    struct ddl_sha256 sum;
    char found[65];
    ddl_status status = ddl_file_map_open(&map, path, err);
    if (status)
        return status;
    ddl_sha256_begin(&sum);
    ddl_sha256_add(&sum, map.data, map.size);
    ddl_sha256_end_hex(&sum, found);
    ddl_file_map_close(&map);
    if (strcmp(found, sha256) == 0)
        return DDL_OK;
    return ddl_error_set(
        err, DDL_E_FORMAT,
        "%s: another revision of this file: expected SHA-256 %s, found %s; --any-revision accepts "
        "it",
        path, sha256, found);
}

static ddl_status check_file(const struct ddl_task_config *config, const char *name, const char *sha256,
                             char *path, size_t size, struct ddl_error *err)
{
    if (!ddl_path_join(path, size, config->data, name))
        return ddl_error_set(err, DDL_E_USAGE, "%s: path is too long", config->data);
    return sha256 && !config->any_revision && ddl_file_exists(path) ? check_revision(path, sha256, err)
                                                                    : DDL_OK;
}

/* The first of the files that exists, or the first one, whose absence is the error. */
static ddl_status read_files(struct task_records *records, const struct task_file *files,
                             const struct ddl_task_config *config, struct ddl_error *err)
{
    char path[2048], labels[2048];
    const struct task_file *file = files;
    for (size_t i = 0; i < TASK_FILES && files[i].path; i++) {
        if (ddl_path_join(path, sizeof path, config->data, files[i].path) && ddl_file_exists(path)) {
            file = &files[i];
            break;
        }
    }
    ddl_status status = check_file(config, file->path, file->sha256, path, sizeof path, err);
    if (!status && !ddl_file_exists(path))
        status = ddl_error_set(err, DDL_E_IO, "%s: no such file: docs/evaluation.md says where it comes from",
                               path);
    if (!status && file->labels)
        status = check_file(config, file->labels, file->labels_sha256, labels, sizeof labels, err);
    if (status)
        return status;
    return task_records_read(records, path, file->labels ? labels : NULL, err);
}

/* The name of the first of the files if none of them exists. */
static const char *missing(const struct task_file *files, const struct ddl_task_config *config)
{
    char path[2048];
    for (size_t i = 0; i < TASK_FILES && files[i].path; i++) {
        if (ddl_path_join(path, sizeof path, config->data, files[i].path) && ddl_file_exists(path))
            return NULL;
    }
    return files[0].path;
}

static const struct task *row_named(const char *name)
{
    for (size_t i = 0; task_row(i); i++) {
        if (strcmp(task_row(i)->name, name) == 0)
            return task_row(i);
    }
    return NULL;
}

bool task_has_files(const char *name)
{
    return row_named(name) != NULL;
}

bool task_missing_file(const char *name, const struct ddl_task_config *config, char *path, size_t size)
{
    const struct task *row = row_named(name);
    const char *file = row ? missing(row->documents, config) : NULL;
    if (row && !file && config->shots)
        file = missing(row->examples, config);
    if (file)
        snprintf(path, size, "no file %s/%s", config->data, file);
    return file != NULL;
}

/* A file of one's own: its records are both documents and examples. */
static ddl_status open_file(ddl_task *task, const char *path, struct ddl_error *err)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t length = strlen(name) - strlen(".jsonl");
    snprintf(task->title, sizeof task->title, "%.*s", (int)(length < 100 ? length : 100), name);
    ddl_status status = task_records_read(&task->documents, path, NULL, err);
    return status ? status : task_row_of_record(&task->documents.records[0], &task->row, err);
}

static bool is_jsonl(const char *name)
{
    size_t length = strlen(name);
    return length > 6 && strcmp(name + length - 6, ".jsonl") == 0;
}

static ddl_status unknown_task(const char *name, struct ddl_error *err)
{
    char names[256] = "";
    for (size_t i = 0; task_row(i); i++)
        ddl_text_append(names, sizeof names, ", ", task_row(i)->name);
    return ddl_error_set(err, DDL_E_USAGE, "task: expected one of %s, or a .jsonl file, found '%.100s'",
                         names, name);
}

static ddl_status open_records(ddl_task *task, const char *name, const struct ddl_task_config *config,
                               struct ddl_error *err)
{
    if (is_jsonl(name))
        return open_file(task, name, err);
    task->row = row_named(name);
    if (!task->row)
        return unknown_task(name, err);
    snprintf(task->title, sizeof task->title, "%s", name);
    ddl_status status = read_files(&task->documents, task->row->documents, config, err);
    if (!status && config->shots)
        status = read_files(&task->examples, task->row->examples, config, err);
    return status;
}

static const struct task_records *examples_of(const ddl_task *task)
{
    return task->row->documents[0].path ? &task->examples : &task->documents;
}

/* ---- examples ---- */

static bool same_record(const struct task_record *a, const struct task_record *b)
{
    bool labels = (a->label == NULL) == (b->label == NULL) && (!a->label || strcmp(a->label, b->label) == 0);
    return labels && json_equal(a->fields, b->fields);
}

/* Draws the document's examples, `shots` of them, into *out, from the pool. Tasks without a test split draw
 * one more and leave out the document itself. */
static ddl_status draw(ddl_task *task, const struct task_record *record, size_t shots,
                       struct task_random *random, const size_t **out, struct ddl_error *err)
{
    const struct task_records *examples = examples_of(task);
    size_t drawn = shots + !task->row->has_test_split, kept = 0;
    if (drawn > examples->n)
        return ddl_error_set(
            err, DDL_E_USAGE, "task %s: shots: expected at most %zu, as %s has %zu records, found %zu",
            task->title, examples->n - !task->row->has_test_split, examples->path, examples->n, shots);
    size_t *indices = task_pool_take(&task->pool, drawn, sizeof *indices);
    if (!indices)
        return ddl_error_set(err, DDL_E_MEMORY, "task %s: out of memory", task->title);
    ddl_status status = task_random_sample(random, examples->n, drawn, indices, err);
    for (size_t i = 0; i < drawn && !status; i++) {
        if (task->row->has_test_split || !same_record(&examples->records[indices[i]], record))
            indices[kept++] = indices[i];
    }
    if (!status && kept < shots)
        return ddl_error_set(
            err, DDL_E_FORMAT,
            "%s:%zu: expected %zu examples besides the document itself, found %zu: %s has it "
            "several times",
            record->path, record->number, shots, kept, examples->path);
    *out = indices;
    return status;
}

/* The examples' texts one after another: context, delimiter, gold answer, empty line. */
static ddl_status example_text(ddl_task *task, size_t n, const size_t *indices, struct ddl_task_text *out,
                               struct ddl_error *err)
{
    struct ddl_task_text delimiter = task_literal(task->row->delimiter), end = task_literal("\n\n");
    *out = task_literal("");
    for (size_t i = 0; i < n; i++) {
        struct task_item item = { 0 };
        ddl_status status =
            task->row->convert(&examples_of(task)->records[indices[i]], &task->pool, &item, err);
        if (status)
            return status;
        *out = TASK_JOIN(&task->pool, *out, item.context[item.gold], delimiter, item.answer[item.gold], end);
    }
    return DDL_OK;
}

/* ---- documents ---- */

/* Requests of an item after the text of its examples, tokenized. */
static ddl_status make_requests(ddl_task *task, const struct task_item *item, struct ddl_task_text before,
                                const ddl_tokenizer *tokenizer, struct ddl_task_document *out,
                                struct ddl_error *err)
{
    struct ddl_task_request *requests = task_pool_take(&task->pool, item->n, sizeof *requests);
    ddl_status status = DDL_OK;
    if (!requests)
        return ddl_error_set(err, DDL_E_MEMORY, "task %s: out of memory", task->title);
    for (size_t i = 0; i < item->n && !status; i++) {
        struct ddl_task_text context = TASK_JOIN(&task->pool, before, item->context[i]);
        struct ddl_task_text continuation =
            TASK_JOIN(&task->pool, task_literal(task->row->delimiter), item->answer[i]);
        requests[i] = (struct ddl_task_request){ .context = context,
                                                 .continuation = continuation,
                                                 .characters = task_characters(item->answer[i]) };
        status = task_tokenize(tokenizer, &task->pool, &requests[i], err);
    }
    *out = (struct ddl_task_document){ .gold = item->gold, .n_requests = item->n, .requests = requests };
    return status;
}

static ddl_status make_document(ddl_task *task, size_t i, const struct ddl_task_config *config,
                                struct task_random *random, const ddl_tokenizer *tokenizer,
                                struct ddl_error *err)
{
    const struct task_record *record = &task->documents.records[i];
    struct ddl_task_document *document = &task->document[i];
    struct ddl_task_text before = task_literal("");
    struct task_item item = { 0 };
    const size_t *examples = NULL;
    ddl_status status = DDL_OK;
    if (config->shots) {
        status = draw(task, record, config->shots, random, &examples, err);
        if (!status)
            status = example_text(task, config->shots, examples, &before, err);
    }
    if (!status)
        status = task->row->convert(record, &task->pool, &item, err);
    if (status)
        return status;
    status = make_requests(task, &item, before, tokenizer, document, err);
    if (status == DDL_E_FORMAT) {
        char where[1200];
        snprintf(where, sizeof where, "%.1024s:%zu", record->path, record->number);
        return ddl_error_prefix(err, status, where);
    }
    document->n_examples = config->shots;
    document->examples = examples;
    task->first_request[i] = task->n_requests;
    task->n_requests += item.n;
    return status;
}

static ddl_status make_documents(ddl_task *task, const struct ddl_task_config *config,
                                 const ddl_tokenizer *tokenizer, struct ddl_error *err)
{
    struct task_random random;
    ddl_status status = DDL_OK;
    size_t n = task->documents.n;
    task->n = config->limit && config->limit < n ? (size_t)config->limit : n;
    task->document = task_pool_take(&task->pool, task->n, sizeof *task->document);
    task->first_request = task_pool_take(&task->pool, task->n, sizeof *task->first_request);
    task_random_seed(&random, config->seed);
    for (size_t i = 0; i < task->n && !status && !task->pool.failed; i++)
        status = make_document(task, i, config, &random, tokenizer, err);
    if (!status && task->pool.failed)
        status = ddl_error_set(err, DDL_E_MEMORY, "task %s: out of memory", task->title);
    return status;
}

ddl_status ddl_task_load(ddl_task **out, const char *name, const struct ddl_task_config *config,
                         const ddl_tokenizer *tokenizer, struct ddl_error *err)
{
    *out = NULL;
    ddl_task *task = ddl_mem_zalloc(sizeof *task);
    if (!task)
        return ddl_error_set(err, DDL_E_MEMORY, "task %s: out of memory", name);
    ddl_status status = open_records(task, name, config, err);
    if (!status)
        status = make_documents(task, config, tokenizer, err);
    if (status) {
        ddl_task_free(task);
        return status;
    }
    *out = task;
    return DDL_OK;
}

/* The documents of a task of one's own requests. */
static ddl_status take_texts(ddl_task *task, const struct ddl_task_text *contexts,
                             const struct ddl_task_text *continuations, const ddl_tokenizer *tokenizer,
                             struct ddl_error *err)
{
    static const struct task row = { .metrics = TASK_LAST_WORDS, .delimiter = "" };
    ddl_status status = DDL_OK;
    task->row = &row;
    task->n_requests = task->n;
    task->document = task_pool_take(&task->pool, task->n, sizeof *task->document);
    task->first_request = task_pool_take(&task->pool, task->n, sizeof *task->first_request);
    for (size_t i = 0; i < task->n && !task->pool.failed && !status; i++) {
        struct ddl_task_text context = contexts[i], continuation = continuations[i];
        const struct task_item item = { .n = 1, .context = &context, .answer = &continuation };
        task->first_request[i] = i;
        status = make_requests(task, &item, task_literal(""), tokenizer, &task->document[i], err);
    }
    if (!status && task->pool.failed)
        status = ddl_error_set(err, DDL_E_MEMORY, "task %s: out of memory", task->title);
    return status;
}

ddl_status ddl_task_from_texts(ddl_task **out, const char *title, size_t n,
                               const struct ddl_task_text *contexts,
                               const struct ddl_task_text *continuations, const ddl_tokenizer *tokenizer,
                               struct ddl_error *err)
{
    *out = NULL;
    ddl_task *task = ddl_mem_zalloc(sizeof *task);
    if (!task)
        return ddl_error_set(err, DDL_E_MEMORY, "task %s: out of memory", title);
    snprintf(task->title, sizeof task->title, "%s", title);
    task->n = n;
    ddl_status status = take_texts(task, contexts, continuations, tokenizer, err);
    if (status) {
        ddl_task_free(task);
        return status;
    }
    *out = task;
    return DDL_OK;
}

void ddl_task_free(ddl_task *task)
{
    if (!task)
        return;
    task_pool_free(&task->pool);
    task_records_free(&task->documents);
    task_records_free(&task->examples);
    ddl_mem_free(task);
}

enum task_metrics task_metrics_of(const ddl_task *task)
{
    return task->row->metrics;
}

const char *ddl_task_title(const ddl_task *task)
{
    return task->title;
}

size_t ddl_task_n_documents(const ddl_task *task)
{
    return task->n;
}

size_t ddl_task_n_available(const ddl_task *task)
{
    return task->documents.n ? task->documents.n : task->n; /* of texts: all */
}

size_t ddl_task_n_requests(const ddl_task *task)
{
    return task->n_requests;
}

const struct ddl_task_document *ddl_task_document(const ddl_task *task, size_t i)
{
    return &task->document[i];
}

size_t ddl_task_first_request(const ddl_task *task, size_t i)
{
    return task->first_request[i];
}
