/* Exchange of a model's backend, for profiling. */
#ifndef DDL_MODEL_REDIRECT_H
#define DDL_MODEL_REDIRECT_H

#include "ddl/model.h"

/* Later passes run on `backend` (borrowed), which must share the memory of the present one: a wrapper of it,
 * or the wrapped one. Returns the present one. */
ddl_backend *ddl_model_replace_backend(ddl_model *model, ddl_backend *backend);

#endif
