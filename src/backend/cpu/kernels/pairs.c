/* Attention's products of bfloat16 operands with AMX, in tiles of 16 rows of 16 pairs, summed in float32.
 * Here subnormal numbers count as 0. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/softmax.h"

#include <assert.h>
#include <string.h>

#ifdef HAVE_TILES

typedef uint32_t pairs __attribute__((vector_size(4 * V)));
typedef uint32_t pairs_anywhere __attribute__((vector_size(4 * V), aligned(2), may_alias));
typedef uint16_t halves __attribute__((vector_size(2 * V)));
typedef uint16_t halves_anywhere __attribute__((vector_size(2 * V), aligned(2), may_alias));
static_assert((int)PAIRS_BLOCK == 2 * (int)V, "a block is two vectors of numbers, or one of pairs");

/* To nearest, ties to even; a NaN stays one, a subnormal number becomes 0. */
INLINE halves rounded(vec x)
{
    return (halves)_mm512_cvtneps_pbh((__m512)x);
}

INLINE pairs lower(halves x)
{
    return (pairs)_mm512_cvtepu16_epi32((__m256i)x);
}

INLINE pairs interleaved(halves even, halves odd)
{
    return lower(even) | lower(odd) << 16;
}

/* The same of rounded numbers. */
INLINE pairs rounded_pairs(vec even, vec odd)
{
    typedef uint16_t both __attribute__((vector_size(4 * V)));
    both x = (both)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even);
    return (pairs)__builtin_shufflevector(x, x, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24,
                                          9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

INLINE void store_pairs(uint16_t *to, pairs x)
{
    *(pairs_anywhere *)(void *)to = x;
}

INLINE void store_halves(uint16_t *to, halves x)
{
    *(halves_anywhere *)(void *)to = x;
}

INLINE halves load_halves(const uint16_t *x)
{
    return *(const halves_anywhere *)(const void *)x;
}

/* Numbers [i, i + V) of row `row` of n, and zeros. */
INLINE halves halves_at(const struct pairs_source *s, size_t row, size_t n, size_t i)
{
    return row < n && i < s->width ? load_halves(s->x16 + row * s->stride + i) : (halves){ 0 };
}

/* x rounded, and what that leaves. */
INLINE void store_split(uint16_t *y, uint16_t *rest, vec x)
{
    halves high = rounded(x);
    store_halves(y, high);
    store_halves(rest, rounded(x - (vec)(lower(high) << 16)));
}

/* Numbers [i, i + V) of x, or zeros from `end` on, a multiple of V. */
INLINE vec load_before(const float *x, size_t i, size_t end)
{
    return i < end ? load(x + i) : splat(0);
}

/* Rows up to the next whole block. */
INLINE size_t rows_missing(size_t n)
{
    return (PAIRS_BLOCK - n % PAIRS_BLOCK) % PAIRS_BLOCK;
}

void DDL_KERNEL(round_rows)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct round_rows_args *a = args;
    const struct pairs_source *from = &a->from;
    (void)scratch;
    for (size_t row = lo; row < hi; row++) {
        for (size_t i = 0; i < a->ldy; i += V) {
            size_t at = row * a->ldy + i;
            if (from->x16)
                store_halves(a->y + at, halves_at(from, row, hi, i));
            else
                store_split(a->y + at, a->rest + at,
                            load_before(from->x + row * from->stride, i, from->width));
        }
    }
    size_t missing = rows_missing(hi) * a->ldy * sizeof *a->y;
    memset(a->y + hi * a->ldy, 0, missing);
    if (!from->x16)
        memset(a->rest + hi * a->ldy, 0, missing);
}

/* Where numbers i of rows `row` and row + 1 of a matrix in pairs are; i is a multiple of V. */
INLINE size_t pairs_at(size_t row, size_t i, size_t depth)
{
    return i / PAIRS_BLOCK * PAIRS_BLOCK * depth + row * PAIRS_BLOCK + i % PAIRS_BLOCK * 2;
}

/* x (V, V) transposed: one vector's lanes go to all. */
INLINE void transpose(pairs x[V])
{
    for (size_t step = 1; step < V; step *= 2) {
        pairs y[V];
        for (size_t i = 0; i < V / 2; i++) {
            y[2 * i] = __builtin_shufflevector(x[i], x[i + V / 2], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21,
                                               6, 22, 7, 23);
            y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + V / 2], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28,
                                                   13, 29, 14, 30, 15, 31);
        }
        memcpy(x, y, sizeof y);
    }
}

