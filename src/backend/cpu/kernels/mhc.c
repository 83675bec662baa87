/* Manifold-constrained hyper-connections: the mixing weights of a token, and their gradient. A lane of a
 * vector is a token: Sinkhorn's iterations of V tokens are computed in registers at once. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/streams.h"
#include "backend/cpu/kernels/vmath.h"

#include <string.h>

/* Of the elements of z: then those of M remain e^-60 / n or more. */
static const float MOST_SPREAD = 30;

typedef double vec_double __attribute__((vector_size(8 * V)));

INLINE vec sigmoid_lanes(vec x)
{
    float lanes[V];
    store(lanes, x);
#pragma omp simd
    for (size_t l = 0; l < V; l++)
        lanes[l] = vsigmoid(lanes[l]);
    return load(lanes);
}

INLINE vec larger_lanes(vec a, vec b)
{
    vec_mask above = (vec_mask)(a > b);
    return (vec)(((vec_mask)a & above) | ((vec_mask)b & ~above));
}

#define LANES vec
#define NUMBER float
#define EXP vexp
#define NAME(x) x
#include "backend/cpu/kernels/sinkhorn.h"
#define LANES vec_double
#define NUMBER double
#define EXP vexp_wide
#define NAME(x) x##_wide
#include "backend/cpu/kernels/sinkhorn.h"

/* The tokens for which a row of exp(z), with its columns divided by their largest elements, may be too small
 * for float32. Returns whether there are any. */
INLINE bool find_wide(const vec *z, vec_mask *wide, const size_t n)
{
    vec top = z[0], bottom = -z[0];
    for (size_t i = 1; i < n * n; i++) {
        top = larger_lanes(z[i], top);
        bottom = larger_lanes(-z[i], bottom);
    }
    const vec_mask none = { 0 };
    *wide = (vec_mask)(top + bottom > MOST_SPREAD);
    return memcmp(wide, &none, sizeof none) != 0;
}

/* y = x where the mask is set. */
INLINE void replace(vec *y, const vec *x, const vec_mask *where, const size_t n)
{
    for (size_t i = 0; i < n * n; i++)
        y[i] = (vec)(((vec_mask)x[i] & *where) | ((vec_mask)y[i] & ~*where));
}

/* The mixing matrices from z, in place. A token's do not depend on the other tokens. */
INLINE void mix(vec *z, size_t iterations, const size_t n)
{
    vec from[MAX_N * MAX_N];
    vec_mask wide;
    const bool any = find_wide(z, &wide, n);
    memcpy(from, z, n * n * sizeof *from);
    sinkhorn(z, iterations, n);
    if (!any)
        return;
    sinkhorn_wide(from, iterations, n);
    replace(z, from, &wide, n);
}

/* dM, the gradient of the mixing matrices -> that of z. */
INLINE void mix_bwd(const vec *z, vec *dM, size_t iterations, const size_t n)
{
    vec from[MAX_N * MAX_N];
    vec_mask wide;
    const bool any = find_wide(z, &wide, n);
    memcpy(from, dM, n * n * sizeof *from);
    sinkhorn_bwd(z, dM, iterations, n);
    if (!any)
        return;
    sinkhorn_bwd_wide(z, from, iterations, n);
    replace(dM, from, &wide, n);
}

/* lane l of out[i] = x[l count + i]; of lanes without a token 0 */
INLINE void gather(size_t tokens, size_t count, const float *x, vec *out)
{
    for (size_t i = 0; i < count; i++) {
        float lanes[V] = { 0 };
        for (size_t l = 0; l < tokens; l++)
            lanes[l] = x[l * count + i];
        out[i] = load(lanes);
    }
}

INLINE void scatter(size_t tokens, size_t count, const vec *x, float *out)
{
    for (size_t i = 0; i < count; i++) {
        float lanes[V];
        store(lanes, x[i]);
        for (size_t l = 0; l < tokens; l++)
            out[l * count + i] = lanes[l];
    }
}

/* Part of element i of t: 0 pre, 1 post, 2 res. */
INLINE size_t part_of(size_t i, const size_t n)
{
    return i < n ? 0 : i < 2 * n ? 1 : 2;
}

/* z = scale t + bias */
INLINE void logits_of(const float *const *scale, const float *const *bias, vec *z, const size_t n)
{
    for (size_t i = 0; i < n * (n + 2); i++) {
        size_t part = part_of(i, n);
        z[i] = *scale[part] * z[i] + bias[part][i - part * n];
    }
}

