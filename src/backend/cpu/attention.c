/* Causal attention, one head at a time. A piece of the context (PIECE keys and their values) is packed into
 * panels (kernels/panel.c) that stay in a core's cache while all queries use them. A longer context takes
 * only a few numbers per token: forward keeps the largest score and the sum of each query from block to
 * block; backward uses lse. Forward is parallel over (sequence, head, share of the queries), backward over
 * (sequence, head), because the queries of a head add to the same dk and dv, in a fixed order. With more than
 * FEW_QUERIES queries, the arithmetic of a query depends only on its position in the context. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/parallel.h"

#include "base/bf16.h"
#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>

enum {
    STRIP = 12,        /* queries, or keys, whose products are made at a time: whole tiles of every set */
    BLOCK = 8 * STRIP, /* queries that add to dk and dv at a time, and that a task has at least         */
    PIECE = 576,       /* keys at a time: 0.3 MB a form where a head is 128 wide                        */
    FEW_QUERIES = 8,   /* whose keys and values are read as they are: packing does not pay     */
    SHARES = 2,        /* tasks for each thread, where a head is divided: each packs all keys again     */
};
static_assert(PIECE % BLOCK == 0 && PIECE % MOST_PANEL == 0, "whole blocks of queries, whole panels");

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Keys of the pieces of a context of T. */
static size_t piece_of(size_t T)
{
    return T < PIECE ? round_up(T, MOST_PANEL) : PIECE;
}

/* Numbers of scratch: for backward three packed forms of a piece, two of a block of queries and two blocks of
 * scores; that is enough for forward's two forms and a strip of scores. Then the running maximum and sum of
 * each query, or the scores of few queries. */
size_t cpu_attention_scratch(size_t T, size_t h)
{
    size_t piece = piece_of(T), forms, so_far, numbers;
    if (h > SIZE_MAX - MOST_PANEL)
        return SIZE_MAX;
    if (!ddl_size_mul(round_up(h, MOST_PANEL), 3 * piece + 2 * BLOCK, &forms) ||
        !ddl_size_mul(T, FEW_QUERIES, &so_far) || !ddl_size_add(forms, so_far, &numbers) ||
        !ddl_size_add(numbers, 2 * BLOCK * piece, &numbers))
        return SIZE_MAX;
    return numbers;
}

struct task {
    const struct cpu *cpu;
    const void *args;
    size_t shares;      /* of a head's queries, in forward */
    bool products_only; /* no softmax: see ddl_ops.attention_products_fwd */
};

/* Queries of one head, and their scratch. */
struct queries {
    const struct ddl_kernels *k;
    const struct attention_args *a;
    bool products_only;
    size_t b, head;
    double *total;        /* (T) sum of exp(score - top) so far       */
    float *top;           /* (T) largest score so far                 */
    float *S;             /* scores of a strip, or of few queries     */
    float *keys, *values; /* panels of the piece: (h, keys), (keys, h) */
};

/* Arguments of softmax for the queries from t on and `span` keys from `key` on. */
static struct softmax_args softmax_of(const struct queries *q, size_t t, size_t key, size_t span)
{
    const struct attention_args *a = q->a;
    size_t n = q->b * a->T + t, width = a->H * a->h;
    return (struct softmax_args){ .first = a->past + t,
                                  .key = key,
                                  .span = span,
                                  .S = q->S,
                                  .top = q->top + t,
                                  .total = q->total + t,
                                  .h = a->h,
                                  .y = a->y + n * width + q->head * a->h,
                                  .y_stride = width,
                                  .lse = a->lse ? a->lse + n * a->H + q->head : NULL,
                                  .lse_stride = a->H };
}

static const float *at_query(const struct queries *q, size_t t)
{
    return q->a->q + (q->b * q->a->T + t) * q->a->q_stride + q->head * q->a->h;
}

/* What is packed: x, or x16, from number `at` on, rows of h numbers `stride` apart. */
static struct pack_args form_of(const float *x, const uint16_t *x16, size_t at, size_t stride, size_t h)
{
    struct pack_args form = { .width = h, .stride = stride };
    if (x)
        form.x = x + at;
    else
        form.x16 = x16 + at;
    return form;
}

/* n keys from `key` on, and their values. */
static void pack_piece(const struct queries *q, size_t key, size_t n)
{
    const struct attention_args *a = q->a;
    size_t offset = q->head * a->h;
    struct pack_args keys =
        form_of(a->k, a->k16, q->b * a->k_batch + key * a->k_stride + offset, a->k_stride, a->h);
    struct pack_args values =
        form_of(a->v, a->v16, q->b * a->v_batch + key * a->v_stride + offset, a->v_stride, a->h);
    keys.turned = true;
    keys.panels = q->keys, keys.depth = a->h;
    values.panels = q->values, values.depth = n;
    q->k->pack(&keys, 0, n, NULL);
    q->k->pack(&values, 0, n, NULL);
}

