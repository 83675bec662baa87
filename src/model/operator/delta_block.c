/* The generic delta block (docs/equations.md, 11), composed of the backend's ops.
 *
 *     z = pool(X); q = W2 gelu(W1 z + b1) + b2, or W sum_j a_j X_:j; beta = 2 sigmoid(w tanh(W_i z) + b)
 *     X' = X + beta k (v - k^T X)^T
 *
 * Backward recomputes z, q and beta: they cost a fraction of what keeping them for every block would. */
#include "ddl/block.h"

#include "base/mem.h"
#include "ddl/delta.h"
#include "model/operator/staging.h"
#include "ops/defaults.h"

#include <math.h>

/* What a pass over N <= max_rows rows works in; the d-named ones belong to backward. */
struct scratch {
    float *z;            /* (N, d) pooled; unused for flatten, where z is X itself */
    float *gate;         /* (N, gate_hidden) tanh(W_i z)                           */
    float *beta;         /* (N)                                                    */
    float *u, *h;        /* (N, hidden) before and after the GELU                  */
    float *a, *s;        /* (N, c) attention over channels, (N, d) its sum         */
    float *q;            /* (N, d)                                                 */
    float *dq, *dbeta;   /* (N, d), (N)                                            */
    float *dgate, *dz;   /* (N, gate_hidden), (N, d)                               */
    float *dhidden, *ds; /* (N, hidden), (N, d)                                    */
};

struct ddl_block {
    struct ddl_block_config config;
    size_t max_rows, Z;
    ddl_backend *backend;
    void *memory;
    struct scratch scratch;
};

static struct scratch carve(struct ddl_arena *arena, const struct ddl_block_config *k, size_t N)
{
    size_t f = sizeof(float), gate, hidden, rows, channels;
    bool mlp = k->direction == DDL_DIRECTION_MLP, mean = k->pool == DDL_POOL_MEAN;
    if (!ddl_size_mul(N, k->gate_hidden, &gate) || !ddl_size_mul(N, mlp ? k->hidden : 0, &hidden) ||
        !ddl_size_mul(N, k->d, &rows) || !ddl_size_mul(N, mlp ? 0 : k->c, &channels)) {
        arena->overflow = true;
        return (struct scratch){ 0 };
    }
    return (struct scratch){
        .z = ddl_arena_take(arena, mean ? rows : 0, f),
        .gate = ddl_arena_take(arena, gate, f),
        .beta = ddl_arena_take(arena, N, f),
        .u = ddl_arena_take(arena, hidden, f),
        .h = ddl_arena_take(arena, hidden, f),
        .a = ddl_arena_take(arena, channels, f),
        .s = ddl_arena_take(arena, mlp ? 0 : rows, f),
        .q = ddl_arena_take(arena, rows, f),
        .dq = ddl_arena_take(arena, rows, f),
        .dbeta = ddl_arena_take(arena, N, f),
        .dgate = ddl_arena_take(arena, gate, f),
        .dz = ddl_arena_take(arena, mean ? rows : 0, f),
        .dhidden = ddl_arena_take(arena, hidden, f),
        .ds = ddl_arena_take(arena, mlp ? 0 : rows, f),
    };
}

static ddl_status check(const struct ddl_block_config *k, struct ddl_error *err)
{
    const char *const call = "ddl_block_create";
    if (k->d == 0 || k->c == 0 || k->gate_hidden == 0)
        return ddl_error_set(err, DDL_E_USAGE,
                             "%s: d is %zu, c %zu, gate_hidden %zu; each must be at least 1", call, k->d,
                             k->c, k->gate_hidden);
    if (k->direction != DDL_DIRECTION_MLP && k->direction != DDL_DIRECTION_ATTENTION)
        return ddl_error_set(err, DDL_E_USAGE, "%s: direction %d is not one of enum ddl_direction", call,
                             k->direction);
    if (k->direction == DDL_DIRECTION_MLP && k->hidden == 0)
        return ddl_error_set(err, DDL_E_USAGE, "%s: hidden is 0, the mlp direction needs at least 1", call);
    if (k->pool != DDL_POOL_MEAN && k->pool != DDL_POOL_FLATTEN)
        return ddl_error_set(err, DDL_E_USAGE, "%s: pool %d is not one of enum ddl_pool", call, k->pool);
    if (!(k->eps > 0) || isinf(k->eps))
        return ddl_error_set(err, DDL_E_USAGE, "%s: eps is %g, must be positive and finite", call,
                             (double)k->eps);
    return DDL_OK;
}

