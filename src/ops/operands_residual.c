/* Residual rules other than delta, and sums of states. */
#include "ops/operands_internal.h"

static double product(size_t x, size_t y)
{
    return (double)x * (double)y;
}

void describe_f_norm_fwd(struct ddl_op_use *u, const struct f_norm_args *a)
{
    ITEMS(N, ALONE);
    UPDATE(f, ROW(a->d));
    WRITE(rstd, ROW(1), OPTIONAL);
    u->flops = 3 * product(a->N, a->d);
}

void describe_f_norm_bwd(struct ddl_op_use *u, const struct f_norm_grad_args *a)
{
    ITEMS(N, ALONE);
    READ(f, ROW(a->d));
    READ(rstd, ROW(1), VALUES(POSITIVE));
    UPDATE(df, ROW(a->d), CANCELS);
    WRITE(df16, ROW(a->d), OPTIONAL, CANCELS);
    u->flops = 5 * product(a->N, a->d);
}

void describe_scale_fwd(struct ddl_op_use *u, const struct scale_args *a)
{
    ITEMS(N, ALONE);
    READ(f, ROW(a->d));
    READ(lambda, NUMBERS(a->w), OPTIONAL);
    UPDATE(X, ROW(a->d));
    u->flops = 2 * product(a->N, a->d);
}

void describe_scale_bwd(struct ddl_op_use *u, const struct scale_grad_args *a)
{
    ITEMS(N, ALONE);
    READ(f, ROW(a->d));
    READ(lambda, NUMBERS(a->w), OPTIONAL);
    READ(G, ROW(a->d));
    UPDATE(X, ROW(a->d), OPTIONAL);
    WRITE(df, ROW(a->d), OPTIONAL);
    WRITE(df16, ROW(a->d), OPTIONAL);
    UPDATE(dlambda, NUMBERS(a->w), OPTIONAL);
    u->flops = 5 * product(a->N, a->d);
}

void describe_gated_fwd(struct ddl_op_use *u, const struct gated_args *a)
{
    ITEMS(N, ALONE);
    READ(f, ROW(a->d));
    READ(beta, ROW(1), VALUES(GATE));
    UPDATE(X, ROW(a->d));
    u->flops = 2 * product(a->N, a->d);
}

void describe_gated_bwd(struct ddl_op_use *u, const struct gated_grad_args *a)
{
    ITEMS(N, ALONE);
    READ(f, ROW(a->d));
    READ(beta, ROW(1), VALUES(GATE));
    READ(G, ROW(a->d));
    UPDATE(X, ROW(a->d), OPTIONAL);
    WRITE(df, ROW(a->d), OPTIONAL);
    WRITE(df16, ROW(a->d), OPTIONAL);
    WRITE(dbeta, ROW(1));
    u->flops = 5 * product(a->N, a->d);
}

void describe_highway_fwd(struct ddl_op_use *u, const struct highway_args *a)
{
    ITEMS(N, ALONE);
    READ(f, ROW(a->d));
    READ(b, NUMBERS(a->w));
    UPDATE(tau, ROW(a->w));
    UPDATE(X, ROW(a->d));
    u->flops = 4 * product(a->N, a->d) + 4 * product(a->N, a->w);
}

void describe_highway_bwd(struct ddl_op_use *u, const struct highway_grad_args *a)
{
    ITEMS(N, ALONE);
    READ(X, ROW(a->d));
    READ(f, ROW(a->d));
    READ(tau, ROW(a->w), VALUES(SHARE));
    READ(G, ROW(a->d));
    WRITE(dX, ROW(a->d), MAY_BE(G));
    WRITE(df, ROW(a->d), OPTIONAL);
    WRITE(df16, ROW(a->d), OPTIONAL);
    WRITE(dz, ROW(a->w), OPTIONAL);
    WRITE(dz16, ROW(a->w), OPTIONAL);
    UPDATE(db, NUMBERS(a->w));
    u->flops = 6 * product(a->N, a->d) + 4 * product(a->N, a->w);
}

