/* Loads tokenizers. Both formats are a map from tokens to ids and a list of merges; tokenizer.json adds added
 * tokens and settings. Settings that would change the result are rejected. */
#include "text/settings.h"
#include "text/tokenizer.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 64 << 20 }; /* published files have up to 35 MB */

struct loader {
    const char *path; /* file named in error messages */
    struct ddl_error *err;
    json_t *vocab; /* borrowed */
    struct ddl_tokenizer *t;
    unsigned char *produced; /* [n_tokens] true for single bytes and results of merges */
};

static ddl_status out_of_memory(const struct loader *l)
{
    return ddl_error_set(l->err, DDL_E_MEMORY, "%s: out of memory", l->path);
}

/* Checks that `value`, the id of the `what` called `name`, is an integer in range. */
static ddl_status check_id(const struct loader *l, const json_t *value, const char *what, const char *name)
{
    if (!json_is_integer(value))
        return ddl_error_set(l->err, DDL_E_FORMAT, "%s: id of %s \"%.100s\": expected an integer, found %s",
                             l->path, what, name, ddl_json_type_name(value));
    json_int_t id = json_integer_value(value);
    if (id < 0 || id >= DDL_MAX_VOCAB)
        return ddl_error_set(l->err, DDL_E_FORMAT,
                             "%s: id of %s \"%.100s\": expected 0 to %d, found %" JSON_INTEGER_FORMAT,
                             l->path, what, name, DDL_MAX_VOCAB - 1, id);
    return DDL_OK;
}

/* Checks all ids of the vocabulary and raises *n_tokens to the largest id + 1. */
static ddl_status measure_vocab(const struct loader *l, size_t *n_tokens)
{
    const char *name;
    json_t *value;
    json_object_foreach(l->vocab, name, value)
    {
        ddl_status status = check_id(l, value, "token", name);
        if (status)
            return status;
        size_t id = (size_t)json_integer_value(value);
        if (*n_tokens <= id)
            *n_tokens = id + 1;
    }
    return DDL_OK;
}

static ddl_status read_vocab(struct loader *l)
{
    const char *name;
    size_t length;
    json_t *value;
    ddl_status status = DDL_OK;
    json_object_keylen_foreach(l->vocab, name, length, value)
    {
        int32_t id = (int32_t)json_integer_value(value);
        if (length == 0)
            return ddl_error_set(l->err, DDL_E_FORMAT, "%s: token %d is empty", l->path, id);
        if (l->t->tokens[id].size)
            return ddl_error_set(l->err, DDL_E_FORMAT,
                                 "%s: duplicate id %d: used by \"%.100s\" and another token", l->path, id,
                                 name);
        char *bytes = malloc(length);
        if (!bytes)
            return out_of_memory(l);
        size_t n = 0;
        bool ordinary = !l->t->characters && ddl_alphabet_decode(&l->t->alphabet, name, length, bytes, &n);
        bool fits = ordinary ? ddl_tokenizer_set(l->t, id, bytes, n, 0)
                             : ddl_tokenizer_set(l->t, id, name, length, DDL_TOKEN_LITERAL);
        l->produced[id] = ordinary && n == 1;
        free(bytes);
        if (!fits)
            return out_of_memory(l);
    }
    return status;
}

/* Returns the id of a token spelled as in the vocabulary, or -1. */
static int32_t token_id(const struct loader *l, const char *text, size_t size)
{
    json_t *value = json_object_getn(l->vocab, text, size);
    return value ? (int32_t)json_integer_value(value) : -1;
}

static ddl_status unknown_token(const struct loader *l, const char *text, size_t size)
{
    return ddl_error_set(l->err, DDL_E_FORMAT, "%s: merge %zu: \"%.*s\" is not in the vocabulary", l->path,
                         l->t->n_merges, (int)(size < 100 ? size : 100), text);
}

