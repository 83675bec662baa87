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
            float widened[DDL_MAX_HEAD_DIM];
            const float *q = row_of(a->q, a->q16, n * a->q_stride + head * a->h, a->h, widened);
            size_t k = b * a->k_batch + head * a->h, v = b * a->v_batch + head * a->h;
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
                ref_put(a->y, a->y16, (n * a->H + head) * a->h + i, sum[i]);
            if (a->lse)
                a->lse[n * a->H + head] = (float)lse;
        }
    }
}

/* Rows of a query t and of a key s <= t of a head. */
struct pair {
    const float *q, *k, *dy;
    double w, ds; /* softmax weight; gradient of the score, times the scale */
};

static struct pair pair_of(const struct attention_grad_args *a, size_t first, size_t head, size_t t, size_t s,
                           float (*buffer)[DDL_MAX_HEAD_DIM])
{
    size_t n = first + t, m = first + s, at = head * a->h, width = a->H * a->h;
    struct pair p = { .q = row_of(a->q, a->q16, n * a->q_stride + at, a->h, buffer[0]),
                      .k = row_of(a->k, a->k16, m * a->k_stride + at, a->h, buffer[1]),
                      .dy = a->dy + n * width + at };
    const float *v = row_of(a->v, a->v16, m * a->v_stride + at, a->h, buffer[2]);
    const float *y = row_of(a->y, a->y16, n * width + at, a->h, buffer[3]);
    p.w = exp((double)a->scale * ref_dot(a->h, p.q, p.k) - (double)a->lse[n * a->H + head]);
    p.ds = p.w * (ref_dot(a->h, p.dy, v) - ref_dot(a->h, p.dy, y)) * (double)a->scale;
    return p;
}

/* With w_ts = softmax weight: dv_s = sum_t w dy_t, ds = w (dy_t . v_s - dy_t . y_t) scale, dq_t = sum_s ds
 * k_s, dk_s = sum_t ds q_t. Row by row of the results. */
static void head_bwd(const struct attention_grad_args *a, size_t first, size_t head)
{
    float dq[DDL_MAX_HEAD_DIM], dk[DDL_MAX_HEAD_DIM], dv[DDL_MAX_HEAD_DIM], buffer[4][DDL_MAX_HEAD_DIM];
    for (size_t row = 0; row < a->T; row++) {
        for (size_t i = 0; i < a->h; i++)
            dq[i] = dk[i] = dv[i] = 0;
        for (size_t s = 0; s <= row; s++) {
            struct pair p = pair_of(a, first, head, row, s, buffer);
            for (size_t i = 0; i < a->h; i++)
                dq[i] += (float)(p.ds * (double)p.k[i]);
        }
        for (size_t t = row; t < a->T; t++) {
            struct pair p = pair_of(a, first, head, t, row, buffer);
            for (size_t i = 0; i < a->h; i++) {
                dk[i] += (float)(p.ds * (double)p.q[i]);
                dv[i] += (float)(p.w * (double)p.dy[i]);
            }
        }
        for (size_t i = 0; i < a->h; i++) {
            size_t n = first + row, at = head * a->h + i;
            ref_put(a->dq, a->dq16, n * a->dq_stride + at, (double)dq[i]);
            ref_put(a->dk, a->dk16, n * a->dk_stride + at, (double)dk[i]);
            ref_put(a->dv, a->dv16, n * a->dv_stride + at, (double)dv[i]);
        }
    }
}

void ref_attention_bwd(void *ctx, const struct attention_grad_args *a)
{
    (void)ctx;
    for (size_t b = 0; b < a->B; b++) {
        for (size_t head = 0; head < a->H; head++)
            head_bwd(a, b * a->T, head);
    }
}

void ref_mix_values_fwd(void *ctx, const struct mix_values_args *a)
{
    double m0 = a->mix ? (double)a->mix[0] : 1, m1 = a->mix ? (double)a->mix[1] : 1;
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        for (size_t i = 0; i < a->width; i++) {
            double v = (double)ref_get(a->v, a->v16, n * a->v_stride + i);
            double first = (double)ref_get(a->first, a->first16, n * a->width + i);
            ref_put(a->y, a->y16, n * a->y_stride + i, m0 * v + m1 * first);
        }
    }
}

void ref_mix_values_bwd(void *ctx, const struct mix_values_grad_args *a)
{
    double own = 0, other = 0;
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        for (size_t i = 0; i < a->width; i++) {
            float *dfirst = &a->dfirst[n * a->width + i];
            double dy = (double)ref_get(a->dv, a->dv16, n * a->dv_stride + i);
            own += dy * (double)ref_get(a->v, a->v16, n * a->v_stride + i);
            other += dy * (double)ref_get(a->first, a->first16, n * a->width + i);
            ref_put(a->dv, a->dv16, n * a->dv_stride + i, (double)a->mix[0] * dy);
            *dfirst = (float)((a->accumulate ? (double)*dfirst : 0) + (double)a->mix[1] * dy);
        }
    }
    a->dmix[0] += (float)own;
    a->dmix[1] += (float)other;
}
