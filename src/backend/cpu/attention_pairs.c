/* Causal attention in bfloat16 (attention.c) with products of bfloat16 operands, in blocks of PAIRS_BLOCK
 * queries. Scores and sums are float32. A weight is multiplied as the sum of two bfloat16 numbers: rounding
 * it to one makes an error of 0.6 to 0.85 of a model's other roundings in its logits. So is a gradient of the
 * output: rounding it to one doubles the error of a model's gradients (golden case rivals/hyper). Gradients
 * of scores are rounded once. */
#include "backend/cpu/attention.h"

#include "base/mem.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

static_assert(KV_BLOCK % PAIRS_BLOCK == 0 && QUERY_BLOCK % PAIRS_BLOCK == 0 &&
                  (int)MOST_PANEL == (int)PAIRS_BLOCK,
              "whole blocks");

static size_t blocks(size_t n)
{
    return round_up(n, PAIRS_BLOCK);
}

/* More than each pass takes: see the calls of `take`. */
size_t attention_pairs_scratch(size_t T, size_t h)
{
    size_t block = attention_kv_block(T), queries = 0, numbers;
    if (h > SIZE_MAX - PAIRS_BLOCK || !ddl_size_add(T, PAIRS_BLOCK, &queries) ||
        !ddl_size_add(queries, 4 * block + 4 * QUERY_BLOCK, &numbers) ||
        !ddl_size_mul(numbers, blocks(h), &numbers) || !ddl_size_add(numbers, 256 * block, &numbers) ||
        !ddl_size_mul(queries, 3, &queries) || !ddl_size_add(numbers, queries, &numbers))
        return SIZE_MAX;
    return numbers;
}

/* The next numbers of scratch; whole blocks are whole cache lines. */
static float *take(float **scratch, size_t floats)
{
    float *x = *scratch;
    *scratch += floats;
    return x;
}

static uint16_t *take_halves(float **scratch, size_t halves)
{
    return (uint16_t *)(void *)take(scratch, halves / 2);
}

/* A head of sequence b, rows of h numbers in `wide`; the block of keys: n from `key` on. */
struct head {
    const struct ddl_kernels *k;
    size_t b, head, h, wide;
    size_t key, n;
};

/* Rows from `row` of sequence b on, whose first is number `first` of x16. */
static struct pairs_source rows_of(const struct head *g, const uint16_t *x16, size_t first, size_t row,
                                   size_t stride)
{
    return (struct pairs_source){ .width = g->h,
                                  .stride = stride,
                                  .x16 = x16 + first + row * stride + g->head * g->h };
}

/* n rows to y, and of float32 numbers what rounding leaves to rest. */
static void round_rows(const struct head *g, struct pairs_source from, size_t n, uint16_t *y, uint16_t *rest)
{
    g->k->round_rows(&(struct round_rows_args){ .from = from, .y = y, .rest = rest, .ldy = g->wide }, 0, n,
                     NULL);
}

static void pack(const struct head *g, bool transpose, struct pairs_source from, size_t n, uint16_t *panels,
                 size_t depth)
{
    const struct pack_pairs_args args = {
        .from = from, .transpose = transpose, .panels = panels, .depth = depth
    };
    g->k->pack_pairs(&args, 0, n, NULL);
}

/* ---- forward ---- */

struct forward {
    struct head g;
    const struct attention_args *a;
    bool products_only;
    double *total;                    /* (T) sum of exp(score - top) so far                       */
    float *top, *y;                   /* (T) largest score so far; (T, wide) sums                 */
    float *S;                         /* (PAIRS_BLOCK, keys) scores, or as many rows of y         */
    uint16_t *keys, *values, *q;      /* in pairs: (wide, keys), (keys, wide); (PAIRS_BLOCK, wide) */
    uint16_t *weights, *weights_rest; /* (PAIRS_BLOCK, keys)                                      */
};

static struct pairs_source values_of(const struct forward *f)
{
    return rows_of(&f->g, f->a->v16, f->g.b * f->a->v_batch, f->g.key, f->a->v_stride);
}

