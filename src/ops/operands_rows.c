/* Ops on rows and numbers: norms, projections, activations, sums, the optimizer. */
#include "ops/operands_internal.h"

static double product(size_t x, size_t y)
{
    return (double)x * (double)y;
}

void describe_rmsnorm_fwd(struct ddl_op_use *u, const struct rmsnorm_args *a)
{
    ITEMS(N, ALONE);
    READ(x, ROW(a->d));
    READ(w, NUMBERS(a->d), VALUES(POSITIVE));
    WRITE(y, ROW(a->d), MAY_BE(x), OPTIONAL);
    WRITE(y16, ROW(a->d), OPTIONAL);
    WRITE(x16, ROW(a->d), OPTIONAL);
    WRITE(rstd, ROW(1), OPTIONAL);
    u->flops = 4 * product(a->N, a->d);
}

void describe_rmsnorm_bwd(struct ddl_op_use *u, const struct rmsnorm_grad_args *a)
{
    ITEMS(N, ALONE);
    READ(x, ROW(a->d));
    READ(w, NUMBERS(a->d), VALUES(POSITIVE));
    READ(rstd, ROW(1), VALUES(POSITIVE));
    READ(dy, ROW(a->d));
    if (a->accumulate)
        UPDATE(dx, ROW(a->d), CANCELS);
    else
        WRITE(dx, ROW(a->d), MAY_BE(dy), CANCELS);
    WRITE(dx16, ROW(a->d), OPTIONAL, CANCELS);
    UPDATE(dw, NUMBERS(a->d));
    u->flops = 10 * product(a->N, a->d);
}

void describe_project_fwd(struct ddl_op_use *u, const struct project_args *a)
{
    ITEMS(N, ALONE);
    READ(x, ROW(a->d));
    READ(W, MATRIX(a->c, a->d, a->d));
    READ(b, NUMBERS(a->c));
    WRITE(y, ROW(a->c));
    u->flops = 2 * product(a->N, a->d) * (double)a->c;
}

void describe_project_bwd(struct ddl_op_use *u, const struct project_grad_args *a)
{
    ITEMS(N, ALONE);
    READ(x, ROW(a->d));
    READ(W, MATRIX(a->c, a->d, a->d));
    READ(y, ROW(a->c), VALUES(GATE));
    READ(dy, ROW(a->c));
    UPDATE(dx, ROW(a->d));
    WRITE(dx16, ROW(a->d), OPTIONAL);
    UPDATE(dW, MATRIX(a->c, a->d, a->d));
    UPDATE(db, NUMBERS(a->c));
    u->flops = 4 * product(a->N, a->d) * (double)a->c;
}

void describe_swiglu_fwd(struct ddl_op_use *u, const struct swiglu_args *a)
{
    ITEMS(N, ALONE);
    READ(ug, ROWS(2 * a->m, a->ug_stride), OPTIONAL);
    READ(ug16, ROWS(2 * a->m, a->ug_stride), OPTIONAL);
    WRITE(s, ROWS(a->m, a->s_stride), OPTIONAL);
    WRITE(s16, ROWS(a->m, a->s_stride), OPTIONAL);
    u->flops = 5 * product(a->N, a->m);
}

void describe_swiglu_bwd(struct ddl_op_use *u, const struct swiglu_grad_args *a)
{
    ITEMS(N, ALONE);
    READ(ug, ROWS(2 * a->m, a->ug_stride), OPTIONAL);
    READ(ug16, ROWS(2 * a->m, a->ug_stride), OPTIONAL);
    READ(ds, ROW(a->m));
    WRITE(dug, ROWS(2 * a->m, a->ug_stride), MAY_BE(ug), OPTIONAL);
    WRITE(dug16, ROWS(2 * a->m, a->ug_stride), MAY_BE(ug16), OPTIONAL);
    u->flops = 11 * product(a->N, a->m);
}

