#include "ops/defaults.h"

static const struct ddl_ops *ops_of(void *ctx)
{
    return ((const struct ddl_context *)ctx)->ops;
}

static void copy_bf16_of_cast(void *ctx, const struct copy_bf16_args *a)
{
    for (size_t b = 0; b < (a->batch ? a->batch : 1); b++) {
        for (size_t r = 0; r < a->rows; r++)
            ops_of(ctx)->cast_bf16(
                ctx, &(struct cast_bf16_args){ .n = a->width,
                                               .x = a->src + b * a->src_batch + r * a->src_stride,
                                               .y = a->dst + b * a->dst_batch + r * a->dst_stride });
    }
}

/* out = or += w^T X with X (n, count). */
static void weighted_sum_of_matmul(void *ctx, const struct weighted_sum_args *a)
{
    ops_of(ctx)->matmul(ctx, &(struct matmul_args){ .trans_a = true,
                                                    .M = 1,
                                                    .N = a->count,
                                                    .K = a->n,
                                                    .alpha = 1,
                                                    .A = a->w,
                                                    .lda = a->w_stride,
                                                    .B = a->X,
                                                    .ldb = a->X_stride,
                                                    .beta = a->accumulate ? 1 : 0,
                                                    .C = a->out,
                                                    .ldc = a->count });
    if (a->out16)
        ops_of(ctx)->cast_bf16(ctx, &(struct cast_bf16_args){ a->count, a->out, a->out16 });
}

/* dw += X G^T with X (n, count) and G (1, count). */
static void weighted_sum_bwd_of_matmul(void *ctx, const struct weighted_sum_grad_args *a)
{
    ops_of(ctx)->matmul(ctx, &(struct matmul_args){ .trans_b = true,
                                                    .M = a->n,
                                                    .N = 1,
                                                    .K = a->count,
                                                    .alpha = 1,
                                                    .A = a->X,
                                                    .lda = a->X_stride,
                                                    .B = a->G,
                                                    .ldb = a->count,
                                                    .beta = 1,
                                                    .C = a->dw,
                                                    .ldc = 1 });
}

static void gated_fwd_of_weighted_sum(void *ctx, const struct gated_args *a)
{
    for (size_t n = 0; n < a->N; n++)
        ops_of(ctx)->weighted_sum(ctx, &(struct weighted_sum_args){ .count = a->d,
                                                                    .n = 1,
                                                                    .X = a->f + n * a->d,
                                                                    .X_stride = a->d,
                                                                    .w = a->beta + n,
                                                                    .w_stride = 1,
                                                                    .accumulate = true,
                                                                    .out = a->X + n * a->d });
}

/* Rows: an op, and one that its composition calls. Compositions of compositions come later. */
/* clang-format off */
#define COMPOSITIONS(ROW) \
    ROW(copy_bf16, cast_bf16, copy_bf16_of_cast) \
    ROW(weighted_sum, matmul, weighted_sum_of_matmul) \
    ROW(weighted_sum_bwd, matmul, weighted_sum_bwd_of_matmul) \
    ROW(gated_fwd, weighted_sum, gated_fwd_of_weighted_sum)
/* clang-format on */

void ddl_ops_complete(struct ddl_ops *ops)
{
#define COMPLETE(op, needed, composition)                                                                    \
    if (!ops->op && ops->needed)                                                                             \
        ops->op = composition;
    COMPOSITIONS(COMPLETE)
#undef COMPLETE
}

bool ddl_ops_are_complete(const struct ddl_ops *ops)
{
    bool all = true;
    for (enum ddl_op op = 0; op < DDL_OP_COUNT; op++)
        all = all && ddl_op_is_there(op, ops);
    return all;
}

ddl_status ddl_ops_require(const struct ddl_backend *backend, const enum ddl_op *list, const char *what,
                           struct ddl_error *err)
{
    for (; list && *list != DDL_OP_COUNT; list++) {
        if (!ddl_op_is_there(*list, backend->ops))
            return ddl_error_set(err, DDL_E_UNSUPPORTED, "backend %s: the op %s is missing, which %s needs",
                                 backend->ops->name, ddl_op_name(*list), what);
    }
    return DDL_OK;
}
