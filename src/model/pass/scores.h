/* What comes of the logits of single rows of a ragged batch: scores of targets, chosen tokens. */
#ifndef DDL_MODEL_SCORES_H
#define DDL_MODEL_SCORES_H

#include "model/pass/decode.h"
#include "model/pass/pass.h"

/* Backend memory of a cache for this, and host memory. */
struct scores {
    int32_t *targets; /* (SCORES, rows): targets, losses, ranks, entropies; all are 32-bit numbers  */
    double *u;        /* (rows) of choices, and the other settings behind it (PICK_BYTES a row)      */
    int32_t *changed; /* (4, V) struct choose_args: changed, repeat, shift, before                   */
    int32_t *top;     /* (2, TOP_NUMBERS) ids and log-probabilities of likeliest tokens              */
    void *host;       /* the largest of these */
};
struct ddl_arena;
/* Places the backend's memory in the arena, for passes of at most `rows` rows. */
void scores_take(struct scores *scores, struct ddl_arena *arena, size_t rows, size_t V);
/* Bytes of `host`; they do not overflow where the arena did not. */
size_t scores_host_bytes(size_t rows, size_t V);

/* What is wanted of each of n rows, whose logits are the workspace's (n, V). */
void scores_of_rows(const struct pass *p, const struct ddl_decode_output *outputs, size_t n);

#endif
