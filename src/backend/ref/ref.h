/* The reference backend: the specification made executable. Scalar, double accumulators, one thread, no
 * library. Each op's equation stands above its arguments in ops/ops.h; the code below says it again as
 * plainly as it can. */
#ifndef DDL_BACKEND_REF_H
#define DDL_BACKEND_REF_H

#include "ops/ops.h"

extern const struct ddl_ops ddl_ops_ref;

#define DECLARE_OP(name, args) void ref_##name(void *ctx, const struct args *a);
DDL_OPS(DECLARE_OP)
#undef DECLARE_OP
double ref_sum_squares(void *ctx, size_t n, const float *x);

#endif
