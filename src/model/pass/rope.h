/* Tables of the rotary embedding. */
#ifndef DDL_MODEL_ROPE_H
#define DDL_MODEL_ROPE_H

#include "ddl/model.h"

/* Cosines and sines of the first positions, (positions, R/2) of the backend. */
struct rope {
    size_t R; /* rotated dimensions of a head: ddl_config_rope_dims */
    float *cos, *sin;
};
/* Allocates and fills the tables; *rope is zeroed first, and after an error. */
ddl_status rope_make(struct rope *rope, const struct ddl_model *model, size_t positions,
                     struct ddl_error *err);
/* Bytes that rope_make allocates; SIZE_MAX: out of range. */
size_t rope_bytes(const struct ddl_config *config, size_t positions);
/* Accepts zeroed tables. */
void rope_free(struct rope *rope, const struct ddl_model *model);

#endif