static ddl_status add_merge(struct loader *l, const char *left, size_t n_left, const char *right,
                            size_t n_right)
{
    struct ddl_tokenizer *t = l->t;
    struct ddl_merge m = { token_id(l, left, n_left), token_id(l, right, n_right), -1 };
    if (m.left < 0)
        return unknown_token(l, left, n_left);
    if (m.right < 0)
        return unknown_token(l, right, n_right);
    char *joined = malloc(n_left + n_right);
    if (!joined)
        return out_of_memory(l);
    memcpy(joined, left, n_left);
    memcpy(joined + n_left, right, n_right);
    m.id = token_id(l, joined, n_left + n_right);
    ddl_status status = m.id < 0 ? unknown_token(l, joined, n_left + n_right) : DDL_OK;
    free(joined);
    if (status)
        return status;
    if (t->tokens[m.id].flags & DDL_TOKEN_LITERAL)
        return ddl_error_set(l->err, DDL_E_FORMAT, "%s: merge %zu produces a token outside the byte alphabet",
                             l->path, t->n_merges);
    if (!ddl_tokenizer_add_merge(t, m))
        return out_of_memory(l);
    l->produced[m.id] = 1;
    return DDL_OK;
}

/* "a b": two tokens separated by one space. */
static ddl_status add_merge_line(struct loader *l, const char *line, size_t size)
{
    const char *space = memchr(line, ' ', size);
    size_t n_left = space ? (size_t)(space - line) : 0, n_right = space ? size - n_left - 1 : 0;
    if (!n_left || !n_right || memchr(space + 1, ' ', n_right))
        return ddl_error_set(l->err, DDL_E_FORMAT,
                             "%s: merge %zu: expected two tokens separated by a space, found \"%.*s\"",
                             l->path, l->t->n_merges, (int)(size < 100 ? size : 100), line);
    return add_merge(l, line, n_left, space + 1, n_right);
}

static ddl_status read_json_merges(struct loader *l, const json_t *merges)
{
    if (!json_is_array(merges))
        return ddl_error_set(l->err, DDL_E_FORMAT, "%s: model.merges: expected a list, found %s", l->path,
                             ddl_json_type_name(merges));
    size_t i;
    const json_t *row;
    ddl_status status = DDL_OK;
    json_array_foreach(merges, i, row)
    {
        const json_t *left = json_array_get(row, 0), *right = json_array_get(row, 1);
        if (json_is_string(row))
            status = add_merge_line(l, json_string_value(row), json_string_length(row));
        else if (json_array_size(row) == 2 && json_is_string(left) && json_is_string(right))
            status = add_merge(l, json_string_value(left), json_string_length(left), json_string_value(right),
                               json_string_length(right));
        else
            status = ddl_error_set(l->err, DDL_E_FORMAT,
                                   "%s: merge %zu: expected \"a b\" or a list of two strings, found %s",
                                   l->path, i, ddl_json_type_name(row));
        if (status)
            break;
    }
    return status;
}

/* Allocates a tokenizer for n_tokens ids and reads the vocabulary into it. */
static ddl_status begin(struct loader *l, size_t n_tokens, bool characters)
{
    l->t = ddl_tokenizer_new(n_tokens);
    l->produced = calloc(n_tokens ? n_tokens : 1, 1);
    if (!l->t || !l->produced)
        return out_of_memory(l);
    l->t->characters = characters;
    return read_vocab(l);
}

/* The text of an added token is literal. If a merge also produces the token (or it is a single byte), its
 * bytes are also used for ordinary text, so the two must agree. */
static ddl_status add_token(struct loader *l, struct ddl_special special, const char *text, size_t size)
{
    struct ddl_tokenizer *t = l->t;
    struct ddl_token *token = &t->tokens[special.id];
    int32_t known = token_id(l, text, size);
    if (known >= 0 && known != special.id)
        return ddl_error_set(l->err, DDL_E_FORMAT,
                             "%s: added token \"%.100s\" has id %d, but id %d in the vocabulary", l->path,
                             text, special.id, known);
    if (known < 0 && token->size)
        return ddl_error_set(l->err, DDL_E_FORMAT,
                             "%s: added token \"%.100s\": id %d belongs to another token", l->path, text,
                             special.id);
    if (l->produced[special.id]) {
        if (token->size != size || memcmp(t->pool + token->offset, text, size) != 0)
            return ddl_error_set(l->err, DDL_E_UNSUPPORTED,
                                 "%s: added token \"%.100s\" is also an ordinary token with other bytes",
                                 l->path, text);
    } else if (!ddl_tokenizer_set(t, special.id, text, size,
                                  DDL_TOKEN_LITERAL | (known < 0 ? DDL_TOKEN_ADDED : 0u))) {
        return out_of_memory(l);
    }
    return ddl_tokenizer_add_special(t, special) ? DDL_OK : out_of_memory(l);
}

