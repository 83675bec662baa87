/* Rotary embedding, then RMSNorm over a head: ops/args.h. The norm's sums are taken on the rotated numbers,
 * which are computed twice instead of being kept. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vec.h"

#include <math.h>

static void turn_head(size_t h, size_t half, const float *cos, const float *sin, const float *x, float *y)
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

void DDL_KERNEL(rope_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct rope_args *a = args;
    size_t half = a->R / 2;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        size_t position = a->ragged.B ? (size_t)a->ragged.position[n] : n % a->T;
        for (size_t head = 0; head < a->H; head++) {
            float *y = a->y + n * a->y_stride + head * a->h;
            turn_head(a->h, half, a->cos + position * half, a->sin + position * half,
                      a->x + n * a->x_stride + head * a->h, y);
            if (!a->w)
                continue;
            float rstd = 1 / sqrtf(dot(a->h, y, y) / (float)a->h + a->eps);
            const float *w = a->w;
#pragma omp simd
            for (size_t i = 0; i < a->h; i++)
                y[i] *= rstd * w[i];
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

static void turned_back(const struct head *s, float *dx)
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

void DDL_KERNEL(rope_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct rope_grad_args *a = args;
    size_t half = a->R / 2;
    for (size_t n = lo; n < hi; n++) {
        for (size_t head = 0; head < a->H; head++) {
            struct head s = { .h = a->h,
                              .half = half,
                              .cos = a->cos + n % a->T * half,
                              .sin = a->sin + n % a->T * half,
                              .x = a->x + n * a->x_stride + head * a->h,
                              .w = a->w,
                              .dy = a->dy + n * a->dy_stride + head * a->h };
            float *dx = a->dx + n * a->dx_stride + head * a->h;
            if (a->w) {
                norm_sums(&s, a->eps, scratch);
                normed_grad(&s, dx);
            } else {
                turned_back(&s, dx);
            }
        }
    }
}
