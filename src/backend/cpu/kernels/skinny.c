/* Skinny products, C_ij = alpha A_i . B_j + beta C_ij, for columns j in [lo, hi): few rows of A, and a matrix
 * B (N, K) in float32 or bfloat16 that is read from memory once (eight-bit weights: int8.c). Decoding spends
 * its time here. One row is limited by memory bandwidth, some tens of rows by arithmetic.
 *
 * Order of summation: lane l of one vector sums the products of k = l, l + V, l + 2 V, ... in this order (of
 * pairs of k where the processor multiplies pairs), then the lanes are summed by a fixed tree. It does not
 * depend on the tile that computes a number, so a row of C is bitwise the same for any number of rows. */
#include "backend/cpu/kernels/bf16.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/passes.h"
#include "backend/cpu/kernels/vec.h"
#include "base/bf16.h"

#include <string.h>

/* Number formats of A and B. BF16_PAIRS needs HAVE_DOT_BF16. */
enum format { F32, F32_BF16, BF16_PAIRS };

struct skinny {
    size_t M, K, lda, ldb, ldc; /* strides in numbers */
    const void *A, *B;
    float alpha, beta, *C;
    uint16_t *C16; /* instead of C, or NULL */
};

/* A tile of C is up to BLOCK rows of a few columns. One row leaves a core waiting for memory, which is read
 * fastest in one sequence: one column at a time, where its sum alone is not too slow. */
enum {
    BLOCK = 4,
    MOST_COLUMNS = 4,                  /* powers of two               */
    COLUMNS_OF_ONE = V == 16 ? 1 : 4,  /* of one row                  */
    COLUMNS_OF_MANY = V == 16 ? 4 : 2, /* of three and more           */
    MOST_SUMS = BLOCK * MOST_COLUMNS,
    LINE = 64, /* bytes */
};

INLINE size_t size_a(const enum format format)
{
    return format == BF16_PAIRS ? sizeof(uint16_t) : sizeof(float);
}

INLINE size_t size_b(const enum format format)
{
    return format == F32 ? sizeof(float) : sizeof(uint16_t);
}

/* Numbers of a row that one step of a tile takes. */
INLINE size_t step_of(const enum format format)
{
    return format == BF16_PAIRS ? 2 * V : V;
}

INLINE vec add_products(vec sum, vec a, vec b, const enum format format)
{
    return format == BF16_PAIRS ? dot_bf16(sum, a, b) : sum + a * b;
}

/* Constants of a tile: M rows of R columns. */
struct shape {
    size_t M, R;
    enum format format;
};

/* A tile of C as it is summed. A and B: its rows of both. sum[r stride + m] is of row m and column r. */
struct tile {
    const char *A[BLOCK], *B[MOST_COLUMNS];
    vec sum[MOST_SUMS];
};

/* Sums from column to column: M rounded up to a power of two, as the tree takes them. */
INLINE size_t stride_of(const struct shape s)
{
    return s.M > 2 ? 4 : s.M;
}

/* V or 2 V numbers from x on, or the first n of them and zeros. */
INLINE vec load_step(const char *x, size_t size, size_t n, const bool whole)
{
    return whole ? load_bytes(x) : load_first(x, n * size);
}

INLINE vec load_step_bf16(const char *x, size_t n, const bool whole)
{
    uint16_t some[V] = { 0 };
    return load_bf16(whole ? (const uint16_t *)(const void *)x : memcpy(some, x, n * sizeof *some));
}

/* Adds to all sums one step from number k on: step_of(format) numbers, or the first n if it is not whole. */
INLINE void add_step(struct tile *t, const struct shape s, size_t k, size_t n, const bool whole)
{
    vec b[MOST_COLUMNS];
    for (size_t r = 0; r < s.R; r++) {
        const char *x = t->B[r] + k * size_b(s.format);
        b[r] = s.format == F32_BF16 ? load_step_bf16(x, n, whole) : load_step(x, size_b(s.format), n, whole);
    }
    for (size_t m = 0; m < s.M; m++) {
        vec a = load_step(t->A[m] + k * size_a(s.format), size_a(s.format), n, whole);
        for (size_t r = 0; r < s.R; r++) {
            vec *sum = &t->sum[r * stride_of(s) + m];
            *sum = add_products(*sum, a, b[r], s.format);
        }
    }
}

/* dots[i] = the sum of sum[i]'s lanes: as many sums in one tree as a vector has lanes, or one column's. */
INLINE void sum_lanes(struct tile *t, const struct shape s, float *dots)
{
    const size_t n = s.R * stride_of(s), tree = n < V ? n : V;
    for (size_t i = 0; i < n; i += tree)
        store(dots + i, lane_sums(t->sum + i, tree));
}

/* alpha x + beta c in one way: which of the two products a compiler fuses with the sum is not left to it. */
INLINE float scaled_sum(float alpha, float x, float beta, float c)
{
#ifdef __FMA__
    return __builtin_fmaf(alpha, x, beta * c);
#else
    return alpha * x + beta * c;
#endif
}

/* C's columns j + r of rows m + i. Inlined into tiles of all shapes: scaled_sum rounds in the same way in
 * each. */
