#include "text/tokenizer.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

struct ddl_tokenizer *ddl_tokenizer_new(size_t n_tokens)
{
    struct ddl_tokenizer *t = ddl_mem_zalloc(sizeof *t);
    if (!t)
        return NULL;
    t->alphabet = ddl_alphabet_make();
    t->n_tokens = n_tokens;
    t->tokens = calloc(n_tokens ? n_tokens : 1, sizeof *t->tokens);
    if (t->tokens)
        return t;
    ddl_mem_free(t);
    return NULL;
}

void ddl_tokenizer_free(ddl_tokenizer *t)
{
    if (!t)
        return;
    free(t->tokens);
    free(t->pool);
    free(t->merges);
    free(t->specials);
    ddl_bpe_free(&t->bpe);
    ddl_bytes_table_free(&t->pieces);
    ddl_char_classes_free(&t->classes);
    ddl_mem_free(t);
}

bool ddl_tokenizer_set(struct ddl_tokenizer *t, int32_t id, const char *bytes, size_t size, unsigned flags)
{
    if (size > UINT32_MAX)
        return false;
    if (t->pool_capacity - t->pool_size < size) {
        size_t capacity = 2 * t->pool_capacity + size + 4096;
        char *grown = realloc(t->pool, capacity);
        if (!grown)
            return false;
        t->pool = grown;
        t->pool_capacity = capacity;
    }
    memcpy(t->pool + t->pool_size, bytes, size);
    t->tokens[id] = (struct ddl_token){ t->pool_size, (uint32_t)size, (unsigned char)flags };
    t->pool_size += size;
    return true;
}

bool ddl_tokenizer_add_merge(struct ddl_tokenizer *t, struct ddl_merge merge)
{
    if (t->n_merges == t->merges_capacity) {
        size_t capacity = 2 * t->merges_capacity + 1024;
        struct ddl_merge *grown = realloc(t->merges, capacity * sizeof *grown);
        if (!grown)
            return false;
        t->merges = grown;
        t->merges_capacity = capacity;
    }
    t->merges[t->n_merges++] = merge;
    return true;
}

bool ddl_tokenizer_add_special(struct ddl_tokenizer *t, struct ddl_special special)
{
    struct ddl_special *grown = realloc(t->specials, (t->n_specials + 1) * sizeof *grown);
    if (!grown)
        return false;
    t->specials = grown;
    t->specials[t->n_specials++] = special;
    return true;
}

const char *ddl_tokenizer_key(const void *user, int32_t id)
{
    const struct ddl_tokenizer *t = user;
    return t->pool + t->tokens[id].offset;
}

static ddl_status find_bytes(struct ddl_tokenizer *t, const char *where, struct ddl_error *err)
{
    for (size_t b = 0; b < 256; b++)
        t->bpe.byte_id[b] = -1;
    for (size_t id = 0; id < t->n_tokens; id++) {
        const struct ddl_token *token = &t->tokens[id];
        if (token->size == 1 && !(token->flags & DDL_TOKEN_LITERAL))
            t->bpe.byte_id[(unsigned char)t->pool[token->offset]] = (int32_t)id;
    }
    for (size_t b = 0; b < 256; b++) {
        char text[4];
        size_t size = ddl_utf8_encode(t->alphabet.code[b], text);
        if (t->bpe.byte_id[b] < 0)
            return ddl_error_set(
                err, DDL_E_FORMAT,
                "%s: no token for byte 0x%02zx ('%.*s'); a byte-level vocabulary has all 256", where, b,
                (int)size, text);
    }
    return DDL_OK;
}

/* Inserts into `pieces` each token whose bytes encode to exactly that token: pieces found there need no
 * merging. */
