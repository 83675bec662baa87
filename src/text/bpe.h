/* The merges of a byte-level BPE, and their application to one piece of text. */
#ifndef DDL_TEXT_BPE_H
#define DDL_TEXT_BPE_H

#include "ddl/status.h"
#include "ddl/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* left right -> id; the place in the list is the merge's rank: the lowest is applied first. */
struct ddl_merge {
    int32_t left, right, id;
};

struct ddl_pair_slot {
    int32_t left, right; /* left < 0: an empty slot */
    uint32_t rank;
    int32_t id;
};

struct ddl_bpe {
    int32_t byte_id[256];        /* the token of each byte                            */
    struct ddl_pair_slot *slots; /* open addressing by (left, right), 2^bits slots    */
    unsigned bits;
};

/* Builds the table from n merges (copied). A pair that stands twice is refused: *duplicate gets the later
 * rank. byte_id is the caller's to fill. */
ddl_status ddl_bpe_init(struct ddl_bpe *bpe, const struct ddl_merge *merges, size_t n, size_t *duplicate,
                        struct ddl_error *err);
void ddl_bpe_free(struct ddl_bpe *bpe); /* a zeroed one is allowed */

/* Room for n more ids. */
ddl_status ddl_ids_reserve(struct ddl_ids *ids, size_t n, struct ddl_error *err);

/* Appends the ids of one piece: starting from its bytes, the adjacent pair of the lowest rank is merged, the
 * leftmost where several are equal, until none is left. Short pieces are scanned for their best pair each
 * time; long ones keep a heap, so that no text makes it quadratic. */
ddl_status ddl_bpe_encode(const struct ddl_bpe *bpe, const char *piece, size_t size, struct ddl_ids *out,
                          struct ddl_error *err);

/* The two ways, for the test that compares them. scan: out[] holds `size` ids, size <= DDL_BPE_SCAN; returns
 * how many. heap: appends. */
enum { DDL_BPE_SCAN = 64 };
size_t ddl_bpe_scan(const struct ddl_bpe *bpe, const char *piece, size_t size, int32_t *out);
ddl_status ddl_bpe_heap(const struct ddl_bpe *bpe, const char *piece, size_t size, struct ddl_ids *out,
                        struct ddl_error *err);

#endif
