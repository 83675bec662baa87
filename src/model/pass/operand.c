#include "model/pass/operand.h"

struct operand operand_of(struct activation x)
{
    return (struct operand){ .value = x.value, .bf16 = x.bf16 };
}

struct operand value_operand(const float *x)
{
    return (struct operand){ .value = x };
}

struct operand operand_rows(struct operand x, size_t first, size_t width)
{
    size_t at = first * width;
    return (struct operand){ .value = x.value ? x.value + at : NULL,
                             .bf16 = x.bf16 ? x.bf16 + at : NULL,
                             .q8 = x.q8,
                             .first = x.first + first };
}

struct weight weight_rows(struct weight W, size_t first, size_t width)
{
    return (struct weight){ .form = operand_rows(W.form, first, width),
                            .grad = W.grad ? W.grad + first * width : NULL,
                            .grad_is_zero = W.grad_is_zero };
}

void operand_gather(const struct ddl_backend *backend, struct operand E, const struct embed_args *a)
{
    const struct ddl_ops *ops = backend->ops;
    if (E.value)
        ops->embed_fwd(backend->ctx, &(struct embed_args){ a->N, a->d, a->V, a->tokens, E.value, a->x });
    else if (E.bf16)
        ops->embed_bf16_fwd(backend->ctx,
                            &(struct embed_bf16_args){ a->N, a->d, a->V, a->tokens, E.bf16, a->x });
    else
        ops->embed_q8_fwd(backend->ctx,
                          &(struct embed_q8_args){ a->N, a->d, a->V, E.first, a->tokens, E.q8, a->x });
}
