/* The kernels: source file, name, threads of a block; and the arguments of those that take others than their
 * op. Included by host and device code. */
#ifndef DDL_CUDA_KERNELS_H
#define DDL_CUDA_KERNELS_H

#include "ops/args.h"

/* clang-format off */
#define CUDA_FILES(F) F(rows) F(norms) F(swiglu) F(elementwise) F(optim)
#define CUDA_KERNELS(K) \
    K(rows,   copy,          256) \
    K(rows,   copy_in_order, 256) \
    K(rows,   copy_bf16,     256) \
    K(rows,   cast_bf16,     256) \
    K(rows,   widen_bf16,    256) \
    K(rows,   fill,          256) \
    K(rows,   gather,        256) \
    K(rows,   gather_bf16,   256) \
    K(norms,  rmsnorm_fwd,   128) \
    K(norms,  rmsnorm_bwd,   128) \
    K(norms,  add_columns,   256) \
    K(swiglu, swiglu_fwd,    256) \
    K(swiglu, swiglu_bwd,    256) \
    K(elementwise, tanh_fwd, 256) \
    K(elementwise, tanh_bwd, 256) \
    K(elementwise, gelu_fwd, 256) \
    K(elementwise, gelu_bwd, 256) \
    K(elementwise, bias_fwd, 256) \
    K(elementwise, bias_bwd, 256) \
    K(optim, sum,            256) \
    K(optim, part_squares,   256) \
    K(optim, slot_squares,   256) \
    K(optim, clip,            32) \
    K(optim, adamw,          256)
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

struct cuda_bias_grad {
    struct bias_grad_args op;
    float *partial; /* (grid, d) of db */
};

enum { CUDA_PART_BLOCKS = 128 }; /* of each part of an array */

struct cuda_part_squares {
    struct sum_squares_args op;
    double *partial; /* (parts, CUDA_PART_BLOCKS) */
};

#endif
