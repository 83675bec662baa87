/* Rotary embedding, mixing of values, attention. */
#include "ops/operands_internal.h"

/* Dense: a sequence is an item, T rows of it. Ragged: B T = N rows. */
#define SEQUENCES(rows, width, stride) EACH(rows, width, stride, (rows) * (stride))

void describe_rope_fwd(struct ddl_op_use *u, const struct rope_args *a)
{
    size_t half = a->R / 2, width = a->H * a->h, positions = a->ragged.B ? a->ragged.max_span : a->T;
    ITEMS(B, ALONE);
    operands_ragged(u, a, &a->ragged);
    READ(cos, MATRIX(positions, half, half), VALUES(COSINE));
    READ(sin, MATRIX(positions, half, half), VALUES(SINE));
    READ(x, SEQUENCES(a->T, width, a->x_stride), OPTIONAL);
    READ(x16, SEQUENCES(a->T, width, a->x_stride), OPTIONAL);
    READ(w, NUMBERS(a->h), VALUES(POSITIVE), OPTIONAL);
    WRITE(y, SEQUENCES(a->T, width, a->y_stride), OPTIONAL);
    WRITE(y16, SEQUENCES(a->T, width, a->y_stride), OPTIONAL);
    u->flops = (double)(a->B * a->T * a->H) * (3 * (double)a->R + (a->w ? 4 * (double)a->h : 0));
}

void describe_rope_bwd(struct ddl_op_use *u, const struct rope_grad_args *a)
{
    size_t half = a->R / 2, width = a->H * a->h;
    ITEMS(B, ALONE);
    READ(cos, MATRIX(a->T, half, half), VALUES(COSINE));
    READ(sin, MATRIX(a->T, half, half), VALUES(SINE));
    READ(x, SEQUENCES(a->T, width, a->x_stride), OPTIONAL);
    READ(x16, SEQUENCES(a->T, width, a->x_stride), OPTIONAL);
    READ(w, NUMBERS(a->h), VALUES(POSITIVE), OPTIONAL);
    READ(dy, SEQUENCES(a->T, width, a->dy_stride), OPTIONAL);
    READ(dy16, SEQUENCES(a->T, width, a->dy_stride), OPTIONAL);
    WRITE(dx, SEQUENCES(a->T, width, a->dx_stride), MAY_BE(dy), CANCELS, OPTIONAL);
    WRITE(dx16, SEQUENCES(a->T, width, a->dx_stride), MAY_BE(dy16), CANCELS, OPTIONAL);
    UPDATE(dw, NUMBERS(a->h), OPTIONAL);
    u->flops = (double)(a->B * a->T * a->H) * (6 * (double)a->R + (a->w ? 10 * (double)a->h : 0));
}

void describe_mix_values_fwd(struct ddl_op_use *u, const struct mix_values_args *a)
{
    ITEMS(N, ALONE);
    READ(v, ROWS(a->width, a->v_stride), OPTIONAL);
    READ(v16, ROWS(a->width, a->v_stride), OPTIONAL);
    READ(first, ROW(a->width), OPTIONAL);
    READ(first16, ROW(a->width), OPTIONAL);
    READ(mix, NUMBERS(2), OPTIONAL);
    WRITE(y, ROWS(a->width, a->y_stride), MAY_BE(v), OPTIONAL);
    WRITE(y16, ROWS(a->width, a->y_stride), MAY_BE(v16), OPTIONAL);
    u->flops = 3 * (double)a->N * (double)a->width;
}

void describe_mix_values_bwd(struct ddl_op_use *u, const struct mix_values_grad_args *a)
{
    ITEMS(N, ALONE);
    READ(v, ROWS(a->width, a->v_stride), OPTIONAL);
    READ(v16, ROWS(a->width, a->v_stride), OPTIONAL);
    READ(first, ROW(a->width), OPTIONAL);
    READ(first16, ROW(a->width), OPTIONAL);
    READ(mix, NUMBERS(2));
    UPDATE(dv, ROWS(a->width, a->dv_stride), OPTIONAL);
    UPDATE(dv16, ROWS(a->width, a->dv_stride), OPTIONAL);
    OPERAND(a->accumulate ? DDL_UPDATE : DDL_WRITE, dfirst, ROW(a->width));
    UPDATE(dmix, NUMBERS(2));
    u->flops = 7 * (double)a->N * (double)a->width;
}

