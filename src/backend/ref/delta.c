/* The Delta operator, one row at a time: docs/equations.md, 1. */
#include "backend/ref/ref.h"

#include <math.h>
#include <string.h>

/* The direction of a row: k_i = q_i * inv, and what the readout q.X is multiplied with. */
struct direction {
    double inv;  /* k = q inv; 1 for the ratio form           */
    double read; /* p = (q.X) read: inv, or 1/(q.q + eps)      */
    double norm; /* |q|                                        */
};

static struct direction direction_of(size_t d, const float *q, float eps, int form)
{
    double squares = 0, e = eps;
    for (size_t i = 0; i < d; i++)
        squares += (double)q[i] * (double)q[i];
    struct direction k = { .norm = sqrt(squares) };
    if (form == DDL_FORM_RATIO) {
        k.inv = 1;
        k.read = 1 / (squares + e);
    } else {
        k.inv = form == DDL_FORM_L2 ? 1 / (k.norm + e) : 1 / sqrt(squares + e * e);
        k.read = k.inv;
    }
    return k;
}

/* (q . X_:j) */
static double column_dot(size_t d, size_t c, const float *q, const float *X, size_t j)
{
    double sum = 0;
    for (size_t i = 0; i < d; i++)
        sum += (double)q[i] * (double)X[i * c + j];
    return sum;
}

/* beta (v - p), with the controls' variants of what is written */
static double correction(int update, double beta, double v, double p)
{
    return update == DDL_UPDATE_WRITE ? beta * v : update == DDL_UPDATE_ERASE ? -beta * p : beta * (v - p);
}

static size_t steps_of(size_t steps)
{
    return steps ? steps : 1;
}

/* Step r of all rows' steps, on a row: X -> X_out. */
static void step_fwd(const struct ddl_delta_args *a, size_t r, const float *X, float *X_out)
{
    const float *q = a->q + r * a->d;
    struct direction k = direction_of(a->d, q, a->eps, a->form);
    for (size_t j = 0; j < a->c; j++) {
        double p = column_dot(a->d, a->c, q, X, j) * k.read;
        if (a->readout)
            a->readout[r * a->c + j] = (float)p;
        double delta = correction(a->update, (double)a->beta[r], (double)a->v[r * a->c + j], p);
        for (size_t i = 0; i < a->d; i++) {
            size_t ij = i * a->c + j;
            X_out[ij] = a->beta[r] == 0 ? X[ij] : (float)((double)X[ij] + (double)q[i] * k.inv * delta);
        }
    }
}

void ref_delta_fwd(void *ctx, const struct ddl_delta_args *a)
{
    size_t R = steps_of(a->steps), dc = a->d * a->c;
    (void)ctx;
    for (size_t r = 0; r < a->N * R; r++)
        step_fwd(a, r, (r % R ? a->X_out : a->X) + r / R * dc, a->X_out + r / R * dc);
}

/* Step r of all rows' steps, on a row: X_out -> X. */
static void step_inverse(const struct ddl_delta_inverse_args *a, size_t r, const float *X_out, float *X)
{
    size_t d = a->d, c = a->c;
    const float *q = a->q + r * d;
    struct direction k = direction_of(d, q, a->eps, a->form);
    for (size_t j = 0; j < c; j++) {
        double delta =
            correction(a->update, (double)a->beta[r], (double)a->v[r * c + j], (double)a->readout[r * c + j]);
        for (size_t i = 0; i < d; i++)
            X[i * c + j] = a->beta[r] == 0 ? X_out[i * c + j]
                                           : (float)((double)X_out[i * c + j] - (double)q[i] * k.inv * delta);
    }
}

void ref_delta_inverse(void *ctx, const struct ddl_delta_inverse_args *a)
{
    size_t R = steps_of(a->steps), dc = a->d * a->c;
    (void)ctx;
    for (size_t r = a->N * R; r-- > 0;)
        step_inverse(a, r, (r % R == R - 1 ? a->X_out : a->X) + r / R * dc, a->X + r / R * dc);
}

