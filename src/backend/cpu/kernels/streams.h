/* What the kernels of hyper-connections share: sums over the features of a row, and the products of rows with
 * a few vectors. The order in which a number is summed does not depend on other rows, so that a
 * token's results are the same in a batch of any size. */
#ifndef DDL_BACKEND_CPU_STREAMS_H
#define DDL_BACKEND_CPU_STREAMS_H

#include "backend/cpu/kernels/vec.h"
#include "ddl/config.h"

#include <math.h>

enum {
    MAX_N = DDL_MAX_STREAMS,
    MAX_MIX = MAX_N * (MAX_N + 2), /* mixing weights of a token                       */
    TILE_ROWS = V == 16 ? 4 : 2,   /* of `dots`: the sums of a tile fit the registers */
    TILE_OUT = 6,
    UPDATE_ROWS = V == 16 ? 8 : 4, /* of `update` */
};

/* Calls f(..., n) with n a constant for the usual numbers of streams. */
#define BY_STREAMS(n, f, ...)                                                                                \
    do {                                                                                                     \
        if ((n) == 4)                                                                                        \
            f(__VA_ARGS__, 4);                                                                               \
        else if ((n) == 2)                                                                                   \
            f(__VA_ARGS__, 2);                                                                               \
        else                                                                                                 \
            f(__VA_ARGS__, (n));                                                                             \
    } while (0)

/* out[i] = lane_sum(a[i]) for n vectors; a is overwritten. */
INLINE void store_sums(vec *a, const size_t n, float *out)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        vec sums = lane_sums(a + i, 4);
        for (size_t l = 0; l < 4; l++)
            out[i + l] = sums[l];
    }
    for (; i < n; i++)
        out[i] = lane_sum(a[i]);
}

/* ---- products with a few vectors ---- */

/* One step of the sums of dots_tile. */
INLINE void add_dots(const size_t R, const size_t O, size_t i, size_t end, size_t width, const float *x,
                     const float *W, vec *sum)
{
    vec row[TILE_ROWS];
    for (size_t r = 0; r < R; r++)
        row[r] = load_within(x + r * width, i, end);
    for (size_t o = 0; o < O; o++) {
        vec weight = load_within(W + o * width, i, end);
        for (size_t r = 0; r < R; r++)
            sum[o * R + r] += row[r] * weight;
    }
}

/* z_r,o = x_r . W_o for R rows and O vectors of `width` numbers; rows of z are z_stride apart. The last
 * numbers of a row are a vector too: a scalar loop is rounded as the compiler arranges it for each R and O.
 */
INLINE void dots_tile(const size_t R, const size_t O, size_t width, const float *x, const float *W, float *z,
                      size_t z_stride)
{
    vec sum[TILE_ROWS * TILE_OUT] = { { 0 } };
    size_t i = 0;
    for (; i + V <= width; i += V)
        add_dots(R, O, i, i + V, width, x, W, sum);
    if (i < width)
        add_dots(R, O, i, width, width, x, W, sum);
    for (size_t s = 0; s < R * O; s++)
        z[s % R * z_stride + s / R] = lane_sum(sum[s]);
}

INLINE void dots_rows(const size_t R, size_t n_out, size_t width, const float *x, const float *W, float *z,
                      size_t z_stride)
{
    size_t o = 0;
    for (; o + TILE_OUT <= n_out; o += TILE_OUT)
        dots_tile(R, TILE_OUT, width, x, W + o * width, z + o, z_stride);
    for (; o + 2 <= n_out; o += 2)
        dots_tile(R, 2, width, x, W + o * width, z + o, z_stride);
    for (; o < n_out; o++)
        dots_tile(R, 1, width, x, W + o * width, z + o, z_stride);
}

/* z (rows, n_out) = x (rows, width) W (n_out, width)^T */
INLINE void dots(size_t rows, size_t n_out, size_t width, const float *x, const float *W, float *z)
{
    size_t r = 0;
    for (; r + TILE_ROWS <= rows; r += TILE_ROWS)
        dots_rows(TILE_ROWS, n_out, width, x + r * width, W, z + r * n_out, n_out);
    for (; r < rows; r++)
        dots_rows(1, n_out, width, x + r * width, W, z + r * n_out, n_out);
}

