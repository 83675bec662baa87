#include "infer/tasks/records.h"

#include "base/file.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of a file, and of the trees of all its lines. */
static const size_t largest_file = (size_t)128 << 20, largest_tree = (size_t)1 << 30;

/* ---- reading ---- */

/* Takes `fields` over. */
static ddl_status append(struct task_records *r, size_t *capacity, json_t *fields, size_t number,
                         struct ddl_error *err)
{
    if (r->n == *capacity) {
        size_t more = *capacity ? 2 * *capacity : 1024;
        struct task_record *grown = realloc(r->records, more * sizeof *grown);
        if (!grown) {
            json_decref(fields);
            return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", r->path);
        }
        r->records = grown;
        *capacity = more;
    }
    struct task_record *record = &r->records[r->n++];
    *record = (struct task_record){ .fields = fields, .path = r->path, .number = number };
    if (!json_is_object(fields))
        return ddl_error_set(err, DDL_E_FORMAT, "%s:%zu: expected a JSON object", r->path, number);
    return DDL_OK;
}

static ddl_status parse_lines(struct task_records *r, const char *text, size_t size, struct ddl_error *err)
{
    size_t capacity = 0, number = 0, tree = 0;
    for (size_t at = 0, length; at < size; at += length + 1) {
        const char *line = text + at, *feed = memchr(line, '\n', size - at);
        json_error_t why;
        json_t *fields;
        length = feed ? (size_t)(feed - line) : size - at;
        number++;
        if (strspn(line, " \t\r") >= length)
            continue;
        tree += ddl_json_tree_bytes(line, length, largest_tree);
        if (tree > largest_tree)
            return ddl_error_set(err, DDL_E_FORMAT,
                                 "%s:%zu: the values up to this line need more than the limit of %zu MiB of "
                                 "memory",
                                 r->path, number, largest_tree >> 20);
        ddl_status status =
            ddl_json_parse(&fields, line, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
        if (status)
            return ddl_error_set(err, status, "%s:%zu: expected a JSON object: %s%s", r->path, number,
                                 why.text, feed ? "" : " (the file ends within this line)");
        status = append(r, &capacity, fields, number, err);
        if (status)
            return status;
    }
    return DDL_OK;
}

static ddl_status parse_array(struct task_records *r, const char *text, size_t size, struct ddl_error *err)
{
    size_t capacity = 0;
    json_t *array;
    ddl_status status = ddl_json_parse_file(&array, r->path, text, size, largest_file, err);
    if (!status && !json_is_array(array))
        status = ddl_error_set(err, DDL_E_FORMAT, "%s: expected an array of JSON objects", r->path);
    for (size_t i = 0; !status && i < json_array_size(array); i++)
        status = append(r, &capacity, json_incref(json_array_get(array, i)), i + 1, err);
    json_decref(array);
    return status;
}

/* One line for each record. */
static ddl_status read_labels(struct task_records *r, const char *path, struct ddl_error *err)
{
    size_t size, line = 0;
    ddl_status status = ddl_file_read(path, largest_file, &r->labels, &size, err);
    if (status)
        return status;
    char *at = r->labels, *end = r->labels + size;
    while (at < end) {
        char *feed = memchr(at, '\n', (size_t)(end - at));
        if (feed)
            *feed = '\0';
        if (line < r->n)
            r->records[line].label = at;
        line++;
        at = feed ? feed + 1 : end;
    }
    if (line != r->n)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: expected %zu labels, one for each record of %s, found %zu", path, r->n,
                             r->path, line);
    return DDL_OK;
}

ddl_status task_records_read(struct task_records *records, const char *path, const char *labels_path,
                             struct ddl_error *err)
{
    char *text;
    size_t size, length = strlen(path);
    *records = (struct task_records){ .path = ddl_mem_strdup(path) };
    if (!records->path)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    ddl_status status = ddl_file_read(path, largest_file, &text, &size, err);
    if (status)
        return status;
    if (length > 5 && strcmp(path + length - 5, ".json") == 0)
        status = parse_array(records, text, size, err);
    else
        status = parse_lines(records, text, size, err);
    free(text);
    if (!status && records->n == 0)
        status = ddl_error_set(err, DDL_E_FORMAT, "%s: expected at least one record, found none", path);
    if (!status && labels_path)
        status = read_labels(records, labels_path, err);
    return status;
}

void task_records_free(struct task_records *records)
{
    for (size_t i = 0; i < records->n; i++)
        json_decref(records->records[i].fields);
    free(records->records);
    free(records->labels);
    ddl_mem_free(records->path);
    *records = (struct task_records){ 0 };
}

/* ---- fields ---- */

ddl_status task_record_error(const struct task_record *record, const char *field, const char *expected,
                             const json_t *found, struct ddl_error *err)
{
    char *text = found ? ddl_json_dumps(found, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    ddl_error_set(err, DDL_E_FORMAT, "%s:%zu: %s: expected %s, found %.100s", record->path, record->number,
                  field, expected, text ? text : "none");
    free(text);
    return DDL_E_FORMAT;
}

ddl_status task_record_text(const struct task_record *record, const json_t *object, const char *field,
                            struct ddl_task_text *out, struct ddl_error *err)
{
    const json_t *value = json_object_get(object, field);
    if (!json_is_string(value))
        return task_record_error(record, field, "a string", value, err);
    *out = (struct ddl_task_text){ json_string_value(value), json_string_length(value) };
    return DDL_OK;
}

/* A decimal number that is all of the text. */
static bool parse_number(const char *text, long *out)
{
    char *end;
    errno = 0;
    *out = strtol(text, &end, 10);
    return end != text && errno == 0 && *(end + strspn(end, " \r\t")) == '\0';
}

ddl_status task_record_number(const struct task_record *record, const char *field, long lo, long hi,
                              long *out, struct ddl_error *err)
{
    const json_t *value = json_object_get(record->fields, field);
    char expected[64];
    bool valid = json_is_integer(value);
    if (valid)
        *out = (long)json_integer_value(value);
    else if (json_is_string(value))
        valid = parse_number(json_string_value(value), out);
    if (valid && *out >= lo && *out <= hi)
        return DDL_OK;
    snprintf(expected, sizeof expected, "a number from %ld to %ld", lo, hi);
    return task_record_error(record, field, expected, value, err);
}

ddl_status task_record_label(const struct task_record *record, const char *field, long lo, long hi, long *out,
                             struct ddl_error *err)
{
    if (!record->label)
        return task_record_number(record, field, lo, hi, out, err);
    if (parse_number(record->label, out) && *out >= lo && *out <= hi)
        return DDL_OK;
    return ddl_error_set(err, DDL_E_FORMAT,
                         "%s: label of record %zu: expected a number from %ld to %ld, found '%.40s'",
                         record->path, record->number, lo, hi, record->label);
}
