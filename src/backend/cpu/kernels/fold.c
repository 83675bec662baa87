/* The compressor's weights to what acts on the state, and back: ops/args.h. Some thousand numbers a sublayer,
 * whatever the batch: one call, all of them. */
#include "backend/cpu/kernels/kernels.h"

#include <string.h>

static ptrdiff_t left_padding(size_t K)
{
    return (ptrdiff_t)((K - 1) / 2);
}

/* Taps s that meet channel j of a channel kernel: their read weight is r_(j-s+left). */
struct taps {
    size_t first, end;
};

static struct taps taps_at(size_t j, size_t c, size_t K)
{
    ptrdiff_t high = (ptrdiff_t)j + left_padding(K), low = high - (ptrdiff_t)c + 1;
    struct taps t = { .first = low > 0 ? (size_t)low : 0, .end = (size_t)high + 1 };
    if (t.end > K)
        t.end = K;
    if (t.first > t.end)
        t.first = t.end;
    return t;
}

static void token_fwd(const struct fold_args *a)
{
    const float *restrict w = a->w, *restrict r = a->r;
    float *restrict e = a->e;
    size_t c = a->c, K = a->K, dc = a->d * c;
    for (size_t ic = 0; ic < dc; ic += c) {
        for (size_t s = 0; s < K; s++) {
            for (size_t j = 0; j < c; j++)
                e[s * dc + ic + j] = r[j] * w[(ic + j) * K + s];
        }
    }
}

static void channel_fwd(const struct fold_args *a)
{
    const float *restrict w = a->w, *restrict r = a->r;
    float *restrict e = a->e;
    size_t c = a->c, K = a->K;
    for (size_t j = 0; j < c; j++) {
        struct taps t = taps_at(j, c, K);
        for (size_t i = 0; i < a->d; i++) {
            float sum = 0;
            for (size_t s = t.first; s < t.end; s++)
                sum += w[i * K + s] * r[(ptrdiff_t)(j - s) + left_padding(K)];
            e[i * c + j] = sum;
        }
    }
}

void DDL_KERNEL(fold_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct fold_args *a = args;
    (void)lo, (void)hi, (void)scratch;
    if (a->kind == DDL_COMPRESS_TOKEN)
        token_fwd(a);
    else if (a->kind == DDL_COMPRESS_CHANNEL)
        channel_fwd(a);
    else
        memcpy(a->e, a->w, a->d * a->c * sizeof *a->e);
}

static void token_bwd(const struct fold_grad_args *a)
{
    size_t dc = a->d * a->c;
    for (size_t j = 0; j < a->c; j++) {
        double dr = 0;
        for (size_t ij = j; ij < dc; ij += a->c) {
            for (size_t s = 0; s < a->K; s++) {
                float de = a->de[s * dc + ij], *dw = a->dw + ij * a->K + s;
                *dw += a->r[j] * de;
                dr += (double)(a->w[ij * a->K + s] * de);
            }
        }
        a->dr[j] += (float)dr;
    }
}

static void channel_dw(const struct fold_grad_args *a)
{
    for (size_t j = 0; j < a->c; j++) {
        struct taps t = taps_at(j, a->c, a->K);
        for (size_t i = 0; i < a->d; i++) {
            float *dw = a->dw + i * a->K, de = a->de[i * a->c + j];
            for (size_t s = t.first; s < t.end; s++)
                dw[s] += a->r[(ptrdiff_t)(j - s) + left_padding(a->K)] * de;
        }
    }
}

/* r_o met channel j = o + s - left through tap s. */
static void channel_dr(const struct fold_grad_args *a)
{
    for (size_t o = 0; o < a->c; o++) {
        double dr = 0;
        for (size_t s = 0; s < a->K; s++) {
            ptrdiff_t j = (ptrdiff_t)(o + s) - left_padding(a->K);
            if (j < 0 || j >= (ptrdiff_t)a->c)
                continue;
            for (size_t i = 0; i < a->d; i++)
                dr += (double)(a->w[i * a->K + s] * a->de[i * a->c + (size_t)j]);
        }
        a->dr[o] += (float)dr;
    }
}

void DDL_KERNEL(fold_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct fold_grad_args *a = args;
    (void)lo, (void)hi, (void)scratch;
    if (a->kind == DDL_COMPRESS_TOKEN) {
        token_bwd(a);
    } else if (a->kind == DDL_COMPRESS_CHANNEL) {
        channel_dw(a);
        channel_dr(a);
    } else {
        for (size_t i = 0; i < a->d * a->c; i++)
            a->dw[i] += a->de[i];
    }
}
