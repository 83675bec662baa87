#include "infer/detokenizer.h"

#include "base/mem.h"

#include <string.h>

static size_t longest_of(const char *const *texts, size_t n)
{
    size_t longest = 0;
    for (size_t i = 0; i < n; i++)
        longest = strlen(texts[i]) > longest ? strlen(texts[i]) : longest;
    return longest;
}

static size_t longest_token(const ddl_tokenizer *tokenizer)
{
    size_t longest = 0, n = ddl_tokenizer_vocab_size(tokenizer);
    for (size_t id = 0; id < n; id++) {
        size_t size = 0;
        if (ddl_tokenizer_bytes(tokenizer, (int32_t)id, &size) && size > longest)
            longest = size;
    }
    return longest;
}

ddl_status ddl_detokenizer_init(struct ddl_detokenizer *e, const ddl_tokenizer *tokenizer,
                                const char *const *stop, size_t n_stop, struct ddl_error *err)
{
    *e = (struct ddl_detokenizer){ .tokenizer = tokenizer, .stop = stop, .n_stop = n_stop };
    /* Held: less than a stop string, then a token behind an incomplete character. */
    e->capacity = longest_of(stop, n_stop) + longest_token(tokenizer) + 2 * sizeof e->stream.held;
    e->held = ddl_mem_alloc(e->capacity);
    return e->held ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "out of memory for text");
}

void ddl_detokenizer_free(struct ddl_detokenizer *e)
{
    ddl_mem_free(e->held);
    e->held = NULL;
}

/* Gives out the first n held bytes. */
static int give(struct ddl_detokenizer *e, size_t n)
{
    int answer = n && e->text ? e->text(e->user, e->sequence, e->held, n) : 0;
    memmove(e->held, e->held + n, e->n_held - n);
    e->n_held -= n;
    return answer;
}

static bool starts_with(const char *text, size_t size, const char *prefix, size_t n)
{
    return n <= size && memcmp(text, prefix, n) == 0;
}

/* Where the first stop string begins, or the text that may still become one; n_held if nowhere. */
static size_t find_stop(const struct ddl_detokenizer *e, bool *complete)
{
    *complete = false;
    for (size_t at = 0; at < e->n_held; at++) {
        const char *rest = e->held + at;
        size_t left = e->n_held - at;
        bool begun = false;
        for (size_t i = 0; i < e->n_stop; i++) {
            size_t n = strlen(e->stop[i]);
            if (n && starts_with(rest, left, e->stop[i], n)) {
                *complete = true;
                return at;
            }
            begun = begun || (left < n && starts_with(e->stop[i], n, rest, left));
        }
        if (begun)
            return at;
    }
    return e->n_held;
}

int ddl_detokenizer_push(struct ddl_detokenizer *e, int32_t id, bool *stopped)
{
    e->n_held += ddl_decode_push(&e->stream, e->tokenizer, id, e->held + e->n_held, e->capacity - e->n_held);
    size_t n = find_stop(e, stopped);
    int answer = give(e, n);
    if (*stopped)
        e->n_held = 0;
    return answer;
}

int ddl_detokenizer_flush(struct ddl_detokenizer *e)
{
    e->n_held += ddl_decode_flush(&e->stream, e->held + e->n_held, e->capacity - e->n_held);
    return give(e, e->n_held);
}
