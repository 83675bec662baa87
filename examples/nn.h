/* What the examples share: parameters with Adam, linear layers, a loss, and a residual step that is either
 * the addition or the generic delta block. Plain loops on host memory; matrices are row-major. */
#ifndef EXAMPLES_NN_H
#define EXAMPLES_NN_H

#include <ddl/backend.h>
#include <ddl/block.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- random numbers, memory, errors; nn_floats and nn_check end the program on failure ---- */

struct nn_rng {
    uint64_t state;
};
double nn_uniform(struct nn_rng *rng); /* in [0, 1) */
double nn_normal(struct nn_rng *rng);  /* mean 0, deviation 1 */
float *nn_floats(size_t n);            /* zeroed; free with free */
void nn_check(ddl_status status, const struct ddl_error *err);

/* ---- parameters ---- */

/* A parameter with its gradient and the moments of Adam: (n) each. */
struct nn_array {
    float *value, *grad, *m, *v;
    size_t n;
};
enum { NN_MAX_ARRAYS = 96 };
struct nn_params {
    struct nn_array array[NN_MAX_ARRAYS];
    size_t n, steps;
    struct nn_rng rng;
};
/* Adds a parameter of n numbers, normal with the given deviation; owned by params. */
struct nn_array *nn_param(struct nn_params *params, size_t n, double deviation);
size_t nn_count(const struct nn_params *params); /* numbers of all parameters */
/* One step of Adam on all parameters; the gradients are zero afterwards. */
void nn_adam(struct nn_params *params, double lr);
void nn_free(struct nn_params *params);

/* ---- layers: N rows; gradients of parameters are added, those of inputs are added to dx ---- */

/* y (N, out) = x (N, in) W^T + b, W (out, in). */
struct nn_linear {
    size_t in, out;
    struct nn_array *W, *b;
};
struct nn_linear nn_linear(struct nn_params *params, size_t in, size_t out);
void nn_linear_forward(const struct nn_linear *layer, size_t N, const float *x, float *y);
/* dx may be NULL. */
void nn_linear_backward(const struct nn_linear *layer, size_t N, const float *x, const float *dy, float *dx);

void nn_relu(size_t n, float *x);
/* dy becomes 0 where y, the output of nn_relu, is 0. */
void nn_relu_backward(size_t n, const float *y, float *dy);

/* y = x / rms(x) for each of N rows of d numbers. */
void nn_norm(size_t N, size_t d, const float *x, float *y);
void nn_norm_backward(size_t N, size_t d, const float *x, const float *dy, float *dx);

/* The mean of -log softmax(logits)[label] over N rows of n classes. dlogits: its gradient, or NULL. *right:
 * rows in which the label has the highest logit, or NULL. */
double nn_cross_entropy(size_t N, size_t n, const float *logits, const int *labels, float *dlogits,
                        size_t *right);

/* ---- the residual step ---- */

/* The state of a row is X (d, c), d * c numbers. A branch computes u from it:
 *   addition   X' = X + u                      u has d * c numbers
 *   delta      X' = X + beta k (u - k^T X)^T   u has c numbers; k and beta come from X (ddl/block.h) */
struct nn_residual {
    bool delta;
    size_t d, c;
    ddl_block *block;
    struct ddl_block_params params, grads;
};
struct nn_residual nn_residual(struct nn_params *params, bool delta, size_t d, size_t c, size_t max_rows,
                               ddl_backend *backend);
size_t nn_residual_inputs(const struct nn_residual *r); /* numbers in u */
void nn_residual_forward(struct nn_residual *r, size_t N, const float *X, const float *u, float *X_out);
/* G, the gradient of X_out, becomes the gradient of X; du is written. */
void nn_residual_backward(struct nn_residual *r, size_t N, const float *X, const float *u, float *G,
                          float *du);

/* ---- the programs ---- */

/* Mean and standard deviation of n results. */
void nn_mean(const double *values, size_t n, double *mean, double *deviation);

#endif
