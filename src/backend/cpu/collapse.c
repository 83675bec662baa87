/* The compressor's weights to what acts on the state, and back: ops/ops.h. Some thousand numbers a sublayer,
 * whatever the batch: one thread. */
#include "backend/cpu/cpu.h"

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

static void token_fwd(const struct collapse_args *a)
{
    size_t dc = a->d * a->c, ij = 0;
    for (size_t i = 0; i < a->d; i++) {
        for (size_t j = 0; j < a->c; j++, ij++) {
            for (size_t s = 0; s < a->K; s++)
                a->e[s * dc + ij] = a->r[j] * a->w[ij * a->K + s];
        }
    }
}

static void channel_fwd(const struct collapse_args *a)
{
    for (size_t j = 0; j < a->c; j++) {
        struct taps t = taps_at(j, a->c, a->K);
        for (size_t i = 0; i < a->d; i++) {
            const float *w = a->w + i * a->K;
            float sum = 0;
            for (size_t s = t.first; s < t.end; s++)
                sum += w[s] * a->r[(ptrdiff_t)(j - s) + left_padding(a->K)];
            a->e[i * a->c + j] = sum;
        }
    }
}

void cpu_collapse_fwd(void *ctx, const struct collapse_args *a)
{
    if (a->kind == DDL_COMPRESS_TOKEN)
        token_fwd(a);
    else if (a->kind == DDL_COMPRESS_CHANNEL)
        channel_fwd(a);
    else
        cpu_copy(ctx, &(struct copy_args){ .rows = 1, .width = a->d * a->c, .src = a->w, .dst = a->e });
}

static void token_bwd(const struct collapse_grad_args *a)
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

static void channel_dw(const struct collapse_grad_args *a)
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
static void channel_dr(const struct collapse_grad_args *a)
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

void cpu_collapse_bwd(void *ctx, const struct collapse_grad_args *a)
{
    if (a->kind == DDL_COMPRESS_TOKEN) {
        token_bwd(a);
    } else if (a->kind == DDL_COMPRESS_CHANNEL) {
        channel_dw(a);
        channel_dr(a);
    } else {
        cpu_axpy(ctx, &(struct axpy_args){ .n = a->d * a->c, .a = 1, .x = a->de, .y = a->dw });
    }
}