/* y (PAIRS_BLOCK rows) += weights values, over `span` keys. */
static void mix(const struct forward *f, float *y, size_t lda, size_t span)
{
    struct matmul_pairs_args args = { .N = f->g.wide,
                                      .K = span,
                                      .A = f->weights,
                                      .lda = lda,
                                      .B = f->values,
                                      .depth = blocks(f->g.n),
                                      .C = y,
                                      .ldc = f->g.wide,
                                      .add = f->g.key > 0 };
    f->g.k->matmul_pairs(&args, 0, PAIRS_BLOCK, NULL);
    args.A = f->weights_rest, args.add = true;
    f->g.k->matmul_pairs(&args, 0, PAIRS_BLOCK, NULL);
}

/* y of `rows` queries from t on. The weights of keys that a query does not attend to are 0, so all rows are
 * one product, unless a value of such a key is not finite: then each query is multiplied with its own keys
 * only. */
static void mix_rows(const struct forward *f, size_t t, size_t rows, size_t span)
{
    const struct head *g = &f->g;
    size_t by_all = attention_keys_of(f->a, t, g->key, g->n);
    size_t multiplied = attention_least(span, g->n);
    float *y = f->y + t * g->wide;
    if (attention_values_are_finite(f->a, g->b, g->head, g->key + by_all, multiplied - by_all)) {
        mix(f, y, span, span);
        return;
    }
    for (size_t i = 0; i < rows; i++) {
        size_t own = attention_keys_of(f->a, t + i, g->key, g->n);
        pack(g, false, values_of(f), own, f->values, blocks(g->n));
        memcpy(f->S, y, PAIRS_BLOCK * g->wide * sizeof *y);
        mix(f, f->S, span, blocks(own));
        memcpy(y + i * g->wide, f->S + i * g->wide, g->wide * sizeof *y);
    }
    pack(g, false, values_of(f), g->n, f->values, blocks(g->n));
}

/* Queries from t on and the block of keys. */
static void rows_fwd(const struct forward *f, size_t t)
{
    const struct head *g = &f->g;
    const struct attention_args *a = f->a;
    size_t rows = attention_least(a->T - t, PAIRS_BLOCK), seen = a->past + t + rows, row = g->b * a->T + t;
    if (seen <= g->key)
        return;
    const size_t span = blocks(attention_least(seen - g->key, g->n));
    const struct softmax_args softmax = { .first = a->past + t,
                                          .key = g->key,
                                          .span = span,
                                          .scale = a->scale,
                                          .S = f->S,
                                          .top = f->top + t,
                                          .total = f->total + t,
                                          .h = g->h,
                                          .y = f->y + t * g->wide,
                                          .y_stride = g->wide,
                                          .y16 = a->y16 + (row * a->H + g->head) * g->h,
                                          .y16_stride = a->H * g->h,
                                          .lse = a->lse ? a->lse + row * a->H + g->head : NULL,
                                          .lse_stride = a->H };
    round_rows(g, rows_of(g, a->q16, 0, row, a->q_stride), rows, f->q, NULL);
    g->k->matmul_pairs(&(struct matmul_pairs_args){ .N = span,
                                                    .K = g->wide,
                                                    .A = f->q,
                                                    .lda = g->wide,
                                                    .B = f->keys,
                                                    .depth = g->wide,
                                                    .C = f->S,
                                                    .ldc = span },
                       0, PAIRS_BLOCK, NULL);
    g->k->softmax_pairs_fwd(
        &(struct softmax_pairs_args){
            .softmax = softmax, .products_only = f->products_only, .y = f->weights, .rest = f->weights_rest },
        0, rows, NULL);
    mix_rows(f, t, rows, span);
    if (!f->products_only && seen <= g->key + g->n)
        g->k->softmax_finish(&softmax, 0, rows, NULL);
}

