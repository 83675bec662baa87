#include "support/faulty_backend.h"

#include <math.h>
#include <string.h>

static const struct ddl_ops *truth;

#define LIE(op, args_type, lie)                                                                              \
    static void lying_##op(void *ctx, const struct args_type *a)                                             \
    {                                                                                                        \
        truth->op(ctx, a);                                                                                   \
        lie;                                                                                                 \
    }
LIE(rmsnorm_fwd, rmsnorm_args, a->y[0] += 0.5f)
LIE(matmul, matmul_args, a->C[0] += 0.5f)
LIE(matmul_bf16, matmul_bf16_args, a->C[0] += 8.0f)
LIE(attention_bwd, attention_grad_args, a->dq[0] += 0.5f)
LIE(delta_bwd, ddl_delta_grad_args, a->dq[0] += 0.5f)
LIE(adamw, adamw_args, a->p[0] = NAN)

/* Wrong where there is a cache only. */
static void lying_rope_fwd(void *ctx, const struct rope_args *a)
{
    truth->rope_fwd(ctx, a);
    if (a->ragged.B > 0)
        a->y[0] += 0.5f;
}

void liar_make(struct liar *liar, const struct ddl_backend *honest, const char *op)
{
    truth = honest->ops;
    liar->ops = *honest->ops;
    liar->backend = *honest;
    liar->backend.ops = &liar->ops;
    bool found = false;
#define PLANT(name)                                                                                          \
    if (strcmp(op, #name) == 0) {                                                                            \
        liar->ops.name = lying_##name;                                                                       \
        found = true;                                                                                        \
    }
    PLANT(rmsnorm_fwd)
    PLANT(matmul)
    PLANT(matmul_bf16)
    PLANT(attention_bwd)
    PLANT(delta_bwd)
    PLANT(adamw)
    PLANT(rope_fwd)
#undef PLANT
    assert_true(found);
}
