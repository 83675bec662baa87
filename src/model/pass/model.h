/* The memory of a model. */
#ifndef DDL_MODEL_MODEL_H
#define DDL_MODEL_MODEL_H

#include "ddl/force.h"
#include "model/params/params.h"
#include "ops/ops.h"

struct ddl_model {
    struct ddl_config config;
    ddl_backend *backend;
    struct params params;
    float *value,
        *grad; /* flat buffers of the backend; grad NULL until enabled, accessed by gradients.c only */
    bool *grad_is_zero; /* by row: its gradient is known to be 0, whatever grad holds there */
    enum ddl_precision precision;
    unsigned char *reduced; /* of the backend: what products read, in bfloat16 or 8 bits; NULL in float32 */
    size_t reduced_bytes;
    size_t *reduced_offset;   /* offset of row i in it, in bytes; of rows in products only */
    bool stale;               /* values were written since `reduced` was computed */
    bool inference_only;      /* inference-only: rows in products have no other format, and no gradients */
    float *staging;           /* inference-only, of the backend: one piece of a row during conversion */
    struct ddl_force *forces; /* (n_layers, 2), host memory; NULL until an update is forced */
    size_t n_forced;          /* sublayers in which something is forced */
};

#endif
