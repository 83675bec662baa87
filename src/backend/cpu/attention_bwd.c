/* Backward of causal attention (attention.c): parallel over (sequence, head), because the queries of a head
 * add to the same dk and dv, in a fixed order. In bfloat16 dq, dk and dv are summed in float32 scratch and
 * rounded once. */
#include "backend/cpu/attention.h"
#include "backend/cpu/parallel.h"

/* Rows of a gradient that are summed, `stride` apart. */
struct sums {
    float *x;
    size_t stride;
};

/* A head: scratch for a block of its keys and a block of its queries. */
struct head {
    const struct ddl_kernels *k;
    const struct attention_grad_args *a;
    bool products_only;
    size_t b, head;
    size_t key, n;          /* the block of keys: n from `key` on                       */
    float *keys, *values;   /* its panels: (h, n) both                                  */
    float *rows;            /* the keys once more: (n, h)                               */
    size_t t, T, span;      /* the block of queries: T from t on see `span` of the keys */
    float *q, *dy, *S, *dP; /* its panels: (QUERY_BLOCK, h); (T, span): scores -> P, dP -> dS */
    float *q_rows, *y_rows; /* (ROW_BLOCK, h) converted rows                            */
    float *v;               /* (h) converted values of key 0                            */
    struct sums dq, dk, dv; /* of all queries; of the block of keys                     */
};

/* Offset of row t of the head in a matrix whose rows are `stride` apart. */
static size_t offset_of(const struct head *g, size_t t, size_t stride)
{
    return (g->b * g->a->T + t) * stride + g->head * g->a->h;
}

/* Rows of the head from row t on, as they are packed. */
static struct pack_args rows_from(const struct head *g, const float *x, const uint16_t *x16, size_t t,
                                  size_t stride)
{
    return attention_pack_args(x, x16, offset_of(g, t, stride), stride, g->a->h);
}

static void pack(const struct head *g, bool transpose, struct pack_args rows, size_t n, float *panels,
                 size_t depth)
{
    rows.transpose = transpose, rows.panels = panels, rows.depth = depth;
    g->k->pack(&rows, 0, n, NULL);
}

/* P and dP -> dS, of n of the block's queries from r on. */
static void softmax_rows(const struct head *g, size_t r, size_t n)
{
    const struct attention_grad_args *a = g->a;
    size_t t = g->t + r, width = a->H * a->h;
    struct attention_rows v = attention_rows_of(g->k, rows_from(g, a->v, a->v16, 0, a->v_stride), 1, g->v);
    struct attention_rows y = attention_rows_of(g->k, rows_from(g, a->y, a->y16, t, width), n, g->y_rows);
    const struct softmax_grad_args args = { .first = t,
                                            .key = g->key,
                                            .span = g->span,
                                            .h = a->h,
                                            .scale = a->scale,
                                            .score_scale = 1,
                                            .S = g->S + r * g->span,
                                            .dP = g->dP + r * g->span,
                                            .v = v.x,
                                            .y = y.x,
                                            .y_stride = y.stride,
                                            .dy = a->dy + offset_of(g, t, width),
                                            .dy_stride = width,
                                            .lse = a->lse + (g->b * a->T + t) * a->H + g->head,
                                            .lse_stride = a->H };
    g->k->softmax_bwd(&args, 0, n, NULL);
}

/* P, dS and dq of the block's queries from r on. */
static void queries_bwd(const struct head *g, size_t r)
{
    const struct attention_grad_args *a = g->a;
    size_t rows = attention_least(g->T - r, ROW_BLOCK), t = g->t + r, width = a->H * a->h;
    struct attention_rows q =
        attention_rows_of(g->k, rows_from(g, a->q, a->q16, t, a->q_stride), rows, g->q_rows);
    struct matmul_panels_args by_key = {
        .N = attention_least(t + rows - g->key, g->span), .to = a->h, .depth = a->h, .ldc = g->span
    };
    struct matmul_panels_args by_query = {
        .N = a->h, .to = by_key.N, .alpha = 1, .lda = g->span, .depth = g->n
    };
    by_key.alpha = a->scale, by_key.A = q.x, by_key.lda = q.stride;
    by_key.B = g->keys, by_key.C = g->S + r * g->span;
    g->k->matmul_panels(&by_key, 0, rows, NULL);
    by_key.alpha = 1, by_key.A = a->dy + offset_of(g, t, width), by_key.lda = width;
    by_key.B = g->values, by_key.C = g->dP + r * g->span;
    g->k->matmul_panels(&by_key, 0, rows, NULL);
    if (!g->products_only)
        softmax_rows(g, r, rows);
    by_query.A = g->dP + r * g->span, by_query.B = g->rows, by_query.add = g->key > 0;
    by_query.C = g->dq.x + t * g->dq.stride, by_query.ldc = g->dq.stride;
    g->k->matmul_panels(&by_query, 0, rows, NULL);
}

/* What the block of queries adds to dk and dv of its keys from i on: queries before a key do not see it. The
 * last block, which comes first, writes. */
