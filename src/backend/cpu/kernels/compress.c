/* The compressor applied to the state, with folded weights e. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/ragged.h"
#include "backend/cpu/kernels/vec.h"

/* The state `back` tokens before row n, or NULL before the sequence, where it is zero. */
static const float *earlier(const struct compress_args *a, size_t n, size_t back)
{
    if (a->ragged.B)
        return earlier_row(&a->ragged, n, back, a->taps - 1, a->d * a->c, a->X, a->history);
    return n % a->T >= back ? a->X + (n - back) * a->d * a->c : NULL;
}

/* x_in (+)= sum_j e_ij X_ij */
INLINE void read_state(size_t d, const float *e, const float *X, float *x_in, bool add, const size_t c,
                       const bool fast)
{
    size_t vectored = vector_features(d, fast);
    vec terms[MAX_PARTS];
    for (size_t i = 0; i < vectored; i += V) {
        for (size_t p = 0; p < c; p++)
            terms[p] = load(e + i * c + p * V) * load(X + i * c + p * V);
        vec sum = fold(terms, c);
        store(x_in + i, add ? load(x_in + i) + sum : sum);
    }
    for (size_t i = vectored; i < d; i++) {
        float sum = add ? x_in[i] : 0;
        for (size_t j = 0; j < c; j++)
            sum += e[i * c + j] * X[i * c + j];
        x_in[i] = sum;
    }
}

INLINE void fwd_rows(const struct compress_args *a, size_t lo, size_t hi, const size_t c, const bool fast)
{
    for (size_t n = lo; n < hi; n++) {
        float *x_in = a->x_in + n * a->d;
        for (size_t back = 0; back < a->taps; back++) {
            const float *X = earlier(a, n, back), *e = a->e + (a->taps - 1 - back) * a->d * c;
            if (X)
                read_state(a->d, e, X, x_in, back > 0, c, fast);
        }
    }
}

void DDL_KERNEL(compress_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct compress_args *a = args;
    (void)scratch;
    BY_CHANNELS(a->c, fwd_rows, a, lo, hi);
}

/* One tap: dX += e dx_in, de += X dx_in, dx_in repeated over the channels. */
INLINE void tap_grad(size_t d, const float *dx_in, const float *e, const float *X, float *dX, float *de,
                     const size_t c, const bool fast)
{
    size_t vectored = vector_features(d, fast);
    vec wide[MAX_PARTS];
    for (size_t i = 0; i < vectored; i += V) {
        spread(load(dx_in + i), wide, c);
        for (size_t p = 0; p < c; p++) {
            size_t at = i * c + p * V;
            store(dX + at, load(dX + at) + wide[p] * load(e + at));
            store(de + at, load(de + at) + wide[p] * load(X + at));
        }
    }
    for (size_t i = vectored; i < d; i++) {
        for (size_t ij = i * c; ij < (i + 1) * c; ij++) {
            dX[ij] += dx_in[i] * e[ij];
            de[ij] += dx_in[i] * X[ij];
        }
    }
}

/* Row n's state was read by the taps - 1 tokens after it too. */
INLINE void bwd_rows(const struct compress_grad_args *a, size_t lo, size_t hi, float *de, const size_t c,
                     const bool fast)
{
    size_t dc = a->d * c;
    for (size_t n = lo; n < hi; n++) {
        for (size_t ahead = 0; ahead < a->taps && n % a->T + ahead < a->T; ahead++) {
            size_t tap = (a->taps - 1 - ahead) * dc;
            tap_grad(a->d, a->dx_in + (n + ahead) * a->d, a->e + tap, a->X + n * dc, a->dX + n * dc, de + tap,
                     c, fast);
        }
    }
}

void DDL_KERNEL(compress_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct compress_grad_args *a = args;
    BY_CHANNELS(a->c, bwd_rows, a, lo, hi, scratch);
}
