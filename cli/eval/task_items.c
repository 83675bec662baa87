#define _DEFAULT_SOURCE /* flock */
#define _POSIX_C_SOURCE 200809L
#include "cli/eval/task_items.h"

#include "ddl/file.h"
#include "ddl/json.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static ddl_status file_error(const struct items *items, const char *verb, struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_IO, "%s: cannot %s: %s", items->path, verb, strerror(errno));
}

enum { MAX_LINE = 16 << 20 };

/* Reads a line with its newline, which the last one may lack. *size is 0 at the end of the file; a failed
 * read and a longer line than MAX_LINE are errors. Unlike getline, it ends on a device that never ends. */
static ddl_status read_line(struct items *items, size_t number, size_t *size, struct ddl_error *err)
{
    int c;
    errno = 0;
    for (*size = 0; (c = getc_unlocked(items->file)) != EOF;) {
        if (*size == items->capacity) {
            size_t capacity = items->capacity ? 2 * items->capacity : 1 << 12;
            char *grown = *size < MAX_LINE ? realloc(items->line, capacity) : NULL;
            if (!grown && *size < MAX_LINE)
                return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", items->path);
            if (!grown)
                return ddl_error_set(err, DDL_E_FORMAT, "%s:%zu: line exceeds the limit of %d MiB",
                                     items->path, number, MAX_LINE >> 20);
            items->line = grown;
            items->capacity = capacity;
        }
        items->line[(*size)++] = (char)c;
        if (c == '\n')
            return DDL_OK;
    }
    return ferror(items->file) ? file_error(items, "read", err) : DDL_OK;
}

/* The first bytes of `text` are those of `expected`, as far as both have them. */
static bool begins(const char *text, size_t size, const char *expected)
{
    size_t n = strlen(expected);
    return memcmp(text, expected, n < size ? n : size) == 0;
}

/* Whether the line, of which the end may be missing, is one that items_write has written: an object whose
 * first keys are these. */
static bool is_item(const char *line, size_t size)
{
    static const char first[] = "{\"model\":\"", second[] = "\",\"saved_model\":\"";
    size_t at = sizeof first - 1;
    if (!begins(line, size, first))
        return false;
    while (at < size && line[at] != '"')
        at += line[at] == '\\' ? 2 : 1;
    return at >= size ? line[size - 1] != '\n' : begins(line + at, size - at, second);
}

static ddl_status foreign(const struct items *items, size_t number, struct ddl_error *err)
{
    return ddl_error_set(
        err, DDL_E_FORMAT,
        "%s:%zu: expected a line of an earlier evaluation with --items, found other content; "
        "choose another file",
        items->path, number);
}

/* Reads the whole file, each line of which must be an item. *whole: the bytes up to the end of the last
 * complete line. */
static ddl_status check_lines(struct items *items, off_t *whole, struct ddl_error *err)
{
    size_t size = 0;
    ddl_status status = DDL_OK;
    *whole = 0;
    rewind(items->file);
    for (size_t number = 1;; number++) {
        int first = getc(items->file); /* a foreign file is refused before it is read */
        if (first != EOF && first != '{')
            return foreign(items, number, err);
        ungetc(first, items->file);
        status = read_line(items, number, &size, err);
        if (status || size == 0)
            return status;
        if (!is_item(items->line, size))
            return foreign(items, number, err);
        if (items->line[size - 1] != '\n')
            return DDL_OK;
        *whole += (off_t)size;
    }
}

/* Checks the file without changing it; one that does not exist has no lines. *st: what was checked. */
static ddl_status check_file(const char *path, off_t *whole, struct stat *st, struct ddl_error *err)
{
    struct items items = { .path = path };
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    *whole = 0;
    *st = (struct stat){ 0 };
    if (fd < 0 && errno == ENOENT)
        return DDL_OK;
    if (fd < 0 && errno == ELOOP)
        return ddl_error_set(err, DDL_E_IO, "%s: is a symbolic link: expected a regular file", path);
    if (fd < 0)
        return file_error(&items, "open", err);
    if (fstat(fd, st) != 0 || !S_ISREG(st->st_mode)) {
        close(fd);
        return ddl_error_set(err, DDL_E_IO, "%s: not a regular file", path);
    }
    items.file = fdopen(fd, "rb");
    if (!items.file) {
        ddl_status status = file_error(&items, "open", err);
        close(fd);
        return status;
    }
    ddl_status status = check_lines(&items, whole, err);
    fclose(items.file);
    free(items.line);
    return status;
}

ddl_status items_check(const char *path, struct ddl_error *err)
{
    struct stat st;
    off_t whole;
    return check_file(path, &whole, &st, err);
}

/* Another evaluation with the file must not run at the same time: both would compute and append the same. */
static ddl_status lock(const struct items *items, struct ddl_error *err)
{
    while (flock(fileno(items->file), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            return ddl_error_set(
                err, DDL_E_IO, "%s: in use by another evaluation: wait until it ends, or choose another file",
                items->path);
        if (errno != EINTR)
            return file_error(items, "lock", err);
    }
    return DDL_OK;
}

ddl_status items_open(struct items *items, const char *path, struct ddl_error *err)
{
    off_t whole;
    struct stat checked, st;
    items->path = path;
    ddl_status status = ddl_file_append(&items->file, path, err);
    if (!status)
        status = lock(items, err);
    if (!status)
        status = check_file(path, &whole, &checked, err);
    if (status)
        return status;
    if (fstat(fileno(items->file), &st) != 0)
        return file_error(items, "read", err);
    if (st.st_dev != checked.st_dev || st.st_ino != checked.st_ino)
        return ddl_error_set(err, DDL_E_IO, "%s: was replaced while it was opened", path);
    if (st.st_size > whole && ftruncate(fileno(items->file), whole) != 0)
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
           has_number(line, "modified", key->modified) &&
           has_text(line, "tokenizer_sha256", key->tokenizer_sha256) && has_text(line, "dtype", key->dtype) &&
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

ddl_status items_read(struct items *items, const struct item_key *key, const ddl_task *task, bool *done,
                      struct ddl_task_score *scores, size_t *n, struct ddl_error *err)
{
    rewind(items->file);
    for (size_t number = 1;; number++) {
        json_error_t why;
        size_t size;
        ddl_status status = read_line(items, number, &size, err);
        if (status || size == 0)
            return status;
        json_t *line = json_loadb(items->line, size, JSON_ALLOW_NUL, &why);
        if (!line)
            return ddl_error_set(err, DDL_E_FORMAT,
                                 "%s:%zu: expected a line of an earlier evaluation, found: %s", items->path,
                                 number, why.text);
        if (has_key(line, key))
            *n += take_line(line, task, done, scores);
        json_decref(line);
    }
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
    ddl_json_string(&json, "tokenizer_sha256", key->tokenizer_sha256);
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
    failed = fclose(items->file) != 0 || failed; /* this unlocks the file */
    free(items->line);
    *items = (struct items){ .path = items->path };
    return failed ? file_error(items, "write", err) : DDL_OK;
}