static void keys_bwd(const struct head *g, size_t i)
{
    const struct attention_grad_args *a = g->a;
    size_t rows = attention_least(g->span - i, ROW_BLOCK), key = g->key + i;
    struct matmul_panels_args by_key = { .N = a->h,
                                         .from = key > g->t ? key - g->t : 0,
                                         .to = g->T,
                                         .alpha = 1,
                                         .lda = g->span,
                                         .trans_a = true,
                                         .depth = QUERY_BLOCK,
                                         .add = g->t + g->T < a->T };
    by_key.A = g->dP + i, by_key.B = g->q;
    by_key.C = g->dk.x + i * g->dk.stride, by_key.ldc = g->dk.stride;
    g->k->matmul_panels(&by_key, 0, rows, NULL);
    by_key.A = g->S + i, by_key.B = g->dy;
    by_key.C = g->dv.x + i * g->dv.stride, by_key.ldc = g->dv.stride;
    g->k->matmul_panels(&by_key, 0, rows, NULL);
}

/* The block of queries from t on, and the packed block of keys. */
static void block_bwd(struct head *g, size_t t)
{
    const struct attention_grad_args *a = g->a;
    g->t = t;
    g->T = attention_least(a->T - t, QUERY_BLOCK);
    g->span = attention_least(t + g->T - g->key, g->n);
    for (size_t r = 0; r < g->T; r += ROW_BLOCK)
        queries_bwd(g, r);
    pack(g, false, rows_from(g, a->q, a->q16, t, a->q_stride), g->T, g->q, QUERY_BLOCK);
    pack(g, false, rows_from(g, a->dy, NULL, t, a->H * a->h), g->T, g->dy, QUERY_BLOCK);
    for (size_t i = 0; i < g->span; i += ROW_BLOCK)
        keys_bwd(g, i);
}

/* Rows of the head from row t on to sum in: those of dx, or in bfloat16 scratch. */
static struct sums sums_in(const struct head *g, float *dx, size_t t, size_t stride, float *scratch)
{
    return dx ? (struct sums){ dx + offset_of(g, t, stride), stride } : (struct sums){ scratch, g->a->h };
}

/* n rows of sums to dx16 from row t on, in bfloat16. */
static void round_sums(const struct head *g, struct sums sums, size_t n, uint16_t *dx16, size_t t,
                       size_t stride)
{
    const struct copy_bf16_args round = { .rows = n,
                                          .width = g->a->h,
                                          .src = sums.x,
                                          .src_stride = sums.stride,
                                          .dst = dx16 + offset_of(g, t, stride),
                                          .dst_stride = stride };
    g->k->copy_bf16(&round, 0, n, NULL);
}

/* The block of keys: from the last block of queries, which sees all of it, to the first that sees any. */
static void kv_block_bwd(struct head *g, float *dk, float *dv)
{
    const struct attention_grad_args *a = g->a;
    g->n = attention_least(a->T - g->key, KV_BLOCK);
    g->dk = sums_in(g, a->dk, g->key, a->dk_stride, dk);
    g->dv = sums_in(g, a->dv, g->key, a->dv_stride, dv);
    pack(g, true, rows_from(g, a->k, a->k16, g->key, a->k_stride), g->n, g->keys, a->h);
    pack(g, true, rows_from(g, a->v, a->v16, g->key, a->v_stride), g->n, g->values, a->h);
    pack(g, false, rows_from(g, a->k, a->k16, g->key, a->k_stride), g->n, g->rows, g->n);
    for (size_t t = round_up(a->T, QUERY_BLOCK); t > g->key; t -= QUERY_BLOCK)
        block_bwd(g, t - QUERY_BLOCK);
    if (a->dk16) {
        round_sums(g, g->dk, g->n, a->dk16, g->key, a->dk_stride);
        round_sums(g, g->dv, g->n, a->dv16, g->key, a->dv_stride);
    }
}

static void head_bwd(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct attention_task *task = args;
    const struct attention_grad_args *a = task->args;
    size_t block = attention_kv_block(a->T), wide = round_up(a->h, MOST_PANEL);
    struct head g = { .k = task->cpu->k, .a = a, .b = lo / a->H, .head = lo % a->H, .keys = scratch };
    g.products_only = task->products_only;
    g.values = g.keys + block * a->h;
    g.rows = g.values + block * a->h;
    g.q = g.rows + block * wide;
    g.dy = g.q + QUERY_BLOCK * wide;
    g.S = g.dy + QUERY_BLOCK * wide;
    g.dP = g.S + QUERY_BLOCK * block;
    g.q_rows = g.dP + QUERY_BLOCK * block;
    g.y_rows = g.q_rows + ROW_BLOCK * a->h;
    g.v = g.y_rows + ROW_BLOCK * a->h;
    float *dk = g.v + a->h, *dv = dk + block * a->h;
    g.dq = sums_in(&g, a->dq, 0, a->dq_stride, dv + block * a->h);
    (void)hi;
    for (; g.key < a->T; g.key += KV_BLOCK)
        kv_block_bwd(&g, dk, dv);
    if (a->dq16)
        round_sums(&g, g.dq, a->T, a->dq16, 0, a->dq_stride);
}

static void attention_bwd(const struct cpu *cpu, const struct attention_grad_args *a, bool products_only)
{
    struct attention_task task = { .cpu = cpu, .args = a, .products_only = products_only };
    parallel_fits(cpu, cpu_attention_scratch(a->T, a->h));
    parallel_tasks(cpu, a->B * a->H, a->T * a->T * a->h / 4,
                   attention_in_pairs(cpu, a->h) && a->q16 ? attention_pairs_bwd : head_bwd, &task);
}

void cpu_attention_bwd(void *ctx, const struct attention_grad_args *a)
{
    attention_bwd(ctx, a, false);
}

void cpu_attention_products_bwd(void *ctx, const struct attention_grad_args *a)
{
    attention_bwd(ctx, a, true);
}
