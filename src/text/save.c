/* Writes tokenizer.json in the format of Hugging Face `tokenizers`, with merges as "a b", which all its
 * versions read. */
#include "text/tokenizer.h"

#include "base/file.h"
#include "base/sha256.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the token as spelled in the vocabulary (a new reference), or NULL. */
static json_t *token_text(const struct ddl_tokenizer *t, int32_t id)
{
    const struct ddl_token *token = &t->tokens[id];
    const char *bytes = t->pool + token->offset;
    if (token->flags & DDL_TOKEN_LITERAL)
        return json_stringn(bytes, token->size);
    char *text = malloc(2 * (size_t)token->size);
    if (!text)
        return NULL;
    json_t *string = json_stringn_nocheck(text, ddl_alphabet_encode(&t->alphabet, bytes, token->size, text));
    free(text);
    return string;
}

static json_t *vocab_object(const struct ddl_tokenizer *t)
{
    json_t *vocab = json_object();
    for (size_t id = 0; vocab && id < t->n_tokens; id++) {
        if (t->tokens[id].size == 0 || t->tokens[id].flags & DDL_TOKEN_ADDED)
            continue;
        json_t *text = token_text(t, (int32_t)id);
        bool good =
            text && json_object_setn_new_nocheck(vocab, json_string_value(text), json_string_length(text),
                                                 json_integer((json_int_t)id)) == 0;
        json_decref(text);
        if (!good) {
            json_decref(vocab);
            return NULL;
        }
    }
    return vocab;
}

static json_t *merges_list(const struct ddl_tokenizer *t)
{
    json_t *merges = json_array();
    for (size_t i = 0; merges && i < t->n_merges; i++) {
        json_t *left = token_text(t, t->merges[i].left), *right = token_text(t, t->merges[i].right);
        json_t *line =
            left && right ? json_sprintf("%s %s", json_string_value(left), json_string_value(right)) : NULL;
        json_decref(left);
        json_decref(right);
        if (json_array_append_new(merges, line)) {
            json_decref(merges);
            return NULL;
        }
    }
    return merges;
}

static json_t *added_tokens(const struct ddl_tokenizer *t)
{
    json_t *added = json_array();
    for (size_t i = 0; added && i < t->n_specials; i++) {
        const struct ddl_special *s = &t->specials[i];
        json_t *row =
            json_pack("{s:i, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", s->id, "content",
                      t->pool + t->tokens[s->id].offset, (size_t)t->tokens[s->id].size, "single_word", 0,
                      "lstrip", 0, "rstrip", 0, "normalized", s->normalized, "special", s->special);
        if (json_array_append_new(added, row)) {
            json_decref(added);
            return NULL;
        }
    }
    return added;
}

static json_t *byte_level(bool add_prefix_space)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", add_prefix_space,
                     "trim_offsets", 1, "use_regex", 1);
}

static json_t *tokenizer_object(const struct ddl_tokenizer *t)
{
    json_t *model =
        json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
                  "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                  "ignore_merges", t->ignore_merges, "vocab", vocab_object(t), "merges", merges_list(t));
    /* Without a pre-tokenizer and merges, each character of a text is looked up in the vocabulary. */
    json_t *pre_tokenizer = t->characters ? json_null() : byte_level(t->add_prefix_space);
    json_t *decoder = t->characters ? json_pack("{s:s}", "type", "Fuse") : byte_level(true);
    return json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:n, s:o, s:o}", "version", "1.0", "truncation",
                     "padding", "added_tokens", added_tokens(t), "normalizer", "pre_tokenizer", pre_tokenizer,
                     "post_processor", "decoder", decoder, "model", model);
}

/* True if path names a folder: an existing one, or a new name that does not end in .json. */
static bool means_folder(const char *path)
{
    size_t length = strlen(path);
    bool json = length > 5 && strcmp(path + length - 5, ".json") == 0;
    return ddl_file_is_dir(path) || (!json && !ddl_file_exists(path));
}

/* The bytes of tokenizer.json, malloc'ed; NULL without memory. */
static char *make_text(const ddl_tokenizer *t, size_t *size)
{
    json_t *root = tokenizer_object(t);
    *size = root ? json_dumpb(root, NULL, 0, JSON_INDENT(1)) : 0;
    char *text = *size ? malloc(*size) : NULL;
    bool written = text && json_dumpb(root, text, *size, JSON_INDENT(1)) == *size;
    json_decref(root);
    if (written)
        return text;
    free(text);
    return NULL;
}

static ddl_status out_of_memory(const ddl_tokenizer *t, const char *path, struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for a tokenizer of %zu tokens", path,
                         t->n_tokens);
}

ddl_status ddl_tokenizer_identify(const ddl_tokenizer *t, const char *path,
                                  struct ddl_tokenizer_identity *out, struct ddl_error *err)
{
    struct ddl_sha256 hash;
    size_t size;
    char *text = make_text(t, &size);
    if (!text)
        return out_of_memory(t, path, err);
    *out = (struct ddl_tokenizer_identity){ .vocab_size = ddl_tokenizer_vocab_size(t),
                                            .end_of_text = ddl_tokenizer_end_of_text(t) };
    snprintf(out->name, sizeof out->name, "%s", path);
    ddl_sha256_begin(&hash);
    ddl_sha256_add(&hash, text, size);
    ddl_sha256_end_hex(&hash, out->sha256);
    free(text);
    return DDL_OK;
}

ddl_status ddl_tokenizer_file(char *out, size_t size, const char *path, struct ddl_error *err)
{
    bool folder = means_folder(path);
    if (folder ? ddl_path_join(out, size, path, "tokenizer.json")
               : (size_t)snprintf(out, size, "%s", path) < size)
        return DDL_OK;
    return ddl_error_set(err, DDL_E_USAGE, "%.200s...: path too long", path);
}

ddl_status ddl_tokenizer_save(const ddl_tokenizer *t, const char *where, struct ddl_error *err)
{
    char path[1024];
    ddl_status status = ddl_tokenizer_file(path, sizeof path, where, err);
    if (!status)
        status = ddl_file_make_parent(path, err);
    if (status)
        return status;
    size_t size;
    char *text = make_text(t, &size);
    if (!text)
        return out_of_memory(t, path, err);
    status = ddl_file_replace(path, text, size, err);
    free(text);
    return status;
}
