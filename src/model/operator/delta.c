/* The Delta operator on host arrays: checks the arguments and calls the ops of the backend. */
#include "ddl/delta.h"

#include "base/mem.h"
#include "model/operator/staging.h"
#include "ops/defaults.h"
#include "ops/operands.h"

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

/* Whether a call can be made: its shape, and the op that the backend needs for it. */
static ddl_status check_call(const ddl_backend *backend, enum ddl_op op, const char *call,
                             const struct shape *s, struct ddl_error *err)
{
    ddl_status status = check(s, call, err);
    return status ? status : ddl_ops_require(backend, DDL_OP_LIST(op), call, err);
}

static ddl_status missing(const char *call, const char *array, struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_USAGE, "%s: the array %s is NULL", call, array);
}

/* Calls the op with arguments whose arrays are host memory: staged as the op's description says. */
static ddl_status call_staged(ddl_backend *backend, enum ddl_op op, const char *call, void *args,
                              struct ddl_error *err)
{
    struct ddl_op_use use;
    ddl_op_describe(op, args, &use);
    for (size_t i = 0; i < use.n; i++) {
        if (!use.operand[i].optional && !ddl_operand_get(&use.operand[i], args))
            return missing(call, use.operand[i].name, err);
    }
    struct ddl_staging s = { .backend = backend };
    for (size_t i = 0; i < use.n; i++) {
        const struct ddl_operand *o = &use.operand[i];
        float *host = ddl_operand_get(o, args);
        size_t count = ddl_operand_span(o);
        ddl_operand_set(o, args,
                        o->access == DDL_READ    ? ddl_staging_in(&s, host, count)
                        : o->access == DDL_WRITE ? ddl_staging_out(&s, host, count)
                                                 : ddl_staging_inout(&s, host, count));
    }
    if (!s.failed)
        ddl_op_call(op, backend, args);
    return ddl_staging_finish(&s, err);
}

ddl_status ddl_delta_forward(ddl_backend *backend, const struct ddl_delta_args *args, struct ddl_error *err)
{
    static const char call[] = "ddl_delta_forward";
    struct ddl_delta_args a = *args;
    struct shape shape = { a.N, a.d, a.c, steps_of(a.steps), a.eps, a.form, a.update };
    ddl_status status = check_call(backend, DDL_OP_delta_fwd, call, &shape, err);
    return status || a.N == 0 ? status : call_staged(backend, DDL_OP_delta_fwd, call, &a, err);
}

ddl_status ddl_delta_backward(ddl_backend *backend, const struct ddl_delta_grad_args *args,
                              struct ddl_error *err)
{
    static const char call[] = "ddl_delta_backward";
    struct ddl_delta_grad_args a = *args;
    struct shape shape = { a.N, a.d, a.c, steps_of(a.steps), a.eps, a.form, a.update };
    ddl_status status = check_call(backend, DDL_OP_delta_bwd, call, &shape, err);
    if (status || a.N == 0)
        return status;
    if (shape.steps > 1 && !a.X_next)
        return ddl_error_set(err, DDL_E_USAGE, "%s: expected X_next with %zu steps, found X_next NULL", call,
                             shape.steps);
    if (!a.X_next && !a.X)
        return missing(call, "X (or X_next)", err);
    if (!a.dq)
        return missing(call, "dq", err);
    if (a.dq16)
        return ddl_error_set(err, DDL_E_USAGE, "%s: dq16: expected NULL, found an array", call);
    if (a.X_next && !a.readout)
        return missing(call, "readout (needed with X_next)", err);
    if (a.X_next)
        a.X = NULL;
    return call_staged(backend, DDL_OP_delta_bwd, call, &a, err);
}

ddl_status ddl_delta_inverse(ddl_backend *backend, const struct ddl_delta_inverse_args *args,
                             struct ddl_error *err)
{
    static const char call[] = "ddl_delta_inverse";
    struct ddl_delta_inverse_args a = *args;
    struct shape shape = { a.N, a.d, a.c, steps_of(a.steps), a.eps, a.form, a.update };
    ddl_status status = check_call(backend, DDL_OP_delta_inverse, call, &shape, err);
    return status || a.N == 0 ? status : call_staged(backend, DDL_OP_delta_inverse, call, &a, err);
}

ddl_status ddl_elementwise_forward(ddl_backend *backend, const struct ddl_elementwise_args *args,
                                   struct ddl_error *err)
{
    static const char call[] = "ddl_elementwise_forward";
    struct ddl_elementwise_args a = *args;
    struct shape shape = { a.N, a.d, 1, 1, a.eps, DDL_FORM_UNIT, DDL_UPDATE_DELTA };
    ddl_status status = check_call(backend, DDL_OP_elementwise_fwd, call, &shape, err);
    return status || a.N == 0 ? status : call_staged(backend, DDL_OP_elementwise_fwd, call, &a, err);
}

ddl_status ddl_elementwise_backward(ddl_backend *backend, const struct ddl_elementwise_grad_args *args,
                                    struct ddl_error *err)
{
    static const char call[] = "ddl_elementwise_backward";
    struct ddl_elementwise_grad_args a = *args;
    struct shape shape = { a.N, a.d, 1, 1, a.eps, DDL_FORM_UNIT, DDL_UPDATE_DELTA };
    ddl_status status = check_call(backend, DDL_OP_elementwise_bwd, call, &shape, err);
    return status || a.N == 0 ? status : call_staged(backend, DDL_OP_elementwise_bwd, call, &a, err);
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
