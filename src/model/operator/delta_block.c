/* The generic delta block (docs/equations.md, 11), composed of the backend's ops.
 *
 *     z = pool(X); q = W2 gelu(W1 z + b1) + b2, or W sum_j a_j X_:j; beta = 2 sigmoid(w tanh(W_i z) + b)
 *     X' = X + beta k (v - k^T X)^T
 *
 * Backward recomputes z, q and beta: they cost a fraction of what keeping them for every block would. */
#include "ddl/block.h"

#include "base/mem.h"
#include "ddl/delta.h"
#include "model/pass/linear.h"
#include "model/pass/pass.h"
#include "model/operator/staging.h"
#include "ops/defaults.h"

#include <math.h>

/* What a pass over N <= max_rows rows works in; the d-named ones belong to backward. */
struct room {
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
    struct room room;
};

static struct room carve(struct ddl_arena *arena, const struct ddl_block_config *k, size_t N)
{
    size_t f = sizeof(float), gate, hidden, rows, channels;
    bool mlp = k->direction == DDL_DIRECTION_MLP, mean = k->pool == DDL_POOL_MEAN;
    if (!ddl_size_mul(N, k->gate_hidden, &gate) || !ddl_size_mul(N, mlp ? k->hidden : 0, &hidden) ||
        !ddl_size_mul(N, k->d, &rows) || !ddl_size_mul(N, mlp ? 0 : k->c, &channels)) {
        arena->overflow = true;
        return (struct room){ 0 };
    }
    return (struct room){
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
    struct ddl_limits limits = { .summed = reduced > config->gate_hidden ? reduced : config->gate_hidden };
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
    block->room = carve(&place, config, max_rows);
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

/* linear.c's products, which need nothing of a pass but the backend. */
static struct pass on(const ddl_backend *backend)
{
    return (struct pass){ .ops = backend->ops, .ctx = backend->ctx };
}

/* y (N, out) = x (N, in) W^T */
static void linear(ddl_backend *backend, size_t N, size_t in, size_t out, const float *x, const float *W,
                   float *y)
{
    struct pass p = on(backend);
    linear_fwd(&p, N, in, out, value_operand(x), (struct weight){ .form = { .value = W } }, y, false);
}

/* dx (N, in) = dy W, or += where `add`;  dW (out, in) += dy^T x */
static void linear_back(ddl_backend *backend, size_t N, size_t in, size_t out, const float *x, const float *W,
                        const float *dy, float *dx, bool add, float *dW)
{
    struct pass p = on(backend);
    linear_bwd(&p, N, in, out, value_operand(x), value_operand(dy),
               (struct weight){ .form = { .value = W }, .grad = dW }, dx, add);
}

static const float *pooled(ddl_block *b, size_t N, const float *X)
{
    const struct ddl_block_config *k = &b->config;
    if (k->pool == DDL_POOL_FLATTEN)
        return X;
    b->backend->ops->pool_fwd(b->backend->ctx,
                              &(struct pool_args){ .N = N, .d = k->d, .c = k->c, .X = X, .z = b->room.z });
    return b->room.z;
}

static void gate_fwd(ddl_block *b, const struct ddl_block_params *p, size_t N, const float *z)
{
    const struct ddl_ops *ops = b->backend->ops;
    void *ctx = b->backend->ctx;
    struct room *r = &b->room;
    size_t hidden = b->config.gate_hidden;
    linear(b->backend, N, b->Z, hidden, z, p->gate_in, r->gate);
    ops->tanh_fwd(ctx, &(struct tanh_args){ .n = N * hidden, .x = r->gate, .y = r->gate });
    ops->project_fwd(ctx, &(struct project_args){ .N = N,
                                                  .d = hidden,
                                                  .c = 1,
                                                  .sigmoid = true,
                                                  .scale = 2,
                                                  .x = r->gate,
                                                  .W = p->gate_out,
                                                  .b = p->gate_bias,
                                                  .y = r->beta });
}

static void direction_fwd(ddl_block *b, const struct ddl_block_params *p, size_t N, const float *X,
                          const float *z)
{
    const struct ddl_ops *ops = b->backend->ops;
    void *ctx = b->backend->ctx;
    struct room *r = &b->room;
    const struct ddl_block_config *k = &b->config;
    if (k->direction == DDL_DIRECTION_ATTENTION) {
        ops->pool_fwd(ctx, &(struct pool_args){
                               .N = N, .d = k->d, .c = k->c, .X = X, .w_a = p->w_a, .a = r->a, .z = r->s });
        linear(b->backend, N, k->d, k->d, r->s, p->w, r->q);
        return;
    }
    linear(b->backend, N, b->Z, k->hidden, z, p->w1, r->u);
    ops->bias_fwd(ctx, &(struct bias_args){ .N = N, .d = k->hidden, .b = p->b1, .y = r->u });
    ops->gelu_fwd(ctx, &(struct gelu_args){ .n = N * k->hidden, .x = r->u, .y = r->h });
    linear(b->backend, N, k->hidden, k->d, r->h, p->w2, r->q);
    ops->bias_fwd(ctx, &(struct bias_args){ .N = N, .d = k->d, .b = p->b2, .y = r->q });
}

/* The direction's part of dX and dz, and its gradients, from room.dq. dz is added to once it has started. */
static void direction_bwd(ddl_block *b, const struct ddl_block_params *p, struct ddl_block_params *g,
                          size_t N, const float *X, const float *z, float *dX, float *dz, bool *dz_started)
{
    const struct ddl_ops *ops = b->backend->ops;
    void *ctx = b->backend->ctx;
    struct room *r = &b->room;
    const struct ddl_block_config *k = &b->config;
    if (k->direction == DDL_DIRECTION_ATTENTION) {
        linear_back(b->backend, N, k->d, k->d, r->s, p->w, r->dq, r->ds, false, g->w);
        ops->pool_bwd(ctx, &(struct pool_grad_args){ .N = N,
                                                     .d = k->d,
                                                     .c = k->c,
                                                     .X = X,
                                                     .w_a = p->w_a,
                                                     .a = r->a,
                                                     .dz = r->ds,
                                                     .dX = dX,
                                                     .dw_a = g->w_a });
        return;
    }
    ops->bias_bwd(ctx, &(struct bias_grad_args){ .N = N, .d = k->d, .dy = r->dq, .db = g->b2 });
    linear_back(b->backend, N, k->hidden, k->d, r->h, p->w2, r->dq, r->dhidden, false, g->w2);
    ops->gelu_bwd(
        ctx, &(struct gelu_grad_args){ .n = N * k->hidden, .x = r->u, .dy = r->dhidden, .dx = r->dhidden });
    ops->bias_bwd(ctx, &(struct bias_grad_args){ .N = N, .d = k->hidden, .dy = r->dhidden, .db = g->b1 });
    linear_back(b->backend, N, b->Z, k->hidden, z, p->w1, r->dhidden, dz, *dz_started, g->w1);
    *dz_started = true;
}

static void gate_bwd(ddl_block *b, const struct ddl_block_params *p, struct ddl_block_params *g, size_t N,
                     const float *z, float *dz, bool dz_started)
{
    const struct ddl_ops *ops = b->backend->ops;
    void *ctx = b->backend->ctx;
    struct room *r = &b->room;
    size_t hidden = b->config.gate_hidden;
    ops->zero(ctx, r->dgate, N * hidden * sizeof *r->dgate);
    ops->project_bwd(ctx, &(struct project_grad_args){ .N = N,
                                                       .d = hidden,
                                                       .c = 1,
                                                       .sigmoid = true,
                                                       .scale = 2,
                                                       .x = r->gate,
                                                       .W = p->gate_out,
                                                       .y = r->beta,
                                                       .dy = r->dbeta,
                                                       .dx = r->dgate,
                                                       .dW = g->gate_out,
                                                       .db = g->gate_bias });
    ops->tanh_bwd(ctx,
                  &(struct tanh_grad_args){ .n = N * hidden, .y = r->gate, .dy = r->dgate, .dx = r->dgate });
    linear_back(b->backend, N, b->Z, hidden, z, p->gate_in, r->dgate, dz, dz_started, g->gate_in);
}

static ddl_status check_arrays(size_t n, const float *const *arrays, const char *const *names,
                               struct ddl_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (!arrays[i])
            return ddl_error_set(err, DDL_E_USAGE, "block: the array %s is NULL", names[i]);
    }
    return DDL_OK;
}

ddl_status ddl_block_forward(ddl_block *block, const struct ddl_block_params *params, size_t N,
                             const float *X, const float *v, float *X_out, float *beta, float *q,
                             struct ddl_error *err)
{
    static const char *const names[] = { "X", "v", "X_out" };
    ddl_status status = check_pass(block, N, params, "parameter", err);
    if (status || N == 0)
        return status;
    if ((status = check_arrays(3, (const float *const[]){ X, v, X_out }, names, err)))
        return status;
    const struct ddl_block_config *k = &block->config;
    ddl_backend *backend = block->backend;
    struct room *r = &block->room;
    struct ddl_staging s = { .backend = backend };
    struct ddl_block_params p = stage_params(block, &s, params, false);
    X = ddl_staging_in(&s, X, N * k->d * k->c);
    v = ddl_staging_in(&s, v, N * k->c);
    X_out = ddl_staging_out(&s, X_out, N * k->d * k->c);
    if (s.failed)
        return ddl_staging_finish(&s, err);
    const float *z = pooled(block, N, X);
    gate_fwd(block, &p, N, z);
    direction_fwd(block, &p, N, X, z);
    backend->ops->delta_fwd(backend->ctx, &(struct ddl_delta_args){ .N = N,
                                                                    .d = k->d,
                                                                    .c = k->c,
                                                                    .eps = k->eps,
                                                                    .X = X,
                                                                    .q = r->q,
                                                                    .v = v,
                                                                    .beta = r->beta,
                                                                    .X_out = X_out });
    if (beta)
        backend->ops->download(backend->ctx, beta, r->beta, N * sizeof *beta);
    if (q)
        backend->ops->download(backend->ctx, q, r->q, N * k->d * sizeof *q);
    return ddl_staging_finish(&s, err);
}

/* With everything where the ops can reach it. */
static void backward(ddl_block *b, const struct ddl_block_params *p, struct ddl_block_params *g, size_t N,
                     const float *X, const float *v, const float *G, float *dX, float *dv)
{
    const struct ddl_block_config *k = &b->config;
    const struct ddl_ops *ops = b->backend->ops;
    void *ctx = b->backend->ctx;
    struct room *r = &b->room;
    const float *z = pooled(b, N, X);
    gate_fwd(b, p, N, z);
    direction_fwd(b, p, N, X, z);
    ops->delta_bwd(ctx, &(struct ddl_delta_grad_args){ .N = N,
                                                       .d = k->d,
                                                       .c = k->c,
                                                       .eps = k->eps,
                                                       .X = X,
                                                       .q = r->q,
                                                       .v = v,
                                                       .beta = r->beta,
                                                       .G = G,
                                                       .dX = dX,
                                                       .dq = r->dq,
                                                       .dv = dv,
                                                       .dbeta = r->dbeta });
    bool flatten = k->pool == DDL_POOL_FLATTEN;
    bool dz_started = flatten; /* z is X, so dz adds to dX; else dz is written first */
    float *dz = flatten ? dX : r->dz;
    direction_bwd(b, p, g, N, X, z, dX, dz, &dz_started);
    gate_bwd(b, p, g, N, z, dz, dz_started);
    if (!flatten)
        ops->pool_bwd(ctx,
                      &(struct pool_grad_args){ .N = N, .d = k->d, .c = k->c, .X = X, .dz = dz, .dX = dX });
}

ddl_status ddl_block_backward(ddl_block *block, const struct ddl_block_params *params, size_t N,
                              const float *X, const float *v, const float *G, float *dX, float *dv,
                              struct ddl_block_params *grads, struct ddl_error *err)
{
    static const char *const names[] = { "X", "v", "G", "dX", "dv" };
    ddl_status status = check_pass(block, N, params, "parameter", err);
    if (!status)
        status = check_pass(block, N, grads, "gradient", err);
    if (status || N == 0)
        return status;
    if ((status = check_arrays(5, (const float *const[]){ X, v, G, dX, dv }, names, err)))
        return status;
    const struct ddl_block_config *k = &block->config;
    struct ddl_staging s = { .backend = block->backend };
    struct ddl_block_params p = stage_params(block, &s, params, false);
    struct ddl_block_params g = stage_params(block, &s, grads, true);
    X = ddl_staging_in(&s, X, N * k->d * k->c);
    v = ddl_staging_in(&s, v, N * k->c);
    G = ddl_staging_in(&s, G, N * k->d * k->c);
    dX = ddl_staging_out(&s, dX, N * k->d * k->c);
    dv = ddl_staging_out(&s, dv, N * k->c);
    if (!s.failed)
        backward(block, &p, &g, N, X, v, G, dX, dv);
    return ddl_staging_finish(&s, err);
}
