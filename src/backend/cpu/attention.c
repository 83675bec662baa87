/* Causal attention, one head at a time. KV_BLOCK keys and their values are packed into panels
 * (kernels/panel.c) that stay in a core's cache while all queries use them. A longer context takes only a few
 * numbers per token: forward keeps the largest score and the sum of each query from block to block; backward
 * (attention_bwd.c) uses lse. Parallel over (sequence, head, part of the queries). With more than FEW_QUERIES
 * queries, the arithmetic of a query depends only on its position in the context. Arithmetic is float32:
 * bfloat16 operands are converted when they are read or packed, and a result in bfloat16 is rounded once.
 * With AMX, attention_pairs.c takes the place of part_fwd where all operands are bfloat16 and heads are
 * whole vectors wide. */
#include "backend/cpu/attention.h"
#include "backend/cpu/parallel.h"

#include "base/bf16.h"
#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>

enum {
    FEW_QUERIES = 8,      /* whose keys and values are read as they are: packing does not pay     */
    SCORES_ROW = 16,      /* scores of few queries begin at multiples: alike however many there are */
    TASKS_PER_THREAD = 2, /* where a head is divided: each task packs all keys again              */
};
static_assert(KV_BLOCK % QUERY_BLOCK == 0 && KV_BLOCK % MOST_PANEL == 0,
              "whole blocks of queries, whole panels");

/* Numbers of scratch, or those of attention_pairs.c if they are more: for backward three packed forms of a
 * block of keys, two of a block of queries, two blocks of scores, and in bfloat16 dq, dk and dv before they
 * are rounded, and rows that were converted; that is enough for forward's two forms, scores and y before it
 * is rounded. Then the running maximum and sum of each query, or the scores of few queries. */
size_t cpu_attention_scratch(size_t T, size_t h)
{
    size_t block = attention_kv_block(T), packed, scores, sums, per_query, numbers;
    static_assert((int)SCORES_ROW <= (int)MOST_PANEL,
                  "the panels' scratch holds what rounding rows of scores adds");
    size_t pairs = attention_pairs_scratch(T, h);
    if (h > SIZE_MAX - MOST_PANEL || pairs == SIZE_MAX)
        return SIZE_MAX;
    if (!ddl_size_mul(round_up(h, MOST_PANEL), 3 * block + 2 * QUERY_BLOCK, &packed) ||
        !ddl_size_mul(h, 2 * block + 2 * ROW_BLOCK + 1, &sums) || !ddl_size_add(h, FEW_QUERIES, &per_query) ||
        !ddl_size_mul(T, per_query, &scores) || !ddl_size_add(packed, sums, &numbers) ||
        !ddl_size_add(numbers, scores, &numbers) || !ddl_size_add(numbers, 2 * QUERY_BLOCK * block, &numbers))
        return SIZE_MAX;
    return numbers > pairs ? numbers : pairs;
}

struct attention_rows attention_rows_of(const struct ddl_kernels *k, struct pack_args rows, size_t n,
                                        float *buffer)
{
    if (rows.x)
        return (struct attention_rows){ rows.x, rows.stride };
    for (size_t i = 0; i < n; i++)
        k->widen_bf16(
            &(struct widen_bf16_args){ rows.width, rows.x16 + i * rows.stride, buffer + i * rows.width }, 0,
            rows.width, NULL);
    return (struct attention_rows){ buffer, rows.width };
}

/* Queries of one head, and their scratch. */
struct queries {
    const struct ddl_kernels *k;
    const struct attention_args *a;
    bool products_only;
    size_t b, head;
    double *total;        /* (T) sum of exp(score - top) so far       */
    float *top;           /* (T) largest score so far                 */
    float *S;             /* scores of ROW_BLOCK or few queries        */
    float *keys, *values; /* panels of the block: (h, keys), (keys, h) */
    float *rows;          /* (ROW_BLOCK, h) converted queries          */
    float *y;             /* (T, h) y before it is rounded             */
};

