/* Adding operands to a description. */
#include "ops/operands_internal.h"

#include <assert.h>

void operand_add(struct ddl_op_use *u, struct ddl_operand operand)
{
    assert(u->n < DDL_MOST_OPERANDS);
    operand.batch = operand.batch ? operand.batch : 1;
    u->operand[u->n++] = operand;
}

void operands_ragged(struct ddl_op_use *u, const void *args, const struct ddl_ragged *ragged)
{
    const struct holder {
        struct ddl_ragged ragged;
    } *a = (const void *)ragged;
    size_t base = (size_t)((const char *)ragged - (const char *)args), from = u->n;
    if (!ragged->B)
        return;
    READ(ragged.sequence, NUMBERS(ragged->N), VALUES(SEQUENCE));
    READ(ragged.position, NUMBERS(ragged->N), VALUES(POSITION));
    READ(ragged.first, NUMBERS(ragged->B + 1), VALUES(FIRST));
    READ(ragged.past, NUMBERS(ragged->B), VALUES(PAST));
    READ(ragged.slot, NUMBERS(ragged->B), VALUES(SLOT));
    READ(ragged.from, NUMBERS(ragged->B), VALUES(FROM));
    READ(ragged.to, NUMBERS(ragged->B), VALUES(TO));
    for (size_t i = from; i < u->n; i++)
        u->operand[i].offset += base;
}
