/* What the forward and the backward pass of attention share. */
#ifndef DDL_BACKEND_CPU_ATTENTION_H
#define DDL_BACKEND_CPU_ATTENTION_H

#include "backend/cpu/cpu.h"

/* A pass: of rows_fn's that get a head, or in forward a part of its queries (head * parts + part). */
struct attention_task {
    const struct cpu *cpu;
    const void *args;
    size_t parts;       /* of a head's queries, in forward */
    bool products_only; /* no softmax: see ddl_ops.attention_products_fwd */
};

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

/* Keys of a block of `most` from `key` on that query t attends to. */
static inline size_t attention_keys_of(const struct attention_args *a, size_t t, size_t key, size_t most)
{
    size_t end = a->past + t + 1;
    return end > key ? attention_least(end - key, most) : 0;
}

/* Whether the values of n keys from `key` on, of a head of sequence b, are finite. */
bool attention_values_are_finite(const struct attention_args *a, size_t b, size_t head, size_t key, size_t n);

/* Products of bfloat16 operands (attention_pairs.c), where all operands are bfloat16. */
static inline bool attention_in_pairs(const struct cpu *cpu, size_t h)
{
    return cpu->k->matmul_pairs && h % PAIRS_WIDTH == 0;
}
rows_fn attention_pairs_fwd, attention_pairs_bwd;
/* Numbers of scratch; SIZE_MAX: out of range. */
size_t attention_pairs_scratch(size_t T, size_t h);

#endif