void attention_pairs_fwd(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct attention_task *task = args;
    const struct attention_args *a = task->args;
    size_t span = a->past + a->T, block = attention_kv_block(span), head = lo / task->parts, T = blocks(a->T);
    struct forward f = {
        .g = { .k = task->cpu->k, .b = head / a->H, .head = head % a->H, .h = a->h, .wide = blocks(a->h) },
        .a = a,
        .products_only = task->products_only
    };
    struct head *g = &f.g;
    (void)hi;
    f.total = (double *)(void *)take(&scratch, 2 * T);
    f.top = take(&scratch, T);
    f.y = take(&scratch, T * g->wide);
    f.S = take(&scratch, PAIRS_BLOCK * (block > g->wide ? block : g->wide));
    f.keys = take_halves(&scratch, block * g->wide);
    f.values = take_halves(&scratch, block * g->wide);
    f.q = take_halves(&scratch, PAIRS_BLOCK * g->wide);
    f.weights = take_halves(&scratch, PAIRS_BLOCK * block);
    f.weights_rest = take_halves(&scratch, PAIRS_BLOCK * block);
    for (; g->key < span; g->key += KV_BLOCK) {
        g->n = attention_least(span - g->key, KV_BLOCK);
        pack(g, true, rows_of(g, a->k16, g->b * a->k_batch, g->key, a->k_stride), g->n, f.keys, g->wide);
        pack(g, false, values_of(&f), g->n, f.values, blocks(g->n));
        for (size_t t = lo % task->parts * PAIRS_BLOCK; t < a->T; t += task->parts * PAIRS_BLOCK)
            rows_fwd(&f, t);
    }
}

/* ---- backward ---- */

struct backward {
    struct head g;
    const struct attention_grad_args *a;
    bool products_only;
    uint16_t *keys, *values, *by_key; /* in pairs: (wide, keys) both; the keys once more: (keys, wide) */
    size_t t, T, span;                /* the block of queries: T from t on see `span` keys, in whole blocks */
    float *S, *dP;                    /* (PAIRS_BLOCK, span): scores -> P, dP -> dS                    */
    uint16_t *dS_rows;                /* (PAIRS_BLOCK, span) dS rounded                                */
    uint16_t *q, *dy, *dy_rest;       /* (QUERY_BLOCK, wide)                                           */
    uint16_t *q_columns, *dy_columns, *dy_rest_columns; /* (wide, QUERY_BLOCK) */
    uint16_t *P, *P_rest, *dS; /* in pairs: (QUERY_BLOCK, span)                                 */
    float *y_rows, *v;         /* float32: (PAIRS_BLOCK, h) both; (h) the values of key 0       */
    float *dq, *dk, *dv;       /* (T, wide) sums; transposed: (wide, keys) both                 */
};

/* The first number of the head's row t. */
static size_t offset_of(const struct backward *f, size_t t, size_t stride)
{
    return (f->g.b * f->a->T + t) * stride + f->g.head * f->g.h;
}

static struct pairs_source source_of(const struct backward *f, const uint16_t *x16, size_t t, size_t stride)
{
    return rows_of(&f->g, x16, f->g.b * f->a->T * stride, t, stride);
}

/* n rows to float32. */
static void widen(const struct head *g, const uint16_t *x16, size_t stride, size_t n, float *y)
{
    const struct pack_args rows = { .width = g->h, .stride = stride, .x16 = x16 };
    attention_rows_of(g->k, rows, n, y);
}

/* P and dP -> dS, of n of the block's queries from r on. */
static void softmax_rows(const struct backward *f, size_t r, size_t n)
{
    const struct attention_grad_args *a = f->a;
    const struct head *g = &f->g;
    size_t t = f->t + r, width = a->H * g->h;
    if (t == 0 && !f->products_only)
        widen(g, a->v16 + offset_of(f, 0, a->v_stride), a->v_stride, 1, f->v);
    if (!f->products_only)
        widen(g, a->y16 + offset_of(f, t, width), width, n, f->y_rows);
    const struct softmax_grad_args softmax = { .first = t,
                                               .key = g->key,
                                               .span = f->span,
                                               .h = g->h,
                                               .scale = a->scale,
                                               .score_scale = a->scale,
                                               .S = f->S,
                                               .dP = f->dP,
                                               .v = f->v,
                                               .y = f->y_rows,
                                               .y_stride = g->h,
                                               .dy = a->dy + offset_of(f, t, width),
                                               .dy_stride = width,
                                               .lse = a->lse + (g->b * a->T + t) * a->H + g->head,
                                               .lse_stride = a->H };
    g->k->softmax_pairs_bwd(&(struct softmax_pairs_grad_args){ .softmax = softmax,
                                                               .products_only = f->products_only,
                                                               .P = f->P,
                                                               .P_rest = f->P_rest,
                                                               .dS = f->dS,
                                                               .depth = QUERY_BLOCK,
                                                               .row = r,
                                                               .dS_rows = f->dS_rows },
                            0, n, NULL);
}

