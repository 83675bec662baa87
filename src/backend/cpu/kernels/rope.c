/* Rotary embedding, then RMSNorm over a head: ops/args.h. The norm's sums are taken on the rotated numbers,
 * which are computed twice instead of being kept. */
#include "backend/cpu/kernels/bf16.h"
#include "backend/cpu/kernels/kernels.h"
#include "ddl/kinds.h"

#include <math.h>

static void rotate_head(size_t h, size_t half, const float *cos, const float *sin, const float *x, float *y)
{
#pragma omp simd
    for (size_t i = 0; i < half; i++) {
        float first = x[i] * cos[i] - x[i + half] * sin[i], second = x[i] * sin[i] + x[i + half] * cos[i];
        y[i] = first;
        y[i + half] = second;
    }
    for (size_t i = 2 * half; i < h; i++)
        y[i] = x[i];
}

static void head_fwd(const struct rope_args *a, const float *cos, const float *sin, const float *x, float *y)
{
    rotate_head(a->h, a->R / 2, cos, sin, x, y);
    if (!a->w)
        return;
    float rstd = 1 / sqrtf(dot(a->h, y, y) / (float)a->h + a->eps);
    const float *w = a->w;
#pragma omp simd
    for (size_t i = 0; i < a->h; i++)
        y[i] *= rstd * w[i];
}

void DDL_KERNEL(rope_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct rope_args *a = args;
    float in[DDL_MAX_HEAD_DIM], out[DDL_MAX_HEAD_DIM];
    size_t half = a->R / 2;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        size_t position = a->ragged.B ? (size_t)a->ragged.position[n] : n % a->T;
        const float *cos = a->cos + position * half, *sin = a->sin + position * half;
        for (size_t head = 0; head < a->H; head++) {
            size_t from = n * a->x_stride + head * a->h, to = n * a->y_stride + head * a->h;
            if (a->x16) {
                widen_row(a->h, a->x16 + from, in);
                head_fwd(a, cos, sin, in, out);
                round_row(a->h, out, a->y16 + to);
            } else {
                head_fwd(a, cos, sin, a->x + from, a->y + to);
            }
        }
    }
}

/* What backward of one head needs: x and its rotation, the norm, and dy. */
struct head {
    size_t h, half;
    const float *cos, *sin, *x, *w, *dy;
    float rstd, along; /* d(rotated) = rstd w dy - along rotated; w NULL: dy */
};

static void norm_sums(struct head *s, float eps, float *dw)
{
    float squares = 0, sum = 0;
    const float *x = s->x, *w = s->w, *dy = s->dy;
    size_t half = s->half;
#pragma omp simd reduction(+ : squares, sum)
    for (size_t i = 0; i < half; i++) {
        float first = x[i] * s->cos[i] - x[i + half] * s->sin[i];
        float second = x[i] * s->sin[i] + x[i + half] * s->cos[i];
        squares += first * first + second * second;
        sum += w[i] * dy[i] * first + w[i + half] * dy[i + half] * second;
    }
    for (size_t i = 2 * half; i < s->h; i++) {
        squares += x[i] * x[i];
        sum += w[i] * dy[i] * x[i];
    }
    float rstd = 1 / sqrtf(squares / (float)s->h + eps);
    s->rstd = rstd;
    s->along = rstd * rstd * rstd * sum / (float)s->h;
#pragma omp simd
    for (size_t i = 0; i < half; i++) {
        float first = x[i] * s->cos[i] - x[i + half] * s->sin[i];
        float second = x[i] * s->sin[i] + x[i + half] * s->cos[i];
        dw[i] += dy[i] * first * rstd;
        dw[i + half] += dy[i + half] * second * rstd;
    }
    for (size_t i = 2 * half; i < s->h; i++)
        dw[i] += dy[i] * x[i] * rstd;
}

/* Through the norm, then rotated back. dx may be dy. */
static void normed_grad(const struct head *s, float *dx)
{
    const float *x = s->x, *w = s->w, *dy = s->dy;
    size_t half = s->half;
    float rstd = s->rstd, along = s->along;
#pragma omp simd
    for (size_t i = 0; i < half; i++) {
        float first = x[i] * s->cos[i] - x[i + half] * s->sin[i];
        float second = x[i] * s->sin[i] + x[i + half] * s->cos[i];
        float g1 = rstd * w[i] * dy[i] - along * first;
        float g2 = rstd * w[i + half] * dy[i + half] - along * second;
        dx[i] = g1 * s->cos[i] + g2 * s->sin[i];
        dx[i + half] = g2 * s->cos[i] - g1 * s->sin[i];
    }
    for (size_t i = 2 * half; i < s->h; i++)
        dx[i] = rstd * w[i] * dy[i] - along * x[i];
}

static void rotate_back(const struct head *s, float *dx)
{
    const float *dy = s->dy;
    size_t half = s->half;
#pragma omp simd
    for (size_t i = 0; i < half; i++) {
        float g1 = dy[i], g2 = dy[i + half];
        dx[i] = g1 * s->cos[i] + g2 * s->sin[i];
        dx[i + half] = g2 * s->cos[i] - g1 * s->sin[i];
    }
    for (size_t i = 2 * half; i < s->h; i++)
        dx[i] = dy[i];
}

static void head_bwd(struct head *s, float eps, float *dw, float *dx)
{
    if (s->w) {
        norm_sums(s, eps, dw);
        normed_grad(s, dx);
    } else {
        rotate_back(s, dx);
    }
}

void DDL_KERNEL(rope_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct rope_grad_args *a = args;
    float wide_x[DDL_MAX_HEAD_DIM], wide_dy[DDL_MAX_HEAD_DIM]; /* of a head in bfloat16; dx goes over dy */
    size_t half = a->R / 2;
    for (size_t n = lo; n < hi; n++) {
        struct head s = { .h = a->h,
                          .half = half,
                          .cos = a->cos + n % a->T * half,
                          .sin = a->sin + n % a->T * half,
                          .w = a->w };
        for (size_t head = 0; head < a->H; head++) {
            size_t x = n * a->x_stride + head * a->h, dy = n * a->dy_stride + head * a->h;
            size_t dx = n * a->dx_stride + head * a->h;
            if (a->x16) {
                widen_row(a->h, a->x16 + x, wide_x);
                widen_row(a->h, a->dy16 + dy, wide_dy);
            }
            s.x = a->x16 ? wide_x : a->x + x;
            s.dy = a->x16 ? wide_dy : a->dy + dy;
            head_bwd(&s, a->eps, scratch, a->x16 ? wide_dy : a->dx + dx);
            if (a->x16)
                round_row(a->h, wide_dy, a->dx16 + dx);
        }
    }
}