void describe_laurel_fwd(struct ddl_op_use *u, const struct laurel_args *a)
{
    ITEMS(N, ALONE);
    READ(f, ROW(a->d));
    READ(mix, NUMBERS(2), OPTIONAL);
    UPDATE(low, ROW(a->r), .optional = a->r == 0);
    WRITE(low16, ROW(a->r), OPTIONAL);
    UPDATE(X, ROW(a->d));
    u->flops = 3 * product(a->N, a->d) + product(a->N, a->r);
}

void describe_laurel_bwd(struct ddl_op_use *u, const struct laurel_grad_args *a)
{
    ITEMS(N, ALONE);
    READ(X, ROW(a->d));
    WRITE(X16, ROW(a->d), OPTIONAL);
    READ(f, ROW(a->d));
    READ(mix, NUMBERS(2));
    READ(low, ROW(a->r), .optional = a->r == 0);
    READ(G, ROW(a->d));
    OPERAND(a->dlow16 ? DDL_READ : DDL_UPDATE, dlow, ROW(a->r), .optional = a->r == 0);
    WRITE(dlow16, ROW(a->r), OPTIONAL);
    WRITE(dX, ROW(a->d), MAY_BE(G));
    WRITE(df, ROW(a->d), OPTIONAL);
    WRITE(df16, ROW(a->d), OPTIONAL);
    UPDATE(dmix, NUMBERS(2));
    u->flops = 6 * product(a->N, a->d) + 3 * product(a->N, a->r);
}

void describe_weighted_sum(struct ddl_op_use *u, const struct weighted_sum_args *a)
{
    READ(X, MATRIX(a->n, a->count, a->X_stride));
    READ(w, MATRIX(a->n, 1, a->w_stride));
    OPERAND(a->accumulate ? DDL_UPDATE : DDL_WRITE, out, NUMBERS(a->count));
    WRITE(out16, NUMBERS(a->count), OPTIONAL);
    u->flops = 2 * product(a->n, a->count);
}

void describe_weighted_sum_bwd(struct ddl_op_use *u, const struct weighted_sum_grad_args *a)
{
    READ(X, MATRIX(a->n, a->count, a->X_stride));
    READ(G, NUMBERS(a->count));
    UPDATE(dw, NUMBERS(a->n));
    u->flops = 2 * product(a->n, a->count);
}

void describe_depth_fwd(struct ddl_op_use *u, const struct depth_args *a)
{
    ITEMS(N, ALONE);
    READ(blocks, EACH(a->n, a->d, a->stride, a->d), .optional = a->n == 0);
    READ(part, ROW(a->d));
    READ(q, NUMBERS(a->d));
    WRITE(alpha, ROWS(a->n + 1, a->width));
    WRITE(rms, ROWS(a->n + 1, a->width), .optional = true);
    WRITE(h, ROW(a->d));
    u->flops = 6 * product(a->N, a->d) * (double)(a->n + 1);
}

void describe_depth_bwd(struct ddl_op_use *u, const struct depth_grad_args *a)
{
    const struct depth_args *fwd = &a->fwd;
    ITEMS(fwd.N, ALONE);
    READ(fwd.blocks, EACH(fwd->n, fwd->d, fwd->stride, fwd->d), .optional = fwd->n == 0);
    READ(fwd.part, ROW(fwd->d));
    READ(fwd.q, NUMBERS(fwd->d));
    READ(dh, ROW(fwd->d));
    WRITE(alpha, ROWS(fwd->n + 1, fwd->width));
    WRITE(e, ROWS(fwd->n + 1, fwd->width), CANCELS);
    WRITE(dq, NUMBERS(fwd->d), CANCELS); /* a sum of e */
    u->flops = 8 * product(fwd->N, fwd->d) * (double)(fwd->n + 1);
}

void describe_source_bwd(struct ddl_op_use *u, const struct source_grad_args *a)
{
    ITEMS(N, ALONE);
    READ(v, ROW(a->d));
    READ(q, MATRIX(a->n, a->d, a->d));
    READ(alpha, EACH(a->n, 1, a->weights_stride, a->width), VALUES(SHARE));
    READ(e, EACH(a->n, 1, a->weights_stride, a->width));
    READ(dh, EACH(a->n, a->d, a->dh_stride, a->d));
    OPERAND(a->accumulate ? DDL_UPDATE : DDL_WRITE, dv, ROW(a->d), CANCELS);
    WRITE(dv16, ROW(a->d), OPTIONAL, CANCELS);
    u->flops = 4 * product(a->N, a->d) * (double)(a->n + 1);
}

