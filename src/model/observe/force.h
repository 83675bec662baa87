/* Forced updates of a pass (ddl/force.h). */
#ifndef DDL_MODEL_FORCE_H
#define DDL_MODEL_FORCE_H

#include "ddl/force.h"
#include "model/pass/pass.h"

/* What is forced in a sublayer; NULL: nothing. */
const struct ddl_force *model_forced(const ddl_model *model, size_t layer, int sub);
/* The factors (2) with which attention of the layer mixes its values with those of layer 0, in backend
 * memory; NULL if it does not, or is forced to read its own. */
const float *force_value_mix(const struct pass *p, size_t layer);
/* Allocates what a forced factor of F needs in the workspace, the first time it is used there. */
ddl_status force_reserve(ddl_workspace *ws, const ddl_model *model, struct ddl_error *err);
void force_release(ddl_workspace *ws);

/* Memory (N, d) for F's output, before force_add_f. */
float *force_f(const struct pass *p);
/* out (N, d) += factor * force_f(p). */
void force_add_f(const struct pass *p, float factor, float *out);

#endif
