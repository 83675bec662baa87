/* The head: final norm, logits = E x s, mean cross-entropy (docs/equations.md, 8). Logits exist a block at a
 * time: of rows in float32, and in bfloat16 where the backend says how large; else of columns in bfloat16,
 * whose products are so fast on a CPU that logits cost more to write to memory and read than to compute, so
 * that they are computed twice: for the loss's sums, then for its gradient. */
#include "model/pass/head.h"
#include "model/pass/cache.h"
#include "model/params/gradients.h"
#include "model/pass/linear.h"
#include "model/pass/scores.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"
#include "model/pass/workspace.h"

/* A block of the logits, and of the normed rows in ctx that they come from. */
struct part {
    size_t row, rows, column, columns;
};

/* ctx = norm(x), N rows, in the format that the product reads. */
static void final_norm(const struct pass *p, size_t N, const float *x)
{
    const struct ddl_workspace *ws = p->ws;
    const struct activation ctx = { .value = ws->ctx16 ? NULL : ws->ctx, .bf16 = ws->ctx16 };
    size_t d = p->config->d_model;
    p->ops->rmsnorm_fwd(p->ctx, &(struct rmsnorm_args){ .N = N,
                                                        .d = d,
                                                        .eps = NORM_EPS,
                                                        .x = x,
                                                        .w = param_value(p, p->m->params.model.ln_f),
                                                        .y = ctx.value,
                                                        .y16 = ctx.bf16,
                                                        .rstd = ws->rstd });
    probe_activation(p, "ctx", ctx, N, d);
}

/* The product that makes a part's logits: z = scale x E^T, with its columns' rows of the embedding. */
static struct linear product_of(const struct pass *p, struct part part, struct weight E)
{
    size_t d = p->config->d_model;
    return (struct linear){ .N = part.rows,
                            .in = d,
                            .out = part.columns,
                            .scale = ddl_config_logit_scale(p->config),
                            .W = { .form = operand_rows(E.form, part.column, d),
                                   .grad = E.grad ? E.grad + part.column * d : NULL,
                                   .grad_is_zero = E.grad_is_zero,
                                   .tf32 = E.tf32 } };
}

static struct operand normed(const struct pass *p, struct part part)
{
    const struct operand all = { .value = p->ws->ctx, .bf16 = p->ws->ctx16 };
    return operand_rows(all, part.row, p->config->d_model);
}

/* z of the part, in the workspace's logits (rows, columns). */
static void logits_fwd(const struct pass *p, struct part part)
{
    const struct linear l = product_of(p, part, param_weight(p, p->m->params.model.wte));
    product_fwd(p, &l, normed(p, part), (struct activation){ .value = p->ws->logits }, false);
}

/* From the part's dz: dE += scale dz^T x, and its share of dx = scale dz E in dctx. */
static void logits_bwd(const struct pass *p, struct part part, struct weight E, struct operand dz)
{
    const struct linear l = product_of(p, part, E);
    product_bwd(p, &l, normed(p, part), dz, (struct activation){ .value = p->ws->dctx + part.row * l.in },
                part.column > 0);
}

/* bfloat16: adds a part's logits to the sums of its rows' losses; the last columns give the losses. */
static void loss_of_tile(const struct pass *p, struct part part)
{
    const struct ddl_workspace *ws = p->ws;
    bool last = part.column + part.columns == p->config->vocab_size;
    p->ops->loss_tile(p->ctx, &(struct loss_tile_args){ .N = part.rows,
                                                        .n = part.columns,
                                                        .first = part.column,
                                                        .z = ws->logits,
                                                        .targets = ws->targets + part.row,
                                                        .top = ws->top + part.row,
                                                        .at_target = ws->at_target + part.row,
                                                        .loss = last ? ws->losses + part.row : NULL,
                                                        .total = ws->total + part.row });
}

/* bfloat16: dz of a part's logits, whose rows' sums are complete, and what comes of it. */
static void part_bwd(const struct pass *p, struct part part, struct weight E)
{
    const struct ddl_workspace *ws = p->ws;
    p->ops->loss_grad(p->ctx, &(struct loss_grad_args){ .N = part.rows,
                                                        .n = part.columns,
                                                        .first = part.column,
                                                        .z = ws->logits,
                                                        .targets = ws->targets + part.row,
                                                        .top = ws->top + part.row,
                                                        .total = ws->total + part.row,
                                                        .grad_scale = ws->grad_scale,
                                                        .dz = ws->dz16 });
    logits_bwd(p, part, E, (struct operand){ .bf16 = ws->dz16 });
}

/* float32, and ranks: losses of a part with whole rows; z becomes dz if `grad`. */
static void score_part(const struct pass *p, struct part part, bool grad)
{
    const struct ddl_workspace *ws = p->ws;
    size_t V = p->config->vocab_size;
    p->ops->cross_entropy(p->ctx, &(struct cross_entropy_args){ .N = part.rows,
                                                                .V = V,
                                                                .z = ws->logits,
                                                                .targets = ws->targets + part.row,
                                                                .grad = grad,
                                                                .grad_scale = ws->grad_scale,
                                                                .loss = ws->losses + part.row });
    if (ws->ranks)
        p->ops->rank(p->ctx, &(struct rank_args){ .N = part.rows,
                                                  .V = V,
                                                  .z = ws->logits,
                                                  .targets = ws->targets + part.row,
                                                  .rank = ws->ranks + part.row,
                                                  .entropy = ws->entropies + part.row });
}

