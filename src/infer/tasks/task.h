/* Tasks as rows of a table: where the records are, and how a record becomes requests. */
#ifndef DDL_INFER_TASKS_TASK_H
#define DDL_INFER_TASKS_TASK_H

#include "ddl/tasks.h"
#include "infer/tasks/records.h"
#include "infer/tasks/text.h"

#include <stdbool.h>
#include <stddef.h>

/* A record as texts: choice i is the request (context[i], delimiter + answer[i]). */
struct task_item {
    size_t n; /* choices */
    struct ddl_task_text *context, *answer;
    size_t gold;
};

/* Converts a record; texts live as long as the pool and the record. DDL_E_FORMAT. */
typedef ddl_status task_convert_fn(const struct task_record *record, struct task_pool *pool,
                                   struct task_item *out, struct ddl_error *err);

/* A file below the data folder, or a replacement for it. SHA-256 of the known revisions as hexadecimal
 * digits; NULL: none is known, any file is accepted. */
struct task_file {
    const char *path, *sha256;
    const char *labels, *labels_sha256; /* file of the labels; NULL: none */
};
enum { TASK_FILES = 3 };

/* What is reported of a task, besides the number of documents. */
enum task_metrics {
    TASK_ACC,        /* share of documents whose gold choice has the highest log-likelihood                 */
    TASK_ACC_NORM,   /* that, and the same by log-likelihood per character                                  */
    TASK_LAST_WORDS, /* one choice: share that greedy decoding would produce, loss and perplexity by target */
};

struct task {
    const char *name, *about;
    struct task_file documents[TASK_FILES],
        examples[TASK_FILES]; /* the first that exists; ends at a NULL path */
    bool has_test_split;      /* examples are drawn without regard to the document, as by the harness */
    enum task_metrics metrics;
    const char *delimiter; /* between context and answer */
    task_convert_fn *convert;
};

/* What is reported of the task. */
struct ddl_task;
enum task_metrics task_metrics_of(const struct ddl_task *task);
/* Row i, or NULL past the last. */
const struct task *task_row(size_t i);
/* The kind of a JSONL file of one's own, by the fields of its first record: DDL_E_FORMAT if it is none. */
ddl_status task_row_of_record(const struct task_record *record, const struct task **out,
                              struct ddl_error *err);

/* Whether `name` is a task of the table. */
bool task_has_files(const char *name);
/* Whether no file of the task's documents (or, with shots, of its examples) exists; then "no file PATH" goes
 * to path[size], truncated. */
bool task_missing_file(const char *name, const struct ddl_task_config *config, char *path, size_t size);

#endif
