/* The table of descriptions, and what is computed from one. */
#include "ops/operands_internal.h"

#include <assert.h>
#include <string.h>

#define WRAP(name, args)                                                                                     \
    static void use_##name(struct ddl_op_use *u, const void *a)                                              \
    {                                                                                                        \
        describe_##name(u, a);                                                                               \
    }                                                                                                        \
    static void call_##name(const struct ddl_backend *backend, const void *a)                                \
    {                                                                                                        \
        backend->ops->name(backend->ctx, a);                                                                 \
    }                                                                                                        \
    static bool has_##name(const struct ddl_ops *ops)                                                        \
    {                                                                                                        \
        return ops->name != NULL;                                                                            \
    }
DDL_OPS(WRAP)
#undef WRAP

static const struct row {
    const char *name;
    size_t args_size;
    void (*describe)(struct ddl_op_use *u, const void *args);
    void (*call)(const struct ddl_backend *backend, const void *args);
    bool (*is_there)(const struct ddl_ops *ops);
} rows[] = {
#define ROW_OF(name, args) { #name, sizeof(struct args), use_##name, call_##name, has_##name },
    DDL_OPS(ROW_OF)
#undef ROW_OF
};

void ddl_op_describe(enum ddl_op op, const void *args, struct ddl_op_use *use)
{
    use->n = 0;
    use->flops = 0;
    use->items = use->items_offset = 0;
    use->contract = DDL_MIXED;
    rows[op].describe(use, args);
}

const char *ddl_op_name(enum ddl_op op)
{
    return rows[op].name;
}

size_t ddl_op_args_size(enum ddl_op op)
{
    return rows[op].args_size;
}

void ddl_op_call(enum ddl_op op, const struct ddl_backend *backend, const void *args)
{
    rows[op].call(backend, args);
}

bool ddl_op_is_there(enum ddl_op op, const struct ddl_ops *ops)
{
    return rows[op].is_there(ops);
}

void *ddl_operand_get(const struct ddl_operand *operand, const void *args)
{
    void *pointer;
    memcpy(&pointer, (const char *)args + operand->offset, sizeof pointer);
    return pointer;
}

void ddl_operand_set(const struct ddl_operand *operand, void *args, const void *pointer)
{
    memcpy((char *)args + operand->offset, &pointer, sizeof pointer);
}

const struct ddl_operand *ddl_operand_find(const struct ddl_op_use *use, const char *name)
{
    for (size_t i = 0; i < use->n; i++) {
        if (strcmp(use->operand[i].name, name) == 0)
            return &use->operand[i];
    }
    return NULL;
}

size_t ddl_element_size(enum ddl_element element)
{
    static const size_t sizes[] = { [DDL_ELEMENT_F32] = sizeof(float),
                                    [DDL_ELEMENT_BF16] = sizeof(uint16_t),
                                    [DDL_ELEMENT_F64] = sizeof(double),
                                    [DDL_ELEMENT_I32] = sizeof(int32_t),
                                    [DDL_ELEMENT_I64] = sizeof(int64_t) };
    assert(element != DDL_ELEMENT_Q8);
    return sizes[element];
}

size_t ddl_operand_span(const struct ddl_operand *o)
{
    if (!o->rows || !o->width)
        return 0;
    return (o->batch - 1) * o->batch_stride + (o->rows - 1) * o->stride + o->width;
}

size_t ddl_operand_bytes(const struct ddl_operand *o, const struct ddl_backend *backend)
{
    if (o->element == DDL_ELEMENT_Q8)
        return backend->ops->q8_bytes(backend->ctx, o->rows, o->width);
    return ddl_operand_span(o) * ddl_element_size(o->element);
}

/* Bytes of the numbers that the op accesses. */
static double bytes_touched(const struct ddl_operand *o, const struct ddl_backend *backend)
{
    double all = (double)(o->batch * o->rows * o->width), share = o->touched ? (double)o->touched / all : 1;
    if (o->element == DDL_ELEMENT_Q8)
        return share * (double)ddl_operand_bytes(o, backend);
    return share * all * (double)ddl_element_size(o->element);
}

double ddl_op_traffic(const struct ddl_op_use *use, const void *args, const struct ddl_backend *backend)
{
    double bytes = 0;
    for (size_t i = 0; i < use->n; i++) {
        const struct ddl_operand *o = &use->operand[i];
        double accesses = ((o->access & DDL_READ) != 0) + ((o->access & DDL_WRITE) != 0);
        if (ddl_operand_get(o, args))
            bytes += accesses * bytes_touched(o, backend);
    }
    return bytes;
}
