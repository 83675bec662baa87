/* The kernels of one instruction set. A kernel is a pure function of rows [lo, hi) of its arguments (an args
 * struct of ops/ops.h unless said): no allocation, threads, errors or I/O. `scratch` is private memory of the
 * call: zeroed sums that it adds to where it reduces over rows, see each; NULL for the others. */
#ifndef DDL_BACKEND_CPU_KERNELS_H
#define DDL_BACKEND_CPU_KERNELS_H

#include "ops/ops.h"

enum { MOST_THIN = 8 }; /* rows of A in the kernels that read B once */

typedef void rows_fn(const void *args, size_t lo, size_t hi, float *scratch);

/* Scores to weights, the softmax of attention: row r of a block stands for query first + r. */
struct softmax_args {
    size_t first; /* position of row 0: row r sees keys 0 .. first + r                      */
    size_t span;  /* keys in the block; what a row does not see becomes 0                   */
    float *S;     /* (rows, span) scaled scores -> exp(S - top), unnormalised               */
    size_t h;     /* y (rows y_stride apart, h numbers) is divided by the sum: `finish` only */
    float *y;
    size_t y_stride;
    float *inverse; /* (rows) = 1 / sum                                                       */
    float *lse;     /* rows lse_stride apart, =, or NULL                                      */
    size_t lse_stride;
};

/* Backward of the same: P = exp(S - lse), dS = P (dP - D) scale, D = dy . y. */
struct softmax_grad_args {
    size_t first, span, h;
    float scale;
    float *S;       /* (rows, span) scaled scores -> P */
    float *dP;      /* (rows, span) dP -> dS           */
    const float *v; /* (h) of the first key           */
    const float *y, *dy;
    size_t y_stride; /* of both */
    const float *lse;
    size_t lse_stride;
};

/* A product with tiles: `slices` holds the rows of A in the form in which tiles meet them, all of them in no
 * more room than M rows of K numbers, rounded up to whole groups, take in float32. */
struct tiles8_args {
    const struct matmul8_args *product; /* first < 16 */
    void *slices;
};

/* y (K, 16 for each row of tiles) = B^T in float32. */
struct widen8_args {
    size_t K;
    const struct ddl_q8 *B;
    float *y;
    size_t ldy; /* numbers from row to row of y */
};

/* y (rows, width) = rows of x, stride apart. */
struct widen16_args {
    size_t width, stride;
    const uint16_t *x;
    float *y;
};

/* matmul_args with B in bfloat16 and A as it stands. */
struct mixed_args {
    size_t M, N, K;
    float alpha;
    const float *A;
    size_t lda;
    const uint16_t *B;
    size_t ldb;
    float *C;
    size_t ldc;
};

/* Adds parts 1, 2, ... to part 0, in that order. */
struct parts_args {
    size_t parts, stride;
    float *first; /* part 0; part p stands p * stride further */
};