/* Arguments of softmax for the queries from t on and `span` keys from `key` on. */
static struct softmax_args softmax_of(const struct queries *q, size_t t, size_t key, size_t span)
{
    const struct attention_args *a = q->a;
    size_t n = q->b * a->T + t, width = a->H * a->h;
    struct softmax_args s = { .first = a->past + t,
                              .key = key,
                              .span = span,
                              .scale = 1,
                              .S = q->S,
                              .top = q->top + t,
                              .total = q->total + t,
                              .h = a->h,
                              .y_stride = width,
                              .lse = a->lse ? a->lse + n * a->H + q->head : NULL,
                              .lse_stride = a->H };
    if (a->y16) {
        s.y = q->y + t * a->h, s.y_stride = a->h;
        s.y16 = a->y16 + n * width + q->head * a->h, s.y16_stride = width;
    } else {
        s.y = a->y + n * width + q->head * a->h;
    }
    return s;
}

/* n queries from t on. */
static struct attention_rows query_rows(const struct queries *q, size_t t, size_t n)
{
    const struct attention_args *a = q->a;
    size_t at = (q->b * a->T + t) * a->q_stride + q->head * a->h;
    return attention_rows_of(q->k, attention_pack_args(a->q, a->q16, at, a->q_stride, a->h), n, q->rows);
}

/* n keys from `key` on, and their values. */
static void pack_kv(const struct queries *q, size_t key, size_t n)
{
    const struct attention_args *a = q->a;
    size_t offset = q->head * a->h;
    struct pack_args keys =
        attention_pack_args(a->k, a->k16, q->b * a->k_batch + key * a->k_stride + offset, a->k_stride, a->h);
    struct pack_args values =
        attention_pack_args(a->v, a->v16, q->b * a->v_batch + key * a->v_stride + offset, a->v_stride, a->h);
    keys.transpose = true;
    keys.panels = q->keys, keys.depth = a->h;
    values.panels = q->values, values.depth = n;
    q->k->pack(&keys, 0, n, NULL);
    q->k->pack(&values, 0, n, NULL);
}

bool attention_values_are_finite(const struct attention_args *a, size_t b, size_t head, size_t key, size_t n)
{
    size_t at = b * a->v_batch + key * a->v_stride + head * a->h;
    for (size_t i = 0; i < n; i++, at += a->v_stride) {
        int not_finite = 0;
        for (size_t j = 0; a->v16 && j < a->h; j++)
            not_finite |= !ddl_bf16_is_finite(a->v16[at + j]);
        for (size_t j = 0; a->v && j < a->h; j++)
            not_finite |= !isfinite(a->v[at + j]);
        if (not_finite)
            return false;
    }
    return true;
}

/* y = S values for `rows` queries from t on and the block from `key` on. The weights of keys that a query
 * does not attend to are 0, so all rows are one product, unless a value of such a key is not finite: then
 * each query is multiplied with its own keys only. */
static void mix_rows(const struct queries *q, const struct matmul_panels_args *mix, size_t t, size_t rows,
                     size_t key)
{
    size_t by_all = attention_keys_of(q->a, t, key, mix->to);
    if (attention_values_are_finite(q->a, q->b, q->head, key + by_all, mix->to - by_all)) {
        q->k->matmul_panels(mix, 0, rows, NULL);
        return;
    }
    for (size_t i = 0; i < rows; i++) {
        struct matmul_panels_args row = *mix;
        row.to = attention_keys_of(q->a, t + i, key, mix->to);
        row.A += i * mix->lda;
        row.C += i * mix->ldc;
        q->k->matmul_panels(&row, 0, 1, NULL);
    }
}

/* ROW_BLOCK queries from t on, and the packed n keys from `key` on. */
static void rows_fwd(const struct queries *q, size_t t, size_t key, size_t n)
{
    const struct attention_args *a = q->a;
    size_t rows = attention_least(a->T - t, ROW_BLOCK), seen = a->past + t + rows;
    if (seen <= key)
        return;
    struct softmax_args s = softmax_of(q, t, key, attention_least(seen - key, n));
    const struct attention_rows queries = query_rows(q, t, rows);
    const struct matmul_panels_args scores = { .N = s.span,
                                               .to = a->h,
                                               .alpha = a->scale,
                                               .A = queries.x,
                                               .lda = queries.stride,
                                               .B = q->keys,
                                               .depth = a->h,
                                               .C = s.S,
                                               .ldc = s.span };
    const struct matmul_panels_args mix = { .N = a->h,
                                            .to = s.span,
                                            .alpha = 1,
                                            .A = s.S,
                                            .lda = s.span,
                                            .B = q->values,
                                            .depth = n,
                                            .C = s.y,
                                            .ldc = s.y_stride,
                                            .add = key > 0 };
    q->k->matmul_panels(&scores, 0, rows, NULL);
    if (!q->products_only)
        q->k->softmax_fwd(&s, 0, rows, NULL);
    mix_rows(q, &mix, t, rows, key);
    if (!q->products_only && seen <= key + n)
        q->k->softmax_finish(&s, 0, rows, NULL);
}

