/* Attention over depth. */
#include "backend/ref/ref.h"

#include <math.h>

/* Row n of source i: a finished block, or the part after the last one. */
static const float *source(const struct depth_args *a, size_t i, size_t n)
{
    return (i < a->n ? a->blocks + i * a->stride : a->part) + n * a->d;
}

static double rstd_of(size_t d, const float *v, float eps)
{
    return 1 / sqrt(ref_dot(d, v, v) / (double)d + (double)eps);
}

static double score(const struct depth_args *a, size_t i, size_t n)
{
    const float *v = source(a, i, n);
    return rstd_of(a->d, v, a->eps) * ref_dot(a->d, v, a->q);
}

/* The largest score of row n, and the sum of the exponentials relative to it. */
static double top_score(const struct depth_args *a, size_t n, double *total)
{
    double top = -INFINITY;
    for (size_t i = 0; i <= a->n; i++)
        top = fmax(top, score(a, i, n));
    *total = 0;
    for (size_t i = 0; i <= a->n; i++)
        *total += exp(score(a, i, n) - top);
    return top;
}

void ref_depth_fwd(void *ctx, const struct depth_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        double total, top = top_score(a, n, &total);
        for (size_t i = 0; i <= a->n; i++)
            a->alpha[n * a->width + i] = (float)(exp(score(a, i, n) - top) / total);
        for (size_t i = 0; i <= a->n && a->rms; i++) {
            const float *v = source(a, i, n);
            a->rms[n * a->width + i] = (float)sqrt(ref_dot(a->d, v, v) / (double)a->d);
        }
        for (size_t j = 0; j < a->d; j++) {
            double h = 0;
            for (size_t i = 0; i <= a->n; i++)
                h += (double)a->alpha[n * a->width + i] * (double)source(a, i, n)[j];
            a->h[n * a->d + j] = (float)h;
        }
    }
}

void ref_depth_bwd(void *ctx, const struct depth_grad_args *a)
{
    const struct depth_args *fwd = &a->fwd;
    size_t d = fwd->d;
    (void)ctx;
    for (size_t n = 0; n < fwd->N; n++) {
        const float *dh = a->dh + n * d;
        double total, top = top_score(fwd, n, &total), mean = 0;
        for (size_t i = 0; i <= fwd->n; i++)
            mean += exp(score(fwd, i, n) - top) / total * ref_dot(d, dh, source(fwd, i, n));
        for (size_t i = 0; i <= fwd->n; i++) {
            double alpha = exp(score(fwd, i, n) - top) / total;
            double rstd = rstd_of(d, source(fwd, i, n), fwd->eps);
            a->alpha[n * fwd->width + i] = (float)alpha;
            a->e[n * fwd->width + i] = (float)(alpha * (ref_dot(d, dh, source(fwd, i, n)) - mean) * rstd);
        }
    }
    for (size_t j = 0; j < d; j++) {
        double dq = 0;
        for (size_t n = 0; n < fwd->N; n++) {
            for (size_t i = 0; i <= fwd->n; i++)
                dq += (double)a->e[n * fwd->width + i] * (double)source(fwd, i, n)[j];
        }
        a->dq[j] = (float)dq;
    }
}

void ref_source_bwd(void *ctx, const struct source_grad_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        const float *v = a->v + n * a->d;
        double rstd = rstd_of(a->d, v, a->eps), along = 0;
        for (size_t s = 0; s < a->n; s++)
            along += (double)a->e[s * a->weights_stride + n * a->width] * ref_dot(a->d, v, a->q + s * a->d);
        for (size_t j = 0; j < a->d; j++) {
            size_t at = n * a->d + j;
            double sum = a->accumulate ? (double)a->dv[at] : 0;
            for (size_t s = 0; s < a->n; s++) {
                size_t weight = s * a->weights_stride + n * a->width;
                sum += (double)a->alpha[weight] * (double)a->dh[s * a->dh_stride + n * a->d + j] +
                       (double)a->e[weight] * (double)a->q[s * a->d + j];
            }
            ref_put(a->dv, a->dv16, at, sum - (double)v[j] * rstd * rstd * along / (double)a->d);
        }
    }
}