static ddl_status fill_pieces(struct ddl_tokenizer *t, struct ddl_error *err)
{
    t->pieces.key = ddl_tokenizer_key;
    t->pieces.user = t;
    ddl_status status = DDL_OK;
    bool fits = ddl_bytes_table_init(&t->pieces, t->n_tokens);
    struct ddl_ids ids = { 0 };
    for (size_t id = 0; fits && !status && id < t->n_tokens; id++) {
        const struct ddl_token *token = &t->tokens[id];
        if (token->size == 0 || token->flags)
            continue;
        const char *bytes = t->pool + token->offset;
        bool whole = t->ignore_merges;
        if (!whole) {
            ids.n = 0;
            status = ddl_bpe_encode(&t->bpe, bytes, token->size, &ids, err);
            whole = !status && ids.n == 1 && ids.ids[0] == (int32_t)id;
        }
        if (whole)
            fits = ddl_bytes_table_add(&t->pieces, bytes, token->size, (int32_t)id);
    }
    ddl_ids_free(&ids);
    if (!fits)
        status = ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu tokens", t->n_tokens);
    return status;
}

static bool is_special(const struct ddl_tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->n_specials; i++) {
        if (t->specials[i].id == id)
            return true;
    }
    return false;
}

/* Inserts the characters into `pieces`. */
static ddl_status fill_characters(struct ddl_tokenizer *t, const char *where, struct ddl_error *err)
{
    t->pieces.key = ddl_tokenizer_key;
    t->pieces.user = t;
    bool fits = ddl_bytes_table_init(&t->pieces, t->n_tokens);
    for (size_t id = 0; fits && id < t->n_tokens; id++) {
        const struct ddl_token *token = &t->tokens[id];
        const char *bytes = t->pool + token->offset;
        if (token->size == 0 || is_special(t, (int32_t)id))
            continue;
        if (ddl_utf8_length(bytes, token->size) != token->size)
            return ddl_error_set(err, DDL_E_FORMAT,
                                 "%s: token %zu is '%.*s': expected one character, as there are no merges",
                                 where, id, (int)(token->size < 40 ? token->size : 40), bytes);
        fits = ddl_bytes_table_add(&t->pieces, bytes, token->size, (int32_t)id);
    }
    return fits ? DDL_OK
                : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for %zu tokens", where, t->n_tokens);
}

/* The tables of a byte-level BPE. */
static ddl_status fill_bpe(struct ddl_tokenizer *t, const char *where, struct ddl_error *err)
{
    size_t duplicate = 0;
    ddl_status status = find_bytes(t, where, err);
    if (!status)
        status = ddl_bpe_init(&t->bpe, t->merges, t->n_merges, &duplicate, err);
    if (status == DDL_E_FORMAT && t->bpe.slots)
        return ddl_error_prefix(err, status, where);
    return status ? status : fill_pieces(t, err);
}

ddl_status ddl_tokenizer_finish(struct ddl_tokenizer *t, const char *where, struct ddl_error *err)
{
    ddl_status status = t->characters ? fill_characters(t, where, err) : fill_bpe(t, where, err);
    if (!status)
        status = ddl_char_classes_init(&t->classes, err);
    for (size_t i = 0; i < t->n_specials; i++)
        t->special_first[(unsigned char)*ddl_tokenizer_key(t, t->specials[i].id)] = 1;
    return status;
}

size_t ddl_tokenizer_vocab_size(const ddl_tokenizer *t)
{
    return t->n_tokens;
}

size_t ddl_tokenizer_n_merges(const ddl_tokenizer *t)
{
    return t->n_merges;
}

bool ddl_tokenizer_is_characters(const ddl_tokenizer *t)
{
    return t->characters;
}

const char *ddl_tokenizer_special(const ddl_tokenizer *t, size_t i, int32_t *id, size_t *size)
{
    if (i >= t->n_specials)
        return NULL;
    *id = t->specials[i].id;
    return ddl_tokenizer_bytes(t, *id, size);
}

