/* Large bfloat16 products without bfloat16 instructions: blocks of A and B are converted to float32 while
 * they are packed, and a tile of C is summed in registers, at the speed of a float32 product.
 *
 * Order of summation: a number of C is the sum over PACKED_DEPTH numbers of k, in their order, and such sums
 * are added in their order. It does not depend on M, N, the tile or the number of tasks. */
#include "backend/cpu/kernels/bf16.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/tile.h"
#include "base/bf16.h"

#include <assert.h>
#include <string.h>

static_assert(PACKED_ROWS % TILE_ROWS == 0, "whole tiles");

/* A block of A in float32: tile after tile of TILE_ROWS rows. The numbers of a row are contiguous,
 * PACKED_DEPTH apart from row to row; of a transposed A those of a column are, TILE_ROWS apart. `depth` is
 * the number of columns; B's panels have as many rows. */
struct block {
    size_t rows, columns, depth;
    const float *A, *B;
    float alpha, *C;
    size_t ldc;
    bool add; /* to C */
};

/* Numbers [k, k + n) of rows [i, i + rows) of A. Rows that fill up the last tile are zero. */
static void pack_rows(const struct matmul_bf16_args *a, size_t i, size_t rows, size_t k, size_t n, float *to)
{
    for (size_t r = 0; r < rows; r++) {
        const uint16_t *x = a->A + (i + r) * a->lda + k;
        widen_row(n, x, to + r * PACKED_DEPTH);
    }
    for (size_t r = rows; r % TILE_ROWS > 0; r++)
        memset(to + r * PACKED_DEPTH, 0, n * sizeof *to);
}

/* The same of a transposed A, by columns. */
static void pack_columns(const struct matmul_bf16_args *a, size_t i, size_t rows, size_t k, size_t n,
                         float *to)
{
    float column[PACKED_ROWS] = { 0 };
    for (size_t j = 0; j < n; j++) {
        const uint16_t *x = a->A + (k + j) * a->lda + i;
        prefetch(x, ROWS_AHEAD * a->lda * sizeof *x, rows * sizeof *x);
        widen_row(rows, x, column);
        for (size_t r = 0; r < rows; r += TILE_ROWS)
            memcpy(to + r * n + j * TILE_ROWS, column + r, TILE_ROWS * sizeof *to);
    }
}

/* The sums of a row of a tile to C, of which n numbers are there. Neither inlined nor written in two ways:
 * whether the product and the sum are fused is left to the compiler, and must not depend on the tile. */
__attribute__((noinline)) static void put(float *c, size_t n, const float *sum, float alpha, bool add)
{
    float part[PANEL] = { 0 }, *to = n < PANEL ? part : c;
    if (n < PANEL && add)
        memcpy(part, c, n * sizeof *c);
    for (size_t i = 0; i < PANEL; i += V)
        store(to + i, load(sum + i) * splat(alpha) + (add ? load(to + i) : splat(0)));
    if (n < PANEL)
        memcpy(c, part, n * sizeof *c);
}

/* C's tile at row i and column j. The constants: the distances between rows and between columns of A. */
INLINE void multiply(const struct block *b, size_t i, size_t j, const float *A, const size_t row,
                     const size_t column)
{
    const float *B = b->B + j * b->depth;
    float *C = b->C + i * b->ldc + j, sums[TILE_ROWS][PANEL];
    size_t rows = b->rows - i < TILE_ROWS ? b->rows - i : TILE_ROWS;
    size_t columns = b->columns - j < PANEL ? b->columns - j : PANEL;
    vec sum[TILE_ROWS][2];
    for (size_t m = 0; m < rows; m++)
        prefetch(C + m * b->ldc, 0, columns * sizeof *C);
    for (size_t m = 0; m < TILE_ROWS; m++)
        sum[m][0] = sum[m][1] = splat(0);
    for (size_t k = 0; k < b->depth; k++) {
        vec low = load(B + k * PANEL), high = load(B + k * PANEL + V);
        for (size_t m = 0; m < TILE_ROWS; m++) {
            vec x = splat(A[m * row + k * column]);
            sum[m][0] += x * low;
            sum[m][1] += x * high;
        }
    }
    for (size_t m = 0; m < TILE_ROWS; m++) {
        store(sums[m], sum[m][0]);
        store(sums[m] + V, sum[m][1]);
    }
    for (size_t m = 0; m < rows; m++)
        put(C + m * b->ldc, columns, sums[m], b->alpha, b->add);
}

