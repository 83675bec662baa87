/* Gates and targets: products of rows with a few weight rows. */
#include "backend/cuda/kernels/columns.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/products.cuh"

KERNEL(project_fwd, 128, struct project_args)
{
    row_products(
        a.N, a.c, a.d, a.x, a.W,
        [&](size_t n, size_t j, float product) { a.y[n * a.c + j] = projected(a, j, product); },
        [](size_t, float) {});
}

/* Partial sums (rows' blocks, c d + c) of dW and db. */
KERNEL(project_bwd, 128, struct cuda_project_grad)
{
    const struct project_grad_args &op = a.op;
    const column_block block(op.d);
    const size_t d = op.d, i = block.column;
    const unsigned c = static_cast<unsigned>(op.c);
    const bool fast = d % 4 == 0 && aligned16(op.x, op.W, op.dx) && aligned8(op.dx16);
    float *partial = a.partial + block.first * (c * d + c);
    if (i >= d)
        return;
    for (unsigned first = 0; first < c; first += PRODUCT_OUTPUTS) {
        float4 dW[PRODUCT_OUTPUTS];
        float db[PRODUCT_OUTPUTS];
#pragma unroll
        for (unsigned p = 0; p < PRODUCT_OUTPUTS; p++) {
            dW[p] = splat4(0);
            db[p] = 0;
        }
        for (size_t n = block.first; n < op.N; n += block.step) {
            const float4 x = load_row4(op.x + n * d, i, d, fast);
            float4 dx = load_row4(op.dx + n * d, i, d, fast);
#pragma unroll
            for (unsigned p = 0; p < PRODUCT_OUTPUTS; p++) {
                if (first + p >= c)
                    continue;
                const float dz = logit_grad(op, n * c + first + p);
                dx = fma4(splat4(dz), load_row4(op.W + (first + p) * d, i, d, fast), dx);
                dW[p] = fma4(splat4(dz), x, dW[p]);
                db[p] += dz;
            }
            store_row4(op.dx + n * d, i, d, fast, dx);
            if (op.dx16 && first + PRODUCT_OUTPUTS >= c)
                store_row4_bf16(op.dx16 + n * d, i, d, fast, dx);
        }
#pragma unroll
        for (unsigned p = 0; p < PRODUCT_OUTPUTS; p++) {
            if (first + p >= c)
                break;
            store_row4(partial + (first + p) * d, i, d, false, dW[p]);
            if (i == 0)
                partial[c * d + first + p] = db[p];
        }
    }
}
