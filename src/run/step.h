/* One optimiser step over accumulated micro-batches. */
#ifndef DDL_RUN_STEP_H
#define DDL_RUN_STEP_H

#include "ddl/model.h"
#include "run/optim.h"

struct ddl_step {
    ddl_model *model;  /* gradients enabled */
    ddl_workspace *ws; /* for training, batch x seq */
    struct ddl_optim *optim;
    size_t batch, accumulate, seq;
    const int32_t *tokens, *targets; /* (accumulate, batch, seq) */
};
struct ddl_step_result {
    double loss;      /* mean over the targets of all micro-batches; 0 where there are none */
    double grad_norm; /* before clipping */
};

/* The gradient of that mean, and one step of the optimiser at rate lr. DDL_E_NUMERIC, before any parameter
 * changes, if the loss or the norm is not finite. Allocates nothing. */
ddl_status ddl_step_run(const struct ddl_step *step, double lr, struct ddl_step_result *out,
                        struct ddl_error *err);

#endif
