/* Words in which the ops are described (operands_*.c). */
#ifndef DDL_OPS_OPERANDS_INTERNAL_H
#define DDL_OPS_OPERANDS_INTERNAL_H

#include "ops/operands.h"

#define DESCRIBE(name, args) void describe_##name(struct ddl_op_use *u, const struct args *a);
DDL_OPS(DESCRIBE)
#undef DESCRIBE

void operand_add(struct ddl_op_use *u, struct ddl_operand operand);
/* Adds the arrays of a ragged batch; `a` is the argument struct that contains it. */
void operands_ragged(struct ddl_op_use *u, const void *a, const struct ddl_ragged *ragged);

/* clang-format off */
#define ELEMENT(pointer) _Generic((pointer), \
    const float *: DDL_ELEMENT_F32, float *: DDL_ELEMENT_F32, const uint16_t *: DDL_ELEMENT_BF16, uint16_t *: DDL_ELEMENT_BF16, \
    const double *: DDL_ELEMENT_F64, double *: DDL_ELEMENT_F64, const int32_t *: DDL_ELEMENT_I32, int32_t *: DDL_ELEMENT_I32, \
    const int64_t *: DDL_ELEMENT_I64, int64_t *: DDL_ELEMENT_I64, \
    const void *: DDL_ELEMENT_Q8, void *: DDL_ELEMENT_Q8)
/* clang-format on */
#define OFFSET(member) ((size_t)((const char *)&a->member - (const char *)a))
#define OPERAND(how, member, ...)                                                                            \
    operand_add(u, (struct ddl_operand){ .name = #member,                                                    \
                                         .offset = OFFSET(member),                                           \
                                         .element = ELEMENT(a->member),                                      \
                                         .access = (how),                                                    \
                                         __VA_ARGS__ })
#define READ(member, ...) OPERAND(DDL_READ, member, __VA_ARGS__)
#define WRITE(member, ...) OPERAND(DDL_WRITE, member, __VA_ARGS__)
#define UPDATE(member, ...) OPERAND(DDL_UPDATE, member, __VA_ARGS__)

/* Shapes: n numbers; rows of a matrix; rows that are the op's items; one matrix for each item. */
#define NUMBERS(n) .rows = 1, .width = (n), .stride = (n)
#define MATRIX(n_rows, n, distance) .rows = (n_rows), .width = (n), .stride = (distance)
#define ROWS(n, distance) MATRIX(u->items, n, distance), .item_stride = (distance)
#define ROW(n) ROWS(n, n)
#define EACH(n_rows, n, distance, from_item_to_item)                                                         \
    .batch = u->items, .rows = u->items ? (n_rows) : 0, .width = (n), .stride = (distance),                  \
    .batch_stride = (from_item_to_item), .item_stride = (from_item_to_item)
#define VALUES(kind) .values = DDL_##kind
#define MAY_BE(other) .may_be = #other
#define OPTIONAL .optional = true
#define CANCELS .cancels = true

/* a->member is the number of items. */
#define ITEMS(member, promise)                                                                               \
    (u->items = a->member, u->items_offset = OFFSET(member), u->contract = DDL_##promise)

#endif