/* A panel of B is used by all tiles of A before the next. */
static void multiply_by_rows(const struct block *b)
{
    for (size_t j = 0; j < b->columns; j += PANEL) {
        for (size_t i = 0; i < b->rows; i += TILE_ROWS)
            multiply(b, i, j, b->A + i * PACKED_DEPTH, PACKED_DEPTH, 1);
    }
}

static void multiply_by_columns(const struct block *b)
{
    for (size_t j = 0; j < b->columns; j += PANEL) {
        for (size_t i = 0; i < b->rows; i += TILE_ROWS)
            multiply(b, i, j, b->A + i * b->depth, 1, TILE_ROWS);
    }
}

/* Rows [k, k + n) and columns [j, j + columns) of op(B), in panels. */
static void pack_B(const struct matmul_bf16_args *a, size_t j, size_t columns, size_t k, size_t n, float *to)
{
    struct pack_args pack = { .transpose = a->trans_b, .stride = a->ldb, .panels = to, .depth = n };
    pack.width = a->trans_b ? n : columns;
    pack.x16 = a->trans_b ? a->B + j * a->ldb + k : a->B + k * a->ldb + j;
    DDL_KERNEL(pack)(&pack, 0, a->trans_b ? columns : n, NULL);
}

/* Rows [row, row_end) of C, columns [j, j + columns), times beta. */
static void scale_C(const struct matmul_bf16_args *a, size_t row, size_t row_end, size_t j, size_t columns)
{
    for (size_t i = row; i < row_end; i++) {
        float *c = a->C + i * a->ldc + j;
#pragma omp simd
        for (size_t n = 0; n < columns; n++)
            c[n] *= a->beta;
    }
}

/* Rows [row, row_end) and columns [j, j + columns) of C. */
static void panel_of_C(const struct packed_bf16_args *by, size_t row, size_t row_end, size_t j,
                       size_t columns, float *scratch)
{
    const struct matmul_bf16_args *a = by->product;
    float *A = scratch, *B = scratch + PACKED_ROWS * PACKED_DEPTH;
    if (a->beta != 0 && a->beta != 1)
        scale_C(a, row, row_end, j, columns);
    for (size_t k = 0, n; k < a->K; k += n) {
        n = a->K - k < PACKED_DEPTH ? a->K - k : PACKED_DEPTH;
        pack_B(a, j, columns, k, n, B);
        for (size_t i = row, rows; i < row_end; i += rows) {
            rows = row_end - i < PACKED_ROWS ? row_end - i : PACKED_ROWS;
            (a->trans_a ? pack_columns : pack_rows)(a, i, rows, k, n, A);
            const struct block b = {
                rows, columns, n, A, B, a->alpha, a->C + i * a->ldc + j, a->ldc, k > 0 || a->beta != 0
            };
            (a->trans_a ? multiply_by_columns : multiply_by_rows)(&b);
        }
    }
}

void DDL_KERNEL(matmul_bf16_tiles)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct packed_bf16_args *by = args;
    const struct matmul_bf16_args *a = by->product;
    for (size_t task = lo; task < hi; task++) {
        size_t row = task / by->tasks_of_a_row * by->rows, column = task % by->tasks_of_a_row * by->columns;
        size_t row_end = a->M - row < by->rows ? a->M : row + by->rows;
        size_t column_end = a->N - column < by->columns ? a->N : column + by->columns;
        for (size_t j = column, n; j < column_end; j += n) {
            n = column_end - j < by->panel ? column_end - j : by->panel;
            panel_of_C(by, row, row_end, j, n, scratch);
        }
    }
}