/* The sizes of what callers bring, so that later products of them cannot overflow. */
static bool fits(const struct ddl_block_config *k, size_t rows, size_t *Z)
{
    size_t dc, most, bytes;
    if (!ddl_size_mul(k->d, k->c, &dc))
        return false;
    *Z = k->pool == DDL_POOL_MEAN ? k->d : dc;
    most = rows > k->hidden ? rows : k->hidden;
    most = most > k->gate_hidden ? most : k->gate_hidden;
    most = most > k->d ? most : k->d;
    return ddl_size_mul(most, dc, &bytes) && ddl_size_mul(bytes, sizeof(float), &bytes);
}

/* The ops that a block may call. */
static const enum ddl_op needed[] = { DDL_OP_matmul,      DDL_OP_pool_fwd, DDL_OP_pool_bwd,
                                      DDL_OP_tanh_fwd,    DDL_OP_tanh_bwd, DDL_OP_project_fwd,
                                      DDL_OP_project_bwd, DDL_OP_bias_fwd, DDL_OP_bias_bwd,
                                      DDL_OP_gelu_fwd,    DDL_OP_gelu_bwd, DDL_OP_delta_fwd,
                                      DDL_OP_delta_bwd,   DDL_OP_COUNT };

ddl_status ddl_block_create(ddl_block **out, const struct ddl_block_config *config, size_t max_rows,
                            ddl_backend *backend, struct ddl_error *err)
{
    *out = NULL;
    ddl_status status = check(config, err);
    if (!status)
        status = ddl_ops_require(backend, needed, "a block", err);
    if (status)
        return status;
    size_t Z = 0;
    struct ddl_arena measure = { 0 };
    carve(&measure, config, max_rows);
    if (!fits(config, max_rows, &Z) || measure.overflow)
        return ddl_error_set(err, DDL_E_USAGE,
                             "ddl_block_create: %zu rows of %zu x %zu do not fit into memory", max_rows,
                             config->d, config->c);
    /* the longest rows that are summed over N: w_a, b1, b2, the gate's out */
    size_t reduced = config->hidden > config->d ? config->hidden : config->d;
    struct ddl_limits limits = { .summed = reduced > config->gate_hidden ? reduced : config->gate_hidden,
                                 .c = config->c };
    status = backend->ops->reserve(backend->ctx, &limits, err);
    if (status)
        return status;
    ddl_block *block = ddl_mem_zalloc(sizeof *block);
    void *memory = block ? backend->ops->alloc(backend->ctx, measure.used) : NULL;
    if (!memory) {
        ddl_mem_free(block);
        return ddl_error_set(err, DDL_E_MEMORY, "ddl_block_create: out of memory for %zu rows (%zu bytes)",
                             max_rows, measure.used);
    }
    *block = (struct ddl_block){
        .config = *config, .max_rows = max_rows, .Z = Z, .backend = backend, .memory = memory
    };
    struct ddl_arena place = { .base = memory };
    block->scratch = carve(&place, config, max_rows);
    *out = block;
    return DDL_OK;
}

void ddl_block_free(ddl_block *block)
{
    if (!block)
        return;
    block->backend->ops->free(block->backend->ctx, block->memory);
    ddl_mem_free(block);
}

/* --- parameters, and the arrays of a pass ------------------------------------------------------------ */

/* One row per parameter: what both directions of the walk (checks, staging) need to know. */
struct row {
    const char *name;
    size_t offset; /* in struct ddl_block_params */
    int direction; /* enum ddl_direction, or -1: both */
    size_t count;
};
enum { N_ROWS = 9 };