/* A part of a head's queries: every so many blocks of rows, so that parts take the same time. */
static void part_fwd(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct attention_task *task = args;
    const struct attention_args *a = task->args;
    size_t span = a->past + a->T, block = attention_kv_block(span), head = lo / task->parts;
    float *values = scratch + block * a->h, *S = values + block * round_up(a->h, MOST_PANEL);
    double *total = (double *)(void *)(S + ROW_BLOCK * block);
    float *top = (float *)(void *)(total + a->T), *rows = top + a->T;
    const struct queries q = { .k = task->cpu->k,
                               .a = a,
                               .products_only = task->products_only,
                               .b = head / a->H,
                               .head = head % a->H,
                               .total = total,
                               .top = top,
                               .S = S,
                               .keys = scratch,
                               .values = values,
                               .rows = rows,
                               .y = rows + ROW_BLOCK * a->h };
    (void)hi;
    for (size_t key = 0; key < span; key += KV_BLOCK) {
        size_t n = attention_least(span - key, KV_BLOCK);
        pack_kv(&q, key, n);
        for (size_t t = lo % task->parts * ROW_BLOCK; t < a->T; t += task->parts * ROW_BLOCK)
            rows_fwd(&q, t, key, n);
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
    if (a->q16)
        one.q16 += first * a->q_stride;
    else
        one.q += first * a->q_stride;
    if (a->y16)
        one.y16 += first * a->H * a->h;
    else
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

/* y += S values for M of few queries from t on and keys [from, to); from = 0: y is set. */
static void mix_few(const struct queries *q, const struct softmax_args *s, size_t t, size_t M, size_t from,
                    size_t to)
{
    const struct attention_args *a = q->a;
    q->k->matmul_few_nn(
        &(struct matmul_args){ .M = M,
                               .N = a->h,
                               .K = to - from,
                               .alpha = 1,
                               .A = s->S + t * s->span + from,
                               .lda = s->span,
                               .B = a->v + q->b * a->v_batch + from * a->v_stride + q->head * a->h,
                               .ldb = a->v_stride,
                               .beta = from ? 1 : 0,
                               .C = s->y + t * s->y_stride,
                               .ldc = s->y_stride },
        0, a->h, NULL);
}

/* y = S values for few queries. A query is multiplied with its own keys only, in fours from key 0 on: its
 * result depends on no other query. The fours that all have are read once. */
static void mix_queries(const struct queries *q, const struct softmax_args *s)
{
    const struct attention_args *a = q->a;
    size_t common = (a->past + 1) / 4 * 4;
    if (a->v16) {
        const uint16_t *values = a->v16 + q->b * a->v_batch + q->head * a->h;
        for (size_t i = 0; i < a->T; i++)
            q->k->mixed_few_nn(&(struct mixed_args){ 1, a->h, a->past + i + 1, 1, s->S + i * s->span, s->span,
                                                     values, a->v_stride, s->y + i * s->y_stride,
                                                     s->y_stride },
                               0, 1, NULL);
        return;
    }
    if (common)
        mix_few(q, s, 0, a->T, 0, common);
    for (size_t i = 0; i < a->T; i++)
        mix_few(q, s, i, 1, common, a->past + i + 1);
}

/* A head's queries where there are few: keys and values are read once, as they are. A query has the same bits
 * alone. */
static void few_queries(const struct attention_task *task, const struct attention_args *a, size_t b,
                        size_t head, float *scratch)
{
    const struct ddl_kernels *k = task->cpu->k;
    size_t M = a->T, span = a->past + a->T, row = round_up(span, SCORES_ROW);
    const struct queries q = { .k = k,
                               .a = a,
                               .products_only = task->products_only,
                               .b = b,
                               .head = head,
                               .total = (double *)(void *)scratch,
                               .top = scratch + 2 * FEW_QUERIES,
                               .S = scratch + 3 * FEW_QUERIES,
                               .rows = scratch + (3 + row) * FEW_QUERIES,
                               .y = scratch + (3 + row + a->h) * FEW_QUERIES };
    size_t keys = q.b * a->k_batch + q.head * a->h;
    struct softmax_args s = softmax_of(&q, 0, 0, row);
    const struct attention_rows queries = query_rows(&q, 0, M);
    if (a->k16)
        k->mixed_skinny(&(struct mixed_args){ M, span, a->h, a->scale, queries.x, queries.stride,
                                              a->k16 + keys, a->k_stride, q.S, row },
                        0, span, NULL);
    else
        k->matmul_skinny(&(struct matmul_args){ .trans_b = true,
                                                .M = M,
                                                .N = span,
                                                .K = a->h,
                                                .alpha = a->scale,
                                                .A = queries.x,
                                                .lda = queries.stride,
                                                .B = a->k + keys,
                                                .ldb = a->k_stride,
                                                .C = q.S,
                                                .ldc = row },
                         0, span, NULL);
    if (!q.products_only)
        k->softmax_fwd(&s, 0, M, NULL);
    mix_queries(&q, &s);
    if (!q.products_only)
        k->softmax_finish(&s, 0, M, NULL);
}

/* Whether sequence b is the next token of the slot of the sequence before it, in a pass of an exact session.
 * Such sequences are computed together, up to a multiple of FEW_QUERIES tokens. */
static bool continues(const struct ddl_ragged *r, size_t b)
{
    return b > 0 && r->slot[b] == r->slot[b - 1] && r->past[b] == r->past[b - 1] + 1 &&
           r->first[b + 1] - r->first[b] == 1 && r->first[b] - r->first[b - 1] == 1 &&
           r->past[b] % FEW_QUERIES != 0;
}

/* A head of a sequence, or of several that continue each other, lo = sequence * H + head; sequences with more
 * queries are left to dense_fwd. */
static void few_fwd(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct attention_task *task = args;
    const struct attention_args *a = task->args;
    size_t b = lo / a->H, head = lo % a->H;
    (void)hi;
    if (!a->ragged.B) {
        few_queries(task, a, b, head, scratch);
        return;
    }
    if (continues(&a->ragged, b))
        return; /* computed with the one before */
    struct attention_args one = sequence_of(a, b);
    while (b + 1 < a->ragged.B && continues(&a->ragged, b + 1))
        one.T++, b++;
    if (one.T <= FEW_QUERIES)
        few_queries(task, &one, 0, head, scratch);
}

static void dense_fwd(const struct cpu *cpu, const struct attention_args *a, bool products_only)
{
    size_t heads = a->T ? a->B * a->H : 0, span = a->past + a->T;
    struct attention_task task = { .cpu = cpu, .args = a, .parts = 1, .products_only = products_only };
    parallel_fits(cpu, cpu_attention_scratch(span, a->h));
    if (a->T <= FEW_QUERIES) {
        parallel_tasks(cpu, heads, (1 + a->T / 4) * span * a->h, few_fwd, &task);
        return;
    }
    if (cpu->threads > 1 && heads > 0 && heads < TASKS_PER_THREAD * cpu->threads)
        task.parts = attention_least(round_up(TASKS_PER_THREAD * cpu->threads, heads) / heads,
                                     round_up(a->T, QUERY_BLOCK) / QUERY_BLOCK);
    bool pairs = attention_in_pairs(cpu, a->h) && a->q16 && a->k16 && a->y16;
    parallel_tasks(cpu, heads * task.parts, (1 + a->T / task.parts / 4) * span * a->h,
                   pairs ? attention_pairs_fwd : part_fwd, &task);
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
    struct attention_task task = { .cpu = cpu, .args = a, .parts = 1, .products_only = products_only };
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
