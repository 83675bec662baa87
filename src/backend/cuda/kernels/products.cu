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

/* Numbers of a row of K: 16 bytes as they are in memory, so that several loads are under way at a time. */
template <class T> struct group {
    static constexpr unsigned n = 16 / sizeof(T);
    uint4 bits;

    __device__ inline float number(unsigned i) const;
};

template <> __device__ inline float group<float>::number(unsigned i) const
{
    const uint32_t x[4] = { bits.x, bits.y, bits.z, bits.w };
    return __uint_as_float(x[i]);
}

template <> __device__ inline float group<uint16_t>::number(unsigned i) const
{
    const uint32_t pairs[4] = { bits.x, bits.y, bits.z, bits.w };
    return __uint_as_float(i % 2 ? pairs[i / 2] & 0xffff0000u : pairs[i / 2] << 16);
}

template <class T> __device__ inline group<T> load_group(const T *x, size_t i)
{
    return { *reinterpret_cast<const uint4 *>(x + i) };
}

/* The same where x is not aligned or ends in the group; 0 past K. */
__device__ inline group<float> load_part(const float *x, size_t i, size_t K)
{
    const float4 v = load_row4(x, i, K, false);
    return { make_uint4(__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z),
                        __float_as_uint(v.w)) };
}

__device__ inline group<uint16_t> load_part(const uint16_t *x, size_t i, size_t K)
{
    uint32_t pairs[4];
#pragma unroll
    for (unsigned k = 0; k < 4; k++) {
        const size_t at = i + 2 * k;
        pairs[k] = (at < K ? x[at] : 0u) | (at + 1 < K ? x[at + 1] : 0u) << 16;
    }
    return { make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]) };
}

