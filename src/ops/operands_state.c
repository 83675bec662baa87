/* Embedding, the state of c channels, its compressor, the delta rule and the generic block. */
#include "ops/operands_internal.h"

#include "ddl/kinds.h"

/* ---- rows by number, and the embedding ---- */

#define GATHER(first_row)                                                                                    \
    do {                                                                                                     \
        ITEMS(N, ALONE);                                                                                     \
        READ(index, ROW(1), VALUES(INDEX), .below = a->rows);                                                \
        READ(x, MATRIX((first_row) + a->rows, a->width, a->width), .touched = a->N * a->width);              \
        WRITE(y, ROW(a->width));                                                                             \
    } while (0)

void describe_gather(struct ddl_op_use *u, const struct gather_args *a)
{
    GATHER(0);
}

void describe_gather_bf16(struct ddl_op_use *u, const struct gather_bf16_args *a)
{
    GATHER(0);
}

void describe_gather_q8(struct ddl_op_use *u, const struct gather_q8_args *a)
{
    GATHER(a->first);
}

void describe_embed_bwd(struct ddl_op_use *u, const struct embed_grad_args *a)
{
    READ(tokens, NUMBERS(a->N), VALUES(INDEX), .below = a->V);
    READ(dx, MATRIX(a->N, a->d, a->d));
    UPDATE(dE, MATRIX(a->V, a->d, a->d), .touched = a->N * a->d);
    u->flops = (double)a->N * (double)a->d;
}

/* ---- the state ---- */

#define OF_TOKENS(width) EACH(1, a->T *(width), a->T *(width), a->T *(width))

void describe_init_state_fwd(struct ddl_op_use *u, const struct init_state_args *a)
{
    const struct ddl_ragged *r = &a->ragged;
    size_t dc = a->d * a->c, kept = (a->K ? a->K - 1 : 0) * a->d;
    ITEMS(B, ALONE);
    operands_ragged(u, a, r);
    READ(x, OF_TOKENS(a->d));
    READ(w, NUMBERS(dc * a->K), OPTIONAL);
    if (r->B && a->w)
        READ(history, MATRIX(r->histories, kept, kept), OPTIONAL);
    WRITE(X, OF_TOKENS(dc));
    u->flops = a->w ? 2 * (double)(a->B * a->T) * (double)(dc * a->K) : 0;
}

void describe_init_state_bwd(struct ddl_op_use *u, const struct init_state_grad_args *a)
{
    size_t dc = a->d * a->c;
    ITEMS(B, ALONE);
    READ(x, OF_TOKENS(a->d));
    READ(w, NUMBERS(dc * a->K), OPTIONAL);
    READ(dX, OF_TOKENS(dc));
    WRITE(dx, OF_TOKENS(a->d));
    UPDATE(dw, NUMBERS(dc * a->K), OPTIONAL);
    u->flops = (double)(a->B * a->T) * (double)dc * (a->w ? 4 * (double)a->K : 1);
}

/* Numbers of the compressor's kernel, and taps of the folded weights. */
static size_t kernel_numbers(int kind, size_t d, size_t c, size_t K)
{
    return kind == DDL_COMPRESS_TOKEN ? d * c * K : kind == DDL_COMPRESS_CHANNEL ? d * K : d * c;
}

static size_t folded_taps(int kind, size_t K)
{
    return kind == DDL_COMPRESS_TOKEN ? K : 1;
}

void describe_fold_fwd(struct ddl_op_use *u, const struct fold_args *a)
{
    size_t n = kernel_numbers(a->kind, a->d, a->c, a->K);
    READ(w, NUMBERS(n));
    if (a->kind != DDL_COMPRESS_MIX)
        READ(r, NUMBERS(a->c));
    WRITE(e, NUMBERS(folded_taps(a->kind, a->K) * a->d * a->c));
    u->flops = 2 * (double)(a->d * a->c * a->K);
}

void describe_fold_bwd(struct ddl_op_use *u, const struct fold_grad_args *a)
{
    size_t n = kernel_numbers(a->kind, a->d, a->c, a->K);
    READ(w, NUMBERS(n));
    READ(de, NUMBERS(folded_taps(a->kind, a->K) * a->d * a->c));
    UPDATE(dw, NUMBERS(n));
    if (a->kind != DDL_COMPRESS_MIX) {
        READ(r, NUMBERS(a->c));
        UPDATE(dr, NUMBERS(a->c));
    }
    u->flops = 4 * (double)(a->d * a->c * a->K);
}

void describe_compress_fwd(struct ddl_op_use *u, const struct compress_args *a)
{
    const struct ddl_ragged *r = &a->ragged;
    size_t dc = a->d * a->c, kept = (a->taps ? a->taps - 1 : 0) * dc;
    ITEMS(B, ALONE);
    operands_ragged(u, a, r);
    READ(X, OF_TOKENS(dc));
    READ(e, NUMBERS(a->taps * dc));
    if (r->B)
        READ(history, MATRIX(r->histories, kept, kept), OPTIONAL);
    WRITE(x_in, OF_TOKENS(a->d));
    u->flops = 2 * (double)(a->B * a->T) * (double)(dc * a->taps);
}

