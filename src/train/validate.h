/* The loss on a fixed set of positions, during a run. */
#ifndef DDL_TRAIN_VALIDATE_H
#define DDL_TRAIN_VALIDATE_H

#include "ddl/data.h"
#include "ddl/model.h"

struct ddl_validation {
    const ddl_shards *shards;
    size_t batch, seq;
    uint64_t n; /* sequences, spread evenly over the shards */
};

/* As many sequences as val_tokens ask for and the shards have, at least one. */
struct ddl_validation ddl_validation_plan(const ddl_shards *shards, uint64_t val_tokens, size_t batch,
                                          size_t seq);
struct ddl_validation_result {
    double loss;   /* the mean */
    size_t failed; /* after DDL_E_NUMERIC: sequences of the batch whose loss is not finite, which tokens and
                      targets still hold */
};
/* tokens, targets: (batch, seq) scratch. progress, in tokens, may be NULL. DDL_E_NUMERIC at the first batch
 * whose loss is not finite. Allocates nothing. */
ddl_status ddl_validation_run(const struct ddl_validation *v, ddl_model *model, ddl_workspace *ws,
                              int32_t *tokens, int32_t *targets, ddl_progress_fn *progress, void *user,
                              struct ddl_validation_result *out, struct ddl_error *err);

#endif
