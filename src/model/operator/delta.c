/* The Delta operator on host arrays: checks the arguments and calls the ops of the backend. */
#include "ddl/delta.h"

#include "base/mem.h"
#include "model/operator/staging.h"
#include "ops/defaults.h"

#include <math.h>

/* Arguments that all calls have in common. */
struct shape {
    size_t N, d, c, steps;
    float eps;
    int form, update;
};

/* How many steps a row takes: 0 means 1. */
static size_t steps_of(size_t steps)
{
    return steps ? steps : 1;
}

static bool fits(const struct shape *s)
{
    size_t rows, numbers, bytes;
    return ddl_size_mul(s->N, s->d, &rows) && ddl_size_mul(rows, s->c, &numbers) &&
           ddl_size_mul(numbers, s->steps, &numbers) && ddl_size_mul(numbers, sizeof(float), &bytes);
}

static ddl_status check(const struct shape *s, const char *call, struct ddl_error *err)
{
    if (s->d == 0 || s->c == 0)
        return ddl_error_set(err, DDL_E_USAGE, "%s: d is %zu and c is %zu, both must be at least 1", call,
                             s->d, s->c);
    if (!fits(s))
        return ddl_error_set(err, DDL_E_USAGE, "%s: N %zu, d %zu, c %zu, steps %zu do not fit into memory",
                             call, s->N, s->d, s->c, s->steps);
    if (!(s->eps > 0) || isinf(s->eps))
        return ddl_error_set(err, DDL_E_USAGE, "%s: eps is %g, must be positive and finite", call,
                             (double)s->eps);
    if (s->form < DDL_FORM_UNIT || s->form > DDL_FORM_L2)
        return ddl_error_set(err, DDL_E_USAGE, "%s: form %d is not one of enum ddl_form", call, s->form);
    if (s->update < DDL_UPDATE_DELTA || s->update > DDL_UPDATE_ERASE)
        return ddl_error_set(err, DDL_E_USAGE, "%s: update %d is not one of enum ddl_update", call,
                             s->update);
    if (s->form != DDL_FORM_UNIT && s->update != DDL_UPDATE_DELTA)
        return ddl_error_set(err, DDL_E_USAGE,
                             "%s: the ratio and l2 forms exist for the delta update only, found update %d",
                             call, s->update);
    return DDL_OK;
}

/* Names the first of n arrays that is missing. */
static ddl_status need(const char *call, size_t n, const float *const *arrays, const char *const *names,
                       struct ddl_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (!arrays[i])
            return ddl_error_set(err, DDL_E_USAGE, "%s: the array %s is NULL", call, names[i]);
    }
    return DDL_OK;
}
#define NEED(call, names, ...)                                                                               \
    need(call, sizeof(names) / sizeof *(names), (const float *const[]){ __VA_ARGS__ }, names, err)

ddl_status ddl_delta_forward(ddl_backend *backend, const struct ddl_delta_args *args, struct ddl_error *err)
{
    static const char *const names[] = { "X", "q", "v", "beta", "X_out" };
    struct ddl_delta_args a = *args;
    struct shape shape = { a.N, a.d, a.c, steps_of(a.steps), a.eps, a.form, a.update };
    ddl_status status = check(&shape, "ddl_delta_forward", err);
    if (!status)
        status = ddl_ops_require(backend, DDL_OP_LIST(DDL_OP_delta_fwd), "ddl_delta_forward", err);
    if (status || a.N == 0)
        return status;
    if ((status = NEED("ddl_delta_forward", names, a.X, a.q, a.v, a.beta, a.X_out)))
        return status;
    size_t NR = a.N * shape.steps, NRc = NR * a.c, NRd = NR * a.d, Ndc = a.N * a.d * a.c;
    struct ddl_staging s = { .backend = backend };
    a.X = ddl_staging_in(&s, a.X, Ndc);
    a.q = ddl_staging_in(&s, a.q, NRd);
    a.v = ddl_staging_in(&s, a.v, NRc);
    a.beta = ddl_staging_in(&s, a.beta, NR);
    a.X_out = ddl_staging_out(&s, a.X_out, Ndc);
    a.readout = ddl_staging_out(&s, a.readout, NRc);
    if (!s.failed)
        backend->ops->delta_fwd(backend->ctx, &a);
    return ddl_staging_finish(&s, err);
}

