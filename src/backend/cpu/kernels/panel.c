/* Products of attention: few rows of A times B, which is packed in panels because many such rows use it. A
 * tile of C is summed in registers; B is read as consecutive whole cache lines, and numbers of A are
 * broadcast.
 */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/tile.h"
#include "base/bf16.h"

#include <assert.h>
#include <string.h>

static_assert(MOST_PANEL % PANEL == 0, "whole panels");
static_assert(PANEL % 4 == 0 && TILE_ROWS % 3 == 0,
              "columns are transposed in fours, remaining rows are a third of a tile");

INLINE float number(const struct pack_args *a, size_t at, const bool bf16)
{
    return bf16 ? ddl_bf16_widen(a->x16[at]) : a->x[at];
}

/* Prefetches n rows of x, ROWS_AHEAD rows after `row`. */
INLINE void prefetch_rows(const struct pack_args *a, size_t row, size_t n, const bool bf16)
{
    size_t bytes = bf16 ? sizeof *a->x16 : sizeof *a->x;
    const char *x = bf16 ? (const char *)a->x16 : (const char *)a->x;
    for (size_t i = 0; i < n; i++)
        prefetch(x + (row + i) * a->stride * bytes, ROWS_AHEAD * a->stride * bytes, a->width * bytes);
}

/* Row `row` of the matrix, zeros behind it. */
INLINE void pack_row(const struct pack_args *a, size_t row, const bool bf16)
{
    prefetch_rows(a, row, 1, bf16);
    for (size_t i = 0; i < a->width; i += PANEL) {
        float *to = a->panels + i * a->depth + row * PANEL;
        size_t n = a->width - i < PANEL ? a->width - i : PANEL;
        if (bf16 && n == PANEL) {
            const uint16_t *x = a->x16 + row * a->stride + i;
            store(to, load_bf16(x));
            store(to + V, load_bf16(x + V));
            continue;
        }
        for (size_t j = 0; j < n; j++)
            to[j] = number(a, row * a->stride + i + j, bf16);
        memset(to + n, 0, (PANEL - n) * sizeof *to);
    }
}

/* Rows row .. row + 3 of x, float32, become columns at `to`; as far as their numbers go in fours. */
INLINE size_t transpose_fours(const struct pack_args *a, size_t row, float *to)
{
    typedef float four __attribute__((vector_size(16)));
    typedef float four_anywhere __attribute__((vector_size(16), aligned(4), may_alias));
    const float *x = a->x + row * a->stride;
    size_t k = 0;
    for (; k + 4 <= a->width; k += 4, to += 4 * PANEL) {
        four r[4], low[2], high[2];
        for (size_t i = 0; i < 4; i++)
            r[i] = *(const four_anywhere *)(x + i * a->stride + k);
        for (size_t i = 0; i < 2; i++) {
            low[i] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 0, 4, 1, 5);
            high[i] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 2, 6, 3, 7);
        }
        *(four_anywhere *)to = __builtin_shufflevector(low[0], low[1], 0, 1, 4, 5);
        *(four_anywhere *)(to + PANEL) = __builtin_shufflevector(low[0], low[1], 2, 3, 6, 7);
        *(four_anywhere *)(to + 2 * PANEL) = __builtin_shufflevector(high[0], high[1], 0, 1, 4, 5);
        *(four_anywhere *)(to + 3 * PANEL) = __builtin_shufflevector(high[0], high[1], 2, 3, 6, 7);
    }
    return k;
}

/* The same of bfloat16 rows, as far as their numbers go in eights: pairs of numbers become columns, then the
 * first number of a pair, in its lower half, and the second are converted. */
INLINE size_t transpose_fours_bf16(const struct pack_args *a, size_t row, float *to)
{
    typedef uint32_t four __attribute__((vector_size(16)));
    typedef uint32_t four_anywhere __attribute__((vector_size(16), aligned(2), may_alias));
    const uint16_t *x = a->x16 + row * a->stride;
    size_t k = 0;
    for (; k + 8 <= a->width; k += 8, to += 8 * PANEL) {
        four r[4], low[2], high[2], pairs[4];
        for (size_t i = 0; i < 4; i++)
            r[i] = *(const four_anywhere *)(x + i * a->stride + k);
        for (size_t i = 0; i < 2; i++) {
            low[i] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 0, 4, 1, 5);
            high[i] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 2, 6, 3, 7);
        }
        pairs[0] = __builtin_shufflevector(low[0], low[1], 0, 1, 4, 5);
        pairs[1] = __builtin_shufflevector(low[0], low[1], 2, 3, 6, 7);
        pairs[2] = __builtin_shufflevector(high[0], high[1], 0, 1, 4, 5);
        pairs[3] = __builtin_shufflevector(high[0], high[1], 2, 3, 6, 7);
        for (size_t i = 0; i < 4; i++) {
            *(four_anywhere *)(to + 2 * i * PANEL) = pairs[i] << 16;
            *(four_anywhere *)(to + (2 * i + 1) * PANEL) = pairs[i] & 0xffff0000u;
        }
    }
    return k;
}

