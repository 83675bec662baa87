/* Forward passes of ragged batches with a cache, for sessions (src/infer/session.c). The caller assigns the
 * indices of slots and histories and keeps their lengths. */
#ifndef DDL_MODEL_DECODE_H
#define DDL_MODEL_DECODE_H

#include "ddl/session.h"

struct ddl_cache_options {
    size_t slots;     /* of keys and values */
    size_t histories; /* of each convolution */
    size_t tokens;    /* positions of a slot */
    size_t rows;      /* of a pass */
    size_t ids;       /* picks choose tokens below it */
    bool bf16;        /* keys and values */
    bool exact; /* attention computes each row by itself, as in a pass of single tokens, so that its bits
                   do not depend on the rows of its sequence in the pass */
};
typedef struct ddl_cache ddl_cache;

/* Bytes of backend memory of a cache, tables of rope_make included; SIZE_MAX: out of range. */
size_t ddl_cache_bytes(const struct ddl_config *config, const struct ddl_cache_options *options);
ddl_status ddl_cache_create(ddl_cache **out, const ddl_model *model, const struct ddl_cache_options *options,
                            struct ddl_error *err);
void ddl_cache_free(ddl_cache *cache); /* NULL is allowed */
/* Write all memory of a new cache and of a new workspace, so that no pass waits for the system to provide it.
 */
void ddl_cache_fill(ddl_cache *cache);
void ddl_workspace_fill(ddl_workspace *ws);

/* Sequence of a pass: `rows` tokens after the `past` ones of its slot. Convolutions read history `from` and
 * write history `to`, which may be the same. */
struct ddl_decode_sequence {
    size_t slot, past, rows, from, to;
};
/* Copies a slot of source->past tokens, and history source->from, to slot `slot` and history `to`. */
void ddl_cache_copy(ddl_cache *cache, const struct ddl_decode_sequence *source, size_t slot, size_t to);
/* Copies history `from` of every convolution to history `to`. */
void ddl_cache_copy_histories(ddl_cache *cache, size_t from, size_t to);
/* Whether the model has causal convolutions: otherwise histories are empty. */
bool ddl_cache_has_histories(const ddl_cache *cache);

/* What is wanted of one row of a pass. All arrays are host memory. */
struct ddl_decode_output {
    size_t row, n_targets;
    const int32_t *targets;         /* (n_targets)                                          */
    float *logits;                  /* (V) = or NULL                                        */
    float *losses;                  /* (n_targets) = -log p(target), nats                   */
    int32_t *ranks;                 /* (n_targets) = as struct rank_args, or NULL           */
    float *entropy;                 /* = of the prediction, nats, or NULL; needs a target   */
    size_t n_picks;                 /* 0 where there are targets                            */
    struct ddl_session_pick *picks; /* (n_picks) id and loss =                      */
    size_t n_top;                   /* at most DDL_MOST_TOP                         */
    struct ddl_scored_token *top;   /* (n_top) =                                    */
};
struct ddl_decode_batch {
    size_t n_sequences;
    const struct ddl_decode_sequence *sequences;
    const int32_t *tokens; /* of all sequences in order, host; within the vocabulary */
    size_t n_outputs;
    const struct ddl_decode_output *outputs; /* ascending rows */
};
/* One pass. Sequences have different slots and histories, rows and positions are within the cache's options
 * and the workspace. DDL_E_USAGE where the model's precision is no longer the workspace's, DDL_E_MEMORY,
 * DDL_E_INTERRUPTED if the workspace's probe stops it; then
 * outputs, histories `to` and positions from `past` on are undefined. */
ddl_status ddl_model_decode(ddl_model *model, ddl_workspace *ws, ddl_cache *cache,
                            const struct ddl_decode_batch *batch, struct ddl_error *err);

/* Whether a cache of this form for a model of this precision holds keys and values in bfloat16. */
bool ddl_cache_is_bf16(enum ddl_precision precision, enum ddl_cache_form form);

/* Rows of a pass up to which a row of the result has the same bits for any number of rows. */
size_t ddl_model_step_rows(const ddl_model *model);

#endif
