#include "text/words.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Average capacity per word in bytes, far above the average of real texts. */
enum { MEAN_BYTES = 64 };

static const char *word_bytes(const void *user, int32_t i)
{
    const struct ddl_words *words = user;
    return words->pool + words->words[i].offset;
}

static bool start_table(struct ddl_words *words, size_t n)
{
    if (!ddl_bytes_table_init(&words->table, n))
        return false;
    words->table.key = word_bytes;
    words->table.user = words;
    return true;
}

bool ddl_words_init(struct ddl_words *words, size_t limit)
{
    *words = (struct ddl_words){ .limit = limit };
    return start_table(words, 1024);
}

void ddl_words_free(struct ddl_words *words)
{
    free(words->words);
    free(words->pool);
    ddl_bytes_table_free(&words->table);
    *words = (struct ddl_words){ 0 };
}

/* True if keeping only the words above that count leaves at most half of the limits, in number and in
 * bytes. */
static bool drops_enough(const struct ddl_words *words, uint64_t count)
{
    size_t n = 0, bytes = 0;
    for (size_t i = 0; i < words->n; i++) {
        bool kept = words->words[i].count > count;
        n += kept;
        bytes += kept ? words->words[i].size : 0;
    }
    return n <= words->limit / 2 && bytes <= words->limit * (MEAN_BYTES / 2);
}

/* Drops all words up to the lowest power-of-two count that frees enough. */
static bool drop_rare(struct ddl_words *words)
{
    uint64_t threshold = 1;
    while (!drops_enough(words, threshold))
        threshold *= 2;
    size_t n = 0, pool_size = 0;
    for (size_t i = 0; i < words->n; i++) {
        struct ddl_word word = words->words[i];
        if (word.count <= threshold)
            continue;
        memmove(words->pool + pool_size, words->pool + word.offset, word.size);
        word.offset = pool_size;
        pool_size += word.size;
        words->words[n++] = word;
    }
    words->n = n;
    words->pool_size = pool_size;
    ddl_bytes_table_free(&words->table);
    if (!start_table(words, words->limit))
        return false;
    for (size_t i = 0; i < n; i++) {
        const struct ddl_word *word = &words->words[i];
        if (!ddl_bytes_table_add(&words->table, words->pool + word->offset, word->size, (int32_t)i))
            return false;
    }
    return true;
}

static bool reserve(struct ddl_words *words, size_t size)
{
    if (words->n == words->capacity) {
        size_t capacity = 2 * words->capacity + 1024;
        struct ddl_word *grown = realloc(words->words, capacity * sizeof *grown);
        if (!grown)
            return false;
        words->words = grown;
        words->capacity = capacity;
    }
    if (words->pool_capacity - words->pool_size < size) {
        size_t capacity = 2 * words->pool_capacity + size + 4096;
        char *grown = realloc(words->pool, capacity);
        if (!grown)
            return false;
        words->pool = grown;
        words->pool_capacity = capacity;
    }
    return true;
}

bool ddl_words_add(struct ddl_words *words, const char *piece, size_t size, size_t readable)
{
    if (size > DDL_WORD_BYTES)
        return true;
    int32_t found = ddl_bytes_table_find(&words->table, piece, size, readable);
    if (found >= 0) {
        words->words[found].count++;
        return true;
    }
    bool full = words->n == words->limit || words->pool_size + size > words->limit * MEAN_BYTES;
    if (full && !drop_rare(words))
        return false;
    if (!reserve(words, size))
        return false;
    memcpy(words->pool + words->pool_size, piece, size);
    words->words[words->n] = (struct ddl_word){ words->pool_size, (uint32_t)size, 1 };
    words->pool_size += size;
    return ddl_bytes_table_add(&words->table, piece, size, (int32_t)words->n++);
}
