/* Products of few rows with a matrix that is read once: C_ij = alpha A_i . B_j + beta C_ij for columns j in
 * [lo, hi), B_j a row of weights in float32, bfloat16 or eight-bit groups. Decoding spends its time here, and
 * memory decides how much: a vector of weights is widened once and meets all rows of A. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vec.h"
#include "base/bf16.h"

#include <string.h>

/* dots[m] = A_m . b for M rows of A (M a constant), with U sums side by side for each; with U = 4 in the
 * order of `dot`, so that attention's backward pass of a single key cancels to the bit. */
#define DEFINE_DOTS(name, type, load_some, widen)                                                            \
    INLINE void name(size_t K, const type *A, size_t lda, const type *b, float *dots, const size_t M,        \
                     const size_t U)                                                                         \
    {                                                                                                        \
        vec sum[8][4] = { 0 };                                                                               \
        size_t k = 0;                                                                                        \
        for (; k + U * V <= K; k += U * V) {                                                                 \
            for (size_t u = 0; u < U; u++) {                                                                 \
                vec weights = load_some(b + k + u * V);                                                      \
                for (size_t m = 0; m < M; m++)                                                               \
                    sum[m][u] += load_some(A + m * lda + k + u * V) * weights;                               \
            }                                                                                                \
        }                                                                                                    \
        for (; k + V <= K; k += V) {                                                                         \
            vec weights = load_some(b + k);                                                                  \
            for (size_t m = 0; m < M; m++)                                                                   \
                sum[m][0] += load_some(A + m * lda + k) * weights;                                           \
        }                                                                                                    \
        for (size_t m = 0; m < M; m++) {                                                                     \
            dots[m] = lane_sum((sum[m][0] + sum[m][1]) + (sum[m][2] + sum[m][3]));                           \
            for (size_t i = k; i < K; i++)                                                                   \
                dots[m] += widen(A[m * lda + i]) * widen(b[i]);                                              \
        }                                                                                                    \
    }
INLINE float as_it_is(float x)
{
    return x;
}
DEFINE_DOTS(dots32, float, load, as_it_is)
DEFINE_DOTS(dots16, uint16_t, load_bf16, ddl_bf16_widen)

/* The same for a row of groups; a group's sum is scaled as a vector. */
INLINE void dots8(size_t K, const float *A, size_t lda, const struct ddl_q8 *b, float *dots, const size_t M,
                  const size_t unused)
{
    enum { PER_GROUP = DDL_GROUP / V };
    vec sum[8] = { 0 };
    size_t groups = K / DDL_GROUP;
    (void)unused;
    for (size_t g = 0; g < groups; g++) {
        vec weights[PER_GROUP], scale = splat(b[g].scale);
        for (size_t u = 0; u < PER_GROUP; u++)
            weights[u] = load_int8(b[g].q + u * V);
        for (size_t m = 0; m < M; m++) {
            const float *x = A + m * lda + g * DDL_GROUP;
            vec part = load(x) * weights[0];
            for (size_t u = 1; u < PER_GROUP; u++)
                part += load(x + u * V) * weights[u];
            sum[m] += part * scale;
        }
    }
    for (size_t m = 0; m < M; m++) {
        float rest = 0;
        for (size_t k = groups * DDL_GROUP; k < K; k++)
            rest += A[m * lda + k] * (float)b[groups].q[k % DDL_GROUP];
        dots[m] = lane_sum(sum[m]) + (groups * DDL_GROUP < K ? rest * b[groups].scale : 0);
    }
}

/* Calls dots with M and U as constants. */
#define BY_ROWS(dots, M, ...)                                                                                \
    do {                                                                                                     \
        switch (M) {                                                                                         \
        case 1:                                                                                              \
            dots(__VA_ARGS__, 1, 4);                                                                         \
            break;                                                                                           \
        case 2:                                                                                              \
            dots(__VA_ARGS__, 2, 4);                                                                         \
            break;                                                                                           \
        case 3:                                                                                              \
            dots(__VA_ARGS__, 3, 2);                                                                         \
            break;                                                                                           \
        case 4:                                                                                              \
            dots(__VA_ARGS__, 4, 2);                                                                         \
            break;                                                                                           \
        case 5:                                                                                              \
            dots(__VA_ARGS__, 5, 1);                                                                         \
            break;                                                                                           \
        case 6:                                                                                              \
            dots(__VA_ARGS__, 6, 1);                                                                         \
            break;                                                                                           \
        case 7:                                                                                              \
            dots(__VA_ARGS__, 7, 1);                                                                         \
            break;                                                                                           \
        default:                                                                                             \
            dots(__VA_ARGS__, 8, 1);                                                                         \
            break;                                                                                           \
        }                                                                                                    \
    } while (0)

/* Column j of C from the dot products. */
INLINE void put(size_t M, const float *dots, float alpha, float beta, float *C, size_t ldc)
{
    for (size_t m = 0; m < M; m++)
        C[m * ldc] = alpha * dots[m] + (beta == 0 ? 0 : beta * C[m * ldc]);
}

void DDL_KERNEL(matmul_thin)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct matmul_args *a = args;
    (void)scratch;
    for (size_t j = lo; j < hi; j++) {
        float dots[8];
        BY_ROWS(dots32, a->M, a->K, a->A, a->lda, a->B + j * a->ldb, dots);
        put(a->M, dots, a->alpha, a->beta, a->C + j, a->ldc);
    }
}

void DDL_KERNEL(matmul16_thin)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct matmul16_args *a = args;
    (void)scratch;
    for (size_t j = lo; j < hi; j++) {
        float dots[8];
        BY_ROWS(dots16, a->M, a->K, a->A, a->lda, a->B + j * a->ldb, dots);
        put(a->M, dots, a->alpha, a->beta, a->C + j, a->ldc);
    }
}

void DDL_KERNEL(matmul8_thin)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct matmul8_args *a = args;
    size_t groups = ddl_q8_groups(a->K);
    (void)scratch;
    for (size_t j = lo; j < hi; j++) {
        float dots[8];
        BY_ROWS(dots8, a->M, a->K, a->A, a->lda, a->B + j * groups, dots);
        put(a->M, dots, a->alpha, a->accumulate ? 1 : 0, a->C + j, a->ldc);
    }
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