void describe_compress_bwd(struct ddl_op_use *u, const struct compress_grad_args *a)
{
    size_t dc = a->d * a->c;
    ITEMS(B, ALONE);
    READ(X, OF_TOKENS(dc));
    READ(e, NUMBERS(a->taps * dc));
    READ(dx_in, OF_TOKENS(a->d));
    UPDATE(dX, OF_TOKENS(dc));
    WRITE(de, NUMBERS(a->taps * dc));
    u->flops = 4 * (double)(a->B * a->T) * (double)(dc * a->taps);
}

/* ---- the delta rule ---- */

static size_t steps_of(size_t steps)
{
    return steps ? steps : 1;
}

void describe_delta_fwd(struct ddl_op_use *u, const struct ddl_delta_args *a)
{
    size_t R = steps_of(a->steps);
    ITEMS(N, ALONE);
    READ(X, ROW(a->d * a->c));
    READ(q, ROW(R * a->d));
    READ(v, ROW(R * a->c));
    READ(beta, ROW(R), VALUES(GATE));
    WRITE(X_out, ROW(a->d * a->c), MAY_BE(X));
    WRITE(readout, ROW(R * a->c), OPTIONAL);
    u->flops = (double)a->N * (double)(R * a->d) * (4 * (double)a->c + 3);
}

void describe_delta_bwd(struct ddl_op_use *u, const struct ddl_delta_grad_args *a)
{
    size_t R = steps_of(a->steps);
    ITEMS(N, ALONE);
    READ(X, ROW(a->d * a->c), OPTIONAL);
    UPDATE(X_next, ROW(a->d * a->c), OPTIONAL);
    READ(q, ROW(R * a->d));
    READ(v, ROW(R * a->c));
    READ(beta, ROW(R), VALUES(GATE));
    READ(readout, ROW(R * a->c), OPTIONAL);
    READ(G, ROW(a->d * a->c));
    WRITE(dX, ROW(a->d * a->c), MAY_BE(G));
    WRITE(dq, ROW(R * a->d), OPTIONAL, CANCELS);
    WRITE(dv, ROW(R * a->c));
    WRITE(dbeta, ROW(R));
    WRITE(dq16, ROW(R * a->d), OPTIONAL, CANCELS);
    u->flops = (double)a->N * (double)(R * a->d) * (10 * (double)a->c + 5);
}

void describe_delta_inverse(struct ddl_op_use *u, const struct ddl_delta_inverse_args *a)
{
    size_t R = steps_of(a->steps);
    ITEMS(N, ALONE);
    READ(X_out, ROW(a->d * a->c));
    READ(q, ROW(R * a->d));
    READ(v, ROW(R * a->c));
    READ(beta, ROW(R), VALUES(GATE));
    READ(readout, ROW(R * a->c));
    WRITE(X, ROW(a->d * a->c), MAY_BE(X_out));
    u->flops = (double)a->N * (double)(R * a->d) * (2 * (double)a->c + 3);
}

void describe_elementwise_fwd(struct ddl_op_use *u, const struct ddl_elementwise_args *a)
{
    ITEMS(N, ALONE);
    READ(x, ROW(a->d));
    READ(q, ROW(a->d));
    READ(v, ROW(a->d));
    READ(beta, ROW(1), VALUES(GATE));
    WRITE(x_out, ROW(a->d), MAY_BE(x));
    u->flops = 9 * (double)a->N * (double)a->d;
}

void describe_elementwise_bwd(struct ddl_op_use *u, const struct ddl_elementwise_grad_args *a)
{
    ITEMS(N, ALONE);
    READ(x, ROW(a->d));
    READ(q, ROW(a->d));
    READ(v, ROW(a->d));
    READ(beta, ROW(1), VALUES(GATE));
    READ(G, ROW(a->d));
    WRITE(dx, ROW(a->d), MAY_BE(G));
    WRITE(dq, ROW(a->d), CANCELS);
    WRITE(dv, ROW(a->d));
    WRITE(dbeta, ROW(1));
    u->flops = 20 * (double)a->N * (double)a->d;
}

/* ---- the generic block's pool ---- */

void describe_pool_fwd(struct ddl_op_use *u, const struct pool_args *a)
{
    ITEMS(N, ALONE);
    READ(X, ROW(a->d * a->c));
    READ(w_a, NUMBERS(a->d), OPTIONAL);
    WRITE(a, ROW(a->c), OPTIONAL);
    WRITE(z, ROW(a->d));
    u->flops = (a->w_a ? 4 : 2) * (double)a->N * (double)(a->d * a->c);
}

void describe_pool_bwd(struct ddl_op_use *u, const struct pool_grad_args *a)
{
    ITEMS(N, ALONE);
    READ(X, ROW(a->d * a->c));
    READ(w_a, NUMBERS(a->d), OPTIONAL);
    READ(a, ROW(a->c), VALUES(SHARE), OPTIONAL);
    READ(dz, ROW(a->d));
    UPDATE(dX, ROW(a->d * a->c));
    UPDATE(dw_a, NUMBERS(a->d), OPTIONAL);
    u->flops = (a->w_a ? 8 : 2) * (double)a->N * (double)(a->d * a->c);
}
