/* The streams of hyper-connections. A block has a token at a time; a thread has four columns of all streams.
 */
#include "backend/cuda/kernels/columns.cuh"
#include "backend/cuda/kernels/kernels.h"

enum { THREADS = 128, WARPS = THREADS / 32, MOST = DDL_MAX_STREAMS };

KERNEL(streams_sum, 128, struct streams_sum_args)
{
    const bool fast = a.d % 4 == 0 && aligned16(a.X, a.y);
    for (size_t t = blockIdx.x; t < a.N; t += gridDim.x)
        EACH_FOUR(i, a.d)
        {
            float4 sum = splat4(0);
            for (size_t j = 0; j < a.n; j++)
                sum = add4(sum, load_row4(a.X + (t * a.n + j) * a.d, i, a.d, fast));
            store_row4(a.y + t * a.d, i, a.d, fast, sum);
        }
}

/* ---- projections ---- */

/* The matrix that has row p of Wf; *row: which of its rows that is. */
__device__ inline unsigned matrix_of(const size_t *rows, size_t p, size_t *row)
{
    const size_t before = rows[0] + rows[1];
    *row = p < rows[0] ? p : p < before ? p - rows[0] : p - before;
    return p < rows[0] ? 0 : p < before ? 1 : 2;
}

KERNEL(streams_fold_fwd, 128, struct streams_fold_args)
{
    const size_t width = a.d * a.n, rows = a.rows[0] + a.rows[1] + a.rows[2];
    for (size_t k = GRID_FIRST; k < rows * width; k += GRID_STRIDE) {
        const size_t p = k / width, place = k - p * width, j = place / a.d, at = (place - j * a.d) * a.n + j;
        size_t row;
        const unsigned matrix = matrix_of(a.rows, p, &row);
        const float *W = matrix == 0 ? a.W[0] : matrix == 1 ? a.W[1] : a.W[2];
        a.Wf[k] = W[row * width + at] * a.norm[at];
    }
}

/* A thread has a column. */
KERNEL(streams_fold_bwd, 128, struct streams_fold_grad_args)
{
    const size_t width = a.d * a.n, rows = a.rows[0] + a.rows[1] + a.rows[2];
    for (size_t at = GRID_FIRST; at < width; at += GRID_STRIDE) {
        const size_t i = at / a.n, j = at - i * a.n;
        float dnorm = 0;
        for (size_t p = 0; p < rows; p++) {
            size_t row;
            const unsigned matrix = matrix_of(a.rows, p, &row);
            const float *W = matrix == 0 ? a.W[0] : matrix == 1 ? a.W[1] : a.W[2];
            float *dW = matrix == 0 ? a.dW[0] : matrix == 1 ? a.dW[1] : a.dW[2];
            const float dWf = a.dWf[p * width + j * a.d + i];
            dnorm += dWf * W[row * width + at];
            dW[row * width + at] += dWf * a.norm[at];
        }
        a.dnorm[at] += dnorm;
    }
}

/* ---- writing ---- */

/* Columns i .. i + 3 of the n streams of a token. */
struct columns_of_streams {
    float4 x[MOST];

    __device__ columns_of_streams(const float *X, size_t n, size_t i, size_t d, bool fast)
    {
#pragma unroll
        for (unsigned j = 0; j < MOST; j++)
            x[j] = j < n ? load_row4(X + j * d, i, d, fast) : splat4(0);
    }
    /* sum_j by_j X_:j, the weights `step` apart */
    __device__ float4 weighed(const float *by, size_t n, size_t step, float4 sum) const
    {
#pragma unroll
        for (unsigned j = 0; j < MOST; j++)
            if (j < n)
                sum = fma4(splat4(by[j * step]), x[j], sum);
        return sum;
    }
};

KERNEL(streams_write_fwd, 128, struct streams_write_args)
{
    const size_t n = a.n, d = a.d;
    const bool fast = d % 4 == 0 && aligned16(a.X, a.f, a.X_out);
    for (size_t t = blockIdx.x; t < a.N; t += gridDim.x) {
        const float *b = a.w + t * n * (n + 2) + n, *M = b + n;
        EACH_FOUR(i, d)
        {
            const columns_of_streams X(a.X + t * n * d, n, i, d, fast);
            const float4 f = load_row4(a.f + t * d, i, d, fast);
            for (size_t k = 0; k < n; k++)
                store_row4(a.X_out + (t * n + k) * d, i, d, fast,
                           X.weighed(M + k * n, n, 1, scale4(f, b[k])));
        }
    }
}

/* dM and db of a token are sums over its columns, of each warp in `sums` first. */
KERNEL(streams_write_bwd, 128, struct streams_write_grad_args)
{
    SHARED(float, sums, WARPS *MOST *(MOST + 1));
    const size_t n = a.n, d = a.d;
    const bool fast = d % 4 == 0 && aligned16(a.X, a.f, a.G) && aligned16(a.df, a.x_in) && aligned8(a.df16);
    for (size_t t = blockIdx.x; t < a.N; t += gridDim.x) {
        const float *r = a.w + t * n * (n + 2), *b = r + n;
        float *db = a.dw + t * n * (n + 2) + n;
        float products[MOST][MOST + 1];
#pragma unroll
        for (unsigned k = 0; k < MOST; k++)
#pragma unroll
            for (unsigned j = 0; j <= MOST; j++)
                products[k][j] = 0;
        EACH_FOUR(i, d)
        {
            const columns_of_streams X(a.X + t * n * d, n, i, d, fast);
            const float4 f = load_row4(a.f + t * d, i, d, fast);
            float4 df = splat4(0);
#pragma unroll
            for (unsigned k = 0; k < MOST; k++) {
                if (k >= n)
                    continue;
                const float4 g = load_row4(a.G + (t * n + k) * d, i, d, fast);
                df = fma4(splat4(b[k]), g, df);
                products[k][MOST] += dot4(g, f);
#pragma unroll
                for (unsigned j = 0; j < MOST; j++)
                    products[k][j] += dot4(g, X.x[j]);
            }
            put_row4(a.df, a.df16, t * d, i, d, fast, df);
            if (a.x_in)
                store_row4(a.x_in + t * d, i, d, fast, X.weighed(r, n, 1, splat4(0)));
        }
        __syncthreads(); /* the last token's sums are still read */
#pragma unroll
        for (unsigned k = 0; k < MOST; k++)
#pragma unroll
            for (unsigned j = 0; j <= MOST; j++) {
                if (k >= n || (j >= n && j != MOST))
                    continue;
                const float sum = warp_sum(products[k][j]);
                if (threadIdx.x % 32 == 0)
                    sums[(threadIdx.x / 32 * MOST + k) * (MOST + 1) + j] = sum;
            }
        __syncthreads();
        for (unsigned at = threadIdx.x; at < n * (n + 1); at += THREADS) {
            const unsigned k = at / static_cast<unsigned>(n + 1), j = at - k * static_cast<unsigned>(n + 1);
            float sum = 0;
            for (unsigned warp = 0; warp < WARPS; warp++)
                sum += sums[(warp * MOST + k) * (MOST + 1) + (j == n ? static_cast<unsigned>(MOST) : j)];
            (j == n ? db[k] : db[n + k * n + j]) = sum;
        }
    }
}
