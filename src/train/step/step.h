/* One optimizer step over accumulated micro-batches, which may be divided among ranks. */
#ifndef DDL_TRAIN_STEP_H
#define DDL_TRAIN_STEP_H

#include "ddl/model.h"
#include "model/observe/probe.h"
#include "train/step/exchange.h"
#include "train/step/optim.h"
#include "train/step/spike.h"

struct ddl_step {
    ddl_model *model;  /* gradients enabled */
    ddl_workspace *ws; /* for training, batch x seq */
    struct ddl_optim *optim;
    size_t batch, accumulate, seq;       /* micro-batches of this rank: `accumulate` */
    size_t last;                         /* sequences of the last micro-batch; 0: `batch`, as of the others */
    const int32_t *tokens, *targets;     /* (accumulate, batch, seq) of this rank */
    struct ddl_probe *probe;             /* of the first micro-batch; NULL: none */
    struct ddl_spike_config spike;       /* z 0: every step is taken */
    struct ddl_spike_state *spike_state; /* may be NULL where z is 0 */
    ddl_comm *comm;                      /* NULL: one rank; as all below */
    struct ddl_exchange *exchange;       /* of `optim`'s partition */
    bool overlap;                        /* gradients are exchanged while the last micro-batch runs */
    double *sums, *host_sums; /* of ddl_step_reserve, (1 + accumulate): the square of the gradient's norm,
                                 then the loss of each micro-batch */
};
struct ddl_step_result {
    double loss;      /* mean over the targets of all micro-batches of all ranks; 0 where there are none */
    double grad_norm; /* before clipping */
    int decision; /* enum ddl_spike_decision; SKIP: nothing was updated, also where there are no targets */
    struct ddl_spike_figures spike;
    double scale; /* 1 / (targets of all micro-batches of all ranks), the factor of the sum of losses; 0 where
                     there are none */
    size_t failed; /* after DDL_E_NUMERIC: this rank's micro-batch, from 0, whose loss is not finite, or
                      `accumulate` where all of its losses are finite */
    size_t rank;   /* after DDL_E_NUMERIC: the first rank with such a micro-batch; the number of ranks where
                      all losses are finite and the gradient is not */
};

/* Sequences of micro-batch k. */
size_t ddl_step_sequences(const struct ddl_step *step, size_t k);

/* Allocates what the step reads from the backend: nothing else is downloaded in a step, except by `probe`.
 * `model` and `accumulate` are set before. */
ddl_status ddl_step_reserve(struct ddl_step *step, struct ddl_error *err);
void ddl_step_release(struct ddl_step *step);

/* The gradient of the mean, and one step of the optimizer at rate lr unless the norm is a spike, in two
 * calls: `submit` starts what it can without the step's numbers, and does not wait for the device; `finish`
 * waits for them. `tokens` and `targets` may not change in between. `finish` is given the status, result and
 * error of `submit`, also where that failed, and returns the status of the step: DDL_E_NUMERIC, with no
 * parameter or moment changed, if a loss or the norm is not finite. Neither allocates. All ranks call both,
 * and have the same status, error and results of `finish`, except `failed`. */
ddl_status ddl_step_submit(const struct ddl_step *step, double lr, struct ddl_step_result *out,
                           struct ddl_error *err);
ddl_status ddl_step_finish(const struct ddl_step *step, ddl_status status, double lr,
                           struct ddl_step_result *out, struct ddl_error *err);
/* Both, one after the other. */
ddl_status ddl_step_run(const struct ddl_step *step, double lr, struct ddl_step_result *out,
                        struct ddl_error *err);

#endif
