/* The head: final norm, logits = E x s, mean cross-entropy (spec 2). Logits exist a block of rows at a time.
 */
#include "model/internal.h"

static const float norm_eps = 1e-5f;

static void final_norm(const struct pass *p, size_t N, const float *x, float *y)
{
    p->ops->rmsnorm_fwd(p->ctx, &(struct rmsnorm_args){ .N = N,
                                                        .d = p->config->d_model,
                                                        .eps = norm_eps,
                                                        .x = x,
                                                        .w = param_value(p, p->m->params.slots.ln_f),
                                                        .y = y,
                                                        .rstd = p->ws->rstd });
}

/* z (rows, V) = scale x E^T */
static void logits_fwd(const struct pass *p, size_t rows, const float *x)
{
    size_t d = p->config->d_model, V = p->config->vocab_size;
    p->ops->matmul(p->ctx, &(struct matmul_args){ .trans_b = true,
                                                  .M = rows,
                                                  .N = V,
                                                  .K = d,
                                                  .alpha = ddl_config_logit_scale(p->config),
                                                  .A = x,
                                                  .lda = d,
                                                  .B = param_value(p, p->m->params.slots.wte),
                                                  .ldb = d,
                                                  .C = p->ws->logits,
                                                  .ldc = V });
}

/* dx = scale dz E, dE += scale dz^T x */
static void logits_bwd(const struct pass *p, size_t rows, const float *x, float *dx)
{
    size_t d = p->config->d_model, V = p->config->vocab_size;
    float scale = ddl_config_logit_scale(p->config);
    p->ops->matmul(p->ctx, &(struct matmul_args){ .M = rows,
                                                  .N = d,
                                                  .K = V,
                                                  .alpha = scale,
                                                  .A = p->ws->logits,
                                                  .lda = V,
                                                  .B = param_value(p, p->m->params.slots.wte),
                                                  .ldb = d,
                                                  .C = dx,
                                                  .ldc = d });
    p->ops->matmul(p->ctx, &(struct matmul_args){ .trans_a = true,
                                                  .M = V,
                                                  .N = d,
                                                  .K = rows,
                                                  .alpha = scale,
                                                  .A = p->ws->logits,
                                                  .lda = V,
                                                  .B = x,
                                                  .ldb = d,
                                                  .beta = 1,
                                                  .C = param_grad(p, p->m->params.slots.wte),
                                                  .ldc = d });
}

void head_loss(const struct pass *p, const float *x_out, bool grad, float scale, float *dx_out)
{
    struct ddl_workspace *ws = p->ws;
    size_t d = p->config->d_model, V = p->config->vocab_size;
    final_norm(p, p->N, x_out, ws->ctx);
    for (size_t row = 0; row < p->N; row += ws->logit_rows) {
        size_t rows = p->N - row < ws->logit_rows ? p->N - row : ws->logit_rows;
        logits_fwd(p, rows, ws->ctx + row * d);
        p->ops->cross_entropy(p->ctx, &(struct cross_entropy_args){ .N = rows,
                                                                    .V = V,
                                                                    .z = ws->logits,
                                                                    .targets = ws->targets + row,
                                                                    .grad = grad,
                                                                    .grad_scale = scale,
                                                                    .loss = ws->losses + row });
        if (grad)
            logits_bwd(p, rows, ws->ctx + row * d, ws->dctx + row * d);
    }
    if (grad) {
        int slot = p->m->params.slots.ln_f;
        p->ops->rmsnorm_bwd(p->ctx, &(struct rmsnorm_grad_args){ .N = p->N,
                                                                 .d = d,
                                                                 .x = x_out,
                                                                 .w = param_value(p, slot),
                                                                 .rstd = ws->rstd,
                                                                 .dy = ws->dctx,
                                                                 .dx = dx_out,
                                                                 .dw = param_grad(p, slot) });
    }
}

/* The last `rows` positions of every sequence: gathered side by side, normed, multiplied, downloaded block by
 * block. */
void head_logits(const struct pass *p, const float *x_out, size_t rows, float *host)
{
    struct ddl_workspace *ws = p->ws;
    size_t d = p->config->d_model, V = p->config->vocab_size;
    for (size_t b = 0; b < p->B; b++)
        p->ops->copy(p->ctx, &(struct copy_args){ 1, rows * d, x_out + ((b + 1) * p->T - rows) * d, rows * d,
                                                  ws->ctx + b * rows * d, rows * d });
    final_norm(p, p->B * rows, ws->ctx, ws->ctx);
    for (size_t row = 0; row < p->B * rows; row += ws->logit_rows) {
        size_t n = p->B * rows - row < ws->logit_rows ? p->B * rows - row : ws->logit_rows;
        logits_fwd(p, n, ws->ctx + row * d);
        p->ops->download(p->ctx, host + row * V, ws->logits, n * V * sizeof *host);
    }
}
