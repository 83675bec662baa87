/* Gates and targets: products of rows with a few weight rows. */
#include "backend/cuda/kernels/columns.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/products.cuh"

KERNEL(project_fwd, 128, struct project_args)
{
    row_products<PRODUCT_OUTPUTS>(
        a.N, a.c, a.d, a.x, a.W,
        [&](size_t n, size_t j, float product) { a.y[n * a.c + j] = projected(a, j, product); },
        [](size_t, float) {});
}

/* Partial sums (rows' blocks, c d + c) of dW and db. Rows are read once for OUTPUTS of the c outputs. */
template <unsigned OUTPUTS> __device__ inline void project_grads(const struct cuda_project_grad &a)
{
    const struct project_grad_args &op = a.op;
    const column_block block(op.d);
    const size_t d = op.d, i = block.column;
    const unsigned c = static_cast<unsigned>(op.c);
    const bool fast = d % 4 == 0 && aligned16(op.x, op.W, op.dx) && aligned8(op.dx16);
    float *partial = a.partial + block.first * (c * d + c);
    const bool fast_sums = d % 4 == 0 && aligned16(partial);
    if (i >= d)
        return;
    for (unsigned first = 0; first < c; first += OUTPUTS) {
        float4 dW[OUTPUTS];
        float db[OUTPUTS];
#pragma unroll
        for (unsigned p = 0; p < OUTPUTS; p++) {
            dW[p] = splat4(0);
            db[p] = 0;
        }
        for (size_t n = block.first; n < op.N; n += block.step) {
            const float4 x = load_row4(op.x + n * d, i, d, fast);
            float4 dx = load_row4(op.dx + n * d, i, d, fast);
#pragma unroll
            for (unsigned p = 0; p < OUTPUTS; p++) {
                if (first + p >= c)
                    continue;
                const float dz = logit_grad(op, n * c + first + p);
                dx = fma4(splat4(dz), load_row4(op.W + (first + p) * d, i, d, fast), dx);
                dW[p] = fma4(splat4(dz), x, dW[p]);
                db[p] += dz;
            }
            store_row4(op.dx + n * d, i, d, fast, dx);
            if (op.dx16 && first + OUTPUTS >= c)
                store_row4_bf16(op.dx16 + n * d, i, d, fast, dx);
        }
#pragma unroll
        for (unsigned p = 0; p < OUTPUTS; p++) {
            if (first + p >= c)
                break;
            store_row4(partial + (first + p) * d, i, d, fast_sums, dW[p]);
            if (i == 0)
                partial[c * d + first + p] = db[p];
        }
    }
}

KERNEL(project_bwd, 128, struct cuda_project_grad)
{
    project_grads<PRODUCT_OUTPUTS>(a);
}

KERNEL(project_many_bwd, 128, struct cuda_project_grad)
{
    project_grads<PRODUCT_MANY>(a);
}
