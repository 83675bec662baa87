/* The fast backend: a library for large products (library.h), kernels built once per instruction set
 * (kernels/), threads in one place (parallel.h). The op files in this folder combine the three; a kernel only
 * does arithmetic. */
#ifndef DDL_BACKEND_CPU_H
#define DDL_BACKEND_CPU_H

#include "backend/cpu/kernels/kernels.h"
#include "ops/ops.h"

extern const struct ddl_ops ddl_ops_cpu;

enum { CPU_SUMS = 1 << 20 };

/* The backend's state. */
struct cpu {
    size_t threads;
    const struct ddl_kernels *k; /* of the instruction set in use                           */
    float *scratch;              /* threads pieces of `piece` numbers each, aligned         */
    size_t piece;
    float *sums; /* (CPU_SUMS) of a product whose result is rounded; NULL with bf16_units */
    struct library *library;
    bool *failed;    /* a matrix product failed: see ddl_ops.check_error                         */
    bool bf16_units; /* the library multiplies bfloat16 at more than float32's rate here */
};

/* The ops of the list in ops.h; those on memory are in backend.c. */
#define DECLARE_OP(name, args) void cpu_##name(void *ctx, const struct args *a);
DDL_OPS(DECLARE_OP)
#undef DECLARE_OP
/* The matrix products of attention without the softmax, for benchmarks. */
void cpu_attention_products_fwd(void *ctx, const struct attention_args *a);
void cpu_attention_products_bwd(void *ctx, const struct attention_grad_args *a);

/* Rows of a product's operand, in whole groups, that fit into a thread's scratch in float32: those of a
 * skinny GEMM, those that are multiplied with 8-bit weights, or its share of a panel of such weights. */
enum { WIDENED = 64 };

/* Numbers of a thread's scratch that products of bfloat16 by packing need at least. */
enum { LEAST_PACKED = (PACKED_ROWS + 256) * PACKED_DEPTH };

/* Numbers of scratch that attention over spans up to T with heads of width h needs; SIZE_MAX: out of range.
 */
size_t cpu_attention_scratch(size_t T, size_t h);

/* The least multiple of `to` that is not below n. */
static inline size_t round_up(size_t n, size_t to)
{
    return (n / to + (n % to != 0)) * to;
}

#endif
