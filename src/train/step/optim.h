/* AdamW as in PyTorch, with clipping to a global norm: docs/equations.md, 10. */
#ifndef DDL_TRAIN_OPTIM_H
#define DDL_TRAIN_OPTIM_H

#include "ddl/model.h"
#include "train/step/partition.h"
#include "train/step/values.h"

#include <stdbool.h>

struct ddl_optim_config {
    float beta1, beta2, eps;
    float clip;                     /* largest global gradient norm; 0: no clipping                */
    float weight_decay[DDL_GROUPS]; /* by enum ddl_param_group                                     */
    bool use_lr_scale;              /* each parameter's lr_scale (muP); false: one rate for all    */
};

/* The paper's: 0.9, 0.95, 1e-8, clip 1, weight decay 0.1 for every group, lr_scale used. */
struct ddl_optim_config ddl_optim_defaults(void);

struct ddl_optim; /* moments (in memory of the model's backend) and the number of steps */

/* Borrows the model, which must have gradients enabled and outlive it. */
ddl_status ddl_optim_create(struct ddl_optim **out, ddl_model *model, const struct ddl_optim_config *config,
                            struct ddl_error *err);
/* The same for what `rank` owns of the parameters: there are moments of these numbers only, and all functions
 * below compute, check and update these numbers only. */
ddl_status ddl_optim_create_part(struct ddl_optim **out, ddl_model *model,
                                 const struct ddl_optim_config *config, const struct ddl_partition *partition,
                                 size_t rank, struct ddl_error *err);
void ddl_optim_free(struct ddl_optim *optim); /* NULL is allowed */
/* Bytes of the backend that an optimizer of n_params parameters takes besides the moments. */
size_t ddl_optim_list_bytes(size_t n_params);
/* Freezes parameter i, or ends that: a step leaves it untouched, decay included, and the norm is without it.
 */
void ddl_optim_freeze(struct ddl_optim *optim, size_t i, bool frozen);

/* The sum of squares of the model's gradients, over active parameters that are not frozen, the tied embedding
 * once: into `square`, (1) of the backend. Its square root is the global norm. */
void ddl_optim_square(struct ddl_optim *optim, double *square);
/* The factor of clipping from the square of the norm, (1) of the backend; a factor with which the next update
 * changes nothing where that or one of the n losses, of the backend too, is not finite. */
void ddl_optim_clip(struct ddl_optim *optim, const double *square, size_t n, const double *losses);
/* One step at learning rate lr with this factor. Inactive parameters are left untouched, decay included. */
void ddl_optim_update(struct ddl_optim *optim, double lr);
/* All three: a step with the gradient of one rank. */
void ddl_optim_step(struct ddl_optim *optim, double lr);

/* The norm, downloaded. */
double ddl_optim_grad_norm(struct ddl_optim *optim);
/* The sum of squares of each parameter's gradient, 0 of an inactive or frozen one, into squares (n_params) in
 * host memory. DDL_E_DEVICE if the device has failed. */
ddl_status ddl_optim_grad_squares(struct ddl_optim *optim, double *squares, struct ddl_error *err);

/* The first active parameter that is not all finite, or whose moments are not. Training cannot continue from
 * such a state, nor from a checkpoint of it. */
struct ddl_corrupted {
    const char *kind; /* "parameter", "first moment" or "second moment"; NULL: all are finite */
    size_t row;       /* of the parameter */
    struct ddl_values values;
};
/* DDL_E_DEVICE if the device has failed. */
ddl_status ddl_optim_find_corrupted(struct ddl_optim *optim, struct ddl_corrupted *out,
                                    struct ddl_error *err);

/* State for checkpoints: steps taken, and numbers [start, start + n) of the moments of parameter i, to and
 * from host memory; m or v may be NULL. Of numbers that the optimizer does not own, arrays keep their values,
 * and values are ignored. */
uint64_t ddl_optim_steps(const struct ddl_optim *optim);
void ddl_optim_set_steps(struct ddl_optim *optim, uint64_t steps);
void ddl_optim_read(const struct ddl_optim *optim, size_t i, size_t start, size_t n, float *m, float *v);
void ddl_optim_write(struct ddl_optim *optim, size_t i, size_t start, size_t n, const float *m,
                     const float *v);

#endif
