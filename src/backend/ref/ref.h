/* The reference backend, an executable specification: scalar, double accumulators, one thread, no library.
 * Each op follows the equation above its arguments in ops/ops.h. */
#ifndef DDL_BACKEND_REF_H
#define DDL_BACKEND_REF_H

#include "ops/ops.h"

extern const struct ddl_ops ddl_ops_ref;

#define DECLARE_OP(name, args) void ref_##name(void *ctx, const struct args *a);
DDL_OPS(DECLARE_OP)
#undef DECLARE_OP

#endif
