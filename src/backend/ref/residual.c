/* Residual rules other than delta, and sums of states. */
#include "backend/ref/ref.h"

#include <math.h>

void ref_f_norm_fwd(void *ctx, const struct f_norm_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        float *f = a->f + n * a->d;
        double squares = 0;
        for (size_t i = 0; i < a->d; i++)
            squares += (double)f[i] * (double)f[i];
        double rstd = 1 / sqrt(squares / (double)a->d + (double)a->eps);
        for (size_t i = 0; i < a->d; i++)
            f[i] = (float)((double)f[i] * rstd);
        if (a->rstd)
            a->rstd[n] = (float)rstd;
    }
}

void ref_f_norm_bwd(void *ctx, const struct f_norm_grad_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        const float *f = a->f + n * a->d;
        const float *df = a->df + n * a->d;
        double dot = 0;
        for (size_t i = 0; i < a->d; i++)
            dot += (double)f[i] * (double)df[i];
        for (size_t i = 0; i < a->d; i++)
            ref_put(a->df, a->df16, n * a->d + i,
                    (double)a->rstd[n] * ((double)df[i] - (double)f[i] * dot / (double)a->d));
    }
}

void ref_scale_fwd(void *ctx, const struct scale_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        for (size_t i = 0; i < a->d; i++) {
            double lambda = a->lambda ? (double)a->lambda[a->w == 1 ? 0 : i] : 1;
            float *X = &a->X[n * a->d + i];
            *X = (float)((double)*X + lambda * (double)a->f[n * a->d + i]);
        }
    }
}

void ref_scale_bwd(void *ctx, const struct scale_grad_args *a)
{
    (void)ctx;
    for (size_t j = 0; a->dlambda && j < a->w; j++) {
        double sum = 0;
        for (size_t ni = j; ni < a->N * a->d; ni += a->w == 1 ? 1 : a->d)
            sum += (double)a->G[ni] * (double)a->f[ni];
        a->dlambda[j] += (float)sum;
    }
    for (size_t ni = 0; ni < a->N * a->d; ni++) {
        double lambda = a->lambda ? (double)a->lambda[a->w == 1 ? 0 : ni % a->d] : 1;
        ref_put(a->df, a->df16, ni, lambda * (double)a->G[ni]);
        if (a->X)
            a->X[ni] = (float)((double)a->X[ni] - lambda * (double)a->f[ni]);
    }
}

void ref_gated_fwd(void *ctx, const struct gated_args *a)
{
    (void)ctx;
    for (size_t ni = 0; ni < a->N * a->d; ni++) {
        double beta = (double)a->beta[ni / a->d];
        a->X[ni] = (float)((double)a->X[ni] + beta * (double)a->f[ni]);
    }
}

void ref_gated_bwd(void *ctx, const struct gated_grad_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        double beta = (double)a->beta[n], dbeta = 0;
        for (size_t i = n * a->d; i < (n + 1) * a->d; i++) {
            dbeta += (double)a->G[i] * (double)a->f[i];
            ref_put(a->df, a->df16, i, beta * (double)a->G[i]);
            if (a->X)
                a->X[i] = (float)((double)a->X[i] - beta * (double)a->f[i]);
        }
        a->dbeta[n] = (float)dbeta;
    }
}

void ref_highway_fwd(void *ctx, const struct highway_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        for (size_t j = 0; j < a->w; j++) {
            float *tau = &a->tau[n * a->w + j];
            *tau = (float)ref_sigmoid((double)*tau + (double)a->b[j]);
        }
        for (size_t i = 0; i < a->d; i++) {
            double tau = (double)a->tau[n * a->w + (a->w == 1 ? 0 : i)];
            float *X = &a->X[n * a->d + i];
            *X = (float)((1 - tau) * (double)*X + tau * (double)a->f[n * a->d + i]);
        }
    }
}