/* ---- hyper-connections ---- */

/* Mixing weights of a token. */
static size_t weights(size_t n)
{
    return n * (n + 2);
}

void describe_streams_fold_fwd(struct ddl_op_use *u, const struct streams_fold_args *a)
{
    size_t width = a->d * a->n, rows = a->rows[0] + a->rows[1] + a->rows[2];
    READ(norm, NUMBERS(width), VALUES(POSITIVE));
    READ(W[0], MATRIX(a->rows[0], width, width), .optional = a->rows[0] == 0);
    READ(W[1], MATRIX(a->rows[1], width, width), .optional = a->rows[1] == 0);
    READ(W[2], MATRIX(a->rows[2], width, width), .optional = a->rows[2] == 0);
    WRITE(Wf, MATRIX(rows, width, width));
    u->flops = product(rows, width);
}

void describe_streams_fold_bwd(struct ddl_op_use *u, const struct streams_fold_grad_args *a)
{
    size_t width = a->d * a->n, rows = a->rows[0] + a->rows[1] + a->rows[2];
    READ(norm, NUMBERS(width), VALUES(POSITIVE));
    READ(W[0], MATRIX(a->rows[0], width, width), .optional = a->rows[0] == 0);
    READ(W[1], MATRIX(a->rows[1], width, width), .optional = a->rows[1] == 0);
    READ(W[2], MATRIX(a->rows[2], width, width), .optional = a->rows[2] == 0);
    READ(dWf, MATRIX(rows, width, width));
    UPDATE(dW[0], MATRIX(a->rows[0], width, width), .optional = a->rows[0] == 0);
    UPDATE(dW[1], MATRIX(a->rows[1], width, width), .optional = a->rows[1] == 0);
    UPDATE(dW[2], MATRIX(a->rows[2], width, width), .optional = a->rows[2] == 0);
    UPDATE(dnorm, NUMBERS(width));
    u->flops = 4 * product(rows, width);
}

void describe_streams_sum(struct ddl_op_use *u, const struct streams_sum_args *a)
{
    ITEMS(N, ALONE);
    READ(X, ROW(a->n * a->d));
    WRITE(y, ROW(a->d));
    u->flops = product(a->N, a->n * a->d);
}

void describe_streams_write_fwd(struct ddl_op_use *u, const struct streams_write_args *a)
{
    size_t width = a->n * a->d;
    ITEMS(N, ALONE);
    READ(X, ROW(width));
    READ(w, ROW(weights(a->n)));
    READ(f, ROW(a->d));
    WRITE(X_out, ROW(width), MAY_BE(X));
    u->flops = 2 * product(a->N, width) * (double)(a->n + 1);
}

/* The first n numbers of a row of dw, the gradient of r, are left as they are. */
void describe_streams_write_bwd(struct ddl_op_use *u, const struct streams_write_grad_args *a)
{
    size_t width = a->n * a->d;
    ITEMS(N, ALONE);
    READ(X, ROW(width));
    READ(w, ROW(weights(a->n)));
    READ(f, ROW(a->d));
    READ(G, ROW(width));
    WRITE(df, ROW(a->d), OPTIONAL);
    WRITE(df16, ROW(a->d), OPTIONAL);
    UPDATE(dw, ROW(weights(a->n)));
    WRITE(x_in, ROW(a->d), OPTIONAL);
    u->flops = 2 * product(a->N, width) * (double)(a->n + 3);
}

void describe_hyper_fwd(struct ddl_op_use *u, const struct hyper_args *a)
{
    size_t n = a->n, width = n * a->d;
    ITEMS(N, ALONE);
    READ(X, ROW(width));
    READ(alpha, NUMBERS(n * (n + 1)));
    READ(beta, NUMBERS(n));
    READ(Wf, MATRIX(n + 2, a->d, a->d), OPTIONAL);
    READ(a, NUMBERS(1), OPTIONAL);
    READ(e, NUMBERS(1), OPTIONAL);
    WRITE(t, ROW(weights(n)), OPTIONAL);
    WRITE(rstd, ROW(n), OPTIONAL);
    WRITE(w, ROW(weights(n)));
    WRITE(x_in, ROW(a->d));
    u->flops = 2 * product(a->N, width) * (a->Wf ? (double)n + 4 : 1);
}