int32_t ddl_tokenizer_find_special(const struct ddl_tokenizer *t, const char *text, size_t size)
{
    for (size_t i = 0; i < t->n_specials; i++) {
        const int32_t id = t->specials[i].id;
        if (t->tokens[id].size == size && memcmp(ddl_tokenizer_key(t, id), text, size) == 0)
            return id;
    }
    return -1;
}

int32_t ddl_tokenizer_end_of_text(const ddl_tokenizer *t)
{
    return ddl_tokenizer_find_special(t, DDL_END_OF_TEXT, sizeof DDL_END_OF_TEXT - 1);
}

static ddl_status encode_pieces(const struct ddl_tokenizer *t, const char *text, size_t size,
                                struct ddl_ids *out, struct ddl_error *err)
{
    for (size_t at = 0; at < size;) {
        size_t length = ddl_split_next(&t->classes, text + at, size - at);
        int32_t id =
            length < UINT32_MAX ? ddl_bytes_table_find(&t->pieces, text + at, length, size - at) : -1;
        ddl_status status =
            id >= 0 ? ddl_ids_reserve(out, 1, err) : ddl_bpe_encode(&t->bpe, text + at, length, out, err);
        if (status)
            return status;
        if (id >= 0)
            out->ids[out->n++] = id;
        at += length;
    }
    return DDL_OK;
}

/* The character at `at` is not in the vocabulary. */
static ddl_status unknown_character(const char *text, size_t size, size_t at, struct ddl_error *err)
{
    uint32_t code = 0;
    size_t length = ddl_utf8_decode((const unsigned char *)text + at, size - at, &code);
    size_t line = 1;
    for (size_t i = 0; i < at; i++)
        line += text[i] == '\n';
    if (length == 0)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "byte %zu (line %zu): expected a character in UTF-8, found the byte 0x%02x", at,
                             line, (unsigned)(unsigned char)text[at]);
    bool visible = code > 32 && code != 127;
    return ddl_error_set(err, DDL_E_FORMAT,
                         "byte %zu (line %zu): expected a character of the tokenizer, which has characters "
                         "only, found %s%.*s%sU+%04X%s",
                         at, line, visible ? "'" : "", visible ? (int)length : 0, text + at,
                         visible ? "' (" : "", (unsigned)code, visible ? ")" : "");
}

static ddl_status encode_characters(const struct ddl_tokenizer *t, const char *text, size_t size,
                                    struct ddl_ids *out, struct ddl_error *err)
{
    ddl_status status = ddl_ids_reserve(out, size, err);
    for (size_t at = 0, length; at < size && !status; at += length) {
        length = ddl_utf8_length(text + at, size - at);
        int32_t id = length ? ddl_bytes_table_find(&t->pieces, text + at, length, size - at) : -1;
        if (id < 0)
            return unknown_character(text, size, at, err);
        out->ids[out->n++] = id;
    }
    return status;
}

static ddl_status encode_ordinary(const struct ddl_tokenizer *t, const char *text, size_t size,
                                  struct ddl_ids *out, struct ddl_error *err)
{
    if (t->characters)
        return encode_characters(t, text, size, out, err);
    if (size == 0 || !t->add_prefix_space || text[0] == ' ')
        return encode_pieces(t, text, size, out, err);
    char *copy = size < SIZE_MAX ? malloc(size + 1) : NULL;
    if (!copy)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for a text of %zu bytes", size);
    copy[0] = ' ';
    memcpy(copy + 1, text, size);
    ddl_status status = encode_pieces(t, copy, size + 1, out, err);
    free(copy);
    return status;
}

/* Returns the longest special token of the given kind that starts at text[0], or NULL. */
static const struct ddl_special *special_at(const struct ddl_tokenizer *t, const char *text, size_t size,
                                            bool normalized)
{
    const struct ddl_special *best = NULL;
    for (size_t i = 0; i < t->n_specials; i++) {
        const struct ddl_token *token = &t->tokens[t->specials[i].id];
        if (t->specials[i].normalized == normalized && token->size <= size &&
            memcmp(t->pool + token->offset, text, token->size) == 0 &&
            (!best || token->size > t->tokens[best->id].size))
            best = &t->specials[i];
    }
    return best;
}

