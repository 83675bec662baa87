/* The flat buffers of a training model, for the optimizer: every parameter at an offset, in backend memory.
 */
#ifndef DDL_MODEL_FLAT_H
#define DDL_MODEL_FLAT_H

#include "ddl/model.h"

/* Parameter i: `count` floats each, of the backend. */
struct ddl_flat_param {
    size_t offset;  /* in a buffer of ddl_model_flat_size floats */
    float *value;   /* float32 */
    uint16_t *bf16; /* the same rounded, which the optimizer writes too; NULL in another precision */
};

/* The buffer that the bfloat16 numbers of all parameters are in, `numbers` of them; NULL in another
 * precision.
 */
uint16_t *ddl_model_flat_bf16(const ddl_model *model, size_t *numbers);

/* Floats of a buffer with the layout of the parameters, padding included. */
size_t ddl_model_flat_size(const ddl_model *model);
struct ddl_flat_param ddl_model_flat_param(const ddl_model *model, size_t i);
/* The gradient of parameter i, zeroed first where ddl_model_zero_grad has flagged it. Needs enable_grad. */
float *ddl_model_flat_grad(ddl_model *model, size_t i);

/* The whole buffers, ddl_model_flat_size floats each. Gradients: those that ddl_model_zero_grad has flagged
 * are zeroed first. Parameters: to be written; the next pass renews what is derived from them (bfloat16). */
float *ddl_model_flat_grads(ddl_model *model);
float *ddl_model_flat_values(ddl_model *model);

/* During ddl_model_backward: the gradients at `begin` of the flat buffer and after it are final. The pass
 * does not write them again; those that ddl_model_zero_grad has flagged are zeroed. Called after each
 * sublayer, with a `begin` that never increases, and at the end of the pass with 0. */
typedef void ddl_grads_final_fn(void *user, float *grads, size_t begin);
/* Backward passes in this workspace call `call` (NULL: nothing) with `user`. */
void ddl_workspace_set_grads_final(ddl_workspace *ws, ddl_grads_final_fn *call, void *user);

#endif
