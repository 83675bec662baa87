#include "model/operand.h"

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

void operand_gather(const struct ddl_backend *backend, struct operand E, size_t d, size_t N,
                    const int32_t *rows, float *x)
{
    const struct ddl_ops *ops = backend->ops;
    if (E.value)
        ops->embed_fwd(backend->ctx, &(struct embed_args){ N, d, rows, E.value, x });
    else if (E.bf16)
        ops->embed_bf16_fwd(backend->ctx, &(struct embed_bf16_args){ N, d, rows, E.bf16, x });
    else
        ops->embed_q8_fwd(backend->ctx, &(struct embed_q8_args){ N, d, E.first, rows, E.q8, x });
}