static void loss_by_rows(const struct pass *p, bool grad)
{
    const struct ddl_workspace *ws = p->ws;
    size_t V = p->config->vocab_size, step = ws->logit_rows;
    bool by_tiles = ws->top != NULL;
    for (size_t row = 0; row < p->N && !probe_stopped(p); row += step) {
        struct part part = { row, p->N - row < step ? p->N - row : step, 0, V };
        logits_fwd(p, part);
        probe_rows(p, "logits", ws->logits, row, part.rows, V);
        if (by_tiles)
            loss_of_tile(p, part);
        else
            score_part(p, part, grad);
        probe_rows(p, "loss", ws->losses + row, row, part.rows, 1);
        if (!grad)
            continue;
        probe_enter(p, true, DDL_NO_LAYER, "head");
        struct weight E = param_weight_bwd(p, p->m->params.model.wte);
        if (by_tiles) {
            part_bwd(p, part, E);
        } else {
            probe_rows(p, "dlogits", ws->logits, row, part.rows, V);
            logits_bwd(p, part, E, (struct operand){ .value = ws->logits });
        }
        probe_enter(p, false, DDL_NO_LAYER, "head");
    }
}

/* Tile number i of the logits; columns 0 past the last. */
static struct part tile(const struct pass *p, size_t i)
{
    size_t V = p->config->vocab_size, width = p->ws->tile, first = i * width;
    size_t left = first < V ? V - first : 0;
    return (struct part){ 0, p->N, first, left < width ? left : width };
}

static void loss_by_tiles(const struct pass *p, bool grad)
{
    const struct ddl_workspace *ws = p->ws;
    struct part part;
    for (size_t i = 0; (part = tile(p, i)).columns > 0 && !probe_stopped(p); i++) {
        logits_fwd(p, part);
        probe_tensor(p, "logits", ws->logits, part.columns);
        loss_of_tile(p, part);
    }
    probe_tensor(p, "loss", ws->losses, 1);
    if (!grad)
        return;
    struct weight E = param_weight_bwd(p, p->m->params.model.wte); /* filled by all tiles together */
    for (size_t i = 0; (part = tile(p, i)).columns > 0; i++) {
        logits_fwd(p, part);
        part_bwd(p, part, E);
    }
}

void head_loss(const struct pass *p, const float *x_out, bool grad, float *dx_out)
{
    const struct ddl_workspace *ws = p->ws;
    int param = p->m->params.model.ln_f;
    final_norm(p, p->N, x_out);
    (ws->tile ? loss_by_tiles : loss_by_rows)(p, grad);
    if (grad) {
        probe_enter(p, true, DDL_NO_LAYER, "head");
        probe_grad(p, p->m->params.model.wte);
        probe_tensor(p, "dctx", ws->dctx, p->config->d_model);
        p->ops->rmsnorm_bwd(p->ctx, &(struct rmsnorm_grad_args){ .N = p->N,
                                                                 .d = p->config->d_model,
                                                                 .x = x_out,
                                                                 .w = param_value(p, param),
                                                                 .rstd = ws->rstd,
                                                                 .dy = ws->dctx,
                                                                 .dx = dx_out,
                                                                 .dx16 = dx_out == ws->dX ? ws->dX16 : NULL,
                                                                 .dw = param_grad(p, param) });
        probe_grad(p, param);
        probe_tensor(p, dx_out == ws->dX ? "dX" : "dx_in", dx_out, p->config->d_model);
    }
}

/* Gathers the last `rows` positions of every sequence. */
void head_logits(const struct pass *p, const float *x_out, size_t rows, float *host)
{
    const struct ddl_workspace *ws = p->ws;
    size_t d = p->config->d_model, V = p->config->vocab_size, N = p->B * rows, step = ws->logit_rows;
    p->ops->copy(p->ctx, &(struct copy_args){ .batch = p->B,
                                              .rows = rows,
                                              .width = d,
                                              .src = x_out + (p->T - rows) * d,
                                              .src_stride = d,
                                              .src_batch = p->T * d,
                                              .dst = ws->ctx,
                                              .dst_stride = d,
                                              .dst_batch = rows * d });
    final_norm(p, N, ws->ctx);
    for (size_t row = 0; row < N; row += step) {
        struct part part = { row, N - row < step ? N - row : step, 0, V };
        logits_fwd(p, part);
        p->ops->download(p->ctx, host + row * V, ws->logits, part.rows * V * sizeof *host);
    }
}

void head_outputs(const struct pass *p, const float *x_out, const struct ddl_decode_batch *batch)
{
    const struct ddl_workspace *ws = p->ws;
    size_t d = p->config->d_model, V = p->config->vocab_size, n = batch->n_outputs, step = ws->logit_rows;
    p->ops->gather(
        p->ctx, &(struct gather_args){
                    .N = n, .width = d, .rows = p->N, .index = p->cache->outputs, .x = x_out, .y = ws->ctx });
    final_norm(p, n, ws->ctx);
    for (size_t row = 0; row < n && !probe_stopped(p); row += step) {
        struct part part = { row, n - row < step ? n - row : step, 0, V };
        logits_fwd(p, part);
        probe_rows(p, "logits", ws->logits, row, part.rows, V);
        scores_of_rows(p, batch->outputs + row, part.rows);
    }
}
