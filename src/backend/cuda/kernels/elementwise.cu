/* tanh, GELU and biases. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/vectors.cuh"

__device__ inline float normal_cdf(float x)
{
    return 0.5f * erfcf(-x * 0.70710678118654752440f);
}

KERNEL(tanh_fwd, 256, struct tanh_args)
{
    for (size_t i = GRID_FIRST; i < a.n; i += GRID_STRIDE)
        a.y[i] = tanhf(a.x[i]);
}

KERNEL(tanh_bwd, 256, struct tanh_grad_args)
{
    for (size_t i = GRID_FIRST; i < a.n; i += GRID_STRIDE)
        a.dx[i] = a.dy[i] * (1.0f - a.y[i] * a.y[i]);
}

KERNEL(gelu_fwd, 256, struct gelu_args)
{
    for (size_t i = GRID_FIRST; i < a.n; i += GRID_STRIDE)
        a.y[i] = a.x[i] * normal_cdf(a.x[i]);
}

/* gelu'(x) = Phi(x) + x phi(x) */
KERNEL(gelu_bwd, 256, struct gelu_grad_args)
{
    for (size_t i = GRID_FIRST; i < a.n; i += GRID_STRIDE) {
        const float x = a.x[i], density = 0.39894228040143267794f * expf(-x * x / 2);
        a.dx[i] = a.dy[i] * (normal_cdf(x) + x * density);
    }
}

KERNEL(bias_fwd, 256, struct bias_args)
{
    for (size_t i = GRID_FIRST; i < a.N * a.d; i += GRID_STRIDE)
        a.y[i] += a.b[i % a.d];
}

/* Block b sums the rows b, b + grid, ...; a thread has a column in turn. */
KERNEL(bias_bwd, 256, struct cuda_bias_grad)
{
    for (size_t i = threadIdx.x; i < a.op.d; i += blockDim.x) {
        float sum = 0;
        for (size_t n = blockIdx.x; n < a.op.N; n += gridDim.x)
            sum += a.op.dy[n * a.op.d + i];
        a.partial[blockIdx.x * a.op.d + i] = sum;
    }
}
