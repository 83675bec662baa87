#include "support/faulty_backend.h"

#include "base/bf16.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

static const struct ddl_ops *real_ops;

/* *x += added, in bfloat16. */
static void add_bf16(uint16_t *x, float added)
{
    *x = ddl_bf16_round(ddl_bf16_widen(*x) + added);
}

#define AFTER(op, args_type, fault)                                                                          \
    static void faulty_##op(void *ctx, const struct args_type *a)                                            \
    {                                                                                                        \
        real_ops->op(ctx, a);                                                                                \
        fault;                                                                                               \
    }
AFTER(rmsnorm_fwd, rmsnorm_args, {
    if (a->y)
        a->y[0] += 0.5f;
    if (a->y16)
        add_bf16(a->y16, 0.5f);
})
AFTER(matmul, matmul_args, a->C[0] += 0.5f)
AFTER(matmul_bf16, matmul_bf16_args, a->C ? (void)(a->C[0] += 8.0f) : add_bf16(a->C16, 8.0f))
AFTER(attention_bwd, attention_grad_args, a->dq ? (void)(a->dq[0] += 0.5f) : add_bf16(a->dq16, 0.5f))
AFTER(delta_bwd, ddl_delta_grad_args, a->dq ? (void)(a->dq[0] += 0.5f) : add_bf16(a->dq16, 0.5f))
AFTER(adamw, adamw_args, a->p[a->parts.begin[0]] = NAN)

/* Wrong where there is a cache only. */
static void faulty_rope_fwd(void *ctx, const struct rope_args *a)
{
    real_ops->rope_fwd(ctx, a);
    if (a->ragged.B > 0 && a->y)
        a->y[0] += 0.5f;
    if (a->ragged.B > 0 && a->y16)
        add_bf16(a->y16, 0.5f);
}

static void matmul_bf16_lacks_term(void *ctx, const struct matmul_bf16_args *a)
{
    if (a->M == 0 || a->K == 0) {
        real_ops->matmul_bf16(ctx, a);
        return;
    }
    uint16_t *last = (uint16_t *)(uintptr_t)&a->A[(a->K - 1) * (a->trans_a ? a->lda : 1)], kept = *last;
    *last = 0;
    real_ops->matmul_bf16(ctx, a);
    *last = kept;
}

static void matmul_q8_lacks_term(void *ctx, const struct matmul_q8_args *a)
{
    if (a->M == 0 || a->K == 0) {
        real_ops->matmul_q8(ctx, a);
        return;
    }
    float *last = (float *)(uintptr_t)&a->A[a->K - 1], kept = *last;
    *last = 0;
    real_ops->matmul_q8(ctx, a);
    *last = kept;
}

static void matmul_bf16_rounds_output(void *ctx, const struct matmul_bf16_args *a)
{
    real_ops->matmul_bf16(ctx, a);
    for (size_t i = 0; a->C && i < a->M; i++) {
        for (size_t j = 0; j < a->N; j++)
            a->C[i * a->ldc + j] = ddl_bf16_widen(ddl_bf16_round(a->C[i * a->ldc + j]));
    }
}

static uint16_t truncated(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void cast_truncates(void *ctx, const struct cast_bf16_args *a)
{
    (void)ctx;
    for (size_t i = 0; i < a->n; i++)
        a->y[i] = truncated(a->x[i]);
}

static void copy_truncates(void *ctx, const struct copy_bf16_args *a)
{
    real_ops->copy_bf16(ctx, a);
    for (size_t b = 0; b < (a->batch ? a->batch : 1); b++) {
        for (size_t i = 0; i < a->rows * a->width; i++) {
            size_t row = i / a->width, column = i % a->width;
            a->dst[b * a->dst_batch + row * a->dst_stride + column] =
                truncated(a->src[b * a->src_batch + row * a->src_stride + column]);
        }
    }
}

static void adamw_leaves_stale(void *ctx, const struct adamw_args *a)
{
    struct adamw_args wrong = *a;
    wrong.p16 = NULL, wrong.copy = NULL;
    real_ops->adamw(ctx, &wrong);
}

static void adamw_does_nothing(void *ctx, const struct adamw_args *a)
{
    (void)ctx;
    (void)a;
}

void faulty_backend_make(struct faulty_backend *faulty, const struct ddl_backend *real, const char *fault)
{
    real_ops = real->ops;
    faulty->ops = *real->ops;
    faulty->backend = *real;
    faulty->backend.ops = &faulty->ops;
    bool found = false;
#define FAULT(name, op, function)                                                                            \
    if (strcmp(fault, name) == 0) {                                                                          \
        faulty->ops.op = function;                                                                           \
        found = true;                                                                                        \
    }
    FAULT("rmsnorm_fwd", rmsnorm_fwd, faulty_rmsnorm_fwd)
    FAULT("matmul", matmul, faulty_matmul)
    FAULT("matmul_bf16", matmul_bf16, faulty_matmul_bf16)
    FAULT("attention_bwd", attention_bwd, faulty_attention_bwd)
    FAULT("delta_bwd", delta_bwd, faulty_delta_bwd)
    FAULT("adamw", adamw, faulty_adamw)
    FAULT("rope_fwd", rope_fwd, faulty_rope_fwd)
    FAULT("adamw stale", adamw, adamw_leaves_stale)
    FAULT("adamw idle", adamw, adamw_does_nothing)
    FAULT("matmul_bf16 term", matmul_bf16, matmul_bf16_lacks_term)
    FAULT("matmul_q8 term", matmul_q8, matmul_q8_lacks_term)
    FAULT("matmul_bf16 rounded", matmul_bf16, matmul_bf16_rounds_output)
    FAULT("truncate", cast_bf16, cast_truncates)
    FAULT("truncate", copy_bf16, copy_truncates)
#undef FAULT
    assert_true(found);
}
