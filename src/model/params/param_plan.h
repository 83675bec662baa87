/* Declaration of parameters: what params.c and the residual rules add rows to. */
#ifndef DDL_MODEL_PARAM_PLAN_H
#define DDL_MODEL_PARAM_PLAN_H

#include "model/params/params.h"

enum { DDL_PARAM_NAME = 96 };

enum {
    PARAM_MUP = 1 << 0,      /* learning rate x d_base/d under muP */
    PARAM_PRODUCT = 1 << 1,  /* read by products, in whichever format it has (precision.c) */
    PARAM_INACTIVE = 1 << 2, /* takes no part in the computation of this configuration */
    PARAM_HIDDEN = PARAM_MUP | PARAM_PRODUCT,
};

/* One parameter as its owner declares it. */
struct param_row {
    const char *name; /* after the plan's prefix */
    size_t shape[3];  /* 0 ends it               */
    int group;        /* enum ddl_param_group    */
    struct param_init init;
    int flags;
    const int *fused_with; /* index of the first row of the fused matrix that this row continues, or NULL */
};

/* A table under construction: `out` with its arrays NULL only counts. */
struct param_plan {
    struct params *out;
    const struct ddl_config *config;
    char (*names)[DDL_PARAM_NAME];
    char prefix[DDL_PARAM_NAME];
    long layer;      /* of the rows that are added; -1: none */
    size_t sublayer; /* number of the sublayer whose rows are added, of all */
    bool overflow;
};

/* Adds a row and stores its index in *index. */
void param_plan_add(struct param_plan *plan, const struct param_row *row, int *index);
/* Assigns the offsets in the flat buffer, fused rows without a gap. */
void param_plan_place(struct param_plan *plan);

/* Initial values: normal with the deviation of the configuration's matrices, and a constant. */
struct param_init param_init_matrix(const struct ddl_config *config);
struct param_init param_init_constant(double value);

#endif
