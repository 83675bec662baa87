/* Tokenizer cases: cases.jsonl, a line {"text", "ids"} each, and files.json, checksums of whole texts' ids.
 */
#include "verify/internal.h"

#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "ddl/tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES_LIMIT = 256 << 20, TEXT_LIMIT = 1 << 30 };

/* What was skipped, for the case's message: "no tokenizer; text/a.txt is not below --data". */
static void note(struct context *c, const char *what, const char *why)
{
    char *message = c->result->message;
    size_t used = strlen(message), size = sizeof c->result->message;
    snprintf(message + used, size - used, "%s%s%s", used ? "; " : "skipped: ", what, why);
}

static ddl_status bad_line(const char *path, size_t line, const char *what, struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_FORMAT, "%s:%zu: %s", path, line, what);
}

static bool same_ids(const json_t *expected, const struct ddl_ids *found)
{
    if (json_array_size(expected) != found->n)
        return false;
    for (size_t i = 0; i < found->n; i++) {
        if (json_integer_value(json_array_get(expected, i)) != found->ids[i])
            return false;
    }
    return true;
}

/* The ids' bytes put together are the text again. */
static bool same_bytes(const ddl_tokenizer *tokenizer, const struct ddl_ids *ids, const char *text,
                       size_t size)
{
    size_t at = 0;
    for (size_t i = 0; i < ids->n; i++) {
        size_t n;
        const char *bytes = ddl_tokenizer_bytes(tokenizer, ids->ids[i], &n);
        if (!bytes || n > size - at || memcmp(text + at, bytes, n) != 0)
            return false;
        at += n;
    }
    return at == size;
}

static ddl_status check_line(struct context *c, const ddl_tokenizer *tokenizer, const json_t *json,
                             const char *path, size_t line, struct ddl_error *err)
{
    const json_t *text = json_object_get(json, "text"), *expected = json_object_get(json, "ids");
    if (!json_is_string(text) || !json_is_array(expected))
        return bad_line(path, line, "expected an object with the string text and the list ids", err);
    struct ddl_ids ids = { 0 };
    size_t size = json_string_length(text);
    ddl_status status = ddl_tokenizer_encode(tokenizer, json_string_value(text), size, false, &ids, err);
    if (!status) {
        char name[48];
        snprintf(name, sizeof name, "cases.jsonl:%zu", line);
        measure(c, "encode", 0, name, same_ids(expected, &ids) ? 0 : 1);
        measure(c, "decode", 0, name, same_bytes(tokenizer, &ids, json_string_value(text), size) ? 0 : 1);
    }
    ddl_ids_free(&ids);
    return status;
}

static ddl_status check_cases(struct context *c, const ddl_tokenizer *tokenizer, const char *path,
                              struct ddl_error *err)
{
    char *text;
    size_t size, line = 0;
    ddl_status status = ddl_file_read(path, CASES_LIMIT, &text, &size, err);
    if (status)
        return status;
    for (char *at = text, *end = text + size; at < end && !status; line++) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop ? stop : end) - at);
        json_error_t error;
        json_t *json = NULL;
        if (n > 0 && (status = ddl_json_parse(&json, at, n, JSON_ALLOW_NUL, &error)))
            ddl_error_set(err, status, "%s:%zu: %s", path, line + 1, error.text);
        else if (n > 0)
            status = check_line(c, tokenizer, json, path, line + 1, err);
        json_decref(json);
        at += n + 1;
    }
    free(text);
    if (!status && line == 0)
        return bad_line(path, 1, "the file is empty", err);
    return status;
}

/* SHA-256 of the ids as uint16, little-endian. */
static void hash_ids(const struct ddl_ids *ids, char hex[65])
{
    struct ddl_sha256 state;
    ddl_sha256_begin(&state);
    for (size_t i = 0; i < ids->n; i++) {
        unsigned char bytes[2] = { (unsigned char)(ids->ids[i] & 255),
                                   (unsigned char)(ids->ids[i] >> 8 & 255) };
        ddl_sha256_add(&state, bytes, sizeof bytes);
    }
    ddl_sha256_end_hex(&state, hex);
}

