/* Counts the distinct pieces of texts in bounded memory. */
#ifndef DDL_TEXT_WORDS_H
#define DDL_TEXT_WORDS_H

#include "text/bytes_table.h"
#include "text/split.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddl_word {
    size_t offset; /* of its bytes in the pool */
    uint32_t size;
    uint64_t count;
};

struct ddl_words {
    struct ddl_word *words; /* [n] in the order of first occurrence */
    size_t n, capacity, limit;
    char *pool;
    size_t pool_size, pool_capacity;
    struct ddl_bytes_table table;
};

/* Longer pieces are not counted: they contribute nothing to training. */
enum { DDL_WORD_BYTES = 1 << 16 };

/* Keeps at most `limit` distinct pieces, 1 < limit < 2^31. When the limit is reached, at least the less
 * frequent half is dropped (pieces of equal count are dropped together). The table holds a pointer to *words,
 * which must not move. Returns false if out of memory. */
bool ddl_words_init(struct ddl_words *words, size_t limit);
void ddl_words_free(struct ddl_words *words);

/* Counts one piece. `readable` as in ddl_bytes_table_find. Returns false if out of memory. */
bool ddl_words_add(struct ddl_words *words, const char *piece, size_t size, size_t readable);

#endif
