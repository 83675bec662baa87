/* The fast backend: oneDNN for large products (matmul.c), kernels built once per instruction set (kernels/),
 * threads in one place (parallel.h). The op files beside this one join the three; a kernel does the numbers.
 */
#ifndef DDL_BACKEND_CPU_H
#define DDL_BACKEND_CPU_H

#include "backend/cpu/kernels/kernels.h"
#include "ops/ops.h"

extern const struct ddl_ops ddl_ops_cpu;

/* The backend's state. */
struct cpu {
    size_t threads;
    const struct ddl_kernels *k; /* of the instruction set in use                           */
    float *scratch;              /* threads pieces of `piece` numbers each, aligned         */
    size_t piece;
};

/* Every op of the table but the ones on memory, which stand in backend.c: name, arguments. */
#define CPU_OPS(X)                                                                                           \
    X(matmul, matmul_args)                                                                                   \
    X(embed_fwd, embed_args)                                                                                 \
    X(embed_bwd, embed_grad_args)                                                                            \
    X(expand_fwd, expand_args)                                                                               \
    X(expand_bwd, expand_grad_args)                                                                          \
    X(collapse_fwd, collapse_args)                                                                           \
    X(collapse_bwd, collapse_grad_args)                                                                      \
    X(compress_fwd, compress_args)                                                                           \
    X(compress_bwd, compress_grad_args)                                                                      \
    X(rmsnorm_fwd, rmsnorm_args)                                                                             \
    X(rmsnorm_bwd, rmsnorm_grad_args)                                                                        \
    X(rope_fwd, rope_args)                                                                                   \
    X(rope_bwd, rope_grad_args)                                                                              \
    X(attention_fwd, attention_args)                                                                         \
    X(attention_bwd, attention_grad_args)                                                                    \
    X(swiglu_fwd, swiglu_args)                                                                               \
    X(swiglu_bwd, swiglu_grad_args)                                                                          \
    X(project_fwd, project_args)                                                                             \
    X(project_bwd, project_grad_args)                                                                        \
    X(tanh_fwd, tanh_args)                                                                                   \
    X(tanh_bwd, tanh_grad_args)                                                                              \
    X(axpy, axpy_args)                                                                                       \
    X(fill, fill_args)                                                                                       \
    X(delta_fwd, ddl_delta_args)                                                                             \
    X(delta_bwd, ddl_delta_grad_args)                                                                        \
    X(delta_inverse, ddl_delta_inverse_args)                                                                 \
    X(elementwise_fwd, ddl_elementwise_args)                                                                 \
    X(elementwise_bwd, ddl_elementwise_grad_args)                                                            \
    X(gelu_fwd, gelu_args)                                                                                   \
    X(gelu_bwd, gelu_grad_args)                                                                              \
    X(bias_fwd, bias_args)                                                                                   \
    X(bias_bwd, bias_grad_args)                                                                              \
    X(pool_fwd, pool_args)                                                                                   \
    X(pool_bwd, pool_grad_args)                                                                              \
    X(cross_entropy, cross_entropy_args)                                                                     \
    X(adamw, adamw_args)                                                                                     \
    X(copy, copy_args)

#define DECLARE_OP(name, args) void cpu_##name(void *ctx, const struct args *a);
CPU_OPS(DECLARE_OP)
#undef DECLARE_OP
double cpu_sum_squares(void *ctx, size_t n, const float *x);

/* Numbers of scratch that attention over spans up to T needs; SIZE_MAX: out of range. */
size_t cpu_attention_scratch(size_t T);

#endif