/* Whether the values of n keys from `key` on are finite. */
static bool values_are_finite(const struct queries *q, size_t key, size_t n)
{
    const struct attention_args *a = q->a;
    size_t at = q->b * a->v_batch + key * a->v_stride + q->head * a->h;
    for (size_t i = 0; i < n; i++, at += a->v_stride) {
        for (size_t j = 0; j < a->h; j++) {
            if (!isfinite(a->v16 ? ddl_bf16_widen(a->v16[at + j]) : a->v[at + j]))
                return false;
        }
    }
    return true;
}

/* Keys of a piece from `key` on that query t attends to, of `most`. */
static size_t keys_of(const struct queries *q, size_t t, size_t key, size_t most)
{
    size_t end = q->a->past + t + 1;
    return end > key ? least(end - key, most) : 0;
}

/* y = S values for `rows` queries from t on and the piece from `key` on. The weights of keys that a query
 * does not attend to are 0, so all rows are one product, unless a value of such a key is not finite: then
 * each query is multiplied with its own keys only. */
static void mix_strip(const struct queries *q, const struct strip_args *mix, size_t t, size_t rows,
                      size_t key)
{
    size_t by_all = keys_of(q, t, key, mix->to);
    if (values_are_finite(q, key + by_all, mix->to - by_all)) {
        q->k->strip(mix, 0, rows, NULL);
        return;
    }
    for (size_t i = 0; i < rows; i++) {
        struct strip_args row = *mix;
        row.to = keys_of(q, t + i, key, mix->to);
        row.A += i * mix->lda;
        row.C += i * mix->ldc;
        q->k->strip(&row, 0, 1, NULL);
    }
}

/* The strip of queries from t on, and the packed n keys from `key` on. */
static void strip_fwd(const struct queries *q, size_t t, size_t key, size_t n)
{
    const struct attention_args *a = q->a;
    size_t rows = least(a->T - t, STRIP), seen = a->past + t + rows;
    if (seen <= key)
        return;
    struct softmax_args s = softmax_of(q, t, key, least(seen - key, n));
    const struct strip_args scores = { .N = s.span,
                                       .to = a->h,
                                       .alpha = a->scale,
                                       .A = at_query(q, t),
                                       .lda = a->q_stride,
                                       .B = q->keys,
                                       .depth = a->h,
                                       .C = s.S,
                                       .ldc = s.span };
    const struct strip_args mix = { .N = a->h,
                                    .to = s.span,
                                    .alpha = 1,
                                    .A = s.S,
                                    .lda = s.span,
                                    .B = q->values,
                                    .depth = n,
                                    .C = s.y,
                                    .ldc = s.y_stride,
                                    .add = key > 0 };
    q->k->strip(&scores, 0, rows, NULL);
    if (!q->products_only)
        q->k->softmax_fwd(&s, 0, rows, NULL);
    mix_strip(q, &mix, t, rows, key);
    if (!q->products_only && seen <= key + n)
        q->k->softmax_finish(&s, 0, rows, NULL);
}

/* A share of a head's queries: every so many strips, so that shares take alike. */
static void share_fwd(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct task *task = args;
    const struct attention_args *a = task->args;
    size_t span = a->past + a->T, piece = piece_of(span), head = lo / task->shares;
    float *values = scratch + piece * a->h, *S = values + piece * round_up(a->h, MOST_PANEL);
    double *total = (double *)(void *)(S + STRIP * piece);
    const struct queries q = { .k = task->cpu->k,
                               .a = a,
                               .products_only = task->products_only,
                               .b = head / a->H,
                               .head = head % a->H,
                               .total = total,
                               .top = (float *)(void *)(total + a->T),
                               .S = S,
                               .keys = scratch,
                               .values = values };
    (void)hi;
    for (size_t key = 0; key < span; key += PIECE) {
        size_t n = least(span - key, PIECE);
        pack_piece(&q, key, n);
        for (size_t t = lo % task->shares * STRIP; t < a->T; t += task->shares * STRIP)
            strip_fwd(&q, t, key, n);
    }
}

