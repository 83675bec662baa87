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

/* Floats of a buffer with the layout of the parameters, padding included. */
size_t ddl_model_flat_size(const ddl_model *model);
struct ddl_flat_param ddl_model_flat_param(const ddl_model *model, size_t i);
/* The gradient of parameter i, zeroed first where ddl_model_zero_grad left that open. Needs enable_grad. */
float *ddl_model_flat_grad(ddl_model *model, size_t i);

#endif
