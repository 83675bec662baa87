/* Files of records: JSON objects, one per line or in one array, with labels in a file of their own or none.
 */
#ifndef DDL_INFER_TASKS_RECORDS_H
#define DDL_INFER_TASKS_RECORDS_H

#include "ddl/status.h"
#include "infer/tasks/text.h"

#include <jansson.h>
#include <stddef.h>

/* One record and its place, for error messages. */
struct task_record {
    json_t *fields;    /* an object, owned by the records */
    const char *label; /* its line of the labels' file, or NULL */
    const char *path;  /* borrowed */
    size_t number;     /* line of a .jsonl file, else number in the array; from 1 */
};

/* Zero-initialize; free with task_records_free. */
struct task_records {
    struct task_record *records;
    size_t n;
    char *path, *labels; /* of the file; text of the labels, NUL for each line feed */
};

/* Reads the file: .jsonl has one object per line, .json an array of objects. labels_path (NULL: none) has one
 * line for each record. `records` must be freed after an error too. */
ddl_status task_records_read(struct task_records *records, const char *path, const char *labels_path,
                             struct ddl_error *err);
void task_records_free(struct task_records *records);

/* "<file>:<line>: <field>: expected <what>, found <its JSON>" (DDL_E_FORMAT). */
ddl_status task_record_error(const struct task_record *record, const char *field, const char *expected,
                             const json_t *found, struct ddl_error *err);

/* A string of `object`, which is the record's fields or part of them. */
ddl_status task_record_text(const struct task_record *record, const json_t *object, const char *field,
                            struct ddl_task_text *out, struct ddl_error *err);
/* A whole number from lo to hi, written as a number or as a string. */
ddl_status task_record_number(const struct task_record *record, const char *field, long lo, long hi,
                              long *out, struct ddl_error *err);
/* The record's label, likewise, or its field if it has no label. */
ddl_status task_record_label(const struct task_record *record, const char *field, long lo, long hi, long *out,
                             struct ddl_error *err);

#endif
