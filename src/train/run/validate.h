/* The loss on a fixed set of positions, during a run. */
#ifndef DDL_TRAIN_VALIDATE_H
#define DDL_TRAIN_VALIDATE_H

#include "comm/comm.h"
#include "ddl/data.h"
#include "ddl/model.h"

/* The result of one batch, which one rank computes. */
struct ddl_validation_part {
    double sum;
    uint64_t n_targets;
    uint64_t status; /* ddl_status */
};
struct ddl_validation {
    const ddl_shards *shards;
    size_t batch, seq;
    bool aligned;                      /* sequences begin at multiples of seq */
    uint64_t n;                        /* sequences, spread evenly over the shards */
    ddl_comm *comm;                    /* NULL: one rank */
    struct ddl_validation_part *parts; /* (ranks) scratch of the caller; NULL for one rank */
};

/* As many sequences as val_tokens requires and the shards have, at least one. `order`: enum ddl_order. */
struct ddl_validation ddl_validation_plan(const ddl_shards *shards, uint64_t val_tokens, size_t batch,
                                          size_t seq, int order);
struct ddl_validation_result {
    double loss;   /* the mean */
    size_t rank;   /* after DDL_E_NUMERIC: the rank whose batch has a loss that is not finite, */
    size_t failed; /* and the sequences of that batch, which its tokens and targets still hold */
};
/* What the batches of a validation are computed with. */
struct ddl_validation_work {
    ddl_model *model;
    ddl_workspace *ws;
    int32_t *tokens, *targets; /* (batch, seq) scratch */
    ddl_progress_fn *progress; /* in tokens; may be NULL */
    void *user;                /* for progress */
};
/* DDL_E_NUMERIC at the first batch whose loss is not finite. Allocates nothing. Ranks divide the batches: all
 * call it, and have the same status, error and result, which has the same bits for every number of ranks if
 * `batch` is the same. */
ddl_status ddl_validation_run(const struct ddl_validation *v, const struct ddl_validation_work *work,
                              struct ddl_validation_result *out, struct ddl_error *err);

#endif