void describe_tanh_fwd(struct ddl_op_use *u, const struct tanh_args *a)
{
    READ(x, NUMBERS(a->n));
    WRITE(y, NUMBERS(a->n), MAY_BE(x));
    u->flops = (double)a->n;
}

void describe_tanh_bwd(struct ddl_op_use *u, const struct tanh_grad_args *a)
{
    READ(y, NUMBERS(a->n), VALUES(COSINE));
    READ(dy, NUMBERS(a->n));
    WRITE(dx, NUMBERS(a->n), MAY_BE(dy));
    u->flops = 3 * (double)a->n;
}

void describe_gelu_fwd(struct ddl_op_use *u, const struct gelu_args *a)
{
    READ(x, NUMBERS(a->n));
    WRITE(y, NUMBERS(a->n));
    u->flops = 5 * (double)a->n;
}

void describe_gelu_bwd(struct ddl_op_use *u, const struct gelu_grad_args *a)
{
    READ(x, NUMBERS(a->n));
    READ(dy, NUMBERS(a->n));
    WRITE(dx, NUMBERS(a->n), MAY_BE(dy));
    u->flops = 10 * (double)a->n;
}

void describe_bias_fwd(struct ddl_op_use *u, const struct bias_args *a)
{
    ITEMS(N, ALONE);
    READ(b, NUMBERS(a->d));
    UPDATE(y, ROW(a->d));
    u->flops = product(a->N, a->d);
}

void describe_bias_bwd(struct ddl_op_use *u, const struct bias_grad_args *a)
{
    READ(dy, MATRIX(a->N, a->d, a->d));
    UPDATE(db, NUMBERS(a->d));
    u->flops = product(a->N, a->d);
}

void describe_sum(struct ddl_op_use *u, const struct sum_args *a)
{
    READ(x, NUMBERS(a->n));
    WRITE(sum, NUMBERS(1));
    u->flops = (double)a->n;
}

/* The arrays of a list of parts. */
#define PARTS()                                                                                              \
    READ(parts.begin, NUMBERS(a->parts.n), VALUES(PART_BEGIN), .below = a->parts.total);                     \
    READ(parts.size, NUMBERS(a->parts.n), VALUES(PART_SIZE), .below = a->parts.total)

void describe_sum_squares(struct ddl_op_use *u, const struct sum_squares_args *a)
{
    PARTS();
    READ(x, NUMBERS(a->parts.total), .touched = a->parts.numbers);
    READ(into, NUMBERS(a->parts.n), VALUES(INDEX), .below = a->sums, OPTIONAL);
    WRITE(sum, NUMBERS(a->sums));
    u->flops = 2 * (double)a->parts.numbers;
}

void describe_fill(struct ddl_op_use *u, const struct fill_args *a)
{
    WRITE(x, NUMBERS(a->n));
}

void describe_clip(struct ddl_op_use *u, const struct clip_args *a)
{
    READ(losses, NUMBERS(a->n));
    READ(square, NUMBERS(1), VALUES(POSITIVE));
    WRITE(factor, NUMBERS(1));
    u->flops = 3;
}

void describe_adamw(struct ddl_op_use *u, const struct adamw_args *a)
{
    size_t numbers = a->parts.numbers;
    PARTS();
    READ(moments, NUMBERS(a->parts.n), VALUES(PART_BEGIN), .below = a->n_moments);
    READ(copy, NUMBERS(a->parts.n), VALUES(PART_COPY), .below = a->copies, OPTIONAL);
    READ(lr_scale, NUMBERS(a->parts.n), VALUES(POSITIVE));
    READ(weight_decay, NUMBERS(a->parts.n), VALUES(SHARE));
    UPDATE(p, NUMBERS(a->parts.total), .touched = numbers);
    WRITE(p16, NUMBERS(a->copies), OPTIONAL, .touched = numbers < a->copies ? numbers : a->copies);
    READ(g, NUMBERS(a->parts.total), .touched = numbers);
    UPDATE(m, NUMBERS(a->n_moments), .touched = numbers);
    UPDATE(v, NUMBERS(a->n_moments), VALUES(POSITIVE), .touched = numbers);
    READ(g_scale, NUMBERS(1), VALUES(SHARE));
    READ(rates, NUMBERS(DDL_RATES), VALUES(POSITIVE));
    u->flops = 14 * (double)numbers;
}

