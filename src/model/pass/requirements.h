/* The ops that a model needs of its backend. A backend may leave ops out: what uses the model reports a
 * missing one, instead of a pass that calls it. */
#ifndef DDL_MODEL_REQUIREMENTS_H
#define DDL_MODEL_REQUIREMENTS_H

#include "ddl/config.h"
#include "ops/defaults.h"

/* What is done with a model. */
enum model_use {
    USE_FORWARD, /* passes with weights in float32 */
    USE_BACKWARD,
    USE_BF16, /* weights and operands in bfloat16 */
    USE_INT8,
    USE_CACHE, /* passes with a cache */
    MODEL_USES
};

/* Receives a list of ops, ended by DDL_OP_COUNT or NULL, and the part of the model that calls them. */
typedef ddl_status requirement_fn(void *user, const char *whose, const enum ddl_op *list,
                                  struct ddl_error *err);
/* Calls fn for each list of ops that this use of a model of a checked configuration may call, until it fails.
 */
ddl_status requirements_each(const struct ddl_config *config, enum model_use use, requirement_fn *fn,
                             void *user, struct ddl_error *err);
/* DDL_E_UNSUPPORTED, with the op, the backend and the part of the model, if the backend lacks one of them. */
ddl_status requirements_check(const struct ddl_config *config, enum model_use use, const ddl_backend *backend,
                              struct ddl_error *err);

#endif