/* P, dS and dq of the block's queries from r on. */
static void queries_bwd(const struct backward *f, size_t r)
{
    const struct attention_grad_args *a = f->a;
    const struct head *g = &f->g;
    size_t t = f->t + r, n = attention_least(f->T - r, PAIRS_BLOCK), width = a->H * g->h;
    size_t own = f->products_only ? f->span : blocks(attention_least(t + n - g->key, g->n));
    struct pairs_source dy = { .width = g->h, .stride = width, .x = a->dy + offset_of(f, t, width) };
    round_rows(g, source_of(f, a->q16, t, a->q_stride), n, f->q + r * g->wide, NULL);
    round_rows(g, dy, n, f->dy + r * g->wide, f->dy_rest + r * g->wide);
    struct matmul_pairs_args by_key = {
        .N = own, .K = g->wide, .A = f->q + r * g->wide, .lda = g->wide, .depth = g->wide
    };
    by_key.B = f->keys, by_key.C = f->S, by_key.ldc = f->span;
    g->k->matmul_pairs(&by_key, 0, PAIRS_BLOCK, NULL);
    by_key.A = f->dy + r * g->wide, by_key.B = f->values, by_key.C = f->dP;
    g->k->matmul_pairs(&by_key, 0, PAIRS_BLOCK, NULL);
    by_key.A = f->dy_rest + r * g->wide, by_key.add = true;
    g->k->matmul_pairs(&by_key, 0, PAIRS_BLOCK, NULL);
    softmax_rows(f, r, n);
    g->k->matmul_pairs(&(struct matmul_pairs_args){ .N = g->wide,
                                                    .K = own,
                                                    .A = f->dS_rows,
                                                    .lda = f->span,
                                                    .B = f->by_key,
                                                    .depth = blocks(g->n),
                                                    .C = f->dq + t * g->wide,
                                                    .ldc = g->wide,
                                                    .add = g->key > 0 },
                       0, PAIRS_BLOCK, NULL);
}

/* What the block of queries adds to dk and dv of the keys. The last block, which comes first, writes. */
static void keys_bwd(const struct backward *f)
{
    const struct head *g = &f->g;
    size_t queries = blocks(f->T);
    struct transpose_rows_args turn = { .width = g->wide, .ldx = g->wide, .ldy = QUERY_BLOCK };
    struct matmul_pairs_args by_query = { .N = f->span,
                                          .K = queries,
                                          .lda = QUERY_BLOCK,
                                          .depth = QUERY_BLOCK,
                                          .ldc = blocks(g->n),
                                          .add = f->t + f->T < f->a->T };
    turn.x = f->q, turn.y = f->q_columns;
    g->k->transpose_rows(&turn, 0, queries, NULL);
    by_query.A = f->q_columns, by_query.B = f->dS, by_query.C = f->dk;
    g->k->matmul_pairs(&by_query, 0, g->wide, NULL);
    turn.x = f->dy, turn.y = f->dy_columns;
    g->k->transpose_rows(&turn, 0, queries, NULL);
    turn.x = f->dy_rest, turn.y = f->dy_rest_columns;
    g->k->transpose_rows(&turn, 0, queries, NULL);
    by_query.A = f->dy_columns, by_query.B = f->P, by_query.C = f->dv;
    g->k->matmul_pairs(&by_query, 0, g->wide, NULL);
    by_query.B = f->P_rest, by_query.add = true;
    g->k->matmul_pairs(&by_query, 0, g->wide, NULL);
    by_query.A = f->dy_rest_columns, by_query.B = f->P;
    g->k->matmul_pairs(&by_query, 0, g->wide, NULL);
}

