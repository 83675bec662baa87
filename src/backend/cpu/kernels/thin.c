/* Products of few rows with a matrix that is read once: C_ij = alpha A_i . B_j + beta C_ij for columns j in
 * [lo, hi), B_j a row of weights in float32, bfloat16 or eight-bit groups. Decoding spends its time here, and
 * memory decides how much: a vector of weights is widened once and meets all rows of A. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vec.h"
#include "base/bf16.h"

#include <string.h>

/* What the three have in common; B stands beside it in its own type. */
struct thin {
    size_t M, K, lda, ldb, ldc; /* ldb in elements of B */
    const float *A;
    float alpha, beta, *C;
};

/* A vector of weights, and one of them, `at` numbers behind b. */
INLINE vec weights32(const float *b, size_t at)
{
    return load(b + at);
}
INLINE float weight32(const float *b, size_t at)
{
    return b[at];
}
INLINE vec weights16(const uint16_t *b, size_t at)
{
    return load_bf16(b + at);
}
INLINE float weight16(const uint16_t *b, size_t at)
{
    return ddl_bf16_widen(b[at]);
}
INLINE vec weights8(const struct ddl_q8 *b, size_t at)
{
    return load_int8(b[at / DDL_GROUP].q + at % DDL_GROUP) * splat(b[at / DDL_GROUP].scale);
}
INLINE float weight8(const struct ddl_q8 *b, size_t at)
{
    return (float)b[at / DDL_GROUP].q[at % DDL_GROUP] * b[at / DDL_GROUP].scale;
}

/* Lines that will be needed soon: processors look ahead within a page of 4 KiB only. */
INLINE void look_ahead(const void *b, size_t ahead, size_t bytes)
{
    enum { CACHE_LINE = 64 };
    for (size_t line = 0; line < bytes; line += CACHE_LINE)
        __builtin_prefetch((const void *)((uintptr_t)b + ahead + line));
}

enum { AHEAD = 2048, AHEAD8 = 6144 }; /* bytes; measured: docs/performance.md */
enum { MOST_COLUMNS = 2, MOST_CHAINS = 4, TILE = MOST_COLUMNS * MOST_THIN };
enum { PAIRS = V == 16 ? 2 : 1 }; /* the sets with sixteen registers have none left for a second column */

/* The sums of a tile's chains, to dots. */
INLINE void sum_tile(vec (*sum)[MOST_CHAINS], float *dots, const size_t n)
{
    vec total[TILE] = { 0 };
    size_t rounded = 1;
    while (rounded < n)
        rounded *= 2;
    for (size_t i = 0; i < n; i++)
        total[i] = (sum[i][0] + sum[i][1]) + (sum[i][2] + sum[i][3]);
    for (size_t i = 0; i < rounded; i += V)
        lane_sums(total + i, dots + i, rounded < V ? rounded : V);
}

/* name_tile: dots[r M + m] = A_m . b_r for M rows of A and R of B (constants), each in U chains side by side.
 * `per` numbers stand in an element of B. name: columns [lo, hi) of C. */
