/* Random problems for the Delta operator: inputs, poisoned outputs, every form with every update. */
#ifndef DDL_TEST_DELTA_CASE_H
#define DDL_TEST_DELTA_CASE_H

#include "ddl/delta.h"
#include "support/support.h"

/* Every form with every update that it exists for; "delta" first. */
struct delta_variant {
    const char *name;
    int form, update;
};
enum { N_DELTA_VARIANTS = 5, N_DELTA_SHAPES = 12 };
extern const struct delta_variant delta_variants[N_DELTA_VARIANTS];
extern const size_t delta_shapes[N_DELTA_SHAPES][3]; /* N, d, c */
extern const float delta_eps;

struct delta_case {
    size_t N, d, c;
    float *X, *q, *v, *beta, *G; /* given    */
    float *X_out, *readout;      /* forward  */
    float *dX, *dq, *dv, *dbeta; /* backward */
};
/* beta in [0, 2]; |q| is never small by chance, so that k is smooth around it. */
struct delta_case delta_case_make(size_t N, size_t d, size_t c, uint64_t stream);
void delta_case_free(struct delta_case *p);

/* The public calls, asserted to succeed. */
void delta_forward(ddl_backend *backend, struct delta_case *p, struct delta_variant k);
void delta_backward(ddl_backend *backend, struct delta_case *p, struct delta_variant k);
/* Their arguments, to be varied; the inverse is of X_out. */
struct ddl_delta_args delta_args(struct delta_case *p, struct delta_variant k);
struct ddl_delta_inverse_args delta_inverse_args(struct delta_case *p, struct delta_variant k, float *X);
struct ddl_delta_grad_args delta_grad_args(struct delta_case *p, struct delta_variant k);

/* The direction of a row and the factor of its readout, from the definition. */
void delta_direction(size_t d, const float *q, int form, double *k, double *read);

#endif
