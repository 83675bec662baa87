/* Reports as JSON, one object a line, and back. Numbers and texts of each part are rows of a table, so that
 * what is written is what is read. */
#include "bench/bench.h"

#include "base/file.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "base/locale.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1, LARGEST_FILE = 64 << 20, LARGEST_TREE = 64 << 20 };

enum field_type { TEXT, NUMBER, OPTIONAL_NUMBER, COUNT, END }; /* optional: 0 where it is missing */
struct field {
    const char *name;
    enum field_type type;
    size_t offset, size; /* TEXT: bytes of its array */
};
#define FIELD(type, of, field)                                                                               \
    {                                                                                                        \
#field, type, offsetof(struct of, field), sizeof(((struct of *)0)->field)                            \
    }
static const struct field report_fields[] = { FIELD(TEXT, ddl_bench_report, kind),
                                              FIELD(TEXT, ddl_bench_report, machine),
                                              FIELD(TEXT, ddl_bench_report, backend),
                                              FIELD(TEXT, ddl_bench_report, check),
                                              { .type = END } };
static const struct field roofline_fields[] = { FIELD(NUMBER, ddl_bench_roofline, gemm_f32),
                                                FIELD(NUMBER, ddl_bench_roofline, gemm_bf16),
                                                FIELD(NUMBER, ddl_bench_roofline, copy),
                                                FIELD(NUMBER, ddl_bench_roofline, read),
                                                { .type = END } };
static const struct field row_fields[] = {
    FIELD(TEXT, ddl_bench_row, name),     FIELD(COUNT, ddl_bench_row, repetitions),
    FIELD(NUMBER, ddl_bench_row, median), FIELD(NUMBER, ddl_bench_row, q1),
    FIELD(NUMBER, ddl_bench_row, q3),     FIELD(NUMBER, ddl_bench_row, best),
    FIELD(NUMBER, ddl_bench_row, worst),  FIELD(NUMBER, ddl_bench_row, flops),
    FIELD(NUMBER, ddl_bench_row, bytes),  FIELD(NUMBER, ddl_bench_row, units),
    FIELD(TEXT, ddl_bench_row, unit),     { .type = END }
};
static const struct field share_fields[] = { FIELD(TEXT, ddl_bench_share, op),
                                             FIELD(NUMBER, ddl_bench_share, seconds),
                                             FIELD(NUMBER, ddl_bench_share, calls),
                                             FIELD(OPTIONAL_NUMBER, ddl_bench_share, flops),
                                             FIELD(OPTIONAL_NUMBER, ddl_bench_share, bytes),
                                             { .type = END } };

/* The lists of a report; the elements of each are objects with its fields. */
static const struct list {
    const char *name;
    size_t offset, count, element, most;
    const struct field *fields;
} lists[] = {
    { "rows", offsetof(struct ddl_bench_report, row), offsetof(struct ddl_bench_report, n_rows),
      sizeof(struct ddl_bench_row), DDL_BENCH_ROWS, row_fields },
    { "shares", offsetof(struct ddl_bench_report, share), offsetof(struct ddl_bench_report, n_shares),
      sizeof(struct ddl_bench_share), DDL_BENCH_SHARES, share_fields },
};
enum { N_LISTS = sizeof lists / sizeof *lists };

/* Adds the fields of *from to the object; false without memory, or if a text is not UTF-8. */
static bool write_fields(json_t *object, const struct field *fields, const void *from)
{
    for (; fields->type != END; fields++) {
        const char *at = (const char *)from + fields->offset;
        json_t *value = fields->type == TEXT ? json_string(at)
                        : fields->type == COUNT
                            ? json_integer((json_int_t) * (const size_t *)(const void *)at)
                            : json_real(*(const double *)(const void *)at);
        if (json_object_set_new(object, fields->name, value) != 0)
            return false;
    }
    return true;
}

static bool write_list(json_t *root, const struct list *list, const struct ddl_bench_report *report)
{
    const char *base = (const char *)report;
    size_t n = *(const size_t *)(const void *)(base + list->count);
    json_t *array = json_array();
    bool whole = array != NULL;
    for (size_t i = 0; whole && i < n; i++) {
        json_t *object = json_object();
        whole = object && write_fields(object, list->fields, base + list->offset + i * list->element);
        whole = json_array_append_new(array, object) == 0 && whole;
    }
    return json_object_set_new(root, list->name, array) == 0 && whole;
}

