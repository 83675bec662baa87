/* What every op does with its arguments: its operands, its operations, and what a row of its result depends
 * on. One description an op (operands_*.c), from which the profile, the audit, `ddl verify --ops`,
 * `ddl bench op`, the traffic of `ddl bench step` and the tests' device are made. */
#ifndef DDL_OPS_OPERANDS_H
#define DDL_OPS_OPERANDS_H

#include "ops/ops.h"

/* The ops, in the order of DDL_OPS. */
enum ddl_op {
#define DDL_OP_NUMBER(name, args) DDL_OP_##name,
    DDL_OPS(DDL_OP_NUMBER)
#undef DDL_OP_NUMBER
        DDL_OP_COUNT
};

/* The arguments of any op. */
union ddl_op_args {
#define DDL_OP_ARGS(name, args) struct args name; /* NOLINT(bugprone-macro-parentheses) */
    DDL_OPS(DDL_OP_ARGS)
#undef DDL_OP_ARGS
};

enum ddl_element {
    DDL_ELEMENT_F32,
    DDL_ELEMENT_BF16,
    DDL_ELEMENT_F64,
    DDL_ELEMENT_I32,
    DDL_ELEMENT_I64,
    DDL_ELEMENT_Q8
};

enum ddl_access {
    DDL_READ = 1,
    DDL_WRITE = 2,
    DDL_UPDATE = DDL_READ | DDL_WRITE, /* added to, changed in place, or written in part */
};

/* What the numbers of an operand mean: random contents are made from this. Integers from DDL_SEQUENCE on are
 * the arrays of struct ddl_ragged. */
enum ddl_contents {
    DDL_ANY,      /* any number: standard normal                                            */
    DDL_POSITIVE, /* norm weights, moments: uniform in 0.75 .. 1.25                          */
    DDL_GATE,     /* uniform in 0 .. 2                                                       */
    DDL_SHARE,    /* uniform in 0 .. 1                                                       */
    DDL_COSINE,   /* of the angles of DDL_SINE                                               */
    DDL_SINE,
    DDL_TOTAL,    /* sums of many exponentials: uniform in 100 .. 200                        */
    DDL_INDEX,    /* uniform in 0 .. below - 1                                               */
    DDL_TARGET,   /* the same, some -1: ignored                                              */
    DDL_DISTINCT, /* the same, but no number twice in a row                                  */
    /* The arrays of struct ddl_parts, of an array of `below` numbers: the parts cover it but for a number
     * here and there; PART_COPY: as PART_BEGIN, -1 for some. */
    DDL_PART_BEGIN,
    DDL_PART_SIZE,
    DDL_PART_COPY,
    DDL_SEQUENCE,
    DDL_POSITION,
    DDL_FIRST,
    DDL_PAST,
    DDL_SLOT,
    DDL_FROM,
    DDL_TO,
};

/* An operand: `batch` matrices of `rows` rows of `width` numbers, a row `stride` numbers after the one before
 * and a matrix `batch_stride` after the one before. An 8-bit matrix has its rows and width. */
struct ddl_operand {
    const char *name; /* of the member of the argument struct        */
    size_t offset;    /* of the pointer in that struct               */
    enum ddl_element element;
    enum ddl_access access;
    enum ddl_contents values;
    size_t batch, rows, width, stride, batch_stride;
    size_t item_stride; /* numbers from item to item (struct ddl_op_use); 0: all items share it */
    size_t below;       /* DDL_INDEX and after it                                               */
    size_t touched;     /* numbers that the op accesses, where that is not all of them          */
    const char *may_be; /* operand whose memory this one may share, element by element; or NULL  */
    bool optional;      /* the pointer may be NULL                                              */
    bool cancels;       /* a difference of terms as large as the op's largest output            */
};

enum { DDL_MOST_OPERANDS = 24 };

/* What a call does. */
struct ddl_op_use {
    struct ddl_operand operand[DDL_MOST_OPERANDS];
    size_t n;
    /* Additions and multiplications; a division, root or exponential counts as one. */
    double flops;
    /* The operands consist of `items` rows (or sequences, or streams); items_offset is that of their
     * number in the argument struct. */
    size_t items, items_offset;
    /* The numeric contract: the bits of an item of the result depend on the operands of that item and on
     * shared ones, not on other items or their number (DDL_ALONE); the same up to ops->step_rows items
     * (DDL_ALONE_IF_FEW). DDL_MIXED: nothing is promised. */
    enum ddl_contract { DDL_MIXED, DDL_ALONE, DDL_ALONE_IF_FEW } contract;
};

/* Describes a call of `op` from the sizes in its arguments; optional operands are included, whether or not
 * their pointer is NULL. */
void ddl_op_describe(enum ddl_op op, const void *args, struct ddl_op_use *use);
const char *ddl_op_name(enum ddl_op op);
/* Bytes of its argument struct. */
size_t ddl_op_args_size(enum ddl_op op);
/* Calls the op. */
void ddl_op_call(enum ddl_op op, const struct ddl_backend *backend, const void *args);
/* Whether the backend has the op. */
bool ddl_op_is_there(enum ddl_op op, const struct ddl_ops *ops);

/* The operand's pointer in the arguments, read and set. */
void *ddl_operand_get(const struct ddl_operand *operand, const void *args);
void ddl_operand_set(const struct ddl_operand *operand, void *args, const void *pointer);
/* The operand of that name; NULL if there is none. */
const struct ddl_operand *ddl_operand_find(const struct ddl_op_use *use, const char *name);
/* Bytes of a number; not of an 8-bit matrix. */
size_t ddl_element_size(enum ddl_element element);
/* Numbers from the first to the last, gaps included; 0 for an empty operand. */
size_t ddl_operand_span(const struct ddl_operand *operand);
/* Bytes of the memory that it spans. */
size_t ddl_operand_bytes(const struct ddl_operand *operand, const struct ddl_backend *backend);
/* Bytes that a call reads and writes: each operand whose pointer is not NULL once for each access. */
double ddl_op_traffic(const struct ddl_op_use *use, const void *args, const struct ddl_backend *backend);

#endif