INLINE void put(const struct skinny *a, size_t m, size_t j, const struct shape s, const float *dots)
{
    for (size_t r = 0; r < s.R; r++) {
        for (size_t i = 0; i < s.M; i++) {
            float *c = a->C + (m + i) * a->ldc + j + r;
            *c = scaled_sum(a->alpha, dots[r * stride_of(s) + i], a->beta, a->beta == 0 ? 0 : *c);
        }
    }
}

INLINE void put_bf16(const struct skinny *a, size_t m, size_t j, const struct shape s, const float *dots)
{
    for (size_t r = 0; r < s.R; r++) {
        for (size_t i = 0; i < s.M; i++)
            a->C16[(m + i) * a->ldc + j + r] =
                ddl_bf16_round(scaled_sum(a->alpha, dots[r * stride_of(s) + i], 0, 0));
    }
}

/* The tile at column j. */
INLINE void multiply(const struct skinny *a, const struct pass *p, size_t j, const struct shape s)
{
    const size_t step = step_of(s.format), bytes = size_b(s.format);
    const size_t line = LINE / bytes > step ? LINE / bytes : step;
    struct tile t;
    float dots[MOST_SUMS + V];
    for (size_t m = 0; m < s.M; m++)
        t.A[m] = (const char *)a->A + (p->m + m) * a->lda * size_a(s.format);
    for (size_t r = 0; r < s.R; r++) {
        t.B[r] = (const char *)a->B + (j + r) * a->ldb * bytes;
        for (size_t m = 0; m < stride_of(s); m++)
            t.sum[r * stride_of(s) + m] = splat(0);
    }
    size_t far = p->ahead * a->ldb * bytes, first = first_prefetch(p, j), k = 0;
    for (; k + line <= a->K; k += line) {
        for (size_t r = first; r < s.R; r += p->every)
            prefetch(t.B[r] + k * bytes, far, line * bytes);
        for (size_t i = 0; i < line; i += step)
            add_step(&t, s, k + i, step, true);
    }
    for (; k + step <= a->K; k += step)
        add_step(&t, s, k, step, true);
    if (k < a->K)
        add_step(&t, s, k, a->K - k, false);
    sum_lanes(&t, s, dots);
    if (a->C16)
        put_bf16(a, p->m, j, s, dots);
    else
        put(a, p->m, j, s, dots);
}

INLINE void tiles(const struct skinny *a, const struct pass *p, const struct shape s)
{
    const struct shape narrow = { s.M, 1, s.format };
    size_t j = p->lo;
    for (; j + s.R <= p->hi; j += s.R)
        multiply(a, p, j, s);
    for (; j < p->hi; j++)
        multiply(a, p, j, narrow);
}

INLINE void pass(const struct skinny *a, const struct pass *p, const enum format format)
{
    if (p->M == 1)
        tiles(a, p, (struct shape){ 1, COLUMNS_OF_ONE, format });
    else if (p->M == 2)
        tiles(a, p, (struct shape){ 2, MOST_COLUMNS, format });
    else if (p->M == 3)
        tiles(a, p, (struct shape){ 3, COLUMNS_OF_MANY, format });
    else
        tiles(a, p, (struct shape){ 4, COLUMNS_OF_MANY, format });
}

static void pass_f32(const void *args, const struct pass *p)
{
    pass(args, p, F32);
}

static void pass_mixed(const void *args, const struct pass *p)
{
    pass(args, p, F32_BF16);
}

void DDL_KERNEL(matmul_skinny)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct matmul_args *a = args;
    const struct skinny by = {
        a->M, a->K, a->lda, a->ldb, a->ldc, a->A, a->B, a->alpha, a->beta, a->C, NULL
    };
    (void)scratch;
    in_passes(a->M, BLOCK, lo, hi, a->K * sizeof(float), a->ldb > a->K, pass_f32, &by);
}

void DDL_KERNEL(mixed_skinny)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct mixed_args *a = args;
    const struct skinny by = { a->M, a->K, a->lda, a->ldb, a->ldc, a->A, a->B, a->alpha, 0, a->C, NULL };
    (void)scratch;
    in_passes(a->M, BLOCK, lo, hi, a->K * sizeof(uint16_t), a->ldb > a->K, pass_mixed, &by);
}

#ifdef HAVE_DOT_BF16

static void pass_pairs(const void *args, const struct pass *p)
{
    pass(args, p, BF16_PAIRS);
}

void DDL_KERNEL(matmul_bf16_skinny)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct matmul_bf16_args *a = args;
    const struct skinny by = {
        a->M, a->K, a->lda, a->ldb, a->ldc, a->A, a->B, a->alpha, a->beta, a->C, a->C16
    };
    (void)scratch;
    in_passes(a->M, BLOCK, lo, hi, a->K * sizeof(uint16_t), a->ldb > a->K, pass_pairs, &by);
}

#else

/* scratch: the rows of A in float32. */
void DDL_KERNEL(matmul_bf16_skinny)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct matmul_bf16_args *a = args;
    const struct skinny by = { a->M, a->K,     a->K,    a->ldb, a->ldc, scratch,
                               a->B, a->alpha, a->beta, a->C,   a->C16 };
    for (size_t m = 0; m < a->M; m++)
        widen_row(a->K, a->A + m * a->lda, scratch + m * a->K);
    in_passes(a->M, BLOCK, lo, hi, a->K * sizeof(uint16_t), a->ldb > a->K, pass_mixed, &by);
}

#endif
