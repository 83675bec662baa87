/* The kernels: source file, name, threads of a block; and the arguments of those that take others than their
 * op. Included by host and device code. */
#ifndef DDL_CUDA_KERNELS_H
#define DDL_CUDA_KERNELS_H

#include "ops/args.h"

/* clang-format off */
#define CUDA_FILES(F) F(rows) F(norms) F(swiglu)
#define CUDA_KERNELS(K) \
    K(rows,   copy,          256) \
    K(rows,   copy_in_order, 256) \
    K(rows,   copy_bf16,     256) \
    K(rows,   cast_bf16,     256) \
    K(rows,   widen_bf16,    256) \
    K(rows,   fill,          256) \
    K(norms,  rmsnorm_fwd,   128) \
    K(norms,  rmsnorm_bwd,   128) \
    K(norms,  add_columns,   256) \
    K(swiglu, swiglu_fwd,    256) \
    K(swiglu, swiglu_bwd,    256)
/* clang-format on */

/* Sums over rows have two stages: blocks write partial sums (blocks, width), and add_columns adds them to y
 * in the order of the blocks. */
struct cuda_columns {
    size_t blocks, width;
    const float *partial; /* (blocks, width) */
    float *y;             /* (width) += */
};

struct cuda_rmsnorm_grad {
    struct rmsnorm_grad_args op;
    float *partial; /* (grid, d) of dw */
};

#endif
