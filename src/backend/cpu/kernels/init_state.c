/* The input state from embeddings: ops/args.h. The convolution's weights (d*c, K) are transposed to (K, d*c)
 * in scratch first, so that a tap's weights lie as the state does. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/ragged.h"
#include "backend/cpu/kernels/vec.h"

#include <string.h>

static void transpose_weights(size_t dc, size_t K, const float *w, float *transposed)
{
    for (size_t ij = 0; ij < dc; ij++) {
        for (size_t s = 0; s < K; s++)
            transposed[s * dc + ij] = w[ij * K + s];
    }
}

/* X = (or +=) w x, x repeated over the channels; w NULL: all 1 */
INLINE void write_state(size_t d, const float *w, const float *x, float *X, bool add, const size_t c,
                        const bool fast)
{
    size_t vectored = vector_features(d, fast);
    vec wide[MAX_PARTS];
    for (size_t i = 0; i < vectored; i += V) {
        spread(load(x + i), wide, c);
        for (size_t p = 0; p < c; p++) {
            size_t at = i * c + p * V;
            vec term = w ? wide[p] * load(w + at) : wide[p];
            store(X + at, add ? load(X + at) + term : term);
        }
    }
    for (size_t i = vectored; i < d; i++) {
        for (size_t ij = i * c; ij < (i + 1) * c; ij++) {
            float term = w ? w[ij] * x[i] : x[i];
            X[ij] = add ? X[ij] + term : term;
        }
    }
}

static const float *earlier(const struct init_state_args *a, size_t n, size_t back)
{
    if (a->ragged.B)
        return earlier_row(&a->ragged, n, back, a->K - 1, a->d, a->x, a->history);
    return n % a->T >= back ? a->x + (n - back) * a->d : NULL;
}

INLINE void fwd_rows(const struct init_state_args *a, size_t lo, size_t hi, const float *transposed,
                     const size_t c, const bool fast)
{
    size_t dc = a->d * c;
    for (size_t n = lo; n < hi; n++) {
        if (!a->w) {
            write_state(a->d, NULL, a->x + n * a->d, a->X + n * dc, false, c, fast);
            continue;
        }
        for (size_t back = 0; back < a->K; back++) {
            const float *x = earlier(a, n, back);
            if (x)
                write_state(a->d, transposed + (a->K - 1 - back) * dc, x, a->X + n * dc, back > 0, c, fast);
        }
    }
}

void DDL_KERNEL(init_state_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct init_state_args *a = args;
    if (a->w)
        transpose_weights(a->d * a->c, a->K, a->w, scratch);
    BY_CHANNELS(a->c, fwd_rows, a, lo, hi, scratch);
}

/* dx = (or +=) sum_j w_ij dX_ij; w NULL: all 1 */
INLINE void gather_state(size_t d, const float *w, const float *dX, float *dx, bool add, const size_t c,
                         const bool fast)
{
    size_t vectored = vector_features(d, fast);
    vec terms[MAX_PARTS];
    for (size_t i = 0; i < vectored; i += V) {
        for (size_t p = 0; p < c; p++) {
            size_t at = i * c + p * V;
            terms[p] = w ? load(w + at) * load(dX + at) : load(dX + at);
        }
        vec sum = fold(terms, c);
        store(dx + i, add ? load(dx + i) + sum : sum);
    }
    for (size_t i = vectored; i < d; i++) {
        float sum = add ? dx[i] : 0;
        for (size_t ij = i * c; ij < (i + 1) * c; ij++)
            sum += w ? w[ij] * dX[ij] : dX[ij];
        dx[i] = sum;
    }
}

/* Embedding n entered the states of the K - 1 tokens after it too. */
INLINE void bwd_rows(const struct init_state_grad_args *a, size_t lo, size_t hi, float *dw,
                     const float *transposed, const size_t c, const bool fast)
{
    size_t dc = a->d * c;
    for (size_t n = lo; n < hi; n++) {
        const float *x = a->x + n * a->d;
        float *dx = a->dx + n * a->d;
        if (!a->w) {
            gather_state(a->d, NULL, a->dX + n * dc, dx, false, c, fast);
            continue;
        }
        for (size_t ahead = 0; ahead < a->K && n % a->T + ahead < a->T; ahead++) {
            size_t tap = (a->K - 1 - ahead) * dc;
            const float *dX = a->dX + (n + ahead) * dc;
            gather_state(a->d, transposed + tap, dX, dx, ahead > 0, c, fast);
            write_state(a->d, dX, x, dw + tap, true, c, fast);
        }
    }
}

void DDL_KERNEL(init_state_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct init_state_grad_args *a = args;
    size_t count = a->w ? a->d * a->c * a->K : 0;
    if (a->w)
        transpose_weights(a->d * a->c, a->K, a->w, scratch + count);
    BY_CHANNELS(a->c, bwd_rows, a, lo, hi, scratch, scratch + count);
}
