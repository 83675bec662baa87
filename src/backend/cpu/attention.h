/* What the forward and the backward pass of attention share. */
#ifndef DDL_BACKEND_CPU_ATTENTION_H
#define DDL_BACKEND_CPU_ATTENTION_H

#include "backend/cpu/cpu.h"

enum {
    ROW_BLOCK = 12,              /* queries, or keys, of one product: whole tiles of every instruction set */
    QUERY_BLOCK = 8 * ROW_BLOCK, /* queries that add to dk and dv at a time, and that a task has at least  */
    KV_BLOCK = 576,              /* keys at a time: 0.3 MB a packed form where a head is 128 wide          */
};

static inline size_t attention_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Keys of a block in a context of T. */
static inline size_t attention_kv_block(size_t T)
{
    return T < KV_BLOCK ? round_up(T, MOST_PANEL) : KV_BLOCK;
}

/* What is packed: x, or x16, from number `at` on, rows of h numbers `stride` apart. */
static inline struct pack_args attention_pack_args(const float *x, const uint16_t *x16, size_t at,
                                                   size_t stride, size_t h)
{
    struct pack_args args = { .width = h, .stride = stride };
    if (x)
        args.x = x + at;
    else
        args.x16 = x16 + at;
    return args;
}

/* The same rows, n of them, as float32: where they are, or in bfloat16 converted to `buffer` (n, h). */
struct attention_rows {
    const float *x;
    size_t stride;
};
struct attention_rows attention_rows_of(const struct ddl_kernels *k, struct pack_args rows, size_t n,
                                        float *buffer);

#endif
