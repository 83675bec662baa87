/* Trains a tokenizer: counts the pieces of the texts, learns merges, builds a tokenizer from them. */
#include "text/train.h"

#include "base/clock.h"
#include "text/learn.h"
#include "text/tokenizer.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

struct training {
    const struct ddl_tokenizer_train_config *config;
    struct ddl_tokenizer_train_progress progress;
    ddl_tokenizer_train_progress_fn *report;
    void *user;
    double start;    /* clock value */
    double reported; /* seconds at the last report */
    struct ddl_error *err;
    struct ddl_tokenizer *t; /* tokens so far; its n_tokens is the capacity */
    size_t n_tokens;
    struct ddl_bytes_table known; /* ids of the tokens by their bytes */
};

static ddl_status out_of_memory(const struct training *tr)
{
    return ddl_error_set(tr->err, DDL_E_MEMORY,
                         "out of memory for training a tokenizer (%zu distinct pieces)", tr->progress.words);
}

static ddl_status report(struct training *tr)
{
    tr->progress.seconds = ddl_clock_seconds() - tr->start;
    if (!tr->report || tr->progress.seconds < tr->reported + 0.2)
        return DDL_OK;
    tr->reported = tr->progress.seconds;
    if (tr->report(tr->user, &tr->progress))
        return ddl_error_set(tr->err, DDL_E_INTERRUPTED, "interrupted while training a tokenizer");
    return DDL_OK;
}

static ddl_status count_pieces(struct training *tr, const struct ddl_char_classes *classes,
                               const struct ddl_text_chunk *chunk, struct ddl_words *words)
{
    for (size_t at = 0; at < chunk->size;) {
        size_t left = chunk->size - at, length = ddl_split_next(classes, chunk->text + at, left);
        if (!ddl_words_add(words, chunk->text + at, length, left))
            return out_of_memory(tr);
        at += length;
    }
    return DDL_OK;
}

static ddl_status count_texts(struct training *tr, const struct ddl_text_source *source,
                              struct ddl_words *words)
{
    struct ddl_char_classes classes = { 0 };
    ddl_status status = ddl_char_classes_init(&classes, tr->err);
    tr->progress.bytes_total = source->bytes_total;
    while (!status) {
        struct ddl_text_chunk chunk = { 0 };
        status = source->next(source->user, &chunk, tr->err);
        if (status || chunk.end)
            break;
        status = count_pieces(tr, &classes, &chunk, words);
        tr->progress.bytes_in = chunk.bytes_in;
        tr->progress.words = words->n;
        if (!status)
            status = report(tr);
    }
    ddl_char_classes_free(&classes);
    return status;
}

/* Returns the id of the token with these bytes, creating it if there is none. Returns -1 if out of memory. */
static int32_t token_id(struct training *tr, const char *bytes, size_t size)
{
    int32_t id = ddl_bytes_table_find(&tr->known, bytes, size, size);
    if (id >= 0)
        return id;
    id = (int32_t)tr->n_tokens;
    if (!ddl_tokenizer_set(tr->t, id, bytes, size, 0) || !ddl_bytes_table_add(&tr->known, bytes, size, id))
        return -1;
    tr->n_tokens++;
    return id;
}

/* Adds one special token. If its text is valid in the byte alphabet it must decode to itself; otherwise its
 * vocabulary entry would be read as the spelling of other bytes. It is also the token of these bytes in text
 * then; with a character that the alphabet spells otherwise, such as a space, it is not. */