static void param_rows(const ddl_block *b, struct row rows[N_ROWS])
{
    const struct ddl_block_config *k = &b->config;
    const struct row table[N_ROWS] = {
        { "gate_in", offsetof(struct ddl_block_params, gate_in), -1, k->gate_hidden * b->Z },
        { "gate_out", offsetof(struct ddl_block_params, gate_out), -1, k->gate_hidden },
        { "gate_bias", offsetof(struct ddl_block_params, gate_bias), -1, 1 },
        { "w1", offsetof(struct ddl_block_params, w1), DDL_DIRECTION_MLP, k->hidden * b->Z },
        { "b1", offsetof(struct ddl_block_params, b1), DDL_DIRECTION_MLP, k->hidden },
        { "w2", offsetof(struct ddl_block_params, w2), DDL_DIRECTION_MLP, k->d * k->hidden },
        { "b2", offsetof(struct ddl_block_params, b2), DDL_DIRECTION_MLP, k->d },
        { "w_a", offsetof(struct ddl_block_params, w_a), DDL_DIRECTION_ATTENTION, k->d },
        { "w", offsetof(struct ddl_block_params, w), DDL_DIRECTION_ATTENTION, k->d * k->d },
    };
    for (size_t i = 0; i < N_ROWS; i++)
        rows[i] = table[i];
}

static float **field(struct ddl_block_params *params, const struct row *row)
{
    return (float **)(void *)((char *)params + row->offset);
}

static ddl_status check_pass(const ddl_block *b, size_t N, const struct ddl_block_params *params,
                             const char *what, struct ddl_error *err)
{
    if (N > b->max_rows)
        return ddl_error_set(err, DDL_E_USAGE, "block: %zu rows, but it was created for at most %zu", N,
                             b->max_rows);
    struct row rows[N_ROWS];
    param_rows(b, rows);
    struct ddl_block_params copy = *params;
    for (size_t i = 0; i < N_ROWS; i++) {
        bool used = rows[i].direction < 0 || rows[i].direction == b->config.direction;
        if (used && !*field(&copy, &rows[i]))
            return ddl_error_set(err, DDL_E_USAGE, "block: the %s %s is NULL", what, rows[i].name);
    }
    return DDL_OK;
}

/* The parameters (only read; the struct's pointers serve gradients too), or their gradients (added to), where
 * the ops can reach them. */
static struct ddl_block_params stage_params(const ddl_block *b, struct ddl_staging *s,
                                            const struct ddl_block_params *params, bool grads)
{
    struct row rows[N_ROWS];
    param_rows(b, rows);
    struct ddl_block_params from = *params, to = { 0 };
    for (size_t i = 0; i < N_ROWS; i++) {
        if (rows[i].direction >= 0 && rows[i].direction != b->config.direction)
            continue;
        float *host = *field(&from, &rows[i]);
        *field(&to, &rows[i]) = grads ? ddl_staging_inout(s, host, rows[i].count)
                                      : (float *)ddl_staging_in(s, host, rows[i].count);
    }
    return to;
}

/* --- the pass ---------------------------------------------------------------------------------------- */

/* A pass; memory of the backend. */
struct block_pass {
    ddl_block *b;
    const struct ddl_ops *ops;
    void *ctx;
    size_t N;
    struct ddl_block_params p;
    const float *X, *v; /* (N, d, c), (N, c)                        */
    const float *z;     /* (N, Z) what the gate and the MLP read: X, or its mean over channels */
    /* backward */
    struct ddl_block_params g; /* gradients, added to */
    const float *G;            /* (N, d, c)           */
    float *dX, *dv;            /* (N, d, c), (N, c)   */
    float *dz;                 /* (N, Z): dX if z is X */
    bool add_dz;               /* dz holds a sum that others are added to */
};

