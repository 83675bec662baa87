/* 8-bit weights, in tiles. */
#include "backend/q8.h"
#include "backend/ref/ref.h"

#include <math.h>

/* n numbers, at most DDL_GROUP, as row `lane` of a tile. */
static void quantize_group(size_t n, const float *x, struct ddl_q8 *y, size_t lane)
{
    float largest = 0;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        finite = finite && isfinite(x[i]);
        largest = fmaxf(largest, fabsf(x[i]));
    }
    float scale = finite ? largest / 127 : NAN;
    y->scale[lane] = scale;
    for (size_t i = 0; i < DDL_GROUP; i++) {
        /* A scale below the smallest normal number loses digits: values out of range are clamped. */
        float q = i < n && scale > 0 ? rintf(x[i] / scale) : 0;
        y->q[i / 4][lane][i % 4] = (int8_t)fmaxf(-127, fminf(127, q));
    }
}

void ref_quantize_q8(void *ctx, const struct quantize_q8_args *a)
{
    (void)ctx;
    size_t groups = ddl_q8_groups(a->width);
    struct ddl_q8 *W = a->W;
    for (size_t i = 0; i < a->rows; i++) {
        size_t row = a->first + i;
        for (size_t k = 0; k < a->width; k += DDL_GROUP) {
            size_t left = a->width - k;
            quantize_group(left < DDL_GROUP ? left : DDL_GROUP, a->x + i * a->width + k,
                           &W[row / DDL_Q8_ROWS * groups + k / DDL_GROUP], row % DDL_Q8_ROWS);
        }
    }
}

/* Number k of a row, the rows `width` wide. */
static double number(const struct ddl_q8 *B, size_t width, size_t row, size_t k)
{
    const struct ddl_q8 *tile = &B[row / DDL_Q8_ROWS * ddl_q8_groups(width) + k / DDL_GROUP];
    size_t lane = row % DDL_Q8_ROWS, quad = k % DDL_GROUP / 4;
    return (double)tile->scale[lane] * tile->q[quad][lane][k % 4];
}

void ref_dequantize_q8(void *ctx, const struct dequantize_q8_args *a)
{
    (void)ctx;
    for (size_t i = 0; i < a->rows; i++) {
        for (size_t k = 0; k < a->width; k++)
            a->x[i * a->width + k] = (float)number(a->W, a->width, a->first + i, k);
    }
}

void ref_matmul_q8(void *ctx, const struct matmul_q8_args *a)
{
    (void)ctx;
    for (size_t m = 0; m < a->M; m++) {
        for (size_t n = 0; n < a->N; n++) {
            double sum = 0;
            for (size_t k = 0; k < a->K; k++)
                sum += (double)a->A[m * a->lda + k] * number(a->B, a->K, a->first + n, k);
            float *C = &a->C[m * a->ldc + n];
            *C = (float)((double)a->alpha * sum + (a->accumulate ? (double)*C : 0));
        }
    }
}

void ref_gather_q8(void *ctx, const struct gather_q8_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        for (size_t i = 0; i < a->width; i++)
            a->y[n * a->width + i] = (float)number(a->x, a->width, a->first + (size_t)a->index[n], i);
    }
}