static bool write_maps(json_t *root, const struct ddl_bench_report *report)
{
    json_t *settings = json_object(), *figures = json_object();
    bool whole = settings && figures;
    for (size_t i = 0; whole && i < report->n_settings; i++)
        whole = json_object_set_new(settings, report->setting[i].name,
                                    json_string(report->setting[i].value)) == 0;
    for (size_t i = 0; whole && i < report->n_figures; i++)
        whole = json_object_set_new(figures, report->figure[i].name, json_real(report->figure[i].value)) == 0;
    whole = json_object_set_new(root, "settings", settings) == 0 && whole;
    return json_object_set_new(root, "figures", figures) == 0 && whole;
}

ddl_status ddl_bench_report_json(const struct ddl_bench_report *report, char **out, struct ddl_error *err)
{
    json_t *root = json_object(), *roofline = json_object();
    bool whole = json_object_set_new(root, "ddl_bench", json_integer(FORMAT)) == 0 &&
                 write_fields(root, report_fields, report) &&
                 write_fields(roofline, roofline_fields, &report->roofline);
    whole = json_object_set_new(root, "roofline", roofline) == 0 && whole && write_maps(root, report);
    for (size_t i = 0; whole && i < N_LISTS; i++)
        whole = write_list(root, &lists[i], report);
    char *text = whole ? ddl_json_dumps(root, JSON_REAL_PRECISION(9)) : NULL;
    json_decref(root);
    size_t size = text ? strlen(text) : 0;
    char *line = text ? realloc(text, size + 2) : NULL;
    if (!line) {
        free(text);
        return ddl_error_set(err, DDL_E_MEMORY,
                             "bench: out of memory for a report, or a name that is not valid UTF-8");
    }
    memcpy(line + size, "\n", 2);
    *out = line;
    return DDL_OK;
}

static ddl_status read_fields(const json_t *object, const struct field *fields, void *to, const char *where,
                              struct ddl_error *err)
{
    for (; fields->type != END; fields++) {
        const json_t *value = json_object_get(object, fields->name);
        char *at = (char *)to + fields->offset;
        if (fields->type == TEXT && json_is_string(value) && json_string_length(value) < fields->size)
            memcpy(at, json_string_value(value), json_string_length(value) + 1);
        else if (fields->type == OPTIONAL_NUMBER && !value)
            *(double *)(void *)at = 0;
        else if ((fields->type == NUMBER || fields->type == OPTIONAL_NUMBER) && json_is_number(value))
            *(double *)(void *)at = json_number_value(value);
        else if (fields->type == COUNT && json_is_integer(value) && json_integer_value(value) >= 0)
            *(size_t *)(void *)at = (size_t)json_integer_value(value);
        else
            return ddl_error_set(err, DDL_E_FORMAT, "%s: no %s '%s'", where,
                                 fields->type == TEXT    ? "text of fitting length"
                                 : fields->type == COUNT ? "whole number"
                                                         : "number",
                                 fields->name);
    }
    return DDL_OK;
}

static ddl_status read_list(const json_t *root, const struct list *list, struct ddl_bench_report *report,
                            const char *where, struct ddl_error *err)
{
    char *base = (char *)report;
    const json_t *array = json_object_get(root, list->name);
    size_t n = json_array_size(array);
    if (!json_is_array(array) || n > list->most)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: no list '%s' of at most %zu", where, list->name,
                             list->most);
    for (size_t i = 0; i < n; i++) {
        ddl_status status = read_fields(json_array_get(array, i), list->fields,
                                        base + list->offset + i * list->element, where, err);
        if (status)
            return ddl_error_prefix(err, status, list->name);
    }
    *(size_t *)(void *)(base + list->count) = n;
    return DDL_OK;
}