/* dz of gate j of row n. */
static float highway_dz(const struct highway_grad_args *a, size_t n, size_t j)
{
    double tau = (double)a->tau[n * a->w + j], dtau = 0;
    for (size_t i = a->w == 1 ? 0 : j; i < (a->w == 1 ? a->d : j + 1); i++) {
        size_t ni = n * a->d + i;
        dtau += (double)a->G[ni] * ((double)a->f[ni] - (double)a->X[ni]);
    }
    return (float)(dtau * tau * (1 - tau));
}

void ref_highway_bwd(void *ctx, const struct highway_grad_args *a)
{
    (void)ctx;
    for (size_t j = 0; j < a->w; j++) {
        double sum = 0;
        for (size_t n = 0; n < a->N; n++) {
            float dz = highway_dz(a, n, j);
            ref_put(a->dz, a->dz16, n * a->w + j, (double)dz);
            sum += (double)dz;
        }
        a->db[j] += (float)sum;
    }
    for (size_t ni = 0; ni < a->N * a->d; ni++) {
        double tau = (double)a->tau[a->w == 1 ? ni / a->d : ni], g = (double)a->G[ni];
        ref_put(a->df, a->df16, ni, tau * g);
        a->dX[ni] = (float)((1 - tau) * g);
    }
}

void ref_laurel_fwd(void *ctx, const struct laurel_args *a)
{
    double more = a->mix ? (double)a->mix[1] - (double)a->mix[0] : 0;
    double m0 = 2 / (1 + exp(more)), m1 = 2 / (1 + exp(-more));
    (void)ctx;
    for (size_t ni = 0; ni < a->N * a->d; ni++)
        a->X[ni] = (float)(m0 * (double)a->f[ni] + m1 * (double)a->X[ni]);
    for (size_t nj = 0; nj < a->N * a->r; nj++) {
        a->low[nj] = (float)(m1 * (double)a->low[nj]);
        if (a->low16)
            a->low16[nj] = ddl_bf16_round(a->low[nj]);
    }
}

void ref_laurel_bwd(void *ctx, const struct laurel_grad_args *a)
{
    double s0 = 1 / (1 + exp((double)a->mix[1] - (double)a->mix[0]));
    double s1 = 1 / (1 + exp((double)a->mix[0] - (double)a->mix[1]));
    double m0dm0 = 0, m1dm1 = 0;
    (void)ctx;
    for (size_t ni = 0; ni < a->N * a->d; ni++) {
        double g = (double)a->G[ni];
        m0dm0 += 2 * s0 * g * (double)a->f[ni];
        m1dm1 += 2 * s1 * g * (double)a->X[ni];
        ref_put(a->df, a->df16, ni, 2 * s0 * g);
        if (a->X16)
            a->X16[ni] = ddl_bf16_round(a->X[ni]);
        a->dX[ni] = (float)(2 * s1 * g);
    }
    for (size_t nj = 0; nj < a->N * a->r; nj++) {
        m1dm1 += (double)a->dlow[nj] * (double)a->low[nj];
        ref_put(a->dlow16 ? NULL : a->dlow, a->dlow16, nj, 2 * s1 * (double)a->dlow[nj]);
    }
    a->dmix[0] += (float)(s1 * m0dm0 - s0 * m1dm1);
    a->dmix[1] += (float)(s0 * m1dm1 - s1 * m0dm0);
}

void ref_weighted_sum(void *ctx, const struct weighted_sum_args *a)
{
    (void)ctx;
    for (size_t i = 0; i < a->count; i++) {
        double sum = a->accumulate ? (double)a->out[i] : 0;
        for (size_t j = 0; j < a->n; j++)
            sum += (double)a->w[j * a->w_stride] * (double)a->X[j * a->X_stride + i];
        ref_put(a->out, a->out16, i, sum);
    }
}

void ref_weighted_sum_bwd(void *ctx, const struct weighted_sum_grad_args *a)
{
    (void)ctx;
    for (size_t j = 0; j < a->n; j++) {
        double sum = 0;
        for (size_t i = 0; i < a->count; i++)
            sum += (double)a->G[i] * (double)a->X[j * a->X_stride + i];
        a->dw[j] += (float)sum;
    }
}
