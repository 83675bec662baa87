/* Attention over depth. The sources of a row are read from memory once; weighted sums of them, which follow,
 * find them in the cache. */
#include "backend/cpu/kernels/bf16.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vec.h"
#include "backend/cpu/kernels/vmath.h"

/* Row n of source i: a finished block, or the part after the last one. */
INLINE const float *source(const struct depth_args *a, size_t i, size_t n)
{
    return (i < a->n ? a->blocks + i * a->stride : a->part) + n * a->d;
}

/* The products of v with itself, q and, unless it is NULL, dh. */
INLINE void three_dots(size_t d, const float *v, const float *q, const float *dh, float *out)
{
    vec squares[2] = { { 0 } }, scores[2] = { { 0 } }, grads[2] = { { 0 } };
    size_t i = 0;
    for (; i + 2 * V <= d; i += 2 * V) {
        for (size_t j = 0; j < 2; j++) {
            vec x = load(v + i + j * V);
            squares[j] += x * x;
            scores[j] += x * load(q + i + j * V);
            if (dh)
                grads[j] += x * load(dh + i + j * V);
        }
    }
    out[0] = lane_sum(squares[0] + squares[1]);
    out[1] = lane_sum(scores[0] + scores[1]);
    out[2] = lane_sum(grads[0] + grads[1]);
    for (; i < d; i++) {
        out[0] += v[i] * v[i];
        out[1] += v[i] * q[i];
        out[2] += dh ? v[i] * dh[i] : 0;
    }
}

/* Scores -> their softmax. */
INLINE void softmax(size_t n, float *x)
{
    float top = largest(n, x), total = 0;
    for (size_t i = 0; i < n; i++)
        total += x[i] = vexp(x[i] - top);
    for (size_t i = 0; i < n; i++)
        x[i] /= total;
}

/* y += sum_i w_i v_i over the sources of row n, four in each pass over y. */
INLINE void add_sources(const struct depth_args *a, size_t n, const float *w, float *restrict y)
{
    size_t i = 0, d = a->d;
    for (; i + 4 <= a->n + 1; i += 4) {
        const float *v0 = source(a, i, n), *v1 = source(a, i + 1, n), *v2 = source(a, i + 2, n),
                    *v3 = source(a, i + 3, n);
        float w0 = w[i], w1 = w[i + 1], w2 = w[i + 2], w3 = w[i + 3];
#pragma omp simd
        for (size_t j = 0; j < d; j++)
            y[j] += w0 * v0[j] + w1 * v1[j] + w2 * v2[j] + w3 * v3[j];
    }
    for (; i <= a->n; i++)
        add_scaled(d, w[i], source(a, i, n), y);
}

void DDL_KERNEL(depth_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct depth_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        float *alpha = a->alpha + n * a->width, *h = a->h + n * a->d, dots[3];
        for (size_t i = 0; i <= a->n; i++) {
            three_dots(a->d, source(a, i, n), a->q, NULL, dots);
            alpha[i] = dots[1] / sqrtf(dots[0] / (float)a->d + a->eps);
            if (a->rms)
                a->rms[n * a->width + i] = sqrtf(dots[0] / (float)a->d);
        }
        softmax(a->n + 1, alpha);
        for (size_t j = 0; j < a->d; j++)
            h[j] = 0;
        add_sources(a, n, alpha, h);
    }
}

void DDL_KERNEL(depth_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct depth_grad_args *a = args;
    const struct depth_args *fwd = &a->fwd;
    float *dq = scratch, *rstd = scratch + fwd->d;
    for (size_t n = lo; n < hi; n++) {
        float *alpha = a->alpha + n * fwd->width, *e = a->e + n * fwd->width, mean = 0, dots[3];
        for (size_t i = 0; i <= fwd->n; i++) {
            three_dots(fwd->d, source(fwd, i, n), fwd->q, a->dh + n * fwd->d, dots);
            rstd[i] = 1 / sqrtf(dots[0] / (float)fwd->d + fwd->eps);
            alpha[i] = rstd[i] * dots[1];
            e[i] = dots[2];
        }
        softmax(fwd->n + 1, alpha);
        for (size_t i = 0; i <= fwd->n; i++)
            mean += alpha[i] * e[i];
        for (size_t i = 0; i <= fwd->n; i++)
            e[i] = alpha[i] * (e[i] - mean) * rstd[i];
        add_sources(fwd, n, e, dq);
    }
}

/* Q = sum_s e_s q_s in scratch. */
void DDL_KERNEL(source_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct source_grad_args *a = args;
    size_t d = a->d;
    for (size_t n = lo; n < hi; n++) {
        const float *v = a->v + n * d, *alpha = a->alpha + n * a->width, *e = a->e + n * a->width;
        float *restrict dv = a->dv + n * d, *restrict Q = scratch;
        for (size_t j = 0; j < d; j++) {
            Q[j] = 0;
            dv[j] = a->accumulate ? dv[j] : 0;
        }
        size_t s = 0, next = a->weights_stride;
        for (; s + 2 <= a->n; s += 2) {
            const float *q0 = a->q + s * d, *q1 = q0 + d;
            const float *dh0 = a->dh + s * a->dh_stride + n * d, *dh1 = dh0 + a->dh_stride;
            float e0 = e[s * next], e1 = e[(s + 1) * next], w0 = alpha[s * next], w1 = alpha[(s + 1) * next];
#pragma omp simd
            for (size_t j = 0; j < d; j++) {
                Q[j] += e0 * q0[j] + e1 * q1[j];
                dv[j] += w0 * dh0[j] + w1 * dh1[j];
            }
        }
        for (; s < a->n; s++) {
            add_scaled(d, e[s * next], a->q + s * d, Q);
            add_scaled(d, alpha[s * next], a->dh + s * a->dh_stride + n * d, dv);
        }
        float along = dot(d, v, Q) / (dot(d, v, v) + (float)d * a->eps);
#pragma omp simd
        for (size_t j = 0; j < d; j++)
            dv[j] += Q[j] - along * v[j];
        if (a->dv16)
            round_row(d, dv, a->dv16 + n * d);
    }
}