/* y (N, out) = x (N, in) W (out, in)^T */
static void matmul_fwd(const struct block_pass *p, size_t in, size_t out, const float *x, const float *W,
                       float *y)
{
    p->ops->matmul(p->ctx, &(struct matmul_args){ .trans_b = true,
                                                  .M = p->N,
                                                  .N = out,
                                                  .K = in,
                                                  .alpha = 1,
                                                  .A = x,
                                                  .lda = in,
                                                  .B = W,
                                                  .ldb = in,
                                                  .C = y,
                                                  .ldc = out });
}

/* dW (out, in) += dy (N, out)^T x (N, in);  dx (N, in) = dy W, or += with add_dx */
struct matmul_grad {
    size_t in, out;
    const float *x, *W, *dy;
    float *dW, *dx;
    bool add_dx;
};

static void matmul_bwd(const struct block_pass *p, const struct matmul_grad *a)
{
    p->ops->matmul(p->ctx, &(struct matmul_args){ .trans_a = true,
                                                  .M = a->out,
                                                  .N = a->in,
                                                  .K = p->N,
                                                  .alpha = 1,
                                                  .A = a->dy,
                                                  .lda = a->out,
                                                  .B = a->x,
                                                  .ldb = a->in,
                                                  .beta = 1,
                                                  .C = a->dW,
                                                  .ldc = a->in });
    p->ops->matmul(p->ctx, &(struct matmul_args){ .M = p->N,
                                                  .N = a->in,
                                                  .K = a->out,
                                                  .alpha = 1,
                                                  .A = a->dy,
                                                  .lda = a->out,
                                                  .B = a->W,
                                                  .ldb = a->in,
                                                  .beta = a->add_dx ? 1 : 0,
                                                  .C = a->dx,
                                                  .ldc = a->in });
}

/* z and beta. */
static void gate_fwd(struct block_pass *p)
{
    const struct ddl_block_config *k = &p->b->config;
    const struct scratch *w = &p->b->scratch;
    p->z = p->X;
    if (k->pool == DDL_POOL_MEAN) {
        p->ops->pool_fwd(p->ctx,
                         &(struct pool_args){ .N = p->N, .d = k->d, .c = k->c, .X = p->X, .z = w->z });
        p->z = w->z;
    }
    matmul_fwd(p, p->b->Z, k->gate_hidden, p->z, p->p.gate_in, w->gate);
    p->ops->tanh_fwd(p->ctx, &(struct tanh_args){ .n = p->N * k->gate_hidden, .x = w->gate, .y = w->gate });
    p->ops->project_fwd(p->ctx, &(struct project_args){ .N = p->N,
                                                        .d = k->gate_hidden,
                                                        .c = 1,
                                                        .sigmoid = true,
                                                        .scale = 2,
                                                        .x = w->gate,
                                                        .W = p->p.gate_out,
                                                        .b = p->p.gate_bias,
                                                        .y = w->beta });
}

/* q, after gate_fwd. */
static void direction_fwd(const struct block_pass *p)
{
    const struct ddl_block_config *k = &p->b->config;
    const struct scratch *w = &p->b->scratch;
    if (k->direction == DDL_DIRECTION_ATTENTION) {
        p->ops->pool_fwd(
            p->ctx, &(struct pool_args){
                        .N = p->N, .d = k->d, .c = k->c, .X = p->X, .w_a = p->p.w_a, .a = w->a, .z = w->s });
        matmul_fwd(p, k->d, k->d, w->s, p->p.w, w->q);
        return;
    }
    matmul_fwd(p, p->b->Z, k->hidden, p->z, p->p.w1, w->u);
    p->ops->bias_fwd(p->ctx, &(struct bias_args){ .N = p->N, .d = k->hidden, .b = p->p.b1, .y = w->u });
    p->ops->gelu_fwd(p->ctx, &(struct gelu_args){ .n = p->N * k->hidden, .x = w->u, .y = w->h });
    matmul_fwd(p, k->hidden, k->d, w->h, p->p.w2, w->q);
    p->ops->bias_fwd(p->ctx, &(struct bias_args){ .N = p->N, .d = k->d, .b = p->p.b2, .y = w->q });
}