static ddl_status check_text(struct context *c, const ddl_tokenizer *tokenizer, const json_t *row,
                             const char *name, const char *path, struct ddl_error *err)
{
    const char *expected = json_string_value(json_object_get(row, "sha256_u16le"));
    if (!expected)
        return ddl_error_set(err, DDL_E_FORMAT, "%s/files.json: %s has no sha256_u16le", c->path, name);
    char *text, hex[65];
    size_t size;
    ddl_status status = ddl_file_read(path, TEXT_LIMIT, &text, &size, err);
    if (status)
        return status;
    struct ddl_ids ids = { 0 };
    status = ddl_tokenizer_encode(tokenizer, text, size, false, &ids, err);
    if (!status) {
        const json_t *bytes = json_object_get(row, "bytes"), *tokens = json_object_get(row, "tokens");
        bool same_size = !bytes || json_integer_value(bytes) == (json_int_t)size;
        bool same_count = !tokens || json_integer_value(tokens) == (json_int_t)ids.n;
        hash_ids(&ids, hex);
        measure(c, "files", 0, name, same_size && same_count && strcmp(hex, expected) == 0 ? 0 : 1);
    }
    ddl_ids_free(&ids);
    free(text);
    return status;
}

/* Only relative, and never upwards. */
static bool stays_below(const char *name)
{
    if (*name == '/' || *name == '\0')
        return false;
    for (const char *part = name; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL) {
        size_t length = strcspn(part, "/");
        if (length == 2 && part[0] == '.' && part[1] == '.')
            return false;
    }
    return true;
}

static ddl_status check_files(struct context *c, const ddl_tokenizer *tokenizer, const char *path,
                              struct ddl_error *err)
{
    json_t *list;
    ddl_status status = ddl_json_read(&list, path, CASES_LIMIT, err);
    if (status)
        return status;
    if (!json_is_array(list))
        status = bad_line(path, 1, "expected a list", err);
    for (size_t i = 0; i < json_array_size(list) && !status; i++) {
        const json_t *row = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(row, "file"));
        char whole[2048];
        if (!name)
            status = ddl_error_set(err, DDL_E_FORMAT, "%s: row %zu has no file", path, i);
        else if (!stays_below(name))
            status = ddl_error_set(err, DDL_E_FORMAT, "%s: row %zu: '%.200s' is not a path below a folder",
                                   path, i, name);
        else if (!*c->config->data)
            note(c, name, " (no --data given)");
        else if (!ddl_path_join(whole, sizeof whole, c->config->data, name) || !ddl_file_exists(whole))
            note(c, name, " (not below --data)");
        else
            status = check_text(c, tokenizer, row, name, whole, err);
    }
    json_decref(list);
    return status;
}

ddl_status check_tokenizer(struct context *c, struct ddl_error *err)
{
    static const struct {
        const char *name;
        ddl_status (*check)(struct context *, const ddl_tokenizer *, const char *, struct ddl_error *);
    } parts[] = { { "cases.jsonl", check_cases }, { "files.json", check_files } };
    if (!*c->config->tokenizer) {
        note(c, "no tokenizer to compare it with", " (--tokenizer)");
        c->result->outcome = DDL_VERIFY_SKIP;
        return DDL_OK;
    }
    ddl_tokenizer *tokenizer;
    ddl_status status = ddl_tokenizer_load(&tokenizer, c->config->tokenizer, err);
    if (status)
        return status;
    for (size_t i = 0; i < 2 && !status; i++) {
        char path[2048];
        if (!ddl_path_join(path, sizeof path, c->path, parts[i].name))
            status = ddl_error_set(err, DDL_E_USAGE, "%s: the path is too long", c->path);
        else if (ddl_file_exists(path))
            status = parts[i].check(c, tokenizer, path, err);
    }
    ddl_tokenizer_free(tokenizer);
    return status;
}
