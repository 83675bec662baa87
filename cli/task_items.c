#define _POSIX_C_SOURCE 200809L
#include "task_items.h"

#include "ddl/json.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ddl_status file_error(const struct items *items, const char *verb, struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_IO, "%s: cannot %s: %s", items->path, verb, strerror(errno));
}

ddl_status items_open(struct items *items, const char *path, struct ddl_error *err)
{
    char *line = NULL;
    size_t capacity = 0;
    off_t whole = 0;
    items->path = path;
    items->file = fopen(path, "a+e");
    if (!items->file)
        return file_error(items, "open", err);
    rewind(items->file);
    for (ssize_t n; (n = getline(&line, &capacity, items->file)) > 0 && line[n - 1] == '\n';)
        whole += n;
    free(line);
    if (ftruncate(fileno(items->file), whole) != 0)
        return file_error(items, "truncate", err);
    return DDL_OK;
}

/* ---- reading ---- */

static bool has_text(const json_t *line, const char *key, const char *expected)
{
    const char *found = json_string_value(json_object_get(line, key));
    return found && strcmp(found, expected) == 0;
}

static bool has_number(const json_t *line, const char *key, uint64_t expected)
{
    const json_t *found = json_object_get(line, key);
    return json_is_integer(found) && (uint64_t)json_integer_value(found) == expected;
}

static bool has_key(const json_t *line, const struct item_key *key)
{
    return has_text(line, "model", key->model) && has_text(line, "saved_model", key->saved) &&
           has_number(line, "modified", key->modified) && has_text(line, "dtype", key->dtype) &&
           has_text(line, "task", key->task) && has_number(line, "shots", key->shots) &&
           has_number(line, "seed", key->seed);
}

static bool same_text(const json_t *found, struct ddl_task_text text)
{
    return json_string_length(found) == text.size &&
           memcmp(json_string_value(found), text.data, text.size) == 0;
}

/* Takes the scores of a line whose requests are those of the document. */
static bool take_line(const json_t *line, const ddl_task *task, bool *done, struct ddl_task_score *scores)
{
    const json_t *requests = json_object_get(line, "requests");
    size_t i = (size_t)json_integer_value(json_object_get(line, "document"));
    if (i >= ddl_task_n_documents(task) || done[i])
        return false;
    const struct ddl_task_document *document = ddl_task_document(task, i);
    struct ddl_task_score *score = scores + ddl_task_first_request(task, i);
    if (json_array_size(requests) != document->n_requests)
        return false;
    for (size_t r = 0; r < document->n_requests; r++) {
        const json_t *request = json_array_get(requests, r);
        const json_t *loglikelihood = json_object_get(request, "loglikelihood");
        if (!json_is_number(loglikelihood) ||
            !same_text(json_object_get(request, "context"), document->requests[r].context) ||
            !same_text(json_object_get(request, "continuation"), document->requests[r].continuation))
            return false;
        score[r].loglikelihood = json_number_value(loglikelihood);
        score[r].is_greedy = json_is_true(json_object_get(request, "is_greedy"));
    }
    done[i] = true;
    return true;
}

ddl_status items_read(const struct items *items, const struct item_key *key, const ddl_task *task, bool *done,
                      struct ddl_task_score *scores, size_t *n, struct ddl_error *err)
{
    char *text = NULL;
    size_t capacity = 0, number = 0;
    ddl_status status = DDL_OK;
    rewind(items->file);
    for (ssize_t size; !status && (size = getline(&text, &capacity, items->file)) > 0;) {
        json_error_t why;
        json_t *line = json_loadb(text, (size_t)size, JSON_ALLOW_NUL, &why);
        number++;
        if (!line)
            status = ddl_error_set(err, DDL_E_FORMAT,
                                   "%s:%zu: expected a line of an earlier evaluation, found: %s", items->path,
                                   number, why.text);
        else if (has_key(line, key))
            *n += take_line(line, task, done, scores);
        json_decref(line);
    }
    free(text);
    return status;
}

/* ---- writing ---- */

static void write_request(struct ddl_json *json, const struct ddl_task_request *request,
                          const struct ddl_task_score *score)
{
    ddl_json_open(json, NULL, '{');
    ddl_json_text(json, "context", request->context.data, request->context.size);
    ddl_json_text(json, "continuation", request->continuation.data, request->continuation.size);
    ddl_json_count(json, "n_context_tokens", request->n_context);
    ddl_json_count(json, "n_tokens", request->n_tokens);
    ddl_json_number(json, "loglikelihood", score->loglikelihood, 17);
    ddl_json_bool(json, "is_greedy", score->is_greedy);
    ddl_json_close(json, '}');
}

ddl_status items_write(struct items *items, const struct item_key *key, const ddl_task *task, size_t i,
                       const struct ddl_task_score *scores, struct ddl_error *err)
{
    const struct ddl_task_document *document = ddl_task_document(task, i);
    size_t choice = ddl_task_choice(document, scores, false);
    struct ddl_json json = { items->file, false };
    ddl_json_open(&json, NULL, '{');
    ddl_json_string(&json, "model", key->model);
    ddl_json_string(&json, "saved_model", key->saved);
    ddl_json_count(&json, "modified", key->modified);
    ddl_json_string(&json, "dtype", key->dtype);
    ddl_json_string(&json, "task", key->task);
    ddl_json_count(&json, "shots", key->shots);
    ddl_json_count(&json, "seed", key->seed);
    ddl_json_count(&json, "document", i);
    ddl_json_count(&json, "gold", document->gold);
    ddl_json_count(&json, "choice", choice);
    ddl_json_count(&json, "choice_norm", ddl_task_choice(document, scores, true));
    ddl_json_bool(&json, "correct", document->n_requests > 1 ? choice == document->gold : scores->is_greedy);
    ddl_json_open(&json, "examples", '[');
    for (size_t e = 0; e < document->n_examples; e++)
        ddl_json_count(&json, NULL, document->examples[e]);
    ddl_json_close(&json, ']');
    ddl_json_open(&json, "requests", '[');
    for (size_t r = 0; r < document->n_requests; r++)
        write_request(&json, &document->requests[r], &scores[r]);
    ddl_json_close(&json, ']');
    ddl_json_close(&json, '}');
    putc('\n', items->file);
    bool failed = fflush(items->file) != 0 || ferror(items->file); /* a killed evaluation keeps it */
    return failed ? file_error(items, "write", err) : DDL_OK;
}

ddl_status items_close(struct items *items, struct ddl_error *err)
{
    if (!items->file)
        return DDL_OK;
    bool failed = ferror(items->file) != 0;
    failed = fclose(items->file) != 0 || failed;
    items->file = NULL;
    return failed ? file_error(items, "write", err) : DDL_OK;
}
