/* Eight-bit weights in groups. */
#include "backend/ref/ref.h"

#include <math.h>

static void quantize_group(size_t n, const float *x, struct ddl_q8 *y)
{
    float largest = 0;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        finite = finite && isfinite(x[i]);
        largest = fmaxf(largest, fabsf(x[i]));
    }
    y->scale = finite ? largest / 127 : NAN;
    for (size_t i = 0; i < DDL_GROUP; i++) {
        /* A scale below the smallest normal number loses digits: what would leave the range is held in it. */
        float q = i < n && finite && y->scale > 0 ? rintf(x[i] / y->scale) : 0;
        y->q[i] = (int8_t)fmaxf(-127, fminf(127, q));
    }
}

void ref_quantize8(void *ctx, const struct quantize8_args *a)
{
    (void)ctx;
    size_t groups = ddl_q8_groups(a->width);
    for (size_t row = 0; row < a->rows; row++) {
        for (size_t g = 0; g < groups; g++) {
            size_t first = g * DDL_GROUP, left = a->width - first;
            quantize_group(left < DDL_GROUP ? left : DDL_GROUP, a->x + row * a->width + first,
                           &a->y[row * groups + g]);
        }
    }
}

void ref_matmul8(void *ctx, const struct matmul8_args *a)
{
    (void)ctx;
    size_t groups = ddl_q8_groups(a->K);
    for (size_t m = 0; m < a->M; m++) {
        for (size_t n = 0; n < a->N; n++) {
            double sum = 0;
            for (size_t k = 0; k < a->K; k++) {
                const struct ddl_q8 *group = &a->B[n * groups + k / DDL_GROUP];
                sum += (double)a->A[m * a->lda + k] * ((double)group->scale * group->q[k % DDL_GROUP]);
            }
            float *C = &a->C[m * a->ldc + n];
            *C = (float)((double)a->alpha * sum + (a->accumulate ? (double)*C : 0));
        }
    }
}

void ref_embed8_fwd(void *ctx, const struct embed8_args *a)
{
    (void)ctx;
    size_t groups = ddl_q8_groups(a->d);
    for (size_t n = 0; n < a->N; n++) {
        for (size_t i = 0; i < a->d; i++) {
            const struct ddl_q8 *group = &a->E[(size_t)a->tokens[n] * groups + i / DDL_GROUP];
            a->x[n * a->d + i] = (float)((double)group->scale * group->q[i % DDL_GROUP]);
        }
    }
}
