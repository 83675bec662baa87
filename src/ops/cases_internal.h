/* Sizes of the cases, by op. A sizes function fills in the sizes and flags of an argument struct, never its
 * pointers. */
#ifndef DDL_OPS_CASES_INTERNAL_H
#define DDL_OPS_CASES_INTERNAL_H

#include "ops/cases.h"

#define SIZES(name) void case_##name(void *args, const struct ddl_op_sizes *s, int option)
#define ARGS(type, ...) ((void)option, *(struct type *)args = (struct type){ __VA_ARGS__ })

#define DECLARE(name, type) SIZES(name);
DDL_OPS(DECLARE)
#undef DECLARE
SIZES(delta_bwd_from_state);

/* Options. */

/* y = x W^T, dW += dy^T x and dx = dy W of a matrix W (out, in). */
enum product {
    FORWARD,
    WEIGHT_GRAD,
    INPUT_GRAD,
    DIRECTIONS,
    QKV = 0,
    PROJ = DIRECTIONS,
    FC = 2 * DIRECTIONS,
    MLP = 3 * DIRECTIONS,
    HEAD = 4 * DIRECTIONS,
    ONE = 5 * DIRECTIONS,   /* FC of a single row, as in decoding */
    LONG = 6 * DIRECTIONS,  /* of q8: LONG_SUM terms, at most LONG_ROWS rows and columns */
    FORMS = 7 * DIRECTIONS, /* FC with other operands transposed, and other factors */
    TF32_FORMS = FORMS + 4 * 3,
    LONG_ROWS = 40,
    LONG_SUM = 4000
};
/* alpha and beta of such a product: 1 and 0, 0.5 and 1, -1.5 and 0.25. */
enum factors { WRITTEN, ADDED, SCALED };
#define FORM(trans_a, trans_b, factors) (FORMS + 4 * (factors) + 2 * (trans_a) + (trans_b))
/* The same, of operands that may be rounded to TF32. */
#define TF32_FORM(trans_a, trans_b, factors) (TF32_FORMS + FORM(trans_a, trans_b, factors) - FORMS)

enum { GATE, TARGET };
enum { DENSE, RAGGED };
enum { ALL_TOKENS, LAST_TOKEN, LATER_HALF, SLOTS };
enum { PER_FEATURE, ONE_NUMBER };

static inline size_t case_tokens(const struct ddl_op_sizes *s)
{
    return s->B * s->T;
}

/* Rows of an 8-bit matrix before those of the op; more than a tile has, where rows are apart. */
static inline size_t case_rows_before(const struct ddl_op_sizes *s)
{
    return 5 * s->pad;
}

/* The ragged batch of the sizes. */
struct ddl_ragged case_ragged(const struct ddl_op_sizes *s);

#endif