/* dq_i from dk_i for k = q/sqrt(q.q + eps^2) and k = q/(|q| + eps); dot = k.dk. */
static double through_norm(const struct ddl_delta_grad_args *a, double q, struct direction k, double dot,
                           double dk)
{
    double unit = q * k.inv;
    if (a->form == DDL_FORM_UNIT)
        return (dk - unit * dot) * k.inv;
    if (k.norm == 0)
        return dk / (double)a->eps;
    return dk * k.inv - unit * dot / k.norm; /* d(|q|)/dq = q/|q| */
}

/* dL/dk_i = sum_j (G_ij delta_j - beta X_ij g_j), g_j = k.G_:j (each update has its part of it); for the
 * ratio form this with D = q.q + eps and P = q.X is dq = beta G (v - P/D) - (beta/D) X g + 2 beta (g . P) q /
 * D^2. A few features at a time, so that sums over channels stay double without memory for d of them. */
enum { FEATURES = 64 };

static void direction_grad(const struct ddl_delta_grad_args *a, size_t r, const float *X, const float *G,
                           struct direction k, size_t first, size_t count, double *dk)
{
    const float *q = a->q + r * a->d, *v = a->v + r * a->c;
    double beta = a->beta[r];
    double erase = a->update == DDL_UPDATE_WRITE ? 0 : a->form == DDL_FORM_RATIO ? beta * k.read : beta;
    for (size_t i = 0; i < count; i++)
        dk[i] = 0;
    for (size_t j = 0; j < a->c; j++) {
        double p = column_dot(a->d, a->c, q, X, j) * k.read, g = column_dot(a->d, a->c, q, G, j) * k.inv;
        double delta = correction(a->update, beta, (double)v[j], p);
        for (size_t i = 0; i < count; i++) {
            size_t ij = (first + i) * a->c + j;
            dk[i] += (double)G[ij] * delta - erase * (double)X[ij] * g;
            if (a->form == DDL_FORM_RATIO)
                dk[i] += 2 * beta * g * p * (double)q[first + i] * k.read;
        }
    }
}

/* k.dk */
static double along_direction(const struct ddl_delta_grad_args *a, size_t r, const float *X, const float *G,
                              struct direction k)
{
    const float *q = a->q + r * a->d;
    double dk[FEATURES], dot = 0;
    for (size_t first = 0; first < a->d; first += FEATURES) {
        size_t count = a->d - first < FEATURES ? a->d - first : FEATURES;
        direction_grad(a, r, X, G, k, first, count, dk);
        for (size_t i = 0; i < count; i++)
            dot += (double)q[first + i] * k.inv * dk[i];
    }
    return dot;
}

/* dk is computed twice: dq, in one of two formats, is no memory for it. */
static void direction_bwd(const struct ddl_delta_grad_args *a, size_t r, const float *X, const float *G,
                          struct direction k)
{
    const float *q = a->q + r * a->d;
    bool is_zero = a->beta[r] == 0; /* every term has a factor beta; an infinite v makes no NaN */
    bool has_norm = !is_zero && a->form != DDL_FORM_RATIO;
    double dk[FEATURES] = { 0 }, dot = has_norm ? along_direction(a, r, X, G, k) : 0;
    for (size_t first = 0; first < a->d; first += FEATURES) {
        size_t count = a->d - first < FEATURES ? a->d - first : FEATURES;
        if (!is_zero)
            direction_grad(a, r, X, G, k, first, count, dk);
        for (size_t i = 0; i < count; i++) {
            double dk_i = (float)dk[i];
            ref_put(a->dq, a->dq16, r * a->d + first + i,
                    has_norm ? through_norm(a, q[first + i], k, dot, dk_i) : dk_i);
        }
    }
}