/* name; what `rows` are; scratch */
#define DDL_KERNELS(X)                                                                                       \
    X(matmul_plain)    /* rows of C; any shape                       */                                      \
    X(matmul_thin)     /* columns of C, op(B) = B^T, M <= MOST_THIN  */                                      \
    X(matmul_thin_nn)  /* columns of C, op(B) = B: sums of rows of B */                                      \
    X(mixed_thin)      /* columns of C, op(B) = B^T, M <= MOST_THIN; mixed_args */                           \
    X(mixed_thin_nn)   /* rows of C, op(B) = B; mixed_args           */                                      \
    X(round16)         /* numbers                                    */                                      \
    X(copy16)          /* rows                                       */                                      \
    X(widen16)         /* rows; widen16_args                         */                                      \
    X(matmul16_plain)  /* rows of C; any shape                       */                                      \
    X(matmul16_thin)   /* columns of C; scratch: M K numbers         */                                      \
    X(slice8)          /* rows of A; tiles8_args                      */                                     \
    X(matmul8_tiles)   /* rows of tiles; tiles8_args                  */                                     \
    X(quantize8)       /* rows                                       */                                      \
    X(widen8)          /* rows of tiles; widen8_args                 */                                      \
    X(embed_fwd)       /* tokens                                     */                                      \
    X(embed16_fwd)     /* tokens                                     */                                      \
    X(embed8_fwd)      /* tokens                                     */                                      \
    X(embed_bwd)       /* features: two tokens may share a row of dE */                                      \
    X(expand_fwd)      /* tokens; (K, d*c) for w transposed          */                                      \
    X(expand_bwd)      /* tokens; (K, d*c) sums, then (K, d*c) for w */                                      \
    X(collapse_fwd)    /* all at once                                */                                      \
    X(collapse_bwd)    /* all at once                                */                                      \
    X(compress_fwd)    /* tokens                                     */                                      \
    X(compress_bwd)    /* tokens; de                                 */                                      \
    X(rmsnorm_fwd)     /* rows                                       */                                      \
    X(rmsnorm_bwd)     /* rows; dw                                   */                                      \
    X(rope_fwd)        /* rows                                       */                                      \
    X(rope_bwd)        /* rows; dw                                   */                                      \
    X(softmax_fwd)     /* queries of a block; softmax_args           */                                      \
    X(softmax_finish)  /* queries of a block; softmax_args           */                                      \
    X(softmax_bwd)     /* queries of a block; softmax_grad_args      */                                      \
    X(swiglu_fwd)      /* rows                                       */                                      \
    X(swiglu_bwd)      /* rows                                       */                                      \
    X(project_fwd)     /* rows                                       */                                      \
    X(project_bwd)     /* rows; dW (c, d), then db (c)               */                                      \
    X(tanh_fwd)        /* numbers                                    */                                      \
    X(tanh_bwd)        /* numbers                                    */                                      \
    X(gelu_fwd)        /* numbers                                    */                                      \
    X(gelu_bwd)        /* numbers                                    */                                      \
    X(axpy)            /* numbers                                    */                                      \
    X(fill)            /* numbers                                    */                                      \
    X(bias_fwd)        /* rows                                       */                                      \
    X(bias_bwd)        /* rows; db                                   */                                      \
    X(pool_fwd)        /* rows                                       */                                      \
    X(pool_bwd)        /* rows; dw_a                                 */                                      \
    X(delta_fwd)       /* rows                                       */                                      \
    X(delta_bwd)       /* rows                                       */                                      \
    X(delta_inverse)   /* rows                                       */                                      \
    X(elementwise_fwd) /* rows                                       */                                      \
    X(elementwise_bwd) /* rows                                       */                                      \
    X(cross_entropy)   /* rows                                       */                                      \
    X(loss_fold)       /* rows                                       */                                      \
    X(loss_grad)       /* rows                                       */                                      \
    X(adamw)           /* numbers                                    */                                      \
    X(sum_squares)     /* of a float array; the sum, a double         */                                     \
    X(sum_parts)       /* numbers; parts_args                        */

struct ddl_kernels {
#define DECLARE_MEMBER(name) rows_fn *name;
    DDL_KERNELS(DECLARE_MEMBER)
#undef DECLARE_MEMBER
    size_t most_tiles8; /* rows of A up to which matmul8_tiles is faster than the library with B widened */
};

/* One table for each instruction set that the build has; isa.c chooses. */
extern const struct ddl_kernels ddl_kernels_baseline, ddl_kernels_avx2, ddl_kernels_avx512,
    ddl_kernels_avx512vnni;

/* DDL_KERNEL(name): the name of a kernel in the set that is being compiled (DDL_ISA). */
#ifdef DDL_ISA
#define DDL_KERNEL_JOIN(name, isa) ddl_##name##_##isa
#define DDL_KERNEL_NAME(name, isa) DDL_KERNEL_JOIN(name, isa)
#define DDL_KERNEL(name) DDL_KERNEL_NAME(name, DDL_ISA)
#define DECLARE_KERNEL(name) void DDL_KERNEL(name)(const void *args, size_t lo, size_t hi, float *scratch);
DDL_KERNELS(DECLARE_KERNEL)
#undef DECLARE_KERNEL
#endif

#endif