/* dx_r += sum_o z_r,o W_o, dW_o += sum_r z_r,o x_r for R rows. */
INLINE void update_rows(const size_t R, size_t n_out, size_t width, const float *z, const float *W,
                        const float *x, float *dx, float *dW)
{
    size_t i = 0;
    for (; i + V <= width; i += V) {
        vec row[UPDATE_ROWS], drow[UPDATE_ROWS];
        for (size_t r = 0; r < R; r++) {
            row[r] = load(x + r * width + i);
            drow[r] = load(dx + r * width + i);
        }
        for (size_t o = 0; o < n_out; o++) {
            vec weight = load(W + o * width + i), grad = load(dW + o * width + i);
            for (size_t r = 0; r < R; r++) {
                vec by = splat(z[r * n_out + o]);
                drow[r] += by * weight;
                grad += by * row[r];
            }
            store(dW + o * width + i, grad);
        }
        for (size_t r = 0; r < R; r++)
            store(dx + r * width + i, drow[r]);
    }
    for (; i < width; i++) {
        for (size_t o = 0; o < n_out; o++) {
            for (size_t r = 0; r < R; r++) {
                dx[r * width + i] += z[r * n_out + o] * W[o * width + i];
                dW[o * width + i] += z[r * n_out + o] * x[r * width + i];
            }
        }
    }
}

INLINE void update(size_t rows, size_t n_out, size_t width, const float *z, const float *W, const float *x,
                   float *dx, float *dW)
{
    size_t r = 0;
    for (; r + UPDATE_ROWS <= rows; r += UPDATE_ROWS)
        update_rows(UPDATE_ROWS, n_out, width, z + r * n_out, W, x + r * width, dx + r * width, dW);
    for (; r < rows; r++)
        update_rows(1, n_out, width, z + r * n_out, W, x + r * width, dx + r * width, dW);
}

INLINE float rstd_of(size_t width, const float *x, float eps)
{
    return 1 / sqrtf(dot(width, x, x) / (float)width + eps);
}

/* ---- one token ---- */

/* x_in = sum_j r_j X_:j */
INLINE void read_token(size_t d, const float *r, const float *X, float *x_in, const size_t n)
{
    size_t i = 0;
    for (; i + V <= d; i += V) {
        vec sum = splat(r[0]) * load(X + i);
        for (size_t j = 1; j < n; j++)
            sum += splat(r[j]) * load(X + j * d + i);
        store(x_in + i, sum);
    }
    for (; i < d; i++) {
        float sum = r[0] * X[i];
        for (size_t j = 1; j < n; j++)
            sum += r[j] * X[j * d + i];
        x_in[i] = sum;
    }
}

/* dr_j = dx_in . X_:j, summed in double: a norm that follows does not depend on the length of x_in, so that
 * these sums nearly cancel where all streams are equal, as they are before the first sublayer. */
INLINE void read_token_grad(size_t d, const float *dx_in, const float *X, float *dr, const size_t n)
{
    for (size_t j = 0; j < n; j++) {
        const float *x = X + j * d;
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (size_t i = 0; i < d; i++)
            sum += (double)dx_in[i] * x[i];
        dr[j] = (float)sum;
    }
}

/* dX_:j = sum_k M_kj G_:k + r_j dx_in - along_j X_:j, where dX holds G on entry. */
INLINE void mix_token_grad(size_t d, const float *w, const float *along, const float *dx_in, const float *X,
                           float *dX, const size_t n)
{
    const float *r = w, *M = w + 2 * n;
    size_t i = 0;
    for (; i + V <= d; i += V) {
        vec g[MAX_N], dx = load(dx_in + i);
        for (size_t k = 0; k < n; k++)
            g[k] = load(dX + k * d + i);
        for (size_t j = 0; j < n; j++) {
            vec sum = splat(r[j]) * dx - splat(along[j]) * load(X + j * d + i);
            for (size_t k = 0; k < n; k++)
                sum += splat(M[k * n + j]) * g[k];
            store(dX + j * d + i, sum);
        }
    }
    for (; i < d; i++) {
        float g[MAX_N];
        for (size_t k = 0; k < n; k++)
            g[k] = dX[k * d + i];
        for (size_t j = 0; j < n; j++) {
            float sum = r[j] * dx_in[i] - along[j] * X[j * d + i];
            for (size_t k = 0; k < n; k++)
                sum += M[k * n + j] * g[k];
            dX[j * d + i] = sum;
        }
    }
}

/* M = I */
INLINE void set_identity(size_t n, float *M)
{
    for (size_t i = 0; i < n * n; i++)
        M[i] = i % (n + 1) == 0 ? 1 : 0;
}

#endif
