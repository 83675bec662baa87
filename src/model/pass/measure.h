/* Sizes of a model's memory, without allocating it, and the rate at which a device computes it at best. */
#ifndef DDL_MODEL_MEASURE_H
#define DDL_MODEL_MEASURE_H

#include "ddl/model.h"
#include "ops/ops.h"

struct ddl_arena;

/* Bytes of weights that a pass reads: those that take part, in the model's precision. */
size_t ddl_model_pass_bytes(const ddl_model *model);
/* ddl_workspace_bytes with a status: DDL_E_USAGE for sizes out of range, DDL_E_UNSUPPORTED for a precision
 * that the backend does not have, or DDL_E_MEMORY. */
ddl_status ddl_workspace_measure(const struct ddl_config *config, enum ddl_precision precision,
                                 const struct ddl_workspace_options *options, const ddl_backend *backend,
                                 size_t *bytes, struct ddl_error *err);
/* All backend memory of such a workspace, rotary tables included; SIZE_MAX: out of range. */
size_t ddl_workspace_total_bytes(const struct ddl_config *config, enum ddl_precision precision,
                                 const struct ddl_workspace_options *options, const ddl_backend *backend);
/* The limits that such a workspace reserves on its backend. */
struct ddl_limits ddl_workspace_limits(const struct ddl_config *config,
                                       const struct ddl_workspace_options *options);

/* Operations per second of a backend's products in a precision, by ops->peak_rate; 0: unknown. */
double ddl_precision_peak_rate(enum ddl_precision precision, const ddl_backend *backend);

/* ops->logit_block of a backend; NULL is allowed. */
size_t workspace_logit_block(const ddl_backend *backend);
/* Measures a workspace whose options, precision and logit_block are set, with an arena without memory;
 * ws->layer is to be freed, after an error too. */
ddl_status workspace_measure(ddl_workspace *ws, const struct ddl_config *config, struct ddl_arena *arena,
                             struct ddl_error *err);
/* Places it: sets the pointers to everything that it needs. */
void workspace_place(ddl_workspace *ws, struct ddl_arena *arena, const struct ddl_config *config);

#endif
