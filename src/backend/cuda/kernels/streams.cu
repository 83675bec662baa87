/* The streams of hyper-connections. A block has a token at a time; a thread has four columns of all streams.
 */
#include "backend/cuda/kernels/streams.cuh"

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

KERNEL(streams_write_fwd, 128, struct streams_write_args)
{
    const bool fast = a.d % 4 == 0 && aligned16(a.X, a.f, a.X_out);
    for (size_t t = blockIdx.x; t < a.N; t += gridDim.x)
        write_streams(a, t, nullptr, fast);
}

KERNEL(streams_write_bwd, 128, struct streams_write_grad_args)
{
    SHARED(float, sums, WARPS *MOST *(MOST + 1));
    const bool fast = a.d % 4 == 0 && aligned16(a.X, a.f, a.G) && aligned16(a.df, a.x_in) && aligned8(a.df16);
    for (size_t t = blockIdx.x; t < a.N; t += gridDim.x) {
        stream_write_grads grads;
        EACH_FOUR(i, a.d)
        grads.add(a, t, i, fast,
                  [&](unsigned k) { return load_row4(a.G + (t * a.n + k) * a.d, i, a.d, fast); });
        grads.finish<WARPS>(a, t, sums);
    }
}