static ddl_status add_special(struct training *tr, const char *text, size_t size)
{
    struct ddl_tokenizer *t = tr->t;
    char bytes[sizeof tr->config->special_tokens];
    size_t n;
    bool ordinary = !tr->config->characters && ddl_alphabet_decode(&t->alphabet, text, size, bytes, &n);
    if (size == 0)
        return ddl_error_set(tr->err, DDL_E_USAGE, "special_tokens: \"%s\" contains an empty token",
                             tr->config->special_tokens);
    if (ordinary && (n != size || memcmp(bytes, text, size) != 0))
        return ddl_error_set(tr->err, DDL_E_USAGE,
                             "special_tokens: \"%.*s\" is the byte-level spelling of another text", (int)size,
                             text);
    if (!ddl_utf8_is_valid(text, size))
        return ddl_error_set(tr->err, DDL_E_USAGE, "special_tokens: \"%.*s\" is not UTF-8", (int)size, text);
    if (ddl_tokenizer_find_special(t, text, size) >= 0)
        return DDL_OK;
    if (ddl_bytes_table_find(&tr->known, text, size, size) >= 0)
        return ddl_error_set(tr->err, DDL_E_USAGE, "special_tokens: \"%.*s\" is a character of the text",
                             (int)size, text);
    int32_t id = (int32_t)tr->n_tokens;
    if (!ddl_tokenizer_add_special(t, (struct ddl_special){ .id = id, .special = true }) ||
        !ddl_tokenizer_set(t, id, text, size, DDL_TOKEN_LITERAL) ||
        (ordinary && !ddl_bytes_table_add(&tr->known, text, size, id)))
        return out_of_memory(tr);
    tr->n_tokens++;
    return DDL_OK;
}

static ddl_status add_specials(struct training *tr)
{
    const char *text = tr->config->special_tokens;
    while (*text) {
        size_t size = strcspn(text, ",");
        bool last = text[size] == '\0';
        ddl_status status = add_special(tr, text, size);
        if (status)
            return status;
        if (last)
            break;
        text += size + 1;
        if (*text == '\0')
            return add_special(tr, text, 0);
    }
    return DDL_OK;
}

/* Adds the special tokens and the 256 bytes, in the order of their characters. */
static ddl_status add_first_tokens(struct training *tr, int32_t byte_id[256])
{
    ddl_status status = add_specials(tr);
    if (status)
        return status;
    for (size_t i = 0; i < 256; i++) {
        char byte = (char)tr->t->alphabet.order[i];
        int32_t id = token_id(tr, &byte, 1);
        if (id < 0)
            return out_of_memory(tr);
        tr->t->tokens[id].flags = 0;
        byte_id[tr->t->alphabet.order[i]] = id;
    }
    if (tr->n_tokens > tr->config->vocab_size)
        return ddl_error_set(tr->err, DDL_E_USAGE,
                             "vocab_size: expected at least %zu (bytes and special tokens), found %zu",
                             tr->n_tokens, tr->config->vocab_size);
    return DDL_OK;
}

/* Appends the merge of `pair` and creates its token, which can already exist only as a special token. */
static ddl_status add_merge(struct training *tr, uint64_t pair, int32_t *id)
{
    struct ddl_tokenizer *t = tr->t;
    struct ddl_merge m = { (int32_t)(pair >> 32), (int32_t)(pair & UINT32_MAX), -1 };
    size_t n_left = t->tokens[m.left].size, n_right = t->tokens[m.right].size;
    char *joined = malloc(n_left + n_right);
    if (!joined)
        return out_of_memory(tr);
    memcpy(joined, ddl_tokenizer_key(t, m.left), n_left);
    memcpy(joined + n_left, ddl_tokenizer_key(t, m.right), n_right);
    *id = m.id = token_id(tr, joined, n_left + n_right);
    free(joined);
    if (m.id < 0)
        return out_of_memory(tr);
    t->tokens[m.id].flags = 0; /* a special token that a merge produces is also an ordinary token */
    return ddl_tokenizer_add_merge(t, m) ? DDL_OK : out_of_memory(tr);
}

static ddl_status learn(struct training *tr, struct ddl_learner *learner)
{
    uint64_t pair, count;
    ddl_status status = DDL_OK;
    while (!status && tr->n_tokens < tr->config->vocab_size && ddl_learner_best(learner, &pair, &count) &&
           count >= tr->config->min_frequency) {
        int32_t id = -1;
        status = add_merge(tr, pair, &id);
        if (!status && !ddl_learner_merge(learner, id))
            status = out_of_memory(tr);
        tr->progress.vocab = tr->n_tokens;
        if (!status)
            status = report(tr);
    }
    return status;
}