/* ---- the loss ---- */

void describe_cross_entropy(struct ddl_op_use *u, const struct cross_entropy_args *a)
{
    ITEMS(N, ALONE);
    OPERAND(a->grad ? DDL_UPDATE : DDL_READ, z, ROW(a->V));
    READ(targets, ROW(1), VALUES(TARGET), .below = a->V);
    if (a->grad)
        READ(grad_scale, NUMBERS(1), VALUES(SHARE));
    WRITE(loss, ROW(1));
    u->flops = (a->grad ? 7 : 4) * product(a->N, a->V);
}

/* The first tile initializes top and total; at_target is written where the tile has the row's target. */
void describe_loss_tile(struct ddl_op_use *u, const struct loss_tile_args *a)
{
    enum ddl_access sums = a->first ? DDL_UPDATE : DDL_WRITE;
    ITEMS(N, ALONE);
    READ(z, ROW(a->n));
    READ(targets, ROW(1), VALUES(TARGET), .below = a->first + a->n);
    OPERAND(sums, top, ROW(1));
    OPERAND(sums, total, ROW(1), VALUES(TOTAL));
    UPDATE(at_target, ROW(1));
    WRITE(loss, ROW(1), OPTIONAL);
    u->flops = 4 * product(a->N, a->n);
}

void describe_loss_grad(struct ddl_op_use *u, const struct loss_grad_args *a)
{
    ITEMS(N, ALONE);
    READ(z, ROW(a->n));
    READ(targets, ROW(1), VALUES(TARGET), .below = a->first + a->n);
    READ(top, ROW(1), VALUES(POSITIVE));
    READ(total, ROW(1), VALUES(TOTAL));
    READ(grad_scale, NUMBERS(1), VALUES(SHARE));
    WRITE(dz, ROW(a->n));
    u->flops = 4 * product(a->N, a->n);
}

void describe_rank(struct ddl_op_use *u, const struct rank_args *a)
{
    ITEMS(N, ALONE);
    READ(z, ROW(a->V));
    READ(targets, ROW(1), VALUES(TARGET), .below = a->V);
    WRITE(rank, ROW(1));
    WRITE(entropy, ROW(1), OPTIONAL);
    u->flops = 6 * product(a->N, a->V);
}

void describe_likeliest(struct ddl_op_use *u, const struct likeliest_args *a)
{
    ITEMS(N, ALONE);
    READ(z, ROW(a->V));
    WRITE(id, ROW(a->k));
    WRITE(logprob, ROW(a->k));
    u->flops = 4 * product(a->N, a->V);
}

void describe_choose(struct ddl_op_use *u, const struct choose_args *a)
{
    ITEMS(N, ALONE);
    UPDATE(z, ROW(a->V), .touched = a->N * a->n);
    READ(changed, ROW(a->changes), VALUES(DISTINCT), .below = a->n);
    READ(repeat, ROW(a->changes), VALUES(POSITIVE));
    READ(shift, ROW(a->changes));
    WRITE(before, ROW(a->changes));
    READ(temperature, ROW(1), VALUES(GATE));
    READ(top_k, ROW(1), VALUES(INDEX), .below = a->n);
    READ(top_p, ROW(1), VALUES(SHARE));
    READ(min_p, ROW(1), VALUES(SHARE));
    READ(u, ROW(1), VALUES(SHARE));
    UPDATE(id, ROW(1), VALUES(TARGET), .below = a->V);
    u->flops = 4 * product(a->N, a->n);
}
