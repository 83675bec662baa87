/* Micro-batches run once more under a probe, up to the first tensor that is not finite. */
#ifndef DDL_TRAIN_REPLAY_H
#define DDL_TRAIN_REPLAY_H

#include "model/observe/probe.h"
#include "train/step/values.h"

struct ddl_replay {
    ddl_model *model; /* with `backward` gradients enabled; they are overwritten */
    ddl_workspace *ws;
    bool backward;
    size_t n, batch, seq;            /* micro-batches, and the size of each */
    const int32_t *tokens, *targets; /* (n, batch, seq)                     */
    double scale;                    /* of the sum of losses whose gradient is taken */
};

struct ddl_finding {
    bool found;
    size_t micro_batch;     /* from 0 */
    struct ddl_place place; /* the first in the order of computation */
    struct ddl_values values;
    double loss; /* sum over targets, of the micro-batches that were run */
};

/* Gradients add up over the n micro-batches, as in a step. Changes no parameter. */
ddl_status ddl_replay_run(const struct ddl_replay *replay, struct ddl_finding *out, struct ddl_error *err);

/* "layer 3, mlp: s", "head, backward: grad.transformer.wte.weight" */
void ddl_place_text(const struct ddl_place *place, char *out, size_t size);

#endif