/* From dq: the direction's part of dX and dz, and its gradients. */
static void direction_bwd(struct block_pass *p)
{
    const struct ddl_block_config *k = &p->b->config;
    const struct scratch *w = &p->b->scratch;
    if (k->direction == DDL_DIRECTION_ATTENTION) {
        matmul_bwd(p, &(struct matmul_grad){ k->d, k->d, w->s, p->p.w, w->dq, p->g.w, w->ds, false });
        p->ops->pool_bwd(p->ctx, &(struct pool_grad_args){ .N = p->N,
                                                           .d = k->d,
                                                           .c = k->c,
                                                           .X = p->X,
                                                           .w_a = p->p.w_a,
                                                           .a = w->a,
                                                           .dz = w->ds,
                                                           .dX = p->dX,
                                                           .dw_a = p->g.w_a });
        return;
    }
    p->ops->bias_bwd(p->ctx, &(struct bias_grad_args){ .N = p->N, .d = k->d, .dy = w->dq, .db = p->g.b2 });
    matmul_bwd(p, &(struct matmul_grad){ k->hidden, k->d, w->h, p->p.w2, w->dq, p->g.w2, w->dhidden, false });
    p->ops->gelu_bwd(p->ctx, &(struct gelu_grad_args){
                                 .n = p->N * k->hidden, .x = w->u, .dy = w->dhidden, .dx = w->dhidden });
    p->ops->bias_bwd(p->ctx,
                     &(struct bias_grad_args){ .N = p->N, .d = k->hidden, .dy = w->dhidden, .db = p->g.b1 });
    matmul_bwd(
        p, &(struct matmul_grad){ p->b->Z, k->hidden, p->z, p->p.w1, w->dhidden, p->g.w1, p->dz, p->add_dz });
    p->add_dz = true;
}

/* From dbeta: the gate's part of dz, and its gradients. */
static void gate_bwd(const struct block_pass *p)
{
    const struct scratch *w = &p->b->scratch;
    size_t hidden = p->b->config.gate_hidden;
    p->ops->zero(p->ctx, w->dgate, p->N * hidden * sizeof *w->dgate);
    p->ops->project_bwd(p->ctx, &(struct project_grad_args){ .N = p->N,
                                                             .d = hidden,
                                                             .c = 1,
                                                             .sigmoid = true,
                                                             .scale = 2,
                                                             .x = w->gate,
                                                             .W = p->p.gate_out,
                                                             .y = w->beta,
                                                             .dy = w->dbeta,
                                                             .dx = w->dgate,
                                                             .dW = p->g.gate_out,
                                                             .db = p->g.gate_bias });
    p->ops->tanh_bwd(
        p->ctx, &(struct tanh_grad_args){ .n = p->N * hidden, .y = w->gate, .dy = w->dgate, .dx = w->dgate });
    matmul_bwd(p, &(struct matmul_grad){ p->b->Z, hidden, p->z, p->p.gate_in, w->dgate, p->g.gate_in, p->dz,
                                         p->add_dz });
}

static void backward(struct block_pass *p)
{
    const struct ddl_block_config *k = &p->b->config;
    const struct scratch *w = &p->b->scratch;
    gate_fwd(p);
    direction_fwd(p);
    p->ops->delta_bwd(p->ctx, &(struct ddl_delta_grad_args){ .N = p->N,
                                                             .d = k->d,
                                                             .c = k->c,
                                                             .eps = k->eps,
                                                             .X = p->X,
                                                             .q = w->q,
                                                             .v = p->v,
                                                             .beta = w->beta,
                                                             .G = p->G,
                                                             .dX = p->dX,
                                                             .dq = w->dq,
                                                             .dv = p->dv,
                                                             .dbeta = w->dbeta });
    p->add_dz = k->pool == DDL_POOL_FLATTEN;
    p->dz = p->add_dz ? p->dX : w->dz;
    direction_bwd(p);
    gate_bwd(p);
    if (k->pool == DDL_POOL_MEAN)
        p->ops->pool_bwd(p->ctx, &(struct pool_grad_args){
                                     .N = p->N, .d = k->d, .c = k->c, .X = p->X, .dz = p->dz, .dX = p->dX });
}