#define DEFINE_THIN(name, type, per, weights, weight)                                                        \
    INLINE void name##_tile(size_t K, const float *A, size_t lda, const type *const *b, float *dots,         \
                            const size_t M, const size_t R, const size_t U)                                  \
    {                                                                                                        \
        const size_t step = U * V < DDL_GROUP ? DDL_GROUP : U * V;                                           \
        vec sum[TILE][MOST_CHAINS] = { 0 };                                                                  \
        size_t k = 0;                                                                                        \
        for (; k + step <= K; k += step) {                                                                   \
            for (size_t r = 0; r < R; r++)                                                                   \
                look_ahead(b[r] + k / per, AHEAD, step / per * sizeof(type));                                \
            for (size_t s = 0; s < step / V; s++) {                                                          \
                for (size_t r = 0; r < R; r++) {                                                             \
                    vec w = weights(b[r] + k / per, s * V);                                                  \
                    for (size_t m = 0; m < M; m++)                                                           \
                        sum[r * M + m][s % U] += load(A + m * lda + k + s * V) * w;                          \
                }                                                                                            \
            }                                                                                                \
        }                                                                                                    \
        for (; k + V <= K; k += V) {                                                                         \
            for (size_t r = 0; r < R; r++) {                                                                 \
                vec w = weights(b[r], k);                                                                    \
                for (size_t m = 0; m < M; m++)                                                               \
                    sum[r * M + m][0] += load(A + m * lda + k) * w;                                          \
            }                                                                                                \
        }                                                                                                    \
        sum_tile(sum, dots, R *M);                                                                           \
        for (; k < K; k++) {                                                                                 \
            for (size_t i = 0; i < R * M; i++)                                                               \
                dots[i] += A[i % M * lda + k] * weight(b[i / M], k);                                         \
        }                                                                                                    \
    }                                                                                                        \
    INLINE void name##_columns(const struct thin *a, const type *B, size_t lo, size_t hi, const size_t M,    \
                               const size_t R, const size_t U)                                               \
    {                                                                                                        \
        for (size_t j = lo; j < hi; j += R) {                                                                \
            size_t columns = hi - j < R ? hi - j : R;                                                        \
            const type *b[MOST_COLUMNS] = { B + j * a->ldb, B + (j + columns - 1) * a->ldb };                \
            float dots[TILE];                                                                                \
            name##_tile(a->K, a->A, a->lda, b, dots, M, R, U);                                               \
            put(a, j, columns, dots, M);                                                                     \
        }                                                                                                    \
    }                                                                                                        \
    static void name(const struct thin *a, const type *B, size_t lo, size_t hi)                              \
    {                                                                                                        \
        BY_ROWS(name##_columns, a->M, a, B, lo, hi);                                                         \
    }

/* Calls columns with M, R and U as constants: as many sums side by side as there are registers for. */
#define BY_ROWS(columns, M, ...)                                                                             \
    do {                                                                                                     \
        switch (M) {                                                                                         \
        case 1:                                                                                              \
            columns(__VA_ARGS__, 1, 1, 4);                                                                   \
            break;                                                                                           \
        case 2:                                                                                              \
            columns(__VA_ARGS__, 2, PAIRS, 4 / PAIRS);                                                       \
            break;                                                                                           \
        case 3:                                                                                              \
            columns(__VA_ARGS__, 3, PAIRS, 2);                                                               \
            break;                                                                                           \
        case 4:                                                                                              \
            columns(__VA_ARGS__, 4, PAIRS, 2);                                                               \
            break;                                                                                           \
        case 5:                                                                                              \
            columns(__VA_ARGS__, 5, PAIRS, 1);                                                               \
            break;                                                                                           \
        case 6:                                                                                              \
            columns(__VA_ARGS__, 6, PAIRS, 1);                                                               \
            break;                                                                                           \
        case 7:                                                                                              \
            columns(__VA_ARGS__, 7, PAIRS, 1);                                                               \
            break;                                                                                           \
        default:                                                                                             \
            columns(__VA_ARGS__, 8, PAIRS, 1);                                                               \
            break;                                                                                           \
        }                                                                                                    \
    } while (0)

INLINE void put(const struct thin *a, size_t j, size_t columns, const float *dots, const size_t M)
{
    for (size_t i = 0; i < columns * M; i++) {
        float *c = a->C + i % M * a->ldc + j + i / M;
        *c = a->alpha * dots[i] + (a->beta == 0 ? 0 : a->beta * *c);
    }
}

DEFINE_THIN(thin32, float, 1, weights32, weight32)
DEFINE_THIN(thin16, uint16_t, 1, weights16, weight16)
DEFINE_THIN(thin8, struct ddl_q8, DDL_GROUP, weights8, weight8)

void DDL_KERNEL(matmul_thin)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct matmul_args *a = args;
    const struct thin thin = { a->M, a->K, a->lda, a->ldb, a->ldc, a->A, a->alpha, a->beta, a->C };
    (void)scratch;
    thin32(&thin, a->B, lo, hi);
}

void DDL_KERNEL(mixed_thin)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct mixed_args *a = args;
    const struct thin thin = { a->M, a->K, a->lda, a->ldb, a->ldc, a->A, a->alpha, 0, a->C };
    (void)scratch;
    thin16(&thin, a->B, lo, hi);
}

/* scratch: the rows of A in float32. */
void DDL_KERNEL(matmul16_thin)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct matmul16_args *a = args;
    const struct thin thin = { a->M, a->K, a->K, a->ldb, a->ldc, scratch, a->alpha, a->beta, a->C };
    for (size_t m = 0; m < a->M; m++) {
#pragma omp simd
        for (size_t k = 0; k < a->K; k++)
            scratch[m * a->K + k] = ddl_bf16_widen(a->A[m * a->lda + k]);
    }
    thin16(&thin, a->B, lo, hi);
}

/* The products of x and a group, summed to V numbers. */
INLINE vec scaled_group(const float *x, const struct ddl_q8 *b)
{
    vec part = load(x) * load_int8(b->q);
    for (size_t u = V; u < DDL_GROUP; u += V)
        part += load(x + u) * load_int8(b->q + u);
    return part * splat(b->scale);
}

/* One row of A meets each group once: to scale the sum of a group is less work than to scale its weights.
 * Several groups at a time ask for fewer lines twice. Sums of whole groups, to V numbers. */
