/* A backend with a fault in one op: what checks results must find it. */
#ifndef DDL_TEST_FAULTY_BACKEND_H
#define DDL_TEST_FAULTY_BACKEND_H

#include "ops/ops.h"
#include "support/support.h"

struct faulty_backend {
    struct ddl_backend backend; /* for the code under test; do not free it */
    struct ddl_ops ops;
};
/* `fault`:
 * - "rmsnorm_fwd", "matmul", "matmul_bf16", "attention_bwd", "delta_bwd": one number of each output is wrong;
 * - "rope_fwd": positions after the first pass are off by one;
 * - "adamw": a number is NaN; "adamw stale": the bfloat16 copy of the parameters is not written;
 *   "adamw idle": nothing is written;
 * - "matmul_bf16 term", "matmul_q8 term": the first row of each output lacks its last product;
 * - "matmul_bf16 rounded": each output is rounded to bfloat16;
 * - "truncate": numbers are rounded to bfloat16 toward zero.
 * `real` has host memory and outlives the faulty one. One at a time. */
void faulty_backend_make(struct faulty_backend *faulty, const struct ddl_backend *real, const char *fault);

#endif
