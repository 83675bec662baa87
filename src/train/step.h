/* One optimizer step over accumulated micro-batches. */
#ifndef DDL_TRAIN_STEP_H
#define DDL_TRAIN_STEP_H

#include "ddl/model.h"
#include "model/probe.h"
#include "train/optim.h"
#include "train/spike.h"

struct ddl_step {
    ddl_model *model;  /* gradients enabled */
    ddl_workspace *ws; /* for training, batch x seq */
    struct ddl_optim *optim;
    size_t batch, accumulate, seq;
    const int32_t *tokens, *targets;     /* (accumulate, batch, seq) */
    struct ddl_probe *probe;             /* of the first micro-batch; NULL: none */
    struct ddl_spike_config spike;       /* z 0: every step is taken */
    struct ddl_spike_state *spike_state; /* may be NULL where z is 0 */
};
struct ddl_step_result {
    double loss;      /* mean over the targets of all micro-batches; 0 where there are none */
    double grad_norm; /* before clipping */
    int decision;     /* enum ddl_spike_decision; SKIP: nothing was updated */
    struct ddl_spike_figures spike;
    size_t failed; /* after DDL_E_NUMERIC: the micro-batch, from 0, whose loss is not finite, or `accumulate`
                      where all are and the gradient is not */
};

/* 1 / (targets of all micro-batches), what the sum of losses is multiplied by; 0 where there are none. */
double ddl_step_scale(const struct ddl_step *step);

/* The gradient of the mean, and one step of the optimizer at rate lr unless the norm is a spike.
 * DDL_E_NUMERIC, before any parameter or moment changes, if a loss or the norm is not finite. Allocates
 * nothing. */
ddl_status ddl_step_run(const struct ddl_step *step, double lr, struct ddl_step_result *out,
                        struct ddl_error *err);

#endif
