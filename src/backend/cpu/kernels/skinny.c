/* Products of few rows with a matrix that is read once: C_ij = alpha A_i . B_j + beta C_ij for columns j in
 * [lo, hi), B_j a row of weights in float32 or bfloat16 (in eight bits: int8.c). Decoding spends its time
 * here, and memory decides how much: a vector of weights is widened once and meets all rows of A. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vec.h"
#include "base/bf16.h"

/* What the two have in common; B stands beside it in its own type. */
struct thin {
    size_t M, K, lda, ldb, ldc; /* ldb in elements of B */
    const float *A;
    float alpha, beta, *C;
};

enum {
    AHEAD = 2048, /* bytes; measured: docs/performance.md         */
    STEP = 32,    /* numbers, at least, from one look ahead to the next */
};
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
 * vector and number read what stands at a place of B. name: columns [lo, hi) of C. */
#define DEFINE_THIN(name, type, vector, number)                                                              \
    INLINE void name##_tile(size_t K, const float *A, size_t lda, const type *const *b, float *dots,         \
                            const size_t M, const size_t R, const size_t U)                                  \
    {                                                                                                        \
        const size_t step = U * V < STEP ? STEP : U * V;                                                     \
        vec sum[TILE][MOST_CHAINS] = { 0 };                                                                  \
        size_t k = 0;                                                                                        \
        for (; k + step <= K; k += step) {                                                                   \
            for (size_t r = 0; r < R; r++)                                                                   \
                prefetch(b[r] + k, AHEAD, step * sizeof(type));                                              \
            for (size_t s = 0; s < step / V; s++) {                                                          \
                for (size_t r = 0; r < R; r++) {                                                             \
                    vec w = vector(b[r] + k + s * V);                                                        \
                    for (size_t m = 0; m < M; m++)                                                           \
                        sum[r * M + m][s % U] += load(A + m * lda + k + s * V) * w;                          \
                }                                                                                            \
            }                                                                                                \
        }                                                                                                    \
        for (; k + V <= K; k += V) {                                                                         \
            for (size_t r = 0; r < R; r++) {                                                                 \
                vec w = vector(b[r] + k);                                                                    \
                for (size_t m = 0; m < M; m++)                                                               \
                    sum[r * M + m][0] += load(A + m * lda + k) * w;                                          \
            }                                                                                                \
        }                                                                                                    \
        sum_tile(sum, dots, R *M);                                                                           \
        for (; k < K; k++) {                                                                                 \
            for (size_t i = 0; i < R * M; i++)                                                               \
                dots[i] += A[i % M * lda + k] * number(b[i / M][k]);                                         \
        }                                                                                                    \
    }                                                                                                        \
    INLINE void name##_columns(const struct thin *a, const type *B, size_t lo, size_t hi, const size_t M,    \
                               const size_t R, const size_t U)                                               \
    {                                                                                                        \
        for (size_t j = lo; j < hi; j += R) {                                                                \
            size_t columns = hi - j < R ? hi - j : R;                                                        \
            const type *b[MOST_COLUMNS] = { B + j * a->ldb, B + (j + columns - 1) * a->ldb };                \
            float dots[TILE];                                                                                \
            for (size_t r = 0; a->ldb != a->K && r < R; r++)                                                 \
                prefetch(b[r], ROWS_AHEAD * a->ldb * sizeof(type), a->K * sizeof(type));                     \
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

INLINE float itself(float x)
{
    return x;
}

INLINE void put(const struct thin *a, size_t j, size_t columns, const float *dots, const size_t M)
{
    for (size_t i = 0; i < columns * M; i++) {
        float *c = a->C + i % M * a->ldc + j + i / M;
        *c = a->alpha * dots[i] + (a->beta == 0 ? 0 : a->beta * *c);
    }
}

DEFINE_THIN(thin32, float, load, itself)
DEFINE_THIN(thin16, uint16_t, load_bf16, ddl_bf16_widen)

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
    const struct matmul_bf16_args *a = args;
    const struct thin thin = { a->M, a->K, a->K, a->ldb, a->ldc, scratch, a->alpha, a->beta, a->C };
    for (size_t m = 0; m < a->M; m++) {
#pragma omp simd
        for (size_t k = 0; k < a->K; k++)
            scratch[m * a->K + k] = ddl_bf16_widen(a->A[m * a->lda + k]);
    }
    thin16(&thin, a->B, lo, hi);
}
