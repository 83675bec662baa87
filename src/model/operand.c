#include "model/operand.h"

struct operand operand_rows(struct operand x, size_t first, size_t width)
{
    size_t at = first * width;
    return (struct operand){ .value = x.value ? x.value + at : NULL,
                             .rounded = x.rounded ? x.rounded + at : NULL,
                             .tiles = x.tiles,
                             .first = x.first + first };
}

struct weight weight_rows(struct weight W, size_t first, size_t width)
{
    return (struct weight){ .form = operand_rows(W.form, first, width),
                            .grad = W.grad ? W.grad + first * width : NULL,
                            .blank = W.blank };
}

void operand_gather(const struct ddl_backend *backend, struct operand E, size_t d, size_t N,
                    const int32_t *rows, float *x)
{
    const struct ddl_ops *ops = backend->ops;
    if (E.value)
        ops->embed_fwd(backend->ctx, &(struct embed_args){ N, d, rows, E.value, x });
    else if (E.rounded)
        ops->embed_bf16_fwd(backend->ctx, &(struct embed_bf16_args){ N, d, rows, E.rounded, x });
    else
        ops->embed_q8_fwd(backend->ctx, &(struct embed_q8_args){ N, d, E.first, rows, E.tiles, x });
}