ddl_status ddl_delta_backward(ddl_backend *backend, const struct ddl_delta_grad_args *args,
                              struct ddl_error *err)
{
    static const char *const names[] = { "X (or X_next)", "q", "v", "beta", "G", "dX", "dq", "dv", "dbeta" };
    static const char *const with_next[] = { "readout (needed with X_next)" };
    struct ddl_delta_grad_args a = *args;
    struct shape shape = { a.N, a.d, a.c, steps_of(a.steps), a.eps, a.form, a.update };
    ddl_status status = check(&shape, "ddl_delta_backward", err);
    if (!status)
        status = ddl_ops_require(backend, DDL_OP_LIST(DDL_OP_delta_bwd), "ddl_delta_backward", err);
    if (status || a.N == 0)
        return status;
    if (shape.steps > 1 && !a.X_next)
        return ddl_error_set(err, DDL_E_USAGE,
                             "ddl_delta_backward: expected X_next with %zu steps, found X_next NULL",
                             shape.steps);
    const float *state = a.X_next ? a.X_next : a.X;
    if ((status = NEED("ddl_delta_backward", names, state, a.q, a.v, a.beta, a.G, a.dX, a.dq, a.dv, a.dbeta)))
        return status;
    if (a.X_next && (status = NEED("ddl_delta_backward", with_next, a.readout)))
        return status;
    size_t NR = a.N * shape.steps, NRc = NR * a.c, NRd = NR * a.d, Ndc = a.N * a.d * a.c;
    struct ddl_staging s = { .backend = backend };
    a.X = a.X_next ? NULL : ddl_staging_in(&s, a.X, Ndc);
    a.X_next = ddl_staging_inout(&s, a.X_next, Ndc);
    a.q = ddl_staging_in(&s, a.q, NRd);
    a.v = ddl_staging_in(&s, a.v, NRc);
    a.beta = ddl_staging_in(&s, a.beta, NR);
    a.readout = ddl_staging_in(&s, a.readout, NRc);
    a.G = ddl_staging_in(&s, a.G, Ndc);
    a.dX = ddl_staging_out(&s, a.dX, Ndc);
    a.dq = ddl_staging_out(&s, a.dq, NRd);
    a.dv = ddl_staging_out(&s, a.dv, NRc);
    a.dbeta = ddl_staging_out(&s, a.dbeta, NR);
    if (!s.failed)
        backend->ops->delta_bwd(backend->ctx, &a);
    return ddl_staging_finish(&s, err);
}

ddl_status ddl_delta_inverse(ddl_backend *backend, const struct ddl_delta_inverse_args *args,
                             struct ddl_error *err)
{
    static const char *const names[] = { "X_out", "q", "v", "beta", "readout", "X" };
    struct ddl_delta_inverse_args a = *args;
    struct shape shape = { a.N, a.d, a.c, steps_of(a.steps), a.eps, a.form, a.update };
    ddl_status status = check(&shape, "ddl_delta_inverse", err);
    if (!status)
        status = ddl_ops_require(backend, DDL_OP_LIST(DDL_OP_delta_inverse), "ddl_delta_inverse", err);
    if (status || a.N == 0)
        return status;
    if ((status = NEED("ddl_delta_inverse", names, a.X_out, a.q, a.v, a.beta, a.readout, a.X)))
        return status;
    size_t NR = a.N * shape.steps, NRc = NR * a.c, NRd = NR * a.d, Ndc = a.N * a.d * a.c;
    struct ddl_staging s = { .backend = backend };
    a.X_out = ddl_staging_in(&s, a.X_out, Ndc);
    a.q = ddl_staging_in(&s, a.q, NRd);
    a.v = ddl_staging_in(&s, a.v, NRc);
    a.beta = ddl_staging_in(&s, a.beta, NR);
    a.readout = ddl_staging_in(&s, a.readout, NRc);
    a.X = ddl_staging_out(&s, a.X, Ndc);
    if (!s.failed)
        backend->ops->delta_inverse(backend->ctx, &a);
    return ddl_staging_finish(&s, err);
}