/* V of x16's n rows, from `row` on, become columns. */
INLINE void pack_columns(const struct pack_pairs_args *a, size_t row, size_t n)
{
    uint16_t *to = a->panels + pairs_at(0, row, a->depth);
    for (size_t k = 0; k < a->depth; k += PAIRS_BLOCK) {
        pairs x[V];
        for (size_t i = 0; i < V; i++) {
            const halves both[2] = { halves_at(&a->from, row + i, n, k),
                                     halves_at(&a->from, row + i, n, k + V) };
            memcpy(&x[i], both, sizeof x[i]);
        }
        transpose(x);
        for (size_t i = 0; i < V; i++)
            store_pairs(to + (k / 2 + i) * 2 * PAIRS_BLOCK, x[i]);
    }
}

void DDL_KERNEL(pack_pairs)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct pack_pairs_args *a = args;
    const struct pairs_source *from = &a->from;
    size_t end = hi + rows_missing(hi);
    (void)scratch;
    for (size_t row = lo; a->transpose && row < end; row += V)
        pack_columns(a, row, hi);
    for (size_t row = lo; !a->transpose && row < end; row += 2) {
        for (size_t i = 0; i < from->width || i % PAIRS_BLOCK != 0; i += V)
            store_pairs(a->panels + pairs_at(row, i, a->depth),
                        interleaved(halves_at(from, row, hi, i), halves_at(from, row + 1, hi, i)));
    }
}

/* Zeros behind n numbers of a row, up to a whole vector, whose end is returned. */
INLINE size_t fill_vector(float *x, size_t n)
{
    size_t end = (n + V - 1) / V * V;
    for (size_t i = n; i < end; i++)
        x[i] = 0;
    return end;
}

/* x rounded to y, and what that leaves to rest: `end` numbers, then zeros; all in whole vectors. */
INLINE void split_row(size_t span, const float *x, size_t end, uint16_t *y, uint16_t *rest)
{
    for (size_t i = 0; i < end; i += V)
        store_split(y + i, rest + i, load(x + i));
    memset(y + end, 0, (span - end) * sizeof *y);
    memset(rest + end, 0, (span - end) * sizeof *rest);
}

void DDL_KERNEL(softmax_pairs_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct softmax_pairs_args *a = args;
    const struct softmax_args *s = &a->softmax;
    const size_t span = s->span;
    (void)scratch;
    for (size_t r = lo; r < hi; r++) {
        float *S = s->S + r * span;
        size_t n = a->products_only ? span : seen(s->first, r, s->key, span), end = n;
        if (n > 0 && !a->products_only) {
            add_scores(s, r, S, n, true);
            end = fill_vector(S, n);
        }
        split_row(span, S, end, a->y + r * span, a->rest + r * span);
    }
    size_t missing = rows_missing(hi) * span * sizeof *a->y;
    memset(a->y + hi * span, 0, missing);
    memset(a->rest + hi * span, 0, missing);
}

/* P and dS of row r, if it is one of n; returns the end of those that may not be 0, in whole vectors. */
INLINE size_t pairs_grad_row(const struct softmax_pairs_grad_args *a, size_t r, size_t n)
{
    const struct softmax_grad_args *s = &a->softmax;
    float *S = s->S + r * s->span, *dP = s->dP + r * s->span;
    if (r >= n)
        return 0;
    if (a->products_only)
        return s->span;
    size_t n_seen = seen(s->first, r, s->key, s->span);
    grad_row(s, r, S, dP, n_seen);
    fill_vector(dP, n_seen);
    return fill_vector(S, n_seen);
}