/* Pairs of a query and a key it attends to, of one head. Ragged: at most. */
static double pairs(const struct attention_args *a)
{
    double T = (double)a->T, past = a->ragged.B ? (double)a->ragged.max_span - 1 : (double)a->past;
    return a->ragged.B ? T * (past + 1) : (double)a->B * T * (past + (T + 1) / 2);
}

/* Keys or values: of each sequence, or of each slot of a cache. */
#define KEYS(stride, from_batch_to_batch)                                                                    \
    .batch = r->B ? r->slots : a->B, MATRIX(r->B ? r->max_span : a->past + a->T, width, stride),             \
    .batch_stride = (from_batch_to_batch), .item_stride = r->B ? 0 : (from_batch_to_batch), OPTIONAL

void describe_attention_fwd(struct ddl_op_use *u, const struct attention_args *a)
{
    const struct ddl_ragged *r = &a->ragged;
    size_t width = a->H * a->h;
    ITEMS(B, ALONE);
    operands_ragged(u, a, r);
    READ(q, SEQUENCES(a->T, width, a->q_stride), OPTIONAL);
    READ(q16, SEQUENCES(a->T, width, a->q_stride), OPTIONAL);
    READ(k, KEYS(a->k_stride, a->k_batch));
    READ(v, KEYS(a->v_stride, a->v_batch));
    READ(k16, KEYS(a->k_stride, a->k_batch));
    READ(v16, KEYS(a->v_stride, a->v_batch));
    WRITE(y, SEQUENCES(a->T, width, width), OPTIONAL);
    WRITE(y16, SEQUENCES(a->T, width, width), OPTIONAL);
    WRITE(lse, SEQUENCES(a->T, a->H, a->H), OPTIONAL);
    u->flops = 4 * (double)width * pairs(a);
}

void describe_attention_bwd(struct ddl_op_use *u, const struct attention_grad_args *a)
{
    size_t width = a->H * a->h;
    ITEMS(B, ALONE);
    READ(q, SEQUENCES(a->T, width, a->q_stride), OPTIONAL);
    READ(k, SEQUENCES(a->T, width, a->k_stride), OPTIONAL);
    READ(v, SEQUENCES(a->T, width, a->v_stride), OPTIONAL);
    READ(y, SEQUENCES(a->T, width, width), OPTIONAL);
    READ(q16, SEQUENCES(a->T, width, a->q_stride), OPTIONAL);
    READ(k16, SEQUENCES(a->T, width, a->k_stride), OPTIONAL);
    READ(v16, SEQUENCES(a->T, width, a->v_stride), OPTIONAL);
    READ(y16, SEQUENCES(a->T, width, width), OPTIONAL);
    READ(lse, SEQUENCES(a->T, a->H, a->H), VALUES(POSITIVE));
    READ(dy, SEQUENCES(a->T, width, width));
    WRITE(dq, SEQUENCES(a->T, width, a->dq_stride), OPTIONAL);
    WRITE(dk, SEQUENCES(a->T, width, a->dk_stride), OPTIONAL);
    WRITE(dv, SEQUENCES(a->T, width, a->dv_stride), OPTIONAL);
    WRITE(dq16, SEQUENCES(a->T, width, a->dq_stride), OPTIONAL);
    WRITE(dk16, SEQUENCES(a->T, width, a->dk_stride), OPTIONAL);
    WRITE(dv16, SEQUENCES(a->T, width, a->dv_stride), OPTIONAL);
    u->flops = 10 * (double)width * (double)(a->B * a->T) * ((double)a->T + 1) / 2;
}