/* sum[j] += x . w[j] */
template <class T>
__device__ inline void add_group(const group<T> &x, const group<T> (&w)[4], float (&sum)[4])
{
#pragma unroll
    for (unsigned j = 0; j < 4; j++)
#pragma unroll
        for (unsigned k = 0; k < group<T>::n; k++)
            sum[j] = fmaf(x.number(k), w[j].number(k), sum[j]);
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

/* Adds the sums of all lanes with the same columns: `sums` receives those of each warp. Two lanes share the
 * work: each adds half of the sums that both have. */
template <unsigned rows, unsigned most> __device__ inline void share(const float (&sum)[most][4], float *sums)
{
    constexpr unsigned count = 4 * rows;
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float own[count];
    unsigned first = 0;
#pragma unroll
    for (unsigned i = 0; i < count; i++)
        own[i] = sum[i / 4][i % 4];
#pragma unroll
    for (unsigned n = 0; n < 3; n++) {
        const unsigned bit = 16 >> n, left = count >> (n + 1);
        const bool upper = lane & bit;
        if (left == 0)
            own[0] += __shfl_xor_sync(ALL_LANES, own[0], bit);
        first += upper ? left : 0;
#pragma unroll
        for (unsigned i = 0; i < count / 2; i++) { /* not up to `left`: own[] would not be in registers */
            if (i >= left)
                continue;
            const float other = __shfl_xor_sync(ALL_LANES, upper ? own[i] : own[left + i], bit);
            own[i] = (upper ? own[left + i] : own[i]) + other;
        }
    }
    if (count < 8 && lane & 4) /* its neighbor has the same sum */
        return;
#pragma unroll
    for (unsigned i = 0; i < (count < 8 ? 1 : count / 8); i++)
        sums[(warp * ROWS + (first + i) / 4) * COLUMNS + 4 * (lane % 4) + (first + i) % 4] = own[i];
}

__device__ inline void share_sums(const float (&sum)[ROWS][4], unsigned rows, float *sums)
{
    if (rows == 1)
        share<1>(sum, sums);
    else if (rows == 2)
        share<2>(sum, sums);
    else if (rows <= 4)
        share<4>(sum, sums);
    else
        share<ROWS>(sum, sums);
}

/* The sum over the warps for row m and column j. */
__device__ inline float sum_of_warps(const float *sums, unsigned m, unsigned j)
{
    float sum = 0;
    for (unsigned warp = 0; warp < WARPS; warp++)
        sum += sums[(warp * ROWS + m) * COLUMNS + j];
    return sum;
}

/* Sums of products for up to `rows` rows of A from `A` on; those past the last one repeat it. Loads `ahead`
 * steps of B before it uses the first. */
template <unsigned rows, unsigned ahead, class T>
__device__ inline void add_products(const struct cuda_product &a, const few_place &at, const T *A,
                                    const T *const (&b)[4], float *sums)
{
    constexpr unsigned step = group<T>::n, together = rows < 4 ? rows : 4;
    constexpr size_t stride = step * 8 * WARPS;
    size_t i = step * (8 * (threadIdx.x / 32) + threadIdx.x % 32 / 4);
    float sum[rows][4] = {};
    group<T> w[ahead][4];
    const auto load = [&](group<T>(&to)[4], size_t k) {
        if (k < a.K) {
#pragma unroll
            for (unsigned j = 0; j < 4; j++)
                to[j] = load_group(b[j], k);
        }
    };
#pragma unroll
    for (unsigned n = 0; n < ahead; n++)
        load(w[n], i + n * stride);
#pragma unroll 1
    while (i < a.K) {
#pragma unroll
        for (unsigned n = 0; n < ahead; n++) {
            if (i >= a.K)
                break;
#pragma unroll
            for (unsigned m = 0; m < rows; m += together) {
                group<T> x[together];
#pragma unroll
                for (unsigned l = 0; l < together; l++)
                    x[l] = load_group(A + (m + l < at.rows ? m + l : at.rows - 1) * a.am, i);
#pragma unroll
                for (unsigned l = 0; l < together; l++)
                    add_group(x[l], w[n], sum[m + l]);
            }
            load(w[n], i + ahead * stride);
            i += stride;
        }
    }
    share<rows>(sum, sums);
}

/* The same for ROWS rows, and where rows are not aligned or K is not a multiple of a group: not fast. */
template <class T>
__device__ inline void add_any_products(const struct cuda_product &a, const few_place &at, const T *A,
                                        const T *const (&b)[4], bool fast, float *sums)
{
    constexpr unsigned step = group<T>::n;
    float sum[ROWS][4] = {};
    for (size_t i = step * (8 * (threadIdx.x / 32) + threadIdx.x % 32 / 4); i < a.K; i += step * 8 * WARPS) {
        group<T> w[4];
#pragma unroll
        for (unsigned j = 0; j < 4; j++)
            w[j] = fast ? load_group(b[j], i) : load_part(b[j], i, a.K);
#pragma unroll
        for (unsigned m = 0; m < ROWS; m++)
            if (m < at.rows)
                add_group(fast ? load_group(A + m * a.am, i) : load_part(A + m * a.am, i, a.K), w, sum[m]);
    }
    share_sums(sum, at.rows, sums);
}

template <class T> __device__ inline void few_rows(const struct cuda_product &a, const T *A, const T *B)
{
    SHARED(float, sums, WARPS *ROWS *COLUMNS);
    const unsigned lane = threadIdx.x % 32;
    const few_place at = place_of_block(a.M);
    const bool fast = ((a.K | a.am | a.bn) & (group<T>::n - 1)) == 0 && aligned16(A, B);
    const T *first = A + at.row * a.am, *b[4];
#pragma unroll
    for (unsigned j = 0; j < 4; j++) {
        const size_t n = at.column + 4 * (lane % 4) + j;
        b[j] = B + (n < a.N ? n : a.N - 1) * a.bn;
    }
    if (!fast || at.rows > 4 || sizeof(T) == 4) /* others would have fewer blocks, or spill registers */
        add_any_products(a, at, first, b, fast, sums);
    else if (at.rows == 1)
        add_products<1, 2>(a, at, first, b, sums);
    else if (at.rows == 2)
        add_products<2, 2>(a, at, first, b, sums);
    else
        add_products<4, 1>(a, at, first, b, sums);
    __syncthreads();
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
    few_rows<float>(a, a.A, a.B);
}

KERNEL_OF_BLOCKS(few_rows_bf16, 256, 2, struct cuda_product)
{
    few_rows<uint16_t>(a, a.A16, a.B16);
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
                const size_t i = DDL_GROUP * group + lane / 4 * 4;
                const float4 v = i < a.K ? load_row4(a.A + (at.row + m) * a.lda, i, a.K, fast) : splat4(0);
                const float x[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
                for (unsigned j = 0; j < 4; j++) {
                    float product = 0;
#pragma unroll
                    for (unsigned k = 0; k < 4; k++)
                        product = fmaf(x[k], q8_number(q[j], k), product);
                    sum[m][j] = fmaf(product, scale[j], sum[m][j]);
                }
            }
        }
    }
    share_sums(sum, at.rows, sums);
    __syncthreads();
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
