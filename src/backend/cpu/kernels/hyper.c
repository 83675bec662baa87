/* Hyper-connections: the mixing weights of each stream, and their gradient. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/streams.h"
#include "backend/cpu/kernels/vmath.h"

enum { TOKENS = 4 }; /* of a block: their streams and gradients stay in the cache */

/* w of a token from t (n, n + 2), or from the static weights alone. */
INLINE void hyper_weights(const struct hyper_args *a, const float *t, float *w, const size_t n)
{
    float dynamic[MAX_MIX] = { 0 };
    float *r = w, *b = w + n, *M = b + n;
    if (t) {
#pragma omp simd
        for (size_t i = 0; i < n * (n + 2); i++)
            dynamic[i] = vtanh(t[i]);
    }
    float by = t ? *a->a : 0, by_b = t ? *a->e : 0;
    for (size_t j = 0; j < n; j++) {
        const float *alpha = a->alpha + j * (n + 1), *more = dynamic + j * (n + 2);
        r[j] = alpha[0] + by * more[0];
        for (size_t k = 0; k < n; k++)
            M[k * n + j] = alpha[1 + k] + by * more[1 + k];
        b[j] = a->beta[j] + by_b * more[n + 1];
    }
    if (a->identity)
        set_identity(n, M);
}

INLINE void hyper_rows(const struct hyper_args *a, size_t lo, size_t hi, const size_t n)
{
    size_t d = a->d, out = n + 2;
    for (size_t first = lo; first < hi; first += TOKENS) {
        size_t end = hi - first < TOKENS ? hi : first + TOKENS;
        if (a->Wf)
            dots((end - first) * n, out, d, a->X + first * n * d, a->Wf, a->t + first * n * out);
        for (size_t token = first; token < end; token++) {
            const float *X = a->X + token * n * d;
            float *t = a->Wf ? a->t + token * n * out : NULL, *w = a->w + token * n * out;
            for (size_t j = 0; j < n && t; j++) {
                float rstd = a->rstd[token * n + j] = rstd_of(d, X + j * d, a->eps);
                for (size_t o = 0; o < out; o++)
                    t[j * out + o] *= rstd;
            }
            hyper_weights(a, t, w, n);
            read_token(d, w, X, a->x_in + token * d, n);
        }
    }
}

void DDL_KERNEL(hyper_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct hyper_args *a = args;
    (void)scratch;
    BY_STREAMS(a->n, hyper_rows, a, lo, hi);
}

/* Sums over rows. */
struct hyper_sums {
    float *dWf, *dalpha, *dbeta, *da, *de;
};

/* The gradient dw of a token's weights -> dz, and along (n): the part along X_:j that the norm removes from
 * its gradient. */
INLINE void hyper_weights_bwd(const struct hyper_grad_args *a, size_t token, const float *dr, float *along,
                              const struct hyper_sums *sums, const size_t n)
{
    size_t out = n + 2;
    const float *db = a->dw + token * n * out + n, *dM = db + n;
    float dynamic[MAX_MIX] = { 0 };
    const float *t = a->Wf ? a->t + token * n * out : NULL;
    if (t) {
#pragma omp simd
        for (size_t i = 0; i < n * out; i++)
            dynamic[i] = vtanh(t[i]);
    }
    for (size_t j = 0; j < n; j++) {
        float grad[MAX_N + 2], sum = 0, da = 0;
        grad[0] = dr[j];
        for (size_t k = 0; k < n; k++)
            grad[1 + k] = dM[k * n + j];
        grad[n + 1] = db[j];
        for (size_t o = 0; o < n + 1; o++)
            sums->dalpha[j * (n + 1) + o] += grad[o];
        sums->dbeta[j] += grad[n + 1];
        along[j] = 0;
        if (!t)
            continue;
        float rstd = a->rstd[token * n + j];
        for (size_t o = 0; o < out; o++) {
            float by = o < n + 1 ? *a->a : *a->e, value = dynamic[j * out + o];
            if (o < n + 1)
                da += grad[o] * value;
            float dt = grad[o] * by * (1 - value * value);
            sum += dt * t[j * out + o];
            a->dz[(token * n + j) * out + o] = dt * rstd;
        }
        *sums->da += da;
        *sums->de += grad[n + 1] * dynamic[j * out + n + 1];
        along[j] = rstd * rstd * sum / (float)a->d;
    }
}

INLINE void hyper_rows_bwd(const struct hyper_grad_args *a, size_t lo, size_t hi,
                           const struct hyper_sums *sums, const size_t n)
{
    size_t d = a->d, out = n + 2;
    for (size_t first = lo; first < hi; first += TOKENS) {
        size_t end = hi - first < TOKENS ? hi : first + TOKENS;
        for (size_t token = first; token < end; token++) {
            const float *X = a->X + token * n * d, *dx_in = a->dx_in + token * d;
            float dr[MAX_N], along[MAX_N];
            read_token_grad(d, dx_in, X, dr, n);
            hyper_weights_bwd(a, token, dr, along, sums, n);
            mix_token_grad(d, a->w + token * n * out, along, dx_in, X, a->dX + token * n * d, n);
        }
        if (a->Wf)
            update((end - first) * n, out, d, a->dz + first * n * out, a->Wf, a->X + first * n * d,
                   a->dX + first * n * d, sums->dWf);
    }
}

void DDL_KERNEL(hyper_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct hyper_grad_args *a = args;
    size_t n = a->n;
    struct hyper_sums sums = { .dWf = scratch, .dalpha = scratch + (a->Wf ? (n + 2) * a->d : 0) };
    sums.dbeta = sums.dalpha + n * (n + 1);
    sums.da = sums.dbeta + n;
    sums.de = sums.da + 1;
    BY_STREAMS(n, hyper_rows_bwd, a, lo, hi, &sums);
}