INLINE void mhc_rows(const struct mhc_args *a, size_t lo, size_t hi, const size_t n)
{
    size_t d = a->d, out = n * (n + 2), width = n * d;
    for (size_t first = lo; first < hi; first += V) {
        size_t tokens = hi - first < V ? hi - first : V;
        const float *X = a->X + first * width;
        float *t = a->t + first * out, *w = a->w + first * out;
        vec z[MAX_MIX];
        dots(tokens, out, width, X, a->Wf, t);
        for (size_t l = 0; l < tokens; l++) {
            float rstd = a->rstd[first + l] = rstd_of(width, X + l * width, a->eps);
            for (size_t i = 0; i < out; i++)
                t[l * out + i] *= rstd;
        }
        gather(tokens, out, t, z);
        logits_of(a->scale, a->bias, z, n);
        for (size_t i = 0; i < 2 * n; i++)
            z[i] = (i < n ? 1.0f : 2.0f) * sigmoid_lanes(z[i]);
        mix(z + 2 * n, a->iterations, n);
        scatter(tokens, out, z, w);
        for (size_t l = 0; l < tokens; l++) {
            if (a->identity)
                set_identity(n, w + l * out + 2 * n);
            read_token(d, w + l * out, X + l * width, a->x_in + (first + l) * d, n);
        }
    }
}

void DDL_KERNEL(mhc_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct mhc_args *a = args;
    (void)scratch;
    BY_STREAMS(a->n, mhc_rows, a, lo, hi);
}

/* The gradients dw (MAX_MIX) of the weights of V tokens, with t -> those of z. */
INLINE void mhc_weights_bwd(const struct mhc_grad_args *a, const vec *t, vec *dw, const size_t n)
{
    vec z[MAX_MIX];
    memcpy(z, t, n * (n + 2) * sizeof *z);
    logits_of(a->scale, a->bias, z, n);
    for (size_t i = 0; i < 2 * n; i++) {
        vec s = sigmoid_lanes(z[i]);
        dw[i] *= (i < n ? 1.0f : 2.0f) * s * (1 - s);
    }
    mix_bwd(z + 2 * n, dw + 2 * n, a->iterations, n);
}

/* Sums over rows. */
struct mhc_sums {
    float *dWf, *dbias, *dscale;
};

INLINE void mhc_rows_bwd(const struct mhc_grad_args *a, size_t lo, size_t hi, const struct mhc_sums *sums,
                         const size_t n)
{
    size_t d = a->d, out = n * (n + 2), width = n * d;
    for (size_t first = lo; first < hi; first += V) {
        size_t tokens = hi - first < V ? hi - first : V;
        const float *X = a->X + first * width, *dx_in = a->dx_in + first * d, *w = a->w + first * out;
        float *dX = a->dX + first * width, *z = a->dz + first * out, dw[V * MAX_MIX], total[V] = { 0 };
        vec t[MAX_MIX], dz[MAX_MIX];
        memcpy(dw, a->dw + first * out, tokens * out * sizeof *dw);
        for (size_t l = 0; l < tokens; l++)
            read_token_grad(d, dx_in + l * d, X + l * width, dw + l * out, n);
        gather(tokens, out, a->t + first * out, t);
        gather(tokens, out, dw, dz);
        mhc_weights_bwd(a, t, dz, n);
        vec along = { 0 };
        for (size_t i = 0; i < out; i++) {
            size_t part = part_of(i, n);
            vec product = dz[i] * t[i];
            sums->dbias[i] += lane_sum(dz[i]);
            sums->dscale[part] += lane_sum(product);
            along += *a->scale[part] * product;
            dz[i] *= *a->scale[part];
        }
        store(total, along);
        scatter(tokens, out, dz, z);
        for (size_t l = 0; l < tokens; l++) {
            float rstd = a->rstd[first + l], by[MAX_N];
            for (size_t i = 0; i < out; i++)
                z[l * out + i] *= rstd;
            for (size_t j = 0; j < n; j++)
                by[j] = rstd * rstd * total[l] / (float)width;
            mix_token_grad(d, w + l * out, by, dx_in + l * d, X + l * width, dX + l * width, n);
        }
        update(tokens, out, width, z, a->Wf, X, dX, sums->dWf);
    }
}

void DDL_KERNEL(mhc_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct mhc_grad_args *a = args;
    size_t out = a->n * (a->n + 2);
    struct mhc_sums sums = { .dWf = scratch, .dbias = scratch + out * a->n * a->d };
    sums.dscale = sums.dbias + out;
    BY_STREAMS(a->n, mhc_rows_bwd, a, lo, hi, &sums);
}
