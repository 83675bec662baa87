/* Factors of matrix products, in whichever format they are stored. */
#ifndef DDL_MODEL_OPERAND_H
#define DDL_MODEL_OPERAND_H

#include "ops/ops.h"

/* A factor of a product, in each format that it has: float32; bfloat16; for weights also an 8-bit matrix of
 * the backend, from row `first` on. */
struct operand {
    const float *value;
    const uint16_t *bf16;
    const void *q8;
    size_t first;
    size_t stride; /* numbers from row to row of the first two; 0: rows are contiguous */
};
/* Numbers from row to row of an operand or activation with this stride, of `width`. */
static inline size_t row_stride(size_t stride, size_t width)
{
    return stride ? stride : width;
}
/* A matrix for linear.c. Products read the most reduced format that it has. */
struct weight {
    struct operand form;
    float *grad;       /* backward products accumulate into it,         */
    bool grad_is_zero; /* or overwrite it where it is known to be zero  */
    bool tf32;         /* products may round float32 operands to TF32   */
};

/* Rows that an op writes and others read: in float32, in bfloat16 for products of that format, or both. */
struct activation {
    float *value;
    uint16_t *bf16;
    size_t stride; /* as in struct operand */
};
/* From number `at` on. */
static inline struct activation activation_from(struct activation x, size_t at)
{
    return (struct activation){ x.value ? x.value + at : NULL, x.bf16 ? x.bf16 + at : NULL, x.stride };
}
static inline struct operand operand_of(struct activation x)
{
    return (struct operand){ .value = x.value, .bf16 = x.bf16, .stride = x.stride };
}
/* float32 alone. */
static inline struct operand value_operand(const float *x)
{
    return (struct operand){ .value = x };
}
/* The same from row `first` on, contiguous rows of `width` numbers. */
static inline struct operand operand_rows(struct operand x, size_t first, size_t width)
{
    size_t at = first * width;
    return (struct operand){ .value = x.value ? x.value + at : NULL,
                             .bf16 = x.bf16 ? x.bf16 + at : NULL,
                             .q8 = x.q8,
                             .first = x.first + first };
}

#endif