void DDL_KERNEL(softmax_pairs_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct softmax_pairs_grad_args *a = args;
    const struct softmax_grad_args *s = &a->softmax;
    (void)scratch;
    const size_t span = s->span, depth = a->depth, row = a->row;
    for (size_t r = lo; r < hi + rows_missing(hi); r += 2) {
        const size_t ends[2] = { pairs_grad_row(a, r, hi), pairs_grad_row(a, r + 1, hi) };
        const float *S = s->S + r * span, *dS = s->dP + r * span;
        uint16_t *P = a->P, *P_rest = a->P_rest, *dS_pairs = a->dS, *dS_rows = a->dS_rows + r * span;
        for (size_t i = 0; i < span; i += V) {
            const size_t at = pairs_at(row + r, i, depth);
            vec even = load_before(S, i, ends[0]), odd = load_before(S + span, i, ends[1]);
            pairs x = rounded_pairs(even, odd);
            store_pairs(P + at, x);
            store_pairs(P_rest + at, rounded_pairs(even - (vec)(x << 16), odd - (vec)(x & 0xffff0000u)));
            halves first = rounded(load_before(dS, i, ends[0]));
            halves second = rounded(load_before(dS + span, i, ends[1]));
            store_halves(dS_rows + i, first);
            store_halves(dS_rows + span + i, second);
            store_pairs(dS_pairs + at, interleaved(first, second));
        }
    }
}

void DDL_KERNEL(transpose_rows)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct transpose_rows_args *a = args;
    (void)scratch;
    for (size_t row = lo; row < hi; row += PAIRS_BLOCK) {
        for (size_t i = 0; i < a->width; i += V) {
            pairs x[V];
            for (size_t r = 0; r < V; r++) {
                const uint16_t *from = a->x + (row + 2 * r) * a->ldx + i;
                x[r] = interleaved(load_halves(from), load_halves(from + a->ldx));
            }
            transpose(x);
            for (size_t r = 0; r < V; r++)
                store_pairs(a->y + (i + r) * a->ldy + row, x[r]);
        }
    }
}

void DDL_KERNEL(round_columns)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct round_columns_args *a = args;
    (void)scratch;
    for (size_t row = lo; row < hi; row += V) {
        for (size_t i = 0; i < a->width; i += V) {
            pairs x[V];
            for (size_t r = 0; r < V; r++)
                x[r] = (pairs)load(a->x + (i + r) * a->ldx + row);
            transpose(x);
            for (size_t r = 0; r < V && row + r < hi; r++)
                store_halves(a->y + (row + r) * a->ldy + i, rounded((vec)x[r]));
        }
    }
}

enum { TILE_BYTES = 64, ENTRIES = 16 };

/* What ldtilecfg reads: eight tiles of 16 rows of 64 bytes. */
static const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[ENTRIES];
    uint8_t rows[ENTRIES];
} tiles = { .palette = 1,
            .bytes = { TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES,
                       TILE_BYTES },
            .rows = { V, V, V, V, V, V, V, V } };

/* A block of C in tiles 0 to 3, of A in 4 and 5, of B in 6 and 7. */
INLINE void block(const struct matmul_pairs_args *a, size_t i, size_t j)
{
    const uint16_t *A = a->A + i * a->lda, *B = a->B + j * a->depth;
    float *C = a->C + i * a->ldc + j;
    size_t row_a = a->lda * sizeof *A, row_b = 2 * PAIRS_BLOCK * sizeof *B, row_c = a->ldc * sizeof *C;
    if (a->add) {
        _tile_loadd(0, C, row_c);
        _tile_loadd(1, C + V, row_c);
        _tile_loadd(2, C + V * a->ldc, row_c);
        _tile_loadd(3, C + V * a->ldc + V, row_c);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (size_t k = 0; k < a->K; k += PAIRS_BLOCK) {
        _tile_loadd(4, A + k, row_a);
        _tile_loadd(6, B + k * PAIRS_BLOCK, row_b);
        _tile_loadd(7, B + k * PAIRS_BLOCK + PAIRS_BLOCK, row_b);
        _tile_loadd(5, A + V * a->lda + k, row_a);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, C, row_c);
    _tile_stored(1, C + V, row_c);
    _tile_stored(2, C + V * a->ldc, row_c);
    _tile_stored(3, C + V * a->ldc + V, row_c);
}

void DDL_KERNEL(matmul_pairs)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct matmul_pairs_args *a = args;
    (void)scratch;
    /* GCC's tile loads do not tell the compiler that they read memory. */
    __asm__ volatile("" ::: "memory");
    _tile_loadconfig(&tiles);
    for (size_t j = 0; j < a->N; j += PAIRS_BLOCK) {
        for (size_t i = lo; i < hi; i += PAIRS_BLOCK)
            block(a, i, j);
    }
    _tile_release();
}

#endif