static ddl_status read_added_token(struct loader *l, const json_t *row, size_t i)
{
    static const char *const unsupported[] = { "single_word", "lstrip", "rstrip" };
    const json_t *content = json_object_get(row, "content");
    if (!json_is_string(content) || json_string_length(content) == 0)
        return ddl_error_set(l->err, DDL_E_FORMAT,
                             "%s: added_tokens[%zu].content: expected a nonempty string, found %s", l->path,
                             i, json_is_string(content) ? "an empty string" : ddl_json_type_name(content));
    const char *text = json_string_value(content);
    for (size_t k = 0; k < sizeof unsupported / sizeof *unsupported; k++) {
        if (json_is_true(json_object_get(row, unsupported[k])))
            return ddl_error_set(l->err, DDL_E_UNSUPPORTED,
                                 "%s: added token \"%.100s\" has %s true; only false is supported", l->path,
                                 text, unsupported[k]);
    }
    struct ddl_special special = { (int32_t)json_integer_value(json_object_get(row, "id")),
                                   json_is_true(json_object_get(row, "normalized")),
                                   json_is_true(json_object_get(row, "special")) };
    return add_token(l, special, text, json_string_length(content));
}

/* Checks the ids of the added tokens and raises *n_tokens to the largest id + 1. A missing list is empty. */
static ddl_status measure_added(const struct loader *l, const json_t *added, size_t *n_tokens)
{
    if (added && !json_is_array(added))
        return ddl_error_set(l->err, DDL_E_FORMAT, "%s: added_tokens: expected a list, found %s", l->path,
                             ddl_json_type_name(added));
    size_t i;
    const json_t *row;
    json_array_foreach(added, i, row)
    {
        const char *text = json_string_value(json_object_get(row, "content"));
        ddl_status status = check_id(l, json_object_get(row, "id"), "added token", text ? text : "");
        if (status)
            return status;
        size_t id = (size_t)json_integer_value(json_object_get(row, "id"));
        if (*n_tokens <= id)
            *n_tokens = id + 1;
    }
    return DDL_OK;
}

/* Allocated memory is proportional to the largest id, so at least half of the ids must be in use. */
static ddl_status check_density(const struct loader *l, size_t given, size_t n_tokens)
{
    enum { FREE_GAP = 4096 };
    if (n_tokens <= FREE_GAP || n_tokens / 2 <= given)
        return DDL_OK;
    return ddl_error_set(l->err, DDL_E_FORMAT, "%s: the largest id is %zu, but there are only %zu tokens",
                         l->path, n_tokens - 1, given);
}

static ddl_status read_tokenizer_json(struct loader *l, const json_t *root)
{
    const json_t *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens");
    l->vocab = json_object_get(model, "vocab");
    if (!json_is_object(l->vocab))
        return ddl_error_set(l->err, DDL_E_FORMAT,
                             "%s: model.vocab: expected an object, found %s: not a tokenizer.json", l->path,
                             ddl_json_type_name(l->vocab));
    size_t n_tokens = 0;
    ddl_status status = ddl_tokenizer_check_settings(root, l->path, l->err);
    if (!status)
        status = measure_vocab(l, &n_tokens);
    if (!status)
        status = measure_added(l, added, &n_tokens);
    if (!status)
        status = check_density(l, json_object_size(l->vocab) + json_array_size(added), n_tokens);
    if (!status)
        status = begin(l, n_tokens, ddl_tokenizer_has_characters(root));
    if (!status)
        status = read_json_merges(l, json_object_get(model, "merges"));
    size_t i;
    const json_t *row;
    json_array_foreach(added, i, row)
    {
        if (!status)
            status = read_added_token(l, row, i);
    }
    if (status)
        return status;
    const json_t *pre = json_object_get(root, "pre_tokenizer");
    l->t->add_prefix_space = json_is_true(json_object_get(pre, "add_prefix_space"));
    l->t->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    return DDL_OK;
}

static ddl_status load_tokenizer_json(struct loader *l)
{
    json_t *root;
    ddl_status status = ddl_json_read(&root, l->path, FILE_LIMIT, l->err);
    if (status)
        return status;
    status = read_tokenizer_json(l, root);
    json_decref(root);
    return status;
}

static ddl_status read_merge_lines(struct loader *l, const char *text, size_t size)
{
    static const char header[] = "#version";
    for (const char *line = text, *end = text + size; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t n = stop ? (size_t)(stop - line) : (size_t)(end - line);
        bool is_header =
            line == text && n >= sizeof header - 1 && memcmp(line, header, sizeof header - 1) == 0;
        ddl_status status = is_header || n == 0 ? DDL_OK : add_merge_line(l, line, n);
        if (status)
            return status;
        line += n + 1;
    }
    return DDL_OK;
}