static ddl_status train(struct training *tr, const struct ddl_text_source *source)
{
    struct ddl_words words = { 0 };
    struct ddl_learner *learner = NULL;
    int32_t byte_id[256];
    ddl_status status = add_first_tokens(tr, byte_id);
    if (!status && !ddl_words_init(&words, tr->config->max_words))
        status = out_of_memory(tr);
    if (!status)
        status = count_texts(tr, source, &words);
    if (!status) {
        learner = ddl_learner_new(&words, byte_id);
        status = learner ? DDL_OK : out_of_memory(tr);
    }
    ddl_words_free(&words);
    if (!status)
        status = learn(tr, learner);
    ddl_learner_free(learner);
    return status;
}

/* ---- characters ---- */

enum { CODES = 0x110000 };

static ddl_status mark_characters(struct training *tr, const struct ddl_text_chunk *chunk, bool *seen)
{
    for (size_t at = 0, length; at < chunk->size; at += length) {
        uint32_t code = 0;
        length = ddl_utf8_decode((const unsigned char *)chunk->text + at, chunk->size - at, &code);
        if (length == 0 || code == 0)
            return ddl_error_set(
                tr->err, DDL_E_FORMAT,
                "characters: expected text in UTF-8, found the byte 0x%02x at %zu of a document",
                (unsigned)(unsigned char)chunk->text[at], at);
        tr->progress.words += !seen[code];
        seen[code] = true;
    }
    return DDL_OK;
}

/* Marks the characters of the texts, then adds them in the order of their code points. */
static ddl_status collect_characters(struct training *tr, const struct ddl_text_source *source)
{
    bool *seen = calloc(CODES, sizeof *seen);
    ddl_status status = seen ? DDL_OK : out_of_memory(tr);
    tr->progress.bytes_total = source->bytes_total;
    while (!status) {
        struct ddl_text_chunk chunk = { 0 };
        status = source->next(source->user, &chunk, tr->err);
        if (status || chunk.end)
            break;
        status = mark_characters(tr, &chunk, seen);
        tr->progress.bytes_in = chunk.bytes_in;
        if (!status)
            status = report(tr);
    }
    for (uint32_t code = 0; code < CODES && !status; code++) {
        char text[4];
        size_t size = seen[code] ? ddl_utf8_encode(code, text) : 0;
        int32_t id = size ? token_id(tr, text, size) : 0;
        if (id < 0)
            status = out_of_memory(tr);
        else if (size)
            tr->t->tokens[id].flags = DDL_TOKEN_LITERAL;
    }
    free(seen);
    return status ? status : add_specials(tr);
}

ddl_status ddl_tokenizer_train_texts(ddl_tokenizer **out, const struct ddl_tokenizer_train_config *config,
                                     const struct ddl_text_source *source,
                                     ddl_tokenizer_train_progress_fn *progress, void *user,
                                     struct ddl_error *err)
{
    *out = NULL;
    struct training tr = { .config = config, .report = progress, .user = user, .err = err };
    tr.progress.vocab_size = config->vocab_size;
    tr.start = ddl_clock_seconds();
    /* The bytes and special tokens may exceed vocab_size; this is reported after they are counted. */
    const size_t most = config->characters ? CODES : config->vocab_size + 256;
    tr.t = ddl_tokenizer_new(most + sizeof config->special_tokens);
    bool fits = tr.t && ddl_bytes_table_init(&tr.known, config->vocab_size);
    tr.known.key = ddl_tokenizer_key;
    tr.known.user = tr.t;
    ddl_status status = !fits                ? out_of_memory(&tr)
                        : config->characters ? collect_characters(&tr, source)
                                             : train(&tr, source);
    ddl_bytes_table_free(&tr.known);
    if (!status) {
        tr.t->n_tokens = tr.n_tokens;
        tr.t->characters = config->characters;
        status = ddl_tokenizer_finish(tr.t, "trained tokenizer", err);
    }
    if (status)
        ddl_tokenizer_free(tr.t);
    else
        *out = tr.t;
    return status;
}
