/* What other layers and the parts of a pass call of model.c, beside ddl/model.h. */
#ifndef DDL_MODEL_MODEL_H
#define DDL_MODEL_MODEL_H

#include "ddl/model.h"

struct pass;
struct stream;

/* ddl_model_backward that waits for nothing: the sum of the losses goes to loss_sum, (1) of the backend, and
 * the caller calls ops->check_error before it uses a result. */
ddl_status ddl_model_backward_into(ddl_model *model, ddl_workspace *ws, const struct ddl_batch *batch,
                                   double scale, double *loss_sum, struct ddl_error *err);

/* Later passes run on `backend` (borrowed), which must share the memory of the present one: a wrapper of it,
 * or the wrapped one. Returns the present one. */
ddl_backend *ddl_model_replace_backend(ddl_model *model, ddl_backend *backend);

/* The workspace's tokens -> *stream, in the workspace's memory, with the last state, and the input of the
 * final norm (N, d), borrowed until the next pass. */
const float *model_forward(const struct pass *p, struct stream *stream);

#endif