/* The block of queries from t on. */
static void block_bwd(struct backward *f, size_t t)
{
    f->t = t;
    f->T = attention_least(f->a->T - t, QUERY_BLOCK);
    f->span = blocks(attention_least(t + f->T - f->g.key, f->g.n));
    for (size_t r = 0; r < f->T; r += PAIRS_BLOCK)
        queries_bwd(f, r);
    keys_bwd(f);
}

/* The block of keys: from the last block of queries, which sees all of it, to the first that sees any. */
static void kv_block_bwd(struct backward *f)
{
    const struct attention_grad_args *a = f->a;
    struct head *g = &f->g;
    g->n = attention_least(a->T - g->key, KV_BLOCK);
    pack(g, true, source_of(f, a->k16, g->key, a->k_stride), g->n, f->keys, g->wide);
    pack(g, true, source_of(f, a->v16, g->key, a->v_stride), g->n, f->values, g->wide);
    pack(g, false, source_of(f, a->k16, g->key, a->k_stride), g->n, f->by_key, blocks(g->n));
    for (size_t t = round_up(a->T, QUERY_BLOCK); t > g->key; t -= QUERY_BLOCK)
        block_bwd(f, t - QUERY_BLOCK);
    struct round_columns_args round = { .width = g->h, .ldx = blocks(g->n) };
    round.x = f->dk, round.y = a->dk16 + offset_of(f, g->key, a->dk_stride), round.ldy = a->dk_stride;
    g->k->round_columns(&round, 0, g->n, NULL);
    round.x = f->dv, round.y = a->dv16 + offset_of(f, g->key, a->dv_stride), round.ldy = a->dv_stride;
    g->k->round_columns(&round, 0, g->n, NULL);
}

void attention_pairs_bwd(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct attention_task *task = args;
    const struct attention_grad_args *a = task->args;
    size_t block = attention_kv_block(a->T), wide = blocks(a->h);
    struct backward f = {
        .g = { .k = task->cpu->k, .b = lo / a->H, .head = lo % a->H, .h = a->h, .wide = wide },
        .a = a,
        .products_only = task->products_only
    };
    (void)hi;
    f.keys = take_halves(&scratch, block * wide);
    f.values = take_halves(&scratch, block * wide);
    f.by_key = take_halves(&scratch, block * wide);
    f.S = take(&scratch, PAIRS_BLOCK * block);
    f.dP = take(&scratch, PAIRS_BLOCK * block);
    f.dS_rows = take_halves(&scratch, PAIRS_BLOCK * block);
    f.q = take_halves(&scratch, QUERY_BLOCK * wide);
    f.dy = take_halves(&scratch, QUERY_BLOCK * wide);
    f.dy_rest = take_halves(&scratch, QUERY_BLOCK * wide);
    f.q_columns = take_halves(&scratch, QUERY_BLOCK * wide);
    f.dy_columns = take_halves(&scratch, QUERY_BLOCK * wide);
    f.dy_rest_columns = take_halves(&scratch, QUERY_BLOCK * wide);
    f.P = take_halves(&scratch, QUERY_BLOCK * block);
    f.P_rest = take_halves(&scratch, QUERY_BLOCK * block);
    f.dS = take_halves(&scratch, QUERY_BLOCK * block);
    f.dq = take(&scratch, blocks(a->T) * wide);
    f.dk = take(&scratch, block * wide);
    f.dv = take(&scratch, block * wide);
    f.y_rows = take(&scratch, PAIRS_BLOCK * wide);
    f.v = take(&scratch, wide);
    for (; f.g.key < a->T; f.g.key += KV_BLOCK)
        kv_block_bwd(&f);
    const struct copy_bf16_args round = { .rows = a->T,
                                          .width = a->h,
                                          .src = f.dq,
                                          .src_stride = wide,
                                          .dst = a->dq16 + offset_of(&f, 0, a->dq_stride),
                                          .dst_stride = a->dq_stride };
    f.g.k->copy_bf16(&round, 0, a->T, NULL);
}