/* GPT-2's two files have no list of special tokens. <|endoftext|> is the only one; any other token that no
 * merge produces means that the files do not match. */
static ddl_status check_all_produced(struct loader *l, const char *merges_path)
{
    static const char end_of_text[] = DDL_END_OF_TEXT;
    const char *name;
    size_t length;
    json_t *value;
    json_object_keylen_foreach(l->vocab, name, length, value)
    {
        struct ddl_special special = { .id = (int32_t)json_integer_value(value), .special = true };
        if (l->produced[special.id])
            continue;
        if (strcmp(name, end_of_text) != 0)
            return ddl_error_set(l->err, DDL_E_FORMAT,
                                 "%s: no merge produces \"%.100s\" (id %d) of encoder.json: truncated?",
                                 merges_path, name, special.id);
        ddl_status status = add_token(l, special, name, length);
        if (status)
            return status;
    }
    return DDL_OK;
}

static ddl_status load_gpt2_files(struct loader *l, const char *vocab_path, const char *merges_path)
{
    json_t *vocab;
    l->path = vocab_path;
    ddl_status status = ddl_json_read(&vocab, vocab_path, FILE_LIMIT, l->err);
    if (status)
        return status;
    size_t n_tokens = 0;
    l->vocab = vocab;
    if (!json_is_object(vocab))
        status = ddl_error_set(l->err, DDL_E_FORMAT, "%s: expected an object of tokens and ids, found %s",
                               vocab_path, ddl_json_type_name(vocab));
    if (!status)
        status = measure_vocab(l, &n_tokens);
    if (!status)
        status = check_density(l, json_object_size(vocab), n_tokens);
    if (!status)
        status = begin(l, n_tokens, false);
    char *text = NULL;
    size_t size = 0;
    if (!status)
        status = ddl_file_read(merges_path, FILE_LIMIT, &text, &size, l->err);
    l->path = merges_path;
    if (!status)
        status = read_merge_lines(l, text, size);
    if (!status)
        status = check_all_produced(l, merges_path);
    free(text);
    json_decref(vocab);
    return status;
}

static ddl_status load_folder(struct loader *l, const char *folder)
{
    char json[1024], vocab[1024], merges[1024];
    if (!ddl_path_join(json, sizeof json, folder, "tokenizer.json") ||
        !ddl_path_join(vocab, sizeof vocab, folder, "encoder.json") ||
        !ddl_path_join(merges, sizeof merges, folder, "vocab.bpe"))
        return ddl_error_set(l->err, DDL_E_USAGE, "%.200s...: path too long", folder);
    ddl_status status;
    if (ddl_file_exists(json)) {
        l->path = json;
        status = load_tokenizer_json(l);
    } else if (ddl_file_exists(vocab) || ddl_file_exists(merges)) {
        status = load_gpt2_files(l, vocab, merges);
    } else {
        return ddl_error_set(
            l->err, DDL_E_IO,
            "%s: no tokenizer in this folder: expected tokenizer.json, or vocab.bpe and encoder.json",
            folder);
    }
    if (!status)
        status = ddl_tokenizer_finish(l->t, l->path, l->err);
    return status;
}

static ddl_status load_shipped(struct loader *l)
{
    char folder[1024];
    if (!ddl_file_find_shipped("tokenizer", folder, sizeof folder))
        return ddl_error_set(l->err, DDL_E_IO,
                             "tokenizer '" DDL_TOKENIZER_SHIPPED
                             "': its files are not in share/ddl/tokenizer "
                             "of this installation: give a folder or tokenizer.json");
    return load_folder(l, folder);
}

ddl_status ddl_tokenizer_load(ddl_tokenizer **out, const char *path, struct ddl_error *err)
{
    struct loader l = { .path = path, .err = err };
    ddl_status status;
    if (strcmp(path, DDL_TOKENIZER_SHIPPED) == 0) {
        status = load_shipped(&l);
    } else if (ddl_file_is_dir(path)) {
        status = load_folder(&l, path);
    } else {
        status = load_tokenizer_json(&l);
        if (!status)
            status = ddl_tokenizer_finish(l.t, path, err);
    }
    free(l.produced);
    *out = status ? NULL : l.t;
    if (status)
        ddl_tokenizer_free(l.t);
    return status;
}