/* Step r of all rows' steps: G is the gradient of the row after it, dX that of the row X before it. */
static void step_bwd(const struct ddl_delta_grad_args *a, size_t r, const float *X, const float *G, float *dX)
{
    size_t d = a->d, c = a->c;
    const float *q = a->q + r * d;
    double beta = a->beta[r], dbeta = 0;
    struct direction k = direction_of(d, q, a->eps, a->form);
    direction_bwd(a, r, X, G, k);
    for (size_t j = 0; j < c; j++) {
        double p = column_dot(d, c, q, X, j) * k.read, g = column_dot(d, c, q, G, j) * k.inv;
        dbeta += g * correction(a->update, 1, (double)a->v[r * c + j], p);
        a->dv[r * c + j] = a->update == DDL_UPDATE_ERASE ? 0 : (float)(beta * g);
        for (size_t i = 0; i < d; i++) {
            double dx = G[i * c + j];
            if (a->update != DDL_UPDATE_WRITE && beta != 0)
                dx -= beta * (double)q[i] * k.read * g;
            dX[i * c + j] = (float)dx;
        }
    }
    a->dbeta[r] = (float)dbeta;
}

/* The inverse of the forward pass in place of X_next. */
static struct ddl_delta_inverse_args inverse_of(const struct ddl_delta_grad_args *a)
{
    return (struct ddl_delta_inverse_args){ .N = a->N,
                                            .d = a->d,
                                            .c = a->c,
                                            .eps = a->eps,
                                            .form = a->form,
                                            .update = a->update,
                                            .q = a->q,
                                            .v = a->v,
                                            .beta = a->beta,
                                            .readout = a->readout };
}

void ref_delta_bwd(void *ctx, const struct ddl_delta_grad_args *a)
{
    const struct ddl_delta_inverse_args inverse = inverse_of(a);
    size_t R = steps_of(a->steps), dc = a->d * a->c;
    (void)ctx;
    for (size_t r = a->N * R; r-- > 0;) {
        size_t at = r / R * dc;
        if (a->X_next)
            step_inverse(&inverse, r, a->X_next + at, a->X_next + at);
        step_bwd(a, r, (a->X_next ? a->X_next : a->X) + at, (r % R == R - 1 ? a->G : a->dX) + at, a->dX + at);
    }
}

void ref_elementwise_fwd(void *ctx, const struct ddl_elementwise_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        const float *x = a->x + n * a->d, *q = a->q + n * a->d, *v = a->v + n * a->d;
        struct direction k = direction_of(a->d, q, a->eps, DDL_FORM_UNIT);
        double beta = a->beta[n], p = column_dot(a->d, 1, q, x, 0) * k.inv;
        for (size_t i = 0; i < a->d; i++)
            a->x_out[n * a->d + i] =
                beta == 0 ? x[i] : (float)((double)x[i] + beta * (double)q[i] * k.inv * ((double)v[i] - p));
    }
}

/* With s = k.G: dx = G - beta k s, dv = beta k (*) G, dbeta = sum_i k_i G_i (v_i - p),
 * dk = beta G (*) (v - p) - beta s x */
void ref_elementwise_bwd(void *ctx, const struct ddl_elementwise_grad_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        size_t at = n * a->d;
        const float *x = a->x + at, *q = a->q + at, *v = a->v + at, *G = a->G + at;
        struct direction k = direction_of(a->d, q, a->eps, DDL_FORM_UNIT);
        double beta = a->beta[n], dbeta = 0, along = 0;
        double p = column_dot(a->d, 1, q, x, 0) * k.inv, s = column_dot(a->d, 1, q, G, 0) * k.inv;
        for (size_t i = 0; i < a->d; i++) {
            double unit = (double)q[i] * k.inv, g = G[i];
            double dk = beta * (g * ((double)v[i] - p) - s * (double)x[i]);
            dbeta += unit * g * ((double)v[i] - p);
            along += unit * dk;
        }
        for (size_t i = 0; i < a->d; i++) {
            double unit = (double)q[i] * k.inv, g = G[i];
            double dk = beta * (g * ((double)v[i] - p) - s * (double)x[i]);
            a->dq[at + i] = (float)((dk - unit * along) * k.inv);
            a->dv[at + i] = (float)(beta * unit * g);
            a->dx[at + i] = (float)(g - beta * unit * s);
        }
        a->dbeta[n] = (float)dbeta;
    }
}
