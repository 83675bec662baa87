/* Matrix products and their operands in reduced formats; copies. */
#include "ops/operands_internal.h"

/* C = A B^T, the product of a linear layer, gives a row of C the same bits for any other rows. */
#define PRODUCT(...)                                                                                         \
    do {                                                                                                     \
        ITEMS(M, MIXED);                                                                                     \
        if (!a->trans_a && a->trans_b)                                                                       \
            u->contract = DDL_ALONE_IF_FEW;                                                                  \
        if (a->trans_a)                                                                                      \
            READ(A, MATRIX(a->K, a->M, a->lda));                                                             \
        else                                                                                                 \
            READ(A, ROWS(a->K, a->lda));                                                                     \
        READ(B, MATRIX(a->trans_b ? a->N : a->K, a->trans_b ? a->K : a->N, a->ldb));                         \
        OPERAND(a->beta == 0 ? DDL_WRITE : DDL_UPDATE, C, ROWS(a->N, a->ldc), __VA_ARGS__);                  \
        u->flops = 2 * (double)a->M * (double)a->N * (double)a->K;                                           \
    } while (0)

void describe_matmul(struct ddl_op_use *u, const struct matmul_args *a)
{
    PRODUCT(.optional = false);
}

void describe_matmul_bf16(struct ddl_op_use *u, const struct matmul_bf16_args *a)
{
    PRODUCT(OPTIONAL);
    WRITE(C16, ROWS(a->N, a->ldc), OPTIONAL);
}

void describe_matmul_q8(struct ddl_op_use *u, const struct matmul_q8_args *a)
{
    ITEMS(M, ALONE_IF_FEW);
    READ(A, ROWS(a->K, a->lda));
    READ(B, MATRIX(a->first + a->N, a->K, a->K), .touched = a->N * a->K);
    OPERAND(a->accumulate ? DDL_UPDATE : DDL_WRITE, C, ROWS(a->N, a->ldc));
    u->flops = 2 * (double)a->M * (double)a->N * (double)a->K;
}

void describe_cast_bf16(struct ddl_op_use *u, const struct cast_bf16_args *a)
{
    ITEMS(n, ALONE);
    READ(x, ROW(1));
    WRITE(y, ROW(1));
}

void describe_widen_bf16(struct ddl_op_use *u, const struct widen_bf16_args *a)
{
    ITEMS(n, ALONE);
    READ(x, ROW(1));
    WRITE(y, ROW(1));
}

void describe_quantize_q8(struct ddl_op_use *u, const struct quantize_q8_args *a)
{
    READ(x, MATRIX(a->rows, a->width, a->width));
    UPDATE(W, MATRIX(a->first + a->rows, a->width, a->width), .touched = a->rows * a->width);
    u->flops = 3 * (double)a->rows * (double)a->width;
}

void describe_dequantize_q8(struct ddl_op_use *u, const struct dequantize_q8_args *a)
{
    READ(W, MATRIX(a->first + a->rows, a->width, a->width), .touched = a->rows * a->width);
    WRITE(x, MATRIX(a->rows, a->width, a->width));
    u->flops = (double)a->rows * (double)a->width;
}

#define COPIED(side)                                                                                         \
    .batch = a->batch, MATRIX(a->rows, a->width, a->side##_stride), .batch_stride = a->side##_batch

void describe_copy(struct ddl_op_use *u, const struct copy_args *a)
{
    READ(src, COPIED(src), OPTIONAL);
    READ(src16, COPIED(src), OPTIONAL);
    WRITE(dst, COPIED(dst), OPTIONAL);
    WRITE(dst16, COPIED(dst), OPTIONAL);
}

void describe_copy_bf16(struct ddl_op_use *u, const struct copy_bf16_args *a)
{
    READ(src, COPIED(src));
    WRITE(dst, COPIED(dst));
}

void describe_cache_append(struct ddl_op_use *u, const struct cache_append_args *a)
{
    const struct ddl_ragged *r = &a->ragged;
    operands_ragged(u, a, r);
    READ(src, MATRIX(r->N, a->width, a->src_stride), OPTIONAL);
    READ(src16, MATRIX(r->N, a->width, a->src_stride), OPTIONAL);
    UPDATE(dst, .batch = r->slots, MATRIX(r->max_span, a->width, a->width), .batch_stride = a->slot_stride,
           .touched = r->N * a->width, OPTIONAL);
    UPDATE(dst16, .batch = r->slots, MATRIX(r->max_span, a->width, a->width), .batch_stride = a->slot_stride,
           .touched = r->N * a->width, OPTIONAL);
}

void describe_history_push(struct ddl_op_use *u, const struct history_push_args *a)
{
    const struct ddl_ragged *r = &a->ragged;
    operands_ragged(u, a, r);
    READ(X, MATRIX(r->N, a->width, a->width));
    UPDATE(history, MATRIX(r->histories, a->keep * a->width, a->keep * a->width),
           .touched = r->B * a->keep * a->width);
}