/* Sequence b of a ragged batch as a dense batch of one. */
static struct attention_args sequence_of(const struct attention_args *a, size_t b)
{
    const struct ddl_ragged *r = &a->ragged;
    struct attention_args one = *a;
    size_t first = (size_t)r->first[b], slot = (size_t)r->slot[b];
    one.ragged.B = 0;
    one.B = 1;
    one.T = (size_t)r->first[b + 1] - first;
    one.past = (size_t)r->past[b];
    one.q += first * a->q_stride;
    one.y += first * a->H * a->h;
    one.lse = a->lse ? a->lse + first * a->H : NULL;
    if (a->k16) {
        one.k16 += slot * a->k_batch;
        one.v16 += slot * a->v_batch;
    } else {
        one.k += slot * a->k_batch;
        one.v += slot * a->v_batch;
    }
    return one;
}

/* y = S values for M of few queries from t on and the first n keys; see mix_strip. */
static void mix_few(const struct queries *q, const struct softmax_args *s, size_t t, size_t M, size_t n)
{
    const struct attention_args *a = q->a;
    size_t values = q->b * a->v_batch + q->head * a->h;
    const float *S = s->S + t * s->span;
    float *y = s->y + t * s->y_stride;
    if (a->v16)
        q->k->mixed_few_nn(
            &(struct mixed_args){ M, a->h, n, 1, S, s->span, a->v16 + values, a->v_stride, y, s->y_stride },
            0, M, NULL);
    else
        q->k->matmul_few_nn(&(struct matmul_args){ .M = M,
                                                   .N = a->h,
                                                   .K = n,
                                                   .alpha = 1,
                                                   .A = S,
                                                   .lda = s->span,
                                                   .B = a->v + values,
                                                   .ldb = a->v_stride,
                                                   .C = y,
                                                   .ldc = s->y_stride },
                            0, a->h, NULL);
}

/* A head's queries where there are few: keys and values are read once, as they are. */
static void few_queries(const struct task *task, const struct attention_args *a, size_t b, size_t head,
                        float *scratch)
{
    const struct ddl_kernels *k = task->cpu->k;
    const struct queries q = { .k = k,
                               .a = a,
                               .products_only = task->products_only,
                               .b = b,
                               .head = head,
                               .total = (double *)(void *)scratch,
                               .top = scratch + 2 * FEW_QUERIES,
                               .S = scratch + 3 * FEW_QUERIES };
    size_t M = a->T, span = a->past + a->T;
    size_t keys = q.b * a->k_batch + q.head * a->h;
    struct softmax_args s = softmax_of(&q, 0, 0, span);
    const float *at = at_query(&q, 0);
    if (a->k16)
        k->mixed_skinny(&(struct mixed_args){ M, span, a->h, a->scale, at, a->q_stride, a->k16 + keys,
                                              a->k_stride, q.S, span },
                        0, span, NULL);
    else
        k->matmul_skinny(&(struct matmul_args){ .trans_b = true,
                                                .M = M,
                                                .N = span,
                                                .K = a->h,
                                                .alpha = a->scale,
                                                .A = at,
                                                .lda = a->q_stride,
                                                .B = a->k + keys,
                                                .ldb = a->k_stride,
                                                .C = q.S,
                                                .ldc = span },
                         0, span, NULL);
    if (!q.products_only)
        k->softmax_fwd(&s, 0, M, NULL);
    if (values_are_finite(&q, a->past + 1, span - least(span, a->past + 1))) {
        mix_few(&q, &s, 0, M, span);
    } else {
        for (size_t i = 0; i < M; i++)
            mix_few(&q, &s, i, 1, a->past + i + 1);
    }
    if (!q.products_only)
        k->softmax_finish(&s, 0, M, NULL);
}

/* A head of a sequence, lo = sequence * H + head; sequences with more queries are left to dense_fwd. */
static void few_fwd(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct task *task = args;
    const struct attention_args *a = task->args;
    size_t b = lo / a->H, head = lo % a->H;
    (void)hi;
    if (!a->ragged.B) {
        few_queries(task, a, b, head, scratch);
        return;
    }
    const struct attention_args one = sequence_of(a, b);
    if (one.T <= FEW_QUERIES)
        few_queries(task, &one, 0, head, scratch);
}

static void dense_fwd(const struct cpu *cpu, const struct attention_args *a, bool products_only)
{
    size_t heads = a->T ? a->B * a->H : 0, span = a->past + a->T;
    struct task task = { .cpu = cpu, .args = a, .shares = 1, .products_only = products_only };
    parallel_fits(cpu, cpu_attention_scratch(span, a->h));
    if (a->T <= FEW_QUERIES) {
        parallel_tasks(cpu, heads, (1 + a->T / 4) * span * a->h, few_fwd, &task);
        return;
    }
    if (cpu->threads > 1 && heads > 0 && heads < SHARES * cpu->threads)
        task.shares = least(round_up(SHARES * cpu->threads, heads) / heads, round_up(a->T, BLOCK) / BLOCK);
    parallel_tasks(cpu, heads * task.shares, (1 + a->T / task.shares / 4) * span * a->h, share_fwd, &task);
}

