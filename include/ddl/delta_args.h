/* Arguments of the Delta operator: ddl/delta.h has the equations and the functions. Needs the freestanding
 * headers of C alone, so that device code can include it. */
#ifndef DDL_DELTA_ARGS_H
#define DDL_DELTA_ARGS_H

#include "ddl/kinds.h"

#include <stddef.h>
#include <stdint.h>

/* Forward: what it reads (N rows), and where it writes. */
struct ddl_delta_args {
    size_t N, d, c;
    size_t steps;      /* R of each row, see above; 0 means 1 */
    float eps;         /* 1e-5 in the paper                                                 */
    int form;          /* enum ddl_form                                                     */
    int update;        /* enum ddl_update                                                   */
    const float *X;    /* (N, d, c) state                                                   */
    const float *q;    /* (N, d)    direction, not normalized                               */
    const float *v;    /* (N, c)    target                                                  */
    const float *beta; /* (N)       gate in [0, 2]                                          */
    float *X_out;      /* (N, d, c) X'; may be X                                            */
    float *readout;    /* (N, c)    p, or NULL. For DDL_FORM_RATIO p = q^T X / (q^T q + eps) */
};

/* Backward, G = dL/dX'. N, d, c, steps, eps, form, update, q, v and beta as forward had them. Gradients are
 * written, not added. Several steps need X_next: they are reversed one by one. */
struct ddl_delta_grad_args {
    size_t N, d, c;
    size_t steps; /* R of each row, see above; 0 means 1 */
    float eps;
    int form, update;
    const float *X; /* (N, d, c) state before the step; ignored if X_next is given           */
    float *X_next;  /* (N, d, c) or NULL: holds X' and becomes X = X' - k delta^T (in place) */
    const float *q, *v, *beta;
    const float *readout; /* (N, c) p as forward gave it, or NULL: computed (needed with X_next)     */
    const float *G;       /* (N, d, c) */
    float *dX;            /* (N, d, c) may be G                                                    */
    float *dq;            /* (N, d)    */
    float *dv;            /* (N, c)    zero for DDL_UPDATE_ERASE */
    float *dbeta;         /* (N)       */
    uint16_t *dq16;       /* NULL; in models: dq in bfloat16, and dq is NULL */
};

/* Inverse of the forward pass: X = X' - k delta^T, from its steps, q, v, beta, eps, form and update, and the
 * readout p that it wrote. X may be X_out. Accurate to rounding for every form and update. */
struct ddl_delta_inverse_args {
    size_t N, d, c;
    size_t steps; /* R of each row, see above; 0 means 1 */
    float eps;
    int form, update;
    const float *X_out; /* (N, d, c) X' */
    const float *q, *v, *beta;
    const float *readout; /* (N, c) */
    float *X;             /* (N, d, c) */
};

/* The element-wise form for plain vectors: x' = x - beta k (k . x) + beta k (*) v, v in R^d; eps inside the
 * norm of q. */
struct ddl_elementwise_args {
    size_t N, d;
    float eps;
    const float *x, *q, *v; /* (N, d) each */
    const float *beta;      /* (N)         */
    float *x_out;           /* (N, d), may be x */
};
/* Its backward: eps, x, q, v and beta as forward had them, and G = dL/dx'. */
struct ddl_elementwise_grad_args {
    size_t N, d;
    float eps;
    const float *x, *q, *v, *beta;
    const float *G;              /* (N, d) */
    float *dx, *dq, *dv, *dbeta; /* (N, d) x 3, (N); dx may be G */
};

#endif