ddl_status ddl_elementwise_forward(ddl_backend *backend, const struct ddl_elementwise_args *args,
                                   struct ddl_error *err)
{
    static const char *const names[] = { "x", "q", "v", "beta", "x_out" };
    struct ddl_elementwise_args a = *args;
    struct shape shape = { a.N, a.d, 1, 1, a.eps, DDL_FORM_UNIT, DDL_UPDATE_DELTA };
    ddl_status status = check(&shape, "ddl_elementwise_forward", err);
    if (!status)
        status =
            ddl_ops_require(backend, DDL_OP_LIST(DDL_OP_elementwise_fwd), "ddl_elementwise_forward", err);
    if (status || a.N == 0)
        return status;
    if ((status = NEED("ddl_elementwise_forward", names, a.x, a.q, a.v, a.beta, a.x_out)))
        return status;
    size_t Nd = a.N * a.d;
    struct ddl_staging s = { .backend = backend };
    a.x = ddl_staging_in(&s, a.x, Nd);
    a.q = ddl_staging_in(&s, a.q, Nd);
    a.v = ddl_staging_in(&s, a.v, Nd);
    a.beta = ddl_staging_in(&s, a.beta, a.N);
    a.x_out = ddl_staging_out(&s, a.x_out, Nd);
    if (!s.failed)
        backend->ops->elementwise_fwd(backend->ctx, &a);
    return ddl_staging_finish(&s, err);
}

ddl_status ddl_elementwise_backward(ddl_backend *backend, const struct ddl_elementwise_grad_args *args,
                                    struct ddl_error *err)
{
    static const char *const names[] = { "x", "q", "v", "beta", "G", "dx", "dq", "dv", "dbeta" };
    struct ddl_elementwise_grad_args a = *args;
    struct shape shape = { a.N, a.d, 1, 1, a.eps, DDL_FORM_UNIT, DDL_UPDATE_DELTA };
    ddl_status status = check(&shape, "ddl_elementwise_backward", err);
    if (!status)
        status =
            ddl_ops_require(backend, DDL_OP_LIST(DDL_OP_elementwise_bwd), "ddl_elementwise_backward", err);
    if (status || a.N == 0)
        return status;
    if ((status =
             NEED("ddl_elementwise_backward", names, a.x, a.q, a.v, a.beta, a.G, a.dx, a.dq, a.dv, a.dbeta)))
        return status;
    size_t Nd = a.N * a.d;
    struct ddl_staging s = { .backend = backend };
    a.x = ddl_staging_in(&s, a.x, Nd);
    a.q = ddl_staging_in(&s, a.q, Nd);
    a.v = ddl_staging_in(&s, a.v, Nd);
    a.beta = ddl_staging_in(&s, a.beta, a.N);
    a.G = ddl_staging_in(&s, a.G, Nd);
    a.dx = ddl_staging_out(&s, a.dx, Nd);
    a.dq = ddl_staging_out(&s, a.dq, Nd);
    a.dv = ddl_staging_out(&s, a.dv, Nd);
    a.dbeta = ddl_staging_out(&s, a.dbeta, a.N);
    if (!s.failed)
        backend->ops->elementwise_bwd(backend->ctx, &a);
    return ddl_staging_finish(&s, err);
}

struct ddl_spectrum ddl_delta_spectrum(size_t d, size_t c, const float *q, float beta, float eps, int form)
{
    double square = 0, e = (double)eps;
    for (size_t i = 0; i < d; i++)
        square += (double)q[i] * (double)q[i];
    double norm = sqrt(square);
    double below = form == DDL_FORM_RATIO ? square + e
                   : form == DDL_FORM_L2  ? (norm + e) * (norm + e)
                                          : square + e * e;
    struct ddl_spectrum s = { .kappa = square / below };
    s.along = 1 - (double)beta * s.kappa;
    s.det = s.along;
    s.det_lifted = pow(s.along, (double)c);
    return s;
}
