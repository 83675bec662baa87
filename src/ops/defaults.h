/* Ops that a backend leaves out: compositions of other ops, and the check that none is missing. */
#ifndef DDL_OPS_DEFAULTS_H
#define DDL_OPS_DEFAULTS_H

#include "ops/operands.h"

/* Whether the table has every op. */
bool ddl_ops_are_complete(const struct ddl_ops *ops);
/* Sets NULL members of the table to compositions of other ops that it has. They use the table of struct
 * ddl_context, the beginning of the backend's state. */
void ddl_ops_complete(struct ddl_ops *ops);

/* A list of ops: DDL_OP_LIST(DDL_OP_copy, DDL_OP_sum). */
#define DDL_OP_LIST(...) ((const enum ddl_op[]){ __VA_ARGS__, DDL_OP_COUNT })
/* DDL_E_UNSUPPORTED with the op and the backend unless the backend has all ops of the list (NULL: none).
 * `what` needs them: "a model with ddl_residual gated". */
ddl_status ddl_ops_require(const struct ddl_backend *backend, const enum ddl_op *list, const char *what,
                           struct ddl_error *err);

#endif