/* --- public calls ------------------------------------------------------------------------------------ */

static ddl_status check_arrays(size_t n, const float *const *arrays, const char *const *names,
                               struct ddl_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (!arrays[i])
            return ddl_error_set(err, DDL_E_USAGE, "block: the array %s is NULL", names[i]);
    }
    return DDL_OK;
}

/* A pass whose inputs and parameters are staged. */
static struct block_pass begin(ddl_block *b, struct ddl_staging *s, const struct ddl_block_params *params,
                               size_t N, const float *X, const float *v)
{
    const struct ddl_block_config *k = &b->config;
    return (struct block_pass){ .b = b,
                                .ops = b->backend->ops,
                                .ctx = b->backend->ctx,
                                .N = N,
                                .p = stage_params(b, s, params, false),
                                .X = ddl_staging_in(s, X, N * k->d * k->c),
                                .v = ddl_staging_in(s, v, N * k->c) };
}

ddl_status ddl_block_forward(ddl_block *block, const struct ddl_block_params *params,
                             const struct ddl_block_args *args, struct ddl_error *err)
{
    static const char *const names[] = { "X", "v", "X_out" };
    size_t N = args->N;
    ddl_status status = check_pass(block, N, params, "parameter", err);
    if (status || N == 0)
        return status;
    if ((status = check_arrays(3, (const float *const[]){ args->X, args->v, args->X_out }, names, err)))
        return status;
    const struct ddl_block_config *k = &block->config;
    const struct scratch *w = &block->scratch;
    struct ddl_staging s = { .backend = block->backend };
    struct block_pass p = begin(block, &s, params, N, args->X, args->v);
    float *X_out = ddl_staging_out(&s, args->X_out, N * k->d * k->c);
    if (s.failed)
        return ddl_staging_finish(&s, err);
    gate_fwd(&p);
    direction_fwd(&p);
    p.ops->delta_fwd(p.ctx, &(struct ddl_delta_args){ .N = N,
                                                      .d = k->d,
                                                      .c = k->c,
                                                      .eps = k->eps,
                                                      .X = p.X,
                                                      .q = w->q,
                                                      .v = p.v,
                                                      .beta = w->beta,
                                                      .X_out = X_out });
    if (args->beta)
        p.ops->download(p.ctx, args->beta, w->beta, N * sizeof *w->beta);
    if (args->q)
        p.ops->download(p.ctx, args->q, w->q, N * k->d * sizeof *w->q);
    return ddl_staging_finish(&s, err);
}

ddl_status ddl_block_backward(ddl_block *block, const struct ddl_block_params *params,
                              const struct ddl_block_grad_args *args, struct ddl_block_params *grads,
                              struct ddl_error *err)
{
    static const char *const names[] = { "X", "v", "G", "dX", "dv" };
    const float *const arrays[] = { args->X, args->v, args->G, args->dX, args->dv };
    size_t N = args->N, Ndc = N * block->config.d * block->config.c;
    ddl_status status = check_pass(block, N, params, "parameter", err);
    if (!status)
        status = check_pass(block, N, grads, "gradient", err);
    if (status || N == 0)
        return status;
    if ((status = check_arrays(5, arrays, names, err)))
        return status;
    struct ddl_staging s = { .backend = block->backend };
    struct block_pass p = begin(block, &s, params, N, args->X, args->v);
    p.g = stage_params(block, &s, grads, true);
    p.G = ddl_staging_in(&s, args->G, Ndc);
    p.dX = ddl_staging_out(&s, args->dX, Ndc);
    p.dv = ddl_staging_out(&s, args->dv, N * block->config.c);
    if (!s.failed)
        backward(&p);
    return ddl_staging_finish(&s, err);
}
