/* shards.json: reading what a build has recorded about its shards. */
#include "ddl/data.h"

#include "base/file.h"
#include "base/json.h"
#include "data/shard_format.h"

#include <stdio.h>
#include <string.h>

enum { PATH_SIZE = 4096 };

/* The record of the folder of the last file, or NULL if the folder has none. */
struct reader {
    char path[PATH_SIZE]; /* of the record */
    json_t *root;
    struct ddl_error *err;
};

static ddl_status read_folder(struct reader *r, const char *file)
{
    char path[PATH_SIZE];
    const char *slash = strrchr(file, '/');
    int length = slash ? (int)(slash - file) + 1 : 0;
    snprintf(path, sizeof path, "%.*s%s", length, file, DDL_SHARD_RECORD);
    if (strcmp(path, r->path) == 0)
        return DDL_OK;
    json_decref(r->root);
    r->root = NULL;
    memcpy(r->path, path, sizeof path);
    return ddl_file_exists(path) ? ddl_json_read(&r->root, path, DDL_SHARD_RECORD_MAX, r->err) : DDL_OK;
}

/* Whether the record describes the file as it is. */
static bool lists(const struct reader *r, const char *file, uint64_t tokens, int width)
{
    const char *slash = strrchr(file, '/');
    const json_t *size = json_object_get(json_object_get(r->root, "files"), slash ? slash + 1 : file);
    return json_is_integer(size) &&
           (uint64_t)json_integer_value(size) == DDL_SHARD_HEADER + tokens * (uint64_t)width;
}

/* DDL_E_FORMAT if the record lists a mask of the file that is not there: training without it would count
 * every token. */
static ddl_status check_mask(const struct reader *r, const char *file)
{
    char path[PATH_SIZE];
    if (!ddl_shard_mask_path(path, sizeof path, file) || ddl_file_exists(path))
        return DDL_OK;
    const char *slash = strrchr(path, '/');
    if (!json_object_get(json_object_get(r->root, "files"), slash ? slash + 1 : path))
        return DDL_OK;
    return ddl_error_set(r->err, DDL_E_FORMAT,
                         "%s: there is no such mask, but %s lists it: the build made one", path, r->path);
}

static ddl_status read_identity(const struct reader *r, struct ddl_tokenizer_identity *out)
{
    const json_t *tokenizer = json_object_get(r->root, "tokenizer"), *size;
    const json_t *end_of_text = json_object_get(tokenizer, "end_of_text");
    const char *name = json_string_value(json_object_get(tokenizer, "name"));
    const char *sha256 = json_string_value(json_object_get(tokenizer, "sha256"));
    size = json_object_get(tokenizer, "vocab_size");
    if (!name || !sha256 || strspn(sha256, "0123456789abcdef") != 64 || sha256[64] != '\0' ||
        json_integer_value(size) < 1 || !json_is_integer(end_of_text))
        return ddl_error_set(
            r->err, DDL_E_FORMAT,
            "%s: tokenizer: expected name, vocab_size, end_of_text and sha256 (64 hexadecimal digits)",
            r->path);
    *out = (struct ddl_tokenizer_identity){ .vocab_size = (size_t)json_integer_value(size),
                                            .end_of_text = (int32_t)json_integer_value(end_of_text) };
    snprintf(out->name, sizeof out->name, "%s", name);
    memcpy(out->sha256, sha256, sizeof out->sha256);
    return DDL_OK;
}

static ddl_status describe_other(struct ddl_error *err, const char *where, const char *whose,
                                 const struct ddl_tokenizer_identity *expected,
                                 const struct ddl_tokenizer_identity *found)
{
    return ddl_error_set(
        err, DDL_E_FORMAT,
        "%.600s: built with another tokenizer: expected %s%.200s (%zu tokens, SHA-256 %.12s), "
        "found %.200s (%zu tokens, SHA-256 %.12s)",
        where, whose, expected->name, expected->vocab_size, expected->sha256, found->name, found->vocab_size,
        found->sha256);
}

ddl_status ddl_shards_identity(const ddl_shards *shards, struct ddl_tokenizer_identity *out,
                               struct ddl_error *err)
{
    struct reader r = { .err = err };
    const char *file;
    uint64_t tokens;
    int width;
    ddl_status status = DDL_OK;
    *out = (struct ddl_tokenizer_identity){ 0 };
    for (size_t i = 0; !status && (file = ddl_shards_file(shards, i, &tokens, &width)); i++) {
        struct ddl_tokenizer_identity found;
        status = read_folder(&r, file);
        if (status || !r.root || !lists(&r, file, tokens, width))
            continue;
        status = check_mask(&r, file);
        if (!status)
            status = read_identity(&r, &found);
        if (!status && *out->sha256 && strcmp(out->sha256, found.sha256) != 0)
            status = describe_other(err, file, "that of the files before it, ", out, &found);
        else if (!status && !*out->sha256)
            *out = found;
    }
    json_decref(r.root);
    return status;
}

/* ---- comparing ---- */

size_t ddl_vocab_size_padded(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* The shards against what is known of the tokenizer so far; *known is set by the first that have a record. */
static ddl_status check_shards(const ddl_shards *shards, struct ddl_tokenizer_identity *known,
                               struct ddl_error *err)
{
    struct ddl_tokenizer_identity found;
    ddl_status status = shards ? ddl_shards_identity(shards, &found, err) : DDL_OK;
    if (status || !shards || !*found.sha256)
        return status;
    if (!*known->sha256)
        *known = found;
    else if (strcmp(known->sha256, found.sha256) != 0)
        return describe_other(err, ddl_shards_file(shards, 0, NULL, NULL), "", known, &found);
    return DDL_OK;
}

ddl_status ddl_vocabulary_check(const struct ddl_vocabulary *v, struct ddl_tokenizer_identity *out,
                                ddl_warn_fn *warn, void *user, struct ddl_error *err)
{
    struct ddl_tokenizer_identity known = { 0 };
    struct ddl_error message;
    ddl_status status = DDL_OK;
    if (v->tokenizer)
        status = ddl_tokenizer_identify(v->tokenizer, v->tokenizer_path, &known, err);
    if (!status)
        status = check_shards(v->train, &known, err);
    if (!status)
        status = check_shards(v->val, &known, err);
    if (status)
        return status;
    if (known.vocab_size > v->vocab_size)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "vocab_size is %zu: expected at least the %zu tokens of the tokenizer %.300s",
                             v->vocab_size, known.vocab_size, known.name);
    if (*known.sha256 && v->vocab_size > ddl_vocab_size_padded(known.vocab_size) && warn) {
        ddl_error_set(
            &message, DDL_OK,
            "vocab_size is %zu: the tokenizer %.300s has %zu tokens, %zu padded to a multiple of 64",
            v->vocab_size, known.name, known.vocab_size, ddl_vocab_size_padded(known.vocab_size));
        warn(user, message.text);
    }
    if (out)
        *out = known;
    return DDL_OK;
}
