/* A row of RMSNorm, from global or shared memory. */
#ifndef DDL_CUDA_NORM_CUH
#define DDL_CUDA_NORM_CUH

#include "backend/cuda/kernels/vectors.cuh"
#include "ops/args.h"

enum { NORM_THREADS = 128 }; /* that a row's numbers are divided among: norms.cu has the order of its sum */

struct norm_row {
    const struct rmsnorm_args &a;
    const float *from; /* the row, (d) */
    size_t row;        /* where it begins in y, y16 and x16 */
    bool fast;

    __device__ float4 x(size_t i) const
    {
        return load_row4(from, i, a.d, fast);
    }
    __device__ float rstd(float squares) const
    {
        return 1.0f / sqrtf(squares / static_cast<float>(a.d) + a.eps);
    }
    __device__ void finish(size_t i, float4 x, float rstd) const
    {
        const float4 y = multiply4(scale4(x, rstd), load_row4(a.w, i, a.d, fast));
        if (a.y)
            store_row4(a.y + row, i, a.d, fast, y);
        if (a.y16)
            store_row4_bf16(a.y16 + row, i, a.d, fast, y);
        if (a.x16)
            store_row4_bf16(a.x16 + row, i, a.d, fast, x);
    }
};

#endif