void describe_hyper_bwd(struct ddl_op_use *u, const struct hyper_grad_args *a)
{
    size_t n = a->n, width = n * a->d;
    ITEMS(N, ALONE);
    READ(X, ROW(width));
    READ(Wf, MATRIX(n + 2, a->d, a->d), OPTIONAL);
    READ(a, NUMBERS(1), OPTIONAL);
    READ(e, NUMBERS(1), OPTIONAL);
    READ(t, ROW(weights(n)), VALUES(COSINE), OPTIONAL);
    READ(rstd, ROW(n), VALUES(POSITIVE), OPTIONAL);
    READ(w, ROW(weights(n)));
    READ(dw, ROW(weights(n)));
    READ(dx_in, ROW(a->d));
    UPDATE(dX, ROW(width));
    WRITE(dz, ROW(weights(n)), OPTIONAL);
    UPDATE(dalpha, NUMBERS(n * (n + 1)));
    UPDATE(dbeta, NUMBERS(n));
    UPDATE(da, NUMBERS(1), OPTIONAL);
    UPDATE(de, NUMBERS(1), OPTIONAL);
    WRITE(dWf, MATRIX(n + 2, a->d, a->d), OPTIONAL);
    u->flops = 2 * product(a->N, width) * (double)(n + 2 + (a->Wf ? 2 * (n + 2) : 0));
}

void describe_mhc_fwd(struct ddl_op_use *u, const struct mhc_args *a)
{
    size_t n = a->n, width = n * a->d;
    ITEMS(N, ALONE);
    READ(X, ROW(width));
    READ(Wf, MATRIX(weights(n), width, width));
    READ(bias[0], NUMBERS(n));
    READ(bias[1], NUMBERS(n));
    READ(bias[2], NUMBERS(n * n));
    READ(scale[0], NUMBERS(1), VALUES(POSITIVE));
    READ(scale[1], NUMBERS(1), VALUES(POSITIVE));
    READ(scale[2], NUMBERS(1), VALUES(POSITIVE));
    WRITE(t, ROW(weights(n)));
    WRITE(rstd, ROW(1));
    WRITE(w, ROW(weights(n)));
    WRITE(x_in, ROW(a->d));
    u->flops = 2 * product(a->N, width) * (double)(weights(n) + 2) +
               (double)a->N * (double)(a->iterations * 4 * n * n);
}

void describe_mhc_bwd(struct ddl_op_use *u, const struct mhc_grad_args *a)
{
    size_t n = a->n, width = n * a->d;
    ITEMS(N, ALONE);
    READ(X, ROW(width));
    READ(Wf, MATRIX(weights(n), width, width));
    READ(bias[0], NUMBERS(n));
    READ(bias[1], NUMBERS(n));
    READ(bias[2], NUMBERS(n * n));
    READ(scale[0], NUMBERS(1), VALUES(POSITIVE));
    READ(scale[1], NUMBERS(1), VALUES(POSITIVE));
    READ(scale[2], NUMBERS(1), VALUES(POSITIVE));
    READ(t, ROW(weights(n)), VALUES(COSINE));
    READ(rstd, ROW(1), VALUES(POSITIVE));
    READ(w, ROW(weights(n)), VALUES(SHARE));
    READ(dw, ROW(weights(n)));
    READ(dx_in, ROW(a->d));
    UPDATE(dX, ROW(width));
    WRITE(dz, ROW(weights(n)));
    UPDATE(dbias[0], NUMBERS(n));
    UPDATE(dbias[1], NUMBERS(n));
    UPDATE(dbias[2], NUMBERS(n * n));
    UPDATE(dscale[0], NUMBERS(1));
    UPDATE(dscale[1], NUMBERS(1));
    UPDATE(dscale[2], NUMBERS(1));
    WRITE(dWf, MATRIX(weights(n), width, width));
    u->flops = 2 * product(a->N, width) * (double)(2 * weights(n) + n + 2) +
               (double)a->N * (double)(a->iterations * 8 * n * n);
}
