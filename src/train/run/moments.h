/* The optimizer's moments of a run in a checkpoint. Each rank has those that it owns: while rank 0 writes
 * them, the others answer its requests. Every rank reads the file itself and keeps its own. */
#ifndef DDL_TRAIN_MOMENTS_H
#define DDL_TRAIN_MOMENTS_H

#include "comm/comm.h"
#include "train/step/optim.h"

struct ddl_moments {
    ddl_model *model;
    struct ddl_optim *optim;
    ddl_comm *comm; /* NULL: one rank */
    const struct ddl_partition *partition;
    float *scratch; /* (partition->bucket); not used by one rank */
};

/* Numbers [start, start + n) of the first (kind 0) or second (kind 1) moment of parameter i to `out`. On rank
 * 0, while the others are in ddl_moments_serve. DDL_E_DEVICE if the device of any rank has failed. */
ddl_status ddl_moments_read(const struct ddl_moments *moments, size_t i, int kind, size_t start, size_t n,
                            float *out, struct ddl_error *err);
/* Ends ddl_moments_serve on the other ranks. On rank 0. */
void ddl_moments_end(const struct ddl_moments *moments);
/* Answers requests of rank 0 until ddl_moments_end, also if the device of this rank fails meanwhile: then its
 * error. On all other ranks. */
ddl_status ddl_moments_serve(const struct ddl_moments *moments, struct ddl_error *err);

#endif