INLINE vec dot8(size_t K, const float *x, const struct ddl_q8 *b)
{
    enum { GROUPS = 4 };
    vec sum[2] = { 0 };
    size_t k = 0;
    for (; k + GROUPS * DDL_GROUP <= K; k += GROUPS * DDL_GROUP, b += GROUPS) {
        look_ahead(b, AHEAD8, GROUPS * sizeof *b);
        for (size_t g = 0; g < GROUPS; g++)
            sum[g % 2] += scaled_group(x + k + g * DDL_GROUP, b + g);
    }
    for (; k + DDL_GROUP <= K; k += DDL_GROUP)
        sum[0] += scaled_group(x + k, b++);
    return sum[0] + sum[1];
}

static void thin8_row(const struct thin *a, const struct ddl_q8 *B, size_t lo, size_t hi)
{
    enum { COLUMNS = 4 };
    size_t whole = a->K / DDL_GROUP * DDL_GROUP;
    for (size_t j = lo; j < hi; j += COLUMNS) {
        size_t columns = hi - j < COLUMNS ? hi - j : COLUMNS;
        vec sum[COLUMNS] = { 0 };
        float dots[COLUMNS];
        for (size_t c = 0; c < columns; c++)
            sum[c] = dot8(a->K, a->A, B + (j + c) * a->ldb);
        lane_sums(sum, dots, COLUMNS);
        for (size_t c = 0; c < columns; c++) {
            for (size_t k = whole; k < a->K; k++)
                dots[c] += a->A[k] * weight8(B + (j + c) * a->ldb, k);
        }
        put(a, j, columns, dots, 1);
    }
}

void DDL_KERNEL(matmul8_thin)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct matmul8_args *a = args;
    const struct thin thin = { a->M,   a->K, a->lda,   ddl_q8_groups(a->K),
                               a->ldc, a->A, a->alpha, a->accumulate ? 1 : 0,
                               a->C };
    (void)scratch;
    if (a->M == 1)
        thin8_row(&thin, a->B, lo, hi);
    else
        thin8(&thin, a->B, lo, hi);
}

/* Rows [lo, hi) of B as float32. */
void DDL_KERNEL(widen8)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct widen8_args *a = args;
    size_t groups = ddl_q8_groups(a->K);
    (void)scratch;
    for (size_t j = lo; j < hi; j++) {
        float *y = a->y + j * a->K;
        for (size_t k = 0; k < a->K; k += DDL_GROUP) {
            const struct ddl_q8 *group = &a->B[j * groups + k / DDL_GROUP];
            size_t n = a->K - k < DDL_GROUP ? a->K - k : DDL_GROUP;
            float scale = group->scale;
#pragma omp simd
            for (size_t i = 0; i < n; i++)
                y[k + i] = scale * (float)group->q[i];
        }
    }
}

/* x (DDL_GROUP numbers) as a group. */
static void quantize_group(const float *x, struct ddl_q8 *y)
{
    float size[DDL_GROUP], not_finite = 0;
#pragma omp simd reduction(+ : not_finite)
    for (size_t i = 0; i < DDL_GROUP; i++) {
        size[i] = x[i] < 0 ? -x[i] : x[i];
        not_finite += x[i] * 0; /* of infinities and NaNs a NaN */
    }
    for (size_t half = DDL_GROUP / 2; half > 0; half /= 2) {
#pragma omp simd
        for (size_t i = 0; i < half; i++)
            size[i] = size[i] > size[i + half] ? size[i] : size[i + half];
    }
    float scale = size[0] / 127;
    y->scale = not_finite == 0 ? scale : __builtin_nanf("");
    if (!(y->scale > 0)) {
        memset(y->q, 0, sizeof y->q);
        return;
    }
#pragma omp simd
    for (size_t i = 0; i < DDL_GROUP; i++) {
        /* A scale below the smallest normal number loses digits: what would leave the range is held in it. */
        float q = __builtin_rintf(x[i] / scale);
        q = q > 127 ? 127 : q;
        y->q[i] = (int8_t)(q < -127 ? -127 : q);
    }
}

void DDL_KERNEL(quantize8)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct quantize8_args *a = args;
    size_t groups = ddl_q8_groups(a->width);
    (void)scratch;
    for (size_t row = lo; row < hi; row++) {
        const float *x = a->x + row * a->width;
        struct ddl_q8 *y = a->y + row * groups;
        for (size_t g = 0; g < a->width / DDL_GROUP; g++)
            quantize_group(x + g * DDL_GROUP, &y[g]);
        if (a->width % DDL_GROUP) {
            float rest[DDL_GROUP] = { 0 };
            memcpy(rest, x + a->width / DDL_GROUP * DDL_GROUP, a->width % DDL_GROUP * sizeof *rest);
            quantize_group(rest, &y[groups - 1]);
        }
    }
}
