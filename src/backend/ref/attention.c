#include "backend/ref/ref.h"

#include "base/bf16.h"

#include <math.h>

/* h numbers from `at` on, of x or, in bfloat16, of x16: in place, or as float32 in `buffer`. */
static const float *row_of(const float *x, const uint16_t *x16, size_t at, size_t h, float *buffer)
{
    if (!x16)
        return x + at;
    for (size_t i = 0; i < h; i++)
        buffer[i] = ddl_bf16_widen(x16[at + i]);
    return buffer;
}

static double score(const struct attention_args *a, const float *q, size_t key)
{
    float buffer[DDL_MAX_HEAD_DIM];
    return (double)a->scale * ref_dot(a->h, q, row_of(a->k, a->k16, key, a->h, buffer));
}

void ref_attention_fwd(void *ctx, const struct attention_args *a)
{
    (void)ctx;
    const struct ddl_ragged *ragged = &a->ragged;
    for (size_t n = 0; n < a->B * a->T; n++) {
        size_t b = ragged->B ? (size_t)ragged->slot[ragged->sequence[n]] : n / a->T;
        size_t span = ragged->B ? (size_t)ragged->position[n] + 1 : a->past + n % a->T + 1;
        for (size_t head = 0; head < a->H; head++) {
            const float *q = a->q + n * a->q_stride + head * a->h;
            size_t k = b * a->k_batch + head * a->h, v = b * a->v_batch + head * a->h;
            float *y = a->y + (n * a->H + head) * a->h;
            double top = -INFINITY, total = 0;
            for (size_t s = 0; s < span; s++)
                top = fmax(top, score(a, q, k + s * a->k_stride));
            for (size_t s = 0; s < span; s++)
                total += exp(score(a, q, k + s * a->k_stride) - top);
            double lse = top + log(total);
            double sum[DDL_MAX_HEAD_DIM] = { 0 };
            for (size_t s = 0; s < span; s++) {
                double w = exp(score(a, q, k + s * a->k_stride) - lse);
                float buffer[DDL_MAX_HEAD_DIM];
                const float *value = row_of(a->v, a->v16, v + s * a->v_stride, a->h, buffer);
                for (size_t i = 0; i < a->h; i++)
                    sum[i] += w * (double)value[i];
            }
            for (size_t i = 0; i < a->h; i++)
                y[i] = (float)sum[i];
            if (a->lse)
                a->lse[n * a->H + head] = (float)lse;
        }
    }
}

/* With w_ts = softmax weight: dv_s += w dy_t, ds = w (dy_t . v_s - dy_t . y_t) scale, dq_t += ds k_s, dk_s +=
 * ds q_t. */
static void head_bwd(const struct attention_grad_args *a, size_t b, size_t head)
{
    size_t first = b * a->T, offset = head * a->h, width = a->H * a->h;
    for (size_t t = 0; t < a->T; t++) {
        for (size_t i = 0; i < a->h; i++) {
            a->dq[(first + t) * a->dq_stride + offset + i] = 0;
            a->dk[(first + t) * a->dk_stride + offset + i] = 0;
            a->dv[(first + t) * a->dv_stride + offset + i] = 0;
        }
    }
    for (size_t t = 0; t < a->T; t++) {
        size_t n = first + t;
        const float *q = a->q + n * a->q_stride + offset, *y = a->y + n * width + offset,
                    *dy = a->dy + n * width + offset;
        double mean = ref_dot(a->h, dy, y);
        for (size_t s = 0; s <= t; s++) {
            const float *k = a->k + (first + s) * a->k_stride + offset,
                        *v = a->v + (first + s) * a->v_stride + offset;
            double w = exp((double)a->scale * ref_dot(a->h, q, k) - (double)a->lse[n * a->H + head]);
            double ds = w * (ref_dot(a->h, dy, v) - mean) * (double)a->scale;
            for (size_t i = 0; i < a->h; i++) {
                a->dv[(first + s) * a->dv_stride + offset + i] += (float)(w * (double)dy[i]);
                a->dq[n * a->dq_stride + offset + i] += (float)(ds * (double)k[i]);
                a->dk[(first + s) * a->dk_stride + offset + i] += (float)(ds * (double)q[i]);
            }
        }
    }
}

void ref_attention_bwd(void *ctx, const struct attention_grad_args *a)
{
    (void)ctx;
    for (size_t b = 0; b < a->B; b++) {
        for (size_t head = 0; head < a->H; head++)
            head_bwd(a, b, head);
    }
}

void ref_mix_values_fwd(void *ctx, const struct mix_values_args *a)
{
    double m0 = a->mix ? (double)a->mix[0] : 1, m1 = a->mix ? (double)a->mix[1] : 1;
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        for (size_t i = 0; i < a->width; i++)
            a->y[n * a->y_stride + i] =
                (float)(m0 * (double)a->v[n * a->v_stride + i] + m1 * (double)a->first[n * a->width + i]);
    }
}

void ref_mix_values_bwd(void *ctx, const struct mix_values_grad_args *a)
{
    double own = 0, other = 0;
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        for (size_t i = 0; i < a->width; i++) {
            float *dv = &a->dv[n * a->dv_stride + i], *dfirst = &a->dfirst[n * a->width + i];
            double dy = (double)*dv;
            own += dy * (double)a->v[n * a->v_stride + i];
            other += dy * (double)a->first[n * a->width + i];
            *dv = (float)((double)a->mix[0] * dy);
            *dfirst = (float)((a->accumulate ? (double)*dfirst : 0) + (double)a->mix[1] * dy);
        }
    }
    a->dmix[0] += (float)own;
    a->dmix[1] += (float)other;
}