/* Splits at special tokens: first at those that are not "normalized", then, in between, at those that are. */
static ddl_status encode_special(const struct ddl_tokenizer *t, const char *text, size_t size,
                                 bool normalized, struct ddl_ids *out, struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    size_t start = 0;
    for (size_t at = 0; !status && at <= size; at++) {
        const struct ddl_special *found = NULL;
        if (at < size && t->special_first[(unsigned char)text[at]])
            found = special_at(t, text + at, size - at, normalized);
        if (!found && at < size)
            continue;
        status = normalized ? encode_ordinary(t, text + start, at - start, out, err)
                            : encode_special(t, text + start, at - start, true, out, err);
        if (!status && found) {
            status = ddl_ids_reserve(out, 1, err);
            if (!status)
                out->ids[out->n++] = found->id;
            start = at + t->tokens[found->id].size;
            at = start - 1;
        }
    }
    return status;
}

ddl_status ddl_tokenizer_encode(const ddl_tokenizer *t, const char *text, size_t size, bool special,
                                struct ddl_ids *out, struct ddl_error *err)
{
    size_t before = out->n;
    /* English text has 4 to 5 bytes per token; the list grows as needed. */
    ddl_status status = ddl_ids_reserve(out, size / 4 + 1, err);
    if (!status)
        status = special && t->n_specials ? encode_special(t, text, size, false, out, err)
                                          : encode_ordinary(t, text, size, out, err);
    if (status)
        out->n = before;
    return status;
}

const char *ddl_tokenizer_bytes(const ddl_tokenizer *t, int32_t id, size_t *size)
{
    if (id < 0 || (size_t)id >= t->n_tokens || t->tokens[id].size == 0) {
        *size = 0;
        return NULL;
    }
    *size = t->tokens[id].size;
    return ddl_tokenizer_key(t, id);
}

/* Copies bytes[n] to out[at], truncated to the capacity out[size]. */
static void put(char *out, size_t size, size_t at, const void *bytes, size_t n)
{
    if (at < size && n)
        memcpy(out + at, bytes, n < size - at ? n : size - at);
}

size_t ddl_utf8_length(const char *text, size_t size)
{
    uint32_t code;
    return size ? ddl_utf8_decode((const unsigned char *)text, size, &code) : 0;
}

size_t ddl_decode_push(struct ddl_decode_stream *stream, const ddl_tokenizer *t, int32_t id, char *out,
                       size_t size)
{
    size_t n;
    const char *bytes = ddl_tokenizer_bytes(t, id, &n);
    if (!bytes)
        return 0;
    /* The last three bytes, including held bytes, determine what is held back. */
    unsigned char tail[6];
    size_t from_token = n < 3 ? n : 3, from_held = stream->n_held;
    memcpy(tail, stream->held, from_held);
    memcpy(tail + from_held, bytes + n - from_token, from_token);
    size_t hold = n < 3 ? ddl_utf8_incomplete_tail(tail, from_held + from_token)
                        : ddl_utf8_incomplete_tail(tail + from_held, from_token);
    size_t total = stream->n_held + n - hold;
    if (total <= from_held) {
        put(out, size, 0, stream->held, total);
    } else {
        put(out, size, 0, stream->held, from_held);
        put(out, size, from_held, bytes, total - from_held);
    }
    memcpy(stream->held, tail + from_held + from_token - hold, hold);
    stream->n_held = hold;
    return total;
}

size_t ddl_decode_flush(struct ddl_decode_stream *stream, char *out, size_t size)
{
    size_t n = stream->n_held;
    put(out, size, 0, stream->held, n);
    stream->n_held = 0;
    return n;
}
