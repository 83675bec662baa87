/* Byte-level BPE merges and their application to one piece of text. */
#ifndef DDL_TEXT_BPE_H
#define DDL_TEXT_BPE_H

#include "ddl/status.h"
#include "ddl/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Merge left right -> id. Its index in the list is its rank; the lowest rank is applied first. */
struct ddl_merge {
    int32_t left, right, id;
};

struct ddl_pair_slot {
    int32_t left, right; /* left < 0: empty slot */
    uint32_t rank;
    int32_t id;
};

struct ddl_bpe {
    int32_t byte_id[256];        /* token of each byte */
    struct ddl_pair_slot *slots; /* open addressing, keyed by (left, right), 2^bits slots */
    unsigned bits;
};

/* Builds the table from n merges (copied). Rejects a duplicate pair and sets *duplicate to the higher rank.
 * The caller fills byte_id. */
ddl_status ddl_bpe_init(struct ddl_bpe *bpe, const struct ddl_merge *merges, size_t n, size_t *duplicate,
                        struct ddl_error *err);
void ddl_bpe_free(struct ddl_bpe *bpe); /* a zeroed struct is allowed */

/* Reserves capacity for n more ids. */
ddl_status ddl_ids_reserve(struct ddl_ids *ids, size_t n, struct ddl_error *err);

/* Appends the ids of one piece. Starting from single bytes, repeatedly merges the adjacent pair of the lowest
 * rank (the leftmost on ties) until no pair can be merged. Short pieces are scanned for the best pair on each
 * merge; long pieces use a heap, which bounds the cost at O(n log n). */
ddl_status ddl_bpe_encode(const struct ddl_bpe *bpe, const char *piece, size_t size, struct ddl_ids *out,
                          struct ddl_error *err);

/* The two implementations, exposed for the test that compares them. scan: size <= DDL_BPE_SCAN, out[] must
 * hold `size` ids; returns the number of ids. heap: appends. */
enum { DDL_BPE_SCAN = 64 };
size_t ddl_bpe_scan(const struct ddl_bpe *bpe, const char *piece, size_t size, int32_t *out);
ddl_status ddl_bpe_heap(const struct ddl_bpe *bpe, const char *piece, size_t size, struct ddl_ids *out,
                        struct ddl_error *err);

#endif
