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

ddl_status ddl_detokenizer_init(struct ddl_detokenizer *d, const ddl_tokenizer *tokenizer,
                                const char *const *stop, size_t n_stop, struct ddl_error *err)
{
    *d = (struct ddl_detokenizer){ .tokenizer = tokenizer, .stop = stop, .n_stop = n_stop };
    /* At most: less than a stop string, and a token after an incomplete character. */
    d->capacity = longest_of(stop, n_stop) + longest_token(tokenizer) + 2 * sizeof d->stream.held;
    d->held = ddl_mem_alloc(d->capacity);
    return d->held ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "out of memory for text");
}

void ddl_detokenizer_free(struct ddl_detokenizer *d)
{
    ddl_mem_free(d->held);
    d->held = NULL;
}

/* Passes on the first n held bytes. */
static int pass_on(struct ddl_detokenizer *d, size_t n)
{
    int result = n && d->text ? d->text(d->user, d->sequence, d->held, n) : 0;
    memmove(d->held, d->held + n, d->n_held - n);
    d->n_held -= n;
    return result;
}

static bool starts_with(const char *text, size_t size, const char *prefix, size_t n)
{
    return n <= size && memcmp(text, prefix, n) == 0;
}

/* Offset of the stop string that ends first, of several the longest; n_held if there is none. */
static size_t find_stop(const struct ddl_detokenizer *d)
{
    for (size_t end = 1; end <= d->n_held; end++) {
        size_t longest = 0;
        for (size_t i = 0; i < d->n_stop; i++) {
            size_t n = strlen(d->stop[i]);
            if (n > longest && n <= end && memcmp(d->held + end - n, d->stop[i], n) == 0)
                longest = n;
        }
        if (longest)
            return end - longest;
    }
    return d->n_held;
}

/* Offset of the first text that could become a stop string; n_held if there is none. */
static size_t find_start(const struct ddl_detokenizer *d)
{
    for (size_t at = 0; at < d->n_held; at++) {
        for (size_t i = 0; i < d->n_stop; i++) {
            if (starts_with(d->stop[i], strlen(d->stop[i]), d->held + at, d->n_held - at))
                return at;
        }
    }
    return d->n_held;
}

int ddl_detokenizer_push(struct ddl_detokenizer *d, int32_t id, bool *stopped)
{
    d->n_held += ddl_decode_push(&d->stream, d->tokenizer, id, d->held + d->n_held, d->capacity - d->n_held);
    size_t n = find_stop(d);
    *stopped = n < d->n_held;
    int result = pass_on(d, *stopped ? n : find_start(d));
    if (*stopped)
        d->n_held = 0;
    return result;
}

int ddl_detokenizer_flush(struct ddl_detokenizer *d)
{
    d->n_held += ddl_decode_flush(&d->stream, d->held + d->n_held, d->capacity - d->n_held);
    return pass_on(d, d->n_held);
}