static ddl_status read_maps(const json_t *root, struct ddl_bench_report *report, const char *where,
                            struct ddl_error *err)
{
    json_t *settings = json_object_get(root, "settings"), *figures = json_object_get(root, "figures"), *value;
    const char *key;
    if (!json_is_object(settings) || json_object_size(settings) > DDL_BENCH_SETTINGS ||
        !json_is_object(figures) || json_object_size(figures) > DDL_BENCH_FIGURES)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: no objects 'settings' and 'figures' of fitting size",
                             where);
    json_object_foreach(settings, key, value)
    {
        struct ddl_bench_setting *setting = &report->setting[report->n_settings++];
        if (strlen(key) >= sizeof setting->name || !json_is_string(value) ||
            json_string_length(value) >= sizeof setting->value)
            return ddl_error_set(err, DDL_E_FORMAT, "%s: setting '%.40s' is not a short text", where, key);
        memcpy(setting->name, key, strlen(key) + 1);
        memcpy(setting->value, json_string_value(value), json_string_length(value) + 1);
    }
    json_object_foreach(figures, key, value)
    {
        struct ddl_bench_figure *figure = &report->figure[report->n_figures++];
        if (strlen(key) >= sizeof figure->name || !json_is_number(value))
            return ddl_error_set(err, DDL_E_FORMAT, "%s: figure '%.40s' is not a number", where, key);
        memcpy(figure->name, key, strlen(key) + 1);
        figure->value = json_number_value(value);
    }
    return DDL_OK;
}

static ddl_status read_report(const json_t *root, struct ddl_bench_report *report, const char *where,
                              struct ddl_error *err)
{
    const json_t *format = json_object_get(root, "ddl_bench");
    *report = (struct ddl_bench_report){ 0 };
    if (!json_is_integer(format) || json_integer_value(format) != FORMAT)
        return ddl_error_set(err, DDL_E_FORMAT, "%s: no report of ddl bench (\"ddl_bench\": %d is missing)",
                             where, FORMAT);
    ddl_status status = read_fields(root, report_fields, report, where, err);
    if (!status)
        status =
            read_fields(json_object_get(root, "roofline"), roofline_fields, &report->roofline, where, err);
    if (!status)
        status = read_maps(root, report, where, err);
    for (size_t i = 0; !status && i < N_LISTS; i++)
        status = read_list(root, &lists[i], report, where, err);
    for (size_t i = 0; !status && i < report->n_rows; i++) {
        const struct ddl_bench_row *r = &report->row[i];
        if (!(r->median > 0 && r->q1 <= r->q3))
            status = ddl_error_set(err, DDL_E_FORMAT, "%s: row '%s' has no times", where, r->name);
    }
    return status;
}

/* The next object of text, which is moved past it; NULL at the end, or with *status where there is none. */
static json_t *next_object(const char **text, const char *end, const char *where, ddl_status *status,
                           struct ddl_error *err)
{
    json_error_t why;
    *text += strspn(*text, " \t\r\n");
    if (*text >= end)
        return NULL;
    if (ddl_json_tree_bytes(*text, (size_t)(end - *text), LARGEST_TREE) > LARGEST_TREE) {
        *status =
            ddl_error_set(err, DDL_E_FORMAT, "%s: its values need more than the limit of %d MiB of memory",
                          where, LARGEST_TREE >> 20);
        return NULL;
    }
    struct ddl_c_locale scope = ddl_c_locale_enter();
    json_t *root =
        json_loadb(*text, (size_t)(end - *text), JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &why);
    ddl_c_locale_leave(&scope);
    if (!root)
        *status = ddl_error_set(err, DDL_E_FORMAT, "%s: not JSON: %s", where, why.text);
    else
        *text += why.position; /* where reading stopped */
    return root;
}

ddl_status ddl_bench_reports_read(struct ddl_bench_report **out, size_t *n, const char *path,
                                  struct ddl_error *err)
{
    char *text, where[1100];
    size_t size;
    *out = NULL;
    *n = 0;
    ddl_status status = ddl_file_read(path, LARGEST_FILE, &text, &size, err);
    if (status)
        return status;
    const char *at = text;
    for (;;) {
        snprintf(where, sizeof where, "%s: report %zu", path, *n + 1);
        json_t *root = next_object(&at, text + size, where, &status, err);
        if (!root)
            break;
        struct ddl_bench_report *grown = realloc(*out, (*n + 1) * sizeof *grown);
        if (grown)
            *out = grown;
        status = grown ? read_report(root, &grown[*n], where, err)
                       : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", where);
        json_decref(root);
        if (status)
            break;
        ++*n;
    }
    free(text);
    if (!status && *n == 0)
        status = ddl_error_set(err, DDL_E_FORMAT, "%s: no report of ddl bench in it", path);
    if (status) {
        free(*out);
        *out = NULL;
        *n = 0;
    }
    return status;
}
