/* What other layers need of a model beyond the public calls. */
#ifndef DDL_MODEL_IO_H
#define DDL_MODEL_IO_H

#include "ddl/model.h"
#include "ops/ops.h"

/* Fills the parameters from the folder's safetensors; the model's own configuration says what shapes they
 * must have. After an error the parameters are unspecified. */
ddl_status ddl_model_read_weights(ddl_model *model, const char *folder, ddl_warn_fn *warn, void *user,
                                  struct ddl_error *err);
/* The same with options; NULL: strict, and no warnings. */
ddl_status ddl_model_read_weights_with(ddl_model *model, const char *folder,
                                       const struct ddl_load_options *options, struct ddl_error *err);

/* Bytes of weights that a pass reads: those that take part, in the model's precision. */
size_t ddl_model_pass_bytes(const ddl_model *model);

/* ddl_workspace_bytes with a reason where there is no answer: DDL_E_USAGE for sizes out of range, or
 * DDL_E_MEMORY. */
ddl_status ddl_workspace_measure(const struct ddl_config *config, enum ddl_precision precision,
                                 const struct ddl_workspace_options *options, size_t *bytes,
                                 struct ddl_error *err);
/* What such a workspace reserves of its backend. */
struct ddl_limits ddl_workspace_extent(const struct ddl_config *config, size_t tokens);

#endif
