/* Matrix products: of few rows with a matrix that is read once, and a plain one for what cuBLASLt has no
 * algorithm for. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/q8.cuh"
#include "backend/cuda/kernels/vectors.cuh"

/* ---- few rows: C = alpha A B^T + beta C ----
 *
 * A block computes ROWS rows and COLUMNS columns of C. Lane l of a warp has the columns 4 (l % 4) .. + 3, and
 * of K those numbers whose group of `step` has number l / 4 of the eight groups that the warp reads at a
 * time; warps take turns. Its order of additions depends on K alone, so that a row's bits do not depend on
 * the others. */
enum { THREADS = 256, WARPS = THREADS / 32, ROWS = CUDA_FEW_ROWS, COLUMNS = CUDA_FEW_COLUMNS };

template <unsigned n> struct numbers {
    float x[n];
};

__device__ inline numbers<4> load_group(const float *x, size_t i, size_t K, bool fast)
{
    if (i >= K)
        return { { 0, 0, 0, 0 } };
    const float4 v = load_row4(x, i, K, fast);
    return { { v.x, v.y, v.z, v.w } };
}

__device__ inline numbers<8> load_group(const uint16_t *x, size_t i, size_t K, bool fast)
{
    numbers<8> y;
    if (fast && i < K) {
        const uint4 v = *reinterpret_cast<const uint4 *>(x + i);
        const uint32_t pairs[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
        for (unsigned k = 0; k < 4; k++) {
            y.x[2 * k] = __uint_as_float(pairs[k] << 16);
            y.x[2 * k + 1] = __uint_as_float(pairs[k] & 0xffff0000u);
        }
        return y;
    }
#pragma unroll
    for (unsigned k = 0; k < 8; k++)
        y.x[k] = i + k < K ? float_of_bf16(x[i + k]) : 0;
    return y;
}

/* Where a block is: its first row and column of C, and its thread's columns of B. */
struct few_place {
    size_t row, column;
    unsigned rows; /* that C has of ROWS */
};

/* Blocks that read the same part of B are neighbors. */
__device__ inline few_place place_of_block(size_t M)
{
    const size_t groups = (M + ROWS - 1) / ROWS, row = blockIdx.x % groups * ROWS;
    return { row, blockIdx.x / groups * COLUMNS,
             M - row < ROWS ? static_cast<unsigned>(M - row) : static_cast<unsigned>(ROWS) };
}

/* Adds the first `count` sums of all lanes with the same columns: `sums` receives those of each warp. Two
 * lanes share the work: each adds half of the sums that both have. */
template <unsigned count> __device__ inline void share(const float (&sum)[ROWS][4], float *sums)
{
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float own[count];
    unsigned first = 0, left = count;
#pragma unroll
    for (unsigned i = 0; i < count; i++)
        own[i] = sum[i / 4][i % 4];
#pragma unroll
    for (unsigned bit = 16; bit >= 4; bit /= 2) {
        const bool upper = lane & bit;
        if (left == 1) {
            own[0] += __shfl_xor_sync(ALL_LANES, own[0], bit);
            continue;
        }
        left /= 2;
        first += upper ? left : 0;
#pragma unroll
        for (unsigned i = 0; i < left; i++) {
            const float other = __shfl_xor_sync(ALL_LANES, upper ? own[i] : own[left + i], bit);
            own[i] = (upper ? own[left + i] : own[i]) + other;
        }
    }
    if (count < 8 && lane & 4) /* its neighbor has the same sum */
        return;
#pragma unroll
    for (unsigned i = 0; i < left; i++)
        sums[(warp * ROWS + (first + i) / 4) * COLUMNS + 4 * (lane % 4) + (first + i) % 4] = own[i];
}

__device__ inline void share_sums(const float (&sum)[ROWS][4], unsigned rows, float *sums)
{
    if (rows == 1)
        share<4>(sum, sums);
    else if (rows == 2)
        share<8>(sum, sums);
    else if (rows <= 4)
        share<16>(sum, sums);
    else
        share<32>(sum, sums);
    __syncthreads();
}

/* The sum over the warps for row m and column j. */
__device__ inline float sum_of_warps(const float *sums, unsigned m, unsigned j)
{
    float sum = 0;
    for (unsigned warp = 0; warp < WARPS; warp++)
        sum += sums[(warp * ROWS + m) * COLUMNS + j];
    return sum;
}

template <class T, unsigned step>
__device__ inline void few_rows(const struct cuda_product &a, const T *A, const T *B)
{
    SHARED(float, sums, WARPS *ROWS *COLUMNS);
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const few_place at = place_of_block(a.M);
    const bool fast = ((a.K | a.am | a.bn) & (step - 1)) == 0 && aligned16(A, B);
    const T *b[4];
    float sum[ROWS][4] = {};
#pragma unroll
    for (unsigned j = 0; j < 4; j++) {
        const size_t n = at.column + 4 * (lane % 4) + j;
        b[j] = B + (n < a.N ? n : a.N - 1) * a.bn;
    }
    for (size_t i = step * (8 * warp + lane / 4); i < a.K; i += step * 8 * WARPS) {
        numbers<step> w[4];
#pragma unroll
        for (unsigned j = 0; j < 4; j++)
            w[j] = load_group(b[j], i, a.K, fast);
#pragma unroll
        for (unsigned m = 0; m < ROWS; m++) {
            if (m < at.rows) {
                const numbers<step> x = load_group(A + (at.row + m) * a.am, i, a.K, fast);
#pragma unroll
                for (unsigned j = 0; j < 4; j++)
#pragma unroll
                    for (unsigned k = 0; k < step; k++)
                        sum[m][j] = fmaf(x.x[k], w[j].x[k], sum[m][j]);
            }
        }
    }
    share_sums(sum, at.rows, sums);
    for (unsigned i = threadIdx.x; i < at.rows * COLUMNS; i += THREADS) {
        const size_t n = at.column + i % COLUMNS, c = (at.row + i / COLUMNS) * a.ldc + n;
        if (n >= a.N)
            continue;
        const float y = a.alpha * sum_of_warps(sums, i / COLUMNS, i % COLUMNS);
        if (a.C16)
            a.C16[c] = bf16_of(y);
        else
            a.C[c] = a.beta == 0 ? y : fmaf(a.beta, a.C[c], y);
    }
}

KERNEL(few_rows_f32, 256, struct cuda_product)
{
    few_rows<float, 4>(a, a.A, a.B);
}

KERNEL(few_rows_bf16, 256, struct cuda_product)
{
    few_rows<uint16_t, 8>(a, a.A16, a.B16);
}

/* B in tiles of 16 rows, 32 numbers each (backend/q8.h): a block has the columns of a row of tiles, a lane
 * reads 16 bytes. */
KERNEL(matmul_q8, 256, struct matmul_q8_args)
{
    SHARED(float, sums, WARPS *ROWS *COLUMNS);
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const few_place at = place_of_block(a.M);
    const bool fast = ((a.K | a.lda) & 3) == 0 && aligned16(a.A);
    const size_t groups = q8_groups(a.K), first = a.first % DDL_Q8_ROWS;
    const struct ddl_q8 *tiles =
        static_cast<const struct ddl_q8 *>(a.B) + (a.first / DDL_Q8_ROWS + at.column / COLUMNS) * groups;
    float sum[ROWS][4] = {};
    for (size_t group = warp; group < groups; group += WARPS) {
        const uint4 v = reinterpret_cast<const uint4 *>(tiles[group].q)[lane];
        const float4 s = reinterpret_cast<const float4 *>(tiles[group].scale)[lane % 4];
        const uint32_t q[4] = { v.x, v.y, v.z, v.w };
        const float scale[4] = { s.x, s.y, s.z, s.w };
#pragma unroll
        for (unsigned m = 0; m < ROWS; m++) {
            if (m < at.rows) {
                const numbers<4> x =
                    load_group(a.A + (at.row + m) * a.lda, DDL_GROUP * group + lane / 4 * 4, a.K, fast);
#pragma unroll
                for (unsigned j = 0; j < 4; j++) {
                    float product = 0;
#pragma unroll
                    for (unsigned k = 0; k < 4; k++)
                        product = fmaf(x.x[k], q8_number(q[j], k), product);
                    sum[m][j] = fmaf(product, scale[j], sum[m][j]);
                }
            }
        }
    }
    share_sums(sum, at.rows, sums);
    for (unsigned i = threadIdx.x; i < at.rows * COLUMNS; i += THREADS) {
        const size_t row = at.column + i % COLUMNS; /* of the tiles */
        if (row < first || row - first >= a.N)
            continue;
        float *C = a.C + (at.row + i / COLUMNS) * a.ldc + (row - first);
        const float y = a.alpha * sum_of_warps(sums, i / COLUMNS, i % COLUMNS);
        *C = a.accumulate ? *C + y : y;
    }
}

/* ---- any product ---- */

enum { TILE = CUDA_TILE, DEPTH = 16, EACH = 4 };

struct operand {
    const float *x;
    const uint16_t *x16;
    size_t outer, inner; /* strides along the rows or columns of C, and along K */
};

/* Numbers (first + i, k + j) of an operand, i < TILE, j < DEPTH, to tile[j][i]; neighbors in memory by
 * neighboring threads. */
__device__ inline void load_tile(const operand &o, size_t first, size_t n, size_t k, size_t K, float *tile)
{
    for (unsigned e = threadIdx.x; e < TILE * DEPTH; e += THREADS) {
        const unsigned i = o.inner == 1 ? e / DEPTH : e % TILE, j = o.inner == 1 ? e % DEPTH : e / TILE;
        const size_t at = (first + i) * o.outer + (k + j) * o.inner;
        float x = 0;
        if (first + i < n && k + j < K)
            x = o.x16 ? float_of_bf16(o.x16[at]) : o.x[at];
        tile[j * (TILE + EACH) + i] = x;
    }
}

/* A block computes a tile of C, a thread EACH x EACH numbers of it. */
KERNEL(product, 256, struct cuda_product)
{
    SHARED(float, left, DEPTH *(TILE + EACH));
    SHARED(float, right, DEPTH *(TILE + EACH));
    const size_t across = (a.N + TILE - 1) / TILE;
    const size_t row = blockIdx.x / across * TILE, column = blockIdx.x % across * TILE;
    const unsigned down = threadIdx.x / (TILE / EACH) * EACH, right_of = threadIdx.x % (TILE / EACH) * EACH;
    const operand A = { a.A, a.A16, a.am, a.ak }, B = { a.B, a.B16, a.bn, a.bk };
    float sum[EACH][EACH] = {};
    for (size_t k = 0; k < a.K; k += DEPTH) {
        load_tile(A, row, a.M, k, a.K, left);
        load_tile(B, column, a.N, k, a.K, right);
        __syncthreads();
        for (unsigned j = 0; j < DEPTH; j++) {
            const float4 x = load4(left, j * (TILE + EACH) + down),
                         y = load4(right, j * (TILE + EACH) + right_of);
            const float xs[EACH] = { x.x, x.y, x.z, x.w }, ys[EACH] = { y.x, y.y, y.z, y.w };
#pragma unroll
            for (unsigned m = 0; m < EACH; m++)
#pragma unroll
                for (unsigned n = 0; n < EACH; n++)
                    sum[m][n] = fmaf(xs[m], ys[n], sum[m][n]);
        }
        __syncthreads();
    }
#pragma unroll
    for (unsigned m = 0; m < EACH; m++) {
#pragma unroll
        for (unsigned n = 0; n < EACH; n++) {
            if (row + down + m >= a.M || column + right_of + n >= a.N)
                continue;
            const size_t c = (row + down + m) * a.ldc + column + right_of + n;
            const float y = a.alpha * sum[m][n];
            if (a.C16)
                a.C16[c] = bf16_of(y);
            else
                a.C[c] = a.beta == 0 ? y : fmaf(a.beta, a.C[c], y);
        }
    }
}
