/* Audit of the bfloat16 ops: a backend that forwards every op to another one and compares what the ops that
 * round to or multiply in bfloat16 wrote with the exact result for the operands they were given.
 *
 * Every number has a bound of its own, derived from the operands; errors are shares of it, so 1 is the limit:
 * - cast_bf16, copy_bf16, the bfloat16 copy of adamw: the exact bits; a wrong one has an infinite error.
 * - matmul_bf16: products of two bfloat16 numbers are exact in float32. A float32 sum of K of them in any
 *   order, scaled and added to beta C, is off by at most (K + 4) u (|alpha| sum |a||b| + |beta C|), u =
 * 2^-24. A processor may flush subnormal operands, products and sums to zero: that adds |a||b| of a subnormal
 *   operand, and 2^-126 for each addition. A result in bfloat16 is off by half a unit in its last place more,
 *   2^-8 of it.
 * - loss_grad: half a unit in the last place of bfloat16, 2^-8 of the result, and the float32 error of the
 *   exponential (see audit.c). */
#ifndef DDL_OPS_AUDIT_H
#define DDL_OPS_AUDIT_H

#include "ops/ops.h"
#include "ops/profile.h"

struct ddl_audit {
    struct ddl_profile profile; /* profile.backend is for a model */
    double worst;               /* largest error as a share of its bound; infinite for a NaN */
    char op[64];                /* that has it, with its sizes: "matmul_bf16 40 x 128 x 64" */
    size_t calls;               /* audited so far */
    bool out_of_memory;         /* calls were left out */
    float *before;              /* C before the product that is running, or NULL */
};

/* Initializes *audit around a backend, which must outlive it. Ops copy their operands to the host: for small
 * models. */
void ddl_audit_init(struct ddl_audit *audit, struct ddl_backend *real);
/* DDL_E_NUMERIC with a message if an error exceeded its bound, DDL_E_MEMORY if calls were left out. */
ddl_status ddl_audit_check(const struct ddl_audit *audit, struct ddl_error *err);

/* exact (M, N) = the product in double, bound (M, N) = the largest correct distance of C from it, infinite
 * where nothing is bounded. Arrays are host memory; `before`: C before the product, read only if beta is not
 * 0. False if there is no memory. */
bool ddl_audit_matmul_bf16(const struct matmul_bf16_args *a, const float *before, double *exact,
                           double *bound);
/* The largest |C - exact| / bound; infinite for a NaN. C (M, N) with stride ldc. */
double ddl_audit_share(size_t M, size_t N, const float *C, size_t ldc, const double *exact,
                       const double *bound);

#endif
