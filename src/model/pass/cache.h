/* The decode state: slots of keys and values, and histories of the causal convolutions. */
#ifndef DDL_MODEL_CACHE_H
#define DDL_MODEL_CACHE_H

#include "model/pass/decode.h"
#include "model/pass/history.h"
#include "model/pass/pass.h"
#include "model/pass/rope.h"
#include "model/pass/scores.h"
#include "ops/uploads.h"

struct cache_layer {
    float *k, *v;               /* slots slot_stride apart, (tokens, H h) each; NULL: */
    uint16_t *k16, *v16;        /* the same in bfloat16 */
    struct history compress[2]; /* states before attention's and the MLP's use */
};
struct ddl_cache {
    const struct ddl_model *model;
    struct ddl_cache_options options;
    size_t slot_stride; /* numbers from slot to slot of keys, and of values; even */
    size_t bytes;       /* of `memory` */
    void *memory; /* of the backend; everything below is carved from it, but for `layer` and scores.host */
    struct rope rope; /* (options.tokens) positions */
    /* The arrays of every pass, each with its largest size, so that the ops of two passes with the same
     * numbers of sequences and rows have the same arguments. */
    int32_t *integers;         /* all of them */
    struct ddl_ragged ragged;  /* the first ones; B and N are 0 */
    struct ddl_ragged queries; /* exact: each row as a sequence; B and N are 0 */
    int32_t *outputs;          /* (options.rows) the head's: rows of the outputs */
    struct scores scores;      /* of the head                                    */
    struct history embed, readout;
    struct cache_layer *layer;  /* (n_layers), host memory */
    struct ddl_uploads uploads; /* of `integers`, and of a pass's tokens */
};

#endif
