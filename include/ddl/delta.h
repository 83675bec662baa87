/* The Delta operator on plain arrays.
 *
 *     n = sqrt(|q|^2 + eps^2),  k = q / n,  p = k^T X,  delta = beta (v - p),  X' = X + k delta^T
 *
 * for N independent rows; X is (N, d, c), feature-major (i*c + j), float32, host memory. Any N >= 0, d >= 1,
 * c >= 1. A row whose beta is 0 is copied bit for bit. Sums are accumulated in float32 or wider.
 *
 * With steps = R > 1 a row takes R steps in order, each with its own q, v and beta: q is then (N, R, d), v
 * and the readout (N, R, c), beta (N, R), and the gradients likewise. 0 means 1. */
#ifndef DDL_DELTA_H
#define DDL_DELTA_H

#include "ddl/backend.h"
#include "ddl/delta_args.h"
#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes X_out, and the readout if it is not NULL. DDL_E_USAGE if d or c is 0, eps is not above 0 and finite,
 * a needed array is NULL, the sizes overflow, or the form does not allow the update. */
DDL_API ddl_status ddl_delta_forward(ddl_backend *backend, const struct ddl_delta_args *args,
                                     struct ddl_error *err);
/* Writes dX, dq, dv, dbeta; and X in place of X' if X_next is given. DDL_E_USAGE as for ddl_delta_forward,
 * without X_next for several steps, or without the readout for X_next. */
DDL_API ddl_status ddl_delta_backward(ddl_backend *backend, const struct ddl_delta_grad_args *args,
                                      struct ddl_error *err);

/* Inverse of the forward pass: writes X, the state before the update. DDL_E_USAGE as for ddl_delta_forward;
 * the readout is needed. */
DDL_API ddl_status ddl_delta_inverse(ddl_backend *backend, const struct ddl_delta_inverse_args *args,
                                     struct ddl_error *err);

/* The element-wise form: writes x_out. DDL_E_USAGE if d is 0, eps is not above 0 and finite, or an array is
 * NULL. */
DDL_API ddl_status ddl_elementwise_forward(ddl_backend *backend, const struct ddl_elementwise_args *args,
                                           struct ddl_error *err);
/* Writes dx, dq, dv, dbeta. DDL_E_USAGE as for ddl_elementwise_forward. */
DDL_API ddl_status ddl_elementwise_backward(ddl_backend *backend,
                                            const struct ddl_elementwise_grad_args *args,
                                            struct ddl_error *err);

/* The spectrum of A = I - beta k k^T for one row (of A = I - beta q q^T / (q^T q + eps) for DDL_FORM_RATIO):
 * eigenvalue 1 with multiplicity d - 1, and `along` once; det A = along; of X -> A X on R^(d x c): along^c.
 */
struct ddl_spectrum {
    double kappa;      /* |k|^2, or |q|^2 / (|q|^2 + eps) for the ratio form */
    double along;      /* 1 - beta kappa                                     */
    double det;        /* = along                                            */
    double det_lifted; /* = along^c                                          */
};
/* From q (d) and beta of one row, with eps and form (enum ddl_form); c channels for det_lifted. */
DDL_API struct ddl_spectrum ddl_delta_spectrum(size_t d, size_t c, const float *q, float beta, float eps,
                                               int form);

#ifdef __cplusplus
}
#endif
#endif
