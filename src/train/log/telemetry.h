/* Training telemetry: figures of each sublayer in the forward pass of a step's first micro-batch, and
 * gradient norms by layer. Observing changes nothing that the step computes. */
#ifndef DDL_TRAIN_TELEMETRY_H
#define DDL_TRAIN_TELEMETRY_H

#include "base/mem.h"
#include "comm/comm.h"
#include "ddl/json.h"
#include "ddl/model.h"
#include "model/observe/rows.h"
#include "train/step/optim.h"

/* Rows (tokens) of a micro-batch that are copied for figures of vectors: at most these, evenly spaced. Gates
 * of one number per row are taken from all rows. */
enum { DDL_TELEMETRY_ROWS = 128 };

/* A sublayer, or one of its steps with ddl_steps. */
struct ddl_telemetry_sublayer {
    size_t layer;                       /* from 0                 */
    int sub;                            /* enum ddl_sublayer      */
    size_t step, n_steps;               /* which of the sublayer's steps, from 0; 1 or ddl_steps */
    struct ddl_inspect_figures figures; /* NAN: does not apply to the residual rule                   */
    double x_rms, f_rms;  /* root mean square of the stream X' after the sublayer, of F's output    */
    double gate_max;      /* ddl_beta_max of beta, 1 of tau; 0: no gate, and no histogram */
    uint64_t gate_values; /* how many; gate_squares: the sum of their squares */
    double gate_squares, gate_mean, gate_low, gate_high; /* mean, lowest and highest gate           */
    uint64_t histogram[DDL_DISTRIBUTION_BINS]; /* of the gate, bins of equal width in [0, gate_max] */
};

struct ddl_telemetry {
    /* Results. */
    struct ddl_telemetry_sublayer
        *sublayers;                   /* (n_sublayers), attention before MLP, layer by layer, by step */
    size_t n_sublayers, rows;         /* rows: copied                                        */
    double grad_embedding, grad_head; /* norms of gradients, before clipping                 */
    double *grad_layers;              /* (n_layers)                                          */

    /* What results are computed in. */
    ddl_model *model;
    struct ddl_probe probe;
    struct ddl_rows copies;        /* of the sublayer that is observed   */
    size_t at;                     /* which element of `sublayers` is next */
    struct ddl_sublayer_sums sums; /* of the present step                */
    double *k;                     /* (d)                                */
    double *squares;               /* (n_params) of gradients                             */
    void *block;                   /* the memory of all of these                          */
};

/* Allocates all memory. `model` is borrowed; batch_rows: tokens of a micro-batch. Free with
 * ddl_telemetry_free, also after an error. */
ddl_status ddl_telemetry_init(struct ddl_telemetry *t, ddl_model *model, size_t batch_rows,
                              struct ddl_error *err);
void ddl_telemetry_free(struct ddl_telemetry *t); /* zeroed is allowed */
/* Bytes that it allocates for such a model with n_params rows of parameters. SIZE_MAX: more than the address
 * space. */
size_t ddl_telemetry_bytes(const struct ddl_config *config, size_t batch_rows, size_t n_params);

/* Takes the gradient norms of a step: after ddl_step_finish with the probe, which has set the other results.
 * All ranks call it, and have the norms. comm may be NULL. DDL_E_DEVICE if the device of this
 * rank has failed. */
ddl_status ddl_telemetry_take_gradients(struct ddl_telemetry *t, struct ddl_optim *optim, ddl_comm *comm,
                                        struct ddl_error *err);
/* Writes the members "rows", "sublayers" and "grad_norms" of the open object. */
void ddl_telemetry_write_json(const struct ddl_telemetry *t, struct ddl_json *json);

#endif
