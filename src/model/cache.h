/* The decode state. */
#ifndef DDL_MODEL_CACHE_H
#define DDL_MODEL_CACHE_H

#include "model/history.h"
#include "model/model.h"
#include "model/rope.h"

struct cache_layer {
    float *k, *v;               /* (B, max_tokens, H h), or NULL: */
    uint16_t *k16, *v16;        /* the same in bfloat16 */
    struct history compress[2]; /* states before attention's and the MLP's use */
};
struct ddl_cache {
    const struct ddl_model *model;
    size_t B, max_tokens, length;
    bool halves; /* keys and values in bfloat16 */
    void *memory;
    size_t bytes;
    struct rope rope; /* of max_tokens positions */
    struct history embed, readout;
    struct cache_layer *layer; /* (n_layers), host memory */
};

#endif