/* The largest past + rows of a sequence. */
static size_t longest_span(const struct ddl_ragged *r)
{
    size_t longest = 0;
    for (size_t b = 0; b < r->B; b++) {
        size_t span = (size_t)(r->past[b] + r->first[b + 1] - r->first[b]);
        longest = span > longest ? span : longest;
    }
    return longest;
}

/* Sequences with few queries are computed together, so that the threads share them; every other sequence is
 * computed by itself. */
static void ragged_fwd(const struct cpu *cpu, const struct attention_args *a, bool products_only)
{
    const struct ddl_ragged *r = &a->ragged;
    size_t span = longest_span(r);
    struct task task = { .cpu = cpu, .args = a, .shares = 1, .products_only = products_only };
    parallel_fits(cpu, cpu_attention_scratch(span, a->h));
    parallel_tasks(cpu, r->B * a->H, (1 + FEW_QUERIES / 4) * span * a->h, few_fwd, &task);
    for (size_t b = 0; r->max_rows > FEW_QUERIES && b < r->B; b++) {
        const struct attention_args one = sequence_of(a, b);
        if (one.T > FEW_QUERIES)
            dense_fwd(cpu, &one, products_only);
    }
}

static void attention_fwd(const struct cpu *cpu, const struct attention_args *a, bool products_only)
{
    if (a->ragged.B)
        ragged_fwd(cpu, a, products_only);
    else
        dense_fwd(cpu, a, products_only);
}

void cpu_attention_fwd(void *ctx, const struct attention_args *a)
{
    attention_fwd(ctx, a, false);
}

void cpu_attention_products_fwd(void *ctx, const struct attention_args *a)
{
    attention_fwd(ctx, a, true);
}

/* ---- backward ---- */

/* A head: scratch for a piece of its keys and a block of its queries. */
struct head {
    const struct ddl_kernels *k;
    const struct attention_grad_args *a;
    bool products_only;
    size_t b, head;
    size_t key, n;          /* the piece: n keys from `key` on                           */
    float *keys, *values;   /* its panels: (h, n) both                                   */
    float *rows;            /* the keys once more: (n, h)                                */
    size_t t, T, span;      /* the block: T queries from t on see `span` of the keys     */
    float *q, *dy, *S, *dP; /* its panels: (BLOCK, h); (T, span): scores -> P, dP -> dS */
};

/* Offset of row t of the head in a matrix whose rows are `stride` apart. */
static size_t place(const struct head *g, size_t t, size_t stride)
{
    return (g->b * g->a->T + t) * stride + g->head * g->a->h;
}

/* n rows of x from row t on, into panels. */
static void pack(const struct head *g, bool turned, const float *x, size_t t, size_t stride, size_t n,
                 float *panels, size_t depth)
{
    struct pack_args form = form_of(x, NULL, place(g, t, stride), stride, g->a->h);
    form.turned = turned, form.panels = panels, form.depth = depth;
    g->k->pack(&form, 0, n, NULL);
}

/* Arguments of softmax for the block. */
static struct softmax_grad_args block_softmax(const struct head *g)
{
    const struct attention_grad_args *a = g->a;
    size_t width = a->H * a->h, at = place(g, g->t, width);
    return (struct softmax_grad_args){ .first = g->t,
                                       .key = g->key,
                                       .span = g->span,
                                       .h = a->h,
                                       .scale = a->scale,
                                       .S = g->S,
                                       .dP = g->dP,
                                       .v = a->v + place(g, 0, a->v_stride),
                                       .y = a->y + at,
                                       .dy = a->dy + at,
                                       .y_stride = width,
                                       .lse = a->lse + (g->b * a->T + g->t) * a->H + g->head,
                                       .lse_stride = a->H };
}

