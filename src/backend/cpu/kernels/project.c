#include "backend/cpu/kernels/bf16.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vec.h"
#include "backend/cpu/kernels/vmath.h"

void DDL_KERNEL(project_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct project_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        for (size_t j = 0; j < a->c; j++) {
            float z = a->b[j] + dot(a->d, a->W + j * a->d, a->x + n * a->d);
            a->y[n * a->c + j] = a->sigmoid ? a->scale * vsigmoid(z) : z;
        }
    }
}

/* With y = s sigma(z): dz = dy y (1 - y/s). */
void DDL_KERNEL(project_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct project_grad_args *a = args;
    float *dW = scratch, *db = scratch + a->c * a->d;
    for (size_t n = lo; n < hi; n++) {
        const float *x = a->x + n * a->d;
        float *dx = a->dx + n * a->d;
        for (size_t j = 0; j < a->c; j++) {
            float y = a->y[n * a->c + j], dz = a->dy[n * a->c + j];
            const float *W = a->W + j * a->d;
            float *dW_j = dW + j * a->d;
            if (a->sigmoid)
                dz *= y * (1 - y / a->scale);
            db[j] += dz;
#pragma omp simd
            for (size_t i = 0; i < a->d; i++) {
                dx[i] += dz * W[i];
                dW_j[i] += dz * x[i];
            }
        }
        if (a->dx16)
            round_row(a->d, dx, a->dx16 + n * a->d);
    }
}
