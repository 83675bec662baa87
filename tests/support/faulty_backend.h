/* A backend one of whose ops gives wrong results: what checks results must find it. */
#ifndef DDL_TEST_LIAR_H
#define DDL_TEST_LIAR_H

#include "ops/ops.h"
#include "support/support.h"

struct liar {
    struct ddl_backend backend; /* give this away; do not free it */
    struct ddl_ops ops;
};
/* "rmsnorm_fwd", "matmul", "matmul_bf16", "attention_bwd", "delta_bwd": one number of the output is wrong;
 * "rope_fwd": positions after the first pass are off by one; "adamw": a number is NaN. `honest` has host
 * memory. */
void liar_make(struct liar *liar, const struct ddl_backend *honest, const char *op);

#endif