/* P, dS and dq of the block's queries from r on. */
static void queries_bwd(const struct head *g, size_t r)
{
    const struct attention_grad_args *a = g->a;
    const struct softmax_grad_args softmax = block_softmax(g);
    size_t rows = least(g->T - r, STRIP), t = g->t + r, width = a->H * a->h;
    struct strip_args by_key = {
        .N = least(t + rows - g->key, g->span), .to = a->h, .depth = a->h, .ldc = g->span
    };
    struct strip_args by_query = { .N = a->h, .to = by_key.N, .alpha = 1, .lda = g->span, .depth = g->n };
    by_key.alpha = a->scale, by_key.A = a->q + place(g, t, a->q_stride), by_key.lda = a->q_stride;
    by_key.B = g->keys, by_key.C = g->S + r * g->span;
    g->k->strip(&by_key, 0, rows, NULL);
    by_key.alpha = 1, by_key.A = a->dy + place(g, t, width), by_key.lda = width;
    by_key.B = g->values, by_key.C = g->dP + r * g->span;
    g->k->strip(&by_key, 0, rows, NULL);
    if (!g->products_only)
        g->k->softmax_bwd(&softmax, r, r + rows, NULL);
    by_query.A = g->dP + r * g->span, by_query.B = g->rows, by_query.add = g->key > 0;
    by_query.C = a->dq + place(g, t, a->dq_stride), by_query.ldc = a->dq_stride;
    g->k->strip(&by_query, 0, rows, NULL);
}

/* What the block gives to dk and dv of its keys from i on: queries before a key do not see it. The last
 * block, which comes first, writes. */
static void keys_bwd(const struct head *g, size_t i)
{
    const struct attention_grad_args *a = g->a;
    size_t rows = least(g->span - i, STRIP), key = g->key + i;
    struct strip_args by_key = { .N = a->h,
                                 .from = key > g->t ? key - g->t : 0,
                                 .to = g->T,
                                 .alpha = 1,
                                 .lda = g->span,
                                 .beside = true,
                                 .depth = BLOCK,
                                 .add = g->t + g->T < a->T };
    by_key.A = g->dP + i, by_key.B = g->q;
    by_key.C = a->dk + place(g, key, a->dk_stride), by_key.ldc = a->dk_stride;
    g->k->strip(&by_key, 0, rows, NULL);
    by_key.A = g->S + i, by_key.B = g->dy;
    by_key.C = a->dv + place(g, key, a->dv_stride), by_key.ldc = a->dv_stride;
    g->k->strip(&by_key, 0, rows, NULL);
}

/* The block of queries from t on, and the packed piece. */
static void block_bwd(struct head *g, size_t t)
{
    const struct attention_grad_args *a = g->a;
    g->t = t;
    g->T = least(a->T - t, BLOCK);
    g->span = least(t + g->T - g->key, g->n);
    for (size_t r = 0; r < g->T; r += STRIP)
        queries_bwd(g, r);
    pack(g, false, a->q, t, a->q_stride, g->T, g->q, BLOCK);
    pack(g, false, a->dy, t, a->H * a->h, g->T, g->dy, BLOCK);
    for (size_t i = 0; i < g->span; i += STRIP)
        keys_bwd(g, i);
}

/* Of each piece from the last block, which sees all its keys, to the first that sees any. */
static void head_bwd(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct task *task = args;
    const struct attention_grad_args *a = task->args;
    size_t piece = piece_of(a->T), wide = round_up(a->h, MOST_PANEL);
    struct head g = { .k = task->cpu->k, .a = a, .b = lo / a->H, .head = lo % a->H, .keys = scratch };
    g.products_only = task->products_only;
    g.values = g.keys + piece * a->h;
    g.rows = g.values + piece * a->h;
    g.q = g.rows + piece * wide;
    g.dy = g.q + BLOCK * wide;
    g.S = g.dy + BLOCK * wide;
    g.dP = g.S + BLOCK * piece;
    (void)hi;
    for (; g.key < a->T; g.key += PIECE) {
        g.n = least(a->T - g.key, PIECE);
        pack(&g, true, a->k, g.key, a->k_stride, g.n, g.keys, a->h);
        pack(&g, true, a->v, g.key, a->v_stride, g.n, g.values, a->h);
        pack(&g, false, a->k, g.key, a->k_stride, g.n, g.rows, g.n);
        for (size_t t = round_up(a->T, BLOCK); t > g.key; t -= BLOCK)
            block_bwd(&g, t - BLOCK);
    }
}

static void attention_bwd(const struct cpu *cpu, const struct attention_grad_args *a, bool products_only)
{
    struct task task = { .cpu = cpu, .args = a, .products_only = products_only };
    parallel_fits(cpu, cpu_attention_scratch(a->T, a->h));
    parallel_tasks(cpu, a->B * a->H, a->T * a->T * a->h / 4, head_bwd, &task);
}

void cpu_attention_bwd(void *ctx, const struct attention_grad_args *a)
{
    attention_bwd(ctx, a, false);
}

void cpu_attention_products_bwd(void *ctx, const struct attention_grad_args *a)
{
    attention_bwd(ctx, a, true);
}