/* Columns of the panel that begins at j: n of x's rows, zeros trans_a them. */
INLINE void pack_columns(const struct pack_args *a, size_t j, size_t n, const bool bf16)
{
    float *to = a->panels + j * a->depth;
    for (size_t i = 0; i < PANEL; i += 4) {
        size_t rows = i >= n ? 0 : n - i < 4 ? n - i : 4, k = 0;
        prefetch_rows(a, j + i, rows, bf16);
        if (rows == 4)
            k = bf16 ? transpose_fours_bf16(a, j + i, to + i) : transpose_fours(a, j + i, to + i);
        for (; k < a->width; k++) {
            for (size_t r = 0; r < 4; r++)
                to[k * PANEL + i + r] = r < rows ? number(a, (j + i + r) * a->stride + k, bf16) : 0;
        }
    }
}

INLINE void pack(const struct pack_args *a, size_t lo, size_t hi, const bool bf16)
{
    for (size_t row = lo; !a->transpose && row < hi; row++)
        pack_row(a, row, bf16);
    for (size_t row = lo; a->transpose && row < hi; row += PANEL)
        pack_columns(a, row, hi - row < PANEL ? hi - row : PANEL, bf16);
}

void DDL_KERNEL(pack)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct pack_args *a = args;
    (void)scratch;
    if (a->x16)
        pack(a, lo, hi, true);
    else
        pack(a, lo, hi, false);
}

/* C's two vectors at c, of which n numbers are there. */
INLINE void put(float *c, vec low, vec high, size_t n, bool add, const bool whole)
{
    float lanes[PANEL];
    if (whole) {
        store(c, add ? load(c) + low : low);
        store(c + V, add ? load(c + V) + high : high);
        return;
    }
    store(lanes, low);
    store(lanes + V, high);
    for (size_t j = 0; j < n; j++)
        c[j] = add ? c[j] + lanes[j] : lanes[j];
}

/* Columns of panel j of C's rows [i, i + M). The constants: the number of rows; whether rows or numbers of a
 * row are contiguous in A; whether all columns exist. */
INLINE void tile(const struct matmul_panels_args *a, size_t i, size_t j, const size_t M, const bool trans_a,
                 const bool whole)
{
    size_t row = trans_a ? 1 : a->lda, column = trans_a ? a->lda : 1;
    const float *A = a->A + i * row, *B = a->B + j * a->depth;
    vec sum[TILE_ROWS][2];
    for (size_t m = 0; m < M; m++)
        sum[m][0] = sum[m][1] = splat(0);
    for (size_t k = a->from; k < a->to; k++) {
        vec low = load(B + k * PANEL), high = load(B + k * PANEL + V);
        for (size_t m = 0; m < M; m++) {
            vec x = splat(A[m * row + k * column]);
            sum[m][0] += x * low;
            sum[m][1] += x * high;
        }
    }
    for (size_t m = 0; m < M; m++)
        put(a->C + (i + m) * a->ldc + j, sum[m][0] * splat(a->alpha), sum[m][1] * splat(a->alpha), a->N - j,
            a->add, whole);
}

INLINE void tiles(const struct matmul_panels_args *a, size_t i, const size_t M, const bool trans_a)
{
    size_t whole = a->N / PANEL * PANEL;
    for (size_t j = 0; j < whole; j += PANEL)
        tile(a, i, j, M, trans_a, true);
    if (whole < a->N)
        tile(a, i, whole, M, trans_a, false);
}

INLINE void multiply(const struct matmul_panels_args *a, size_t lo, size_t hi, const bool trans_a)
{
    size_t i = lo;
    for (; i + TILE_ROWS <= hi; i += TILE_ROWS)
        tiles(a, i, TILE_ROWS, trans_a);
    for (; i + TILE_ROWS / 3 <= hi; i += TILE_ROWS / 3)
        tiles(a, i, TILE_ROWS / 3, trans_a);
    for (; i < hi; i++)
        tiles(a, i, 1, trans_a);
}

void DDL_KERNEL(matmul_panels)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct matmul_panels_args *a = args;
    (void)scratch;
    if (a->trans_a)
        multiply(a, lo, hi, true);
    else
        multiply(a, lo, hi, false);
}
