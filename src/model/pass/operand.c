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
