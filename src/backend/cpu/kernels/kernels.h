/* The kernels of one instruction set. A kernel is a pure function of rows [lo, hi) of its arguments (an args
 * struct of ops/args.h unless said): no allocation, threads, errors or I/O. `scratch` is private memory of
 * the call: zeroed sums that it adds to if it reduces over rows, or the uninitialized buffer that its comment
 * names; NULL for the others. */
#ifndef DDL_BACKEND_CPU_KERNELS_H
#define DDL_BACKEND_CPU_KERNELS_H

#include "backend/q8.h"
#include "ops/args.h"

/* Rows of A in products with B^T for which one order of summation holds, whatever their number: a row of C is
 * bitwise the same for any M up to this. Steps of a session have at most so many rows. */
enum { MOST_SKINNY = 64 };

typedef void rows_fn(const void *args, size_t lo, size_t hi, float *scratch);

/* Attention's scores to weights, a block of keys at a time: row r stands for query first + r, column s for
 * key key + s. What a row does not see becomes 0. The first block begins at key 0, which every row sees; what
 * was found so far is read from the second on. */
struct softmax_args {
    size_t first, key; /* positions of row 0 and of column 0 */
    size_t span;       /* keys in the block                  */
    float scale;       /* of the scores in S; 1: they are scaled */
    float *S;          /* (rows, span) scores -> exp(scale S - top), unnormalized */
    float *top;        /* (rows) the largest score so far                                       */
    double *total;     /* (rows) sum of exp(score - top) so far                                 */
    size_t h;
    float
        *y; /* rows y_stride apart: sum of exp(score - top) v so far, scaled to a new top; `finish` divides */
    size_t y_stride;
    uint16_t *y16; /* rows y16_stride apart, = y rounded, or NULL: `finish` only */
    size_t y16_stride;
    float *lse; /* rows lse_stride apart, =, or NULL: `finish` only */
    size_t lse_stride;
};

/* Backward of the same: P = exp(score_scale S - lse), dS = P (dP - D) scale, D = dy . y. */
struct softmax_grad_args {
    size_t first, key, span, h;
    float scale, score_scale; /* of dS; of the scores in S, 1: they are scaled */
    float *S;                 /* (rows, span) scores -> P */
    float *dP;                /* (rows, span) dP -> dS           */
    const float *v;           /* (h) of key 0                    */
    const float *y, *dy;
    size_t y_stride, dy_stride;
    const float *lse;
    size_t lse_stride;
};

/* A matrix (depth, n) in panels: as many of its columns as two vectors have, contiguous in all its rows,
 * then the next so many. The last panel is whole, with zeros in the place of columns that are not there. */
enum { MOST_PANEL = 32 }; /* columns of the widest set's panels, a multiple of every set's */

/* n rows of x, or in bfloat16 of x16, become rows of the matrix (at most depth) or, with `transpose`, its
 * columns (their width is then the depth). The kernel's rows are [0, n). */
struct pack_args {
    bool transpose;
    size_t width, stride; /* numbers of a row; from row to row */
    const float *x;
    const uint16_t *x16; /* then x is NULL */
    float *panels;
    size_t depth;
};

/* C (M, N) = alpha A B, or += where `add`, with the first N columns of B, which is packed in panels; the sum
 * goes over [from, to). */
struct matmul_panels_args {
    size_t N, from, to;
    float alpha;
    const float *A; /* rows lda apart; with `trans_a`, columns lda apart */
    size_t lda;
    bool trans_a;
    const float *B;
    size_t depth;
    float *C;
    size_t ldc;
    bool add;
};

/* Attention's products of bfloat16 operands (pairs.c). Their sizes are multiples of PAIRS_BLOCK: what is not
 * there is 0. A matrix (K, N) "in pairs" has panels of so many columns; in a panel rows 2k and 2k + 1 lie
 * interleaved, column by column. */
enum { PAIRS_BLOCK = 32, PAIRS_WIDTH = 16 };

/* n rows of x rounded, or of x16, a multiple of PAIRS_WIDTH numbers each; filled up with zeros to whole
 * blocks. */
struct pairs_source {
    size_t width, stride; /* numbers of a row; from row to row */
    const float *x;
    const uint16_t *x16; /* then x is NULL */
};
/* They become rows of y. The kernel's rows are [0, n). */
struct round_rows_args {
    struct pairs_source from;
    uint16_t *y;    /* rows ldy apart                               */
    uint16_t *rest; /* of x: what rounding left, rounded likewise, as y */
    size_t ldy;     /* the width in whole blocks                    */
};
/* They, of x16, become rows of a matrix in pairs, or its columns. */
struct pack_pairs_args {
    struct pairs_source from;
    bool transpose;
    uint16_t *panels;
    size_t depth; /* K */
};
/* y (width, n in whole blocks) = the transpose of whole blocks of rows. The kernel's rows are those of x. */
struct transpose_rows_args {
    size_t width;
    const uint16_t *x;
    size_t ldx;
    uint16_t *y;
    size_t ldy;
};
/* n rows of y, `width` numbers each, = columns of x, rounded. The kernel's rows are those of y. */
struct round_columns_args {
    size_t width;
    const float *x; /* in whole blocks */
    size_t ldx;
    uint16_t *y;
    size_t ldy;
};
/* Rows of scores to weights: softmax_args, whose rows are whole blocks, and the weights rounded. */
struct softmax_pairs_args {
    struct softmax_args softmax;
    bool products_only; /* the scores are the weights */
    uint16_t *y, *rest; /* (rows, span); what rounding left, rounded likewise */
};
/* Backward of the same: P and dS in pairs, in rows that begin at `row`, and rows of dS. */
struct softmax_pairs_grad_args {
    struct softmax_grad_args softmax;
    bool products_only;
    uint16_t *P, *P_rest, *dS;
    size_t depth, row;
    uint16_t *dS_rows; /* (rows, span) */
};
/* C (M, N) = A B, or += where `add`, with B in pairs. */
struct matmul_pairs_args {
    size_t N, K;
    const uint16_t *A;
    size_t lda;
    const uint16_t *B;
    size_t depth; /* rows of B's panels, at least K */
    float *C;
    size_t ldc;
    bool add;
};

/* Blocks of matmul_bf16_tiles, which are packed in float32: of A this many rows, of A and B this many numbers
 * of the sum. */
enum { PACKED_ROWS = 96, PACKED_DEPTH = 384 };
enum { MOST_TILE_ROWS = 12 }; /* rows of the tallest set's tiles, a multiple of every set's */

/* A product, divided into tasks of `rows` rows and `columns` columns of C, row by row; the last ones have
 * fewer. Scratch: PACKED_ROWS + panel times PACKED_DEPTH numbers. */
struct packed_bf16_args {
    const struct matmul_bf16_args *product;
    size_t rows, columns, tasks_of_a_row;
    size_t panel; /* columns of B that are packed at a time, a multiple of MOST_PANEL */
};

/* A product with tiles: `slices` holds the rows of A as slice_q8 prepares them, in no more space than M rows
 * of K floats take, rounded up to whole groups. */
struct tiles_q8_args {
    const struct matmul_q8_args *product; /* first < 16 */
    void *slices;
};

/* y (K, 16 for each row of tiles) = B^T in float32. */
struct q8_panel_args {
    size_t K;
    const struct ddl_q8 *B;
    float *y;
    size_t ldy; /* numbers from row to row of y */
};

/* matmul_args with B in bfloat16 and A in float32. */
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

/* A part of adamw_args, on its own: numbers from p, g, m and v on. */
struct adamw_part {
    const struct adamw_args *all;
    float lr, weight_decay;
    float *p, *m, *v;
    const float *g;
    uint16_t *p16;
};

/* Adds parts 1, 2, ... to part 0, in that order. */
struct parts_args {
    size_t parts, stride;
    float *first; /* part 0; part p is p * stride further */
};

/* name; what `rows` are; scratch. In three lists: the kernels with dot products of bytes or of pairs of
 * bfloat16 numbers (int8.c, skinny.c); the others, which have no faster form with those instructions: the
 * sets that add only them share the others with the set below (DdlKernels.cmake); and those of tiles, NULL in
 * sets without them. */
#define DDL_DOT_KERNELS(X)                                                                                   \
    X(matmul_skinny)      /* columns of C, op(B) = B^T; any M               */                               \
    X(mixed_skinny)       /* columns of C, op(B) = B^T; mixed_args          */                               \
    X(matmul_bf16_skinny) /* columns of C, op(B) = B^T; scratch: M K floats */                               \
    X(slice_q8)           /* rows of A; tiles_q8_args                       */                               \
    X(matmul_q8_tiles)    /* rows of tiles; tiles_q8_args                   */                               \
    X(quantize_q8)        /* rows                                           */                               \
    X(dequantize_q8)      /* rows                                           */                               \
    X(q8_panel)           /* rows of tiles; q8_panel_args                   */                               \
    X(gather_q8)          /* tokens                                         */

#define DDL_OTHER_KERNELS(X)                                                                                 \
    X(matmul_plain)      /* rows of C; any shape                       */                                    \
    X(matmul_few_nn)     /* columns of C, op(B) = B; few rows          */                                    \
    X(mixed_few_nn)      /* rows of C, op(B) = B; mixed_args           */                                    \
    X(cast_bf16)         /* numbers                                    */                                    \
    X(widen_bf16)        /* numbers                                    */                                    \
    X(copy_bf16)         /* rows of all matrices                       */                                    \
    X(pack)              /* rows of x; pack_args                       */                                    \
    X(matmul_panels)     /* rows of C; matmul_panels_args              */                                    \
    X(matmul_bf16_plain) /* rows of C; any shape; N floats for C16     */                                    \
    X(matmul_bf16_tiles) /* tasks; packed_bf16_args                    */                                    \
    X(gather)            /* tokens                                     */                                    \
    X(gather_bf16)       /* tokens                                     */                                    \
    X(embed_bwd)         /* features: two tokens may share a row of dE */                                    \
    X(init_state_fwd)    /* tokens; (K, d*c) for w transposed          */                                    \
    X(init_state_bwd)    /* tokens; (K, d*c) sums, then (K, d*c) for w */                                    \
    X(fold_fwd)          /* all at once                                */                                    \
    X(fold_bwd)          /* all at once                                */                                    \
    X(compress_fwd)      /* tokens                                     */                                    \
    X(compress_bwd)      /* tokens; de                                 */                                    \
    X(rmsnorm_fwd)       /* rows                                       */                                    \
    X(rmsnorm_bwd)       /* rows; dw                                   */                                    \
    X(rope_fwd)          /* rows                                       */                                    \
    X(rope_bwd)          /* rows; dw                                   */                                    \
    X(mix_values_fwd)    /* rows                                       */                                    \
    X(mix_values_bwd)    /* rows; dmix                                 */                                    \
    X(softmax_fwd)       /* queries; softmax_args                      */                                    \
    X(softmax_finish)    /* queries; softmax_args                      */                                    \
    X(softmax_bwd)       /* queries; softmax_grad_args                 */                                    \
    X(swiglu_fwd)        /* rows                                       */                                    \
    X(swiglu_bwd)        /* rows                                       */                                    \
    X(project_fwd)       /* rows                                       */                                    \
    X(project_bwd)       /* rows; dW (c, d), then db (c)               */                                    \
    X(f_norm_fwd)        /* rows                                       */                                    \
    X(f_norm_bwd)        /* rows                                       */                                    \
    X(scale_fwd)         /* rows                                       */                                    \
    X(scale_bwd)         /* rows; dlambda                              */                                    \
    X(gated_fwd)         /* rows                                       */                                    \
    X(gated_bwd)         /* rows                                       */                                    \
    X(highway_fwd)       /* rows                                       */                                    \
    X(highway_bwd)       /* rows; db                                   */                                    \
    X(streams_fold_fwd)  /* rows of Wf                                 */                                    \
    X(streams_fold_bwd)  /* all at once                                */                                    \
    X(streams_sum)       /* rows                                       */                                    \
    X(streams_write_fwd) /* rows                                       */                                    \
    X(streams_write_bwd) /* rows                                       */                                    \
    X(hyper_fwd)         /* rows                                       */                                    \
    X(hyper_bwd)         /* rows; dWf, dalpha, dbeta, da, de           */                                    \
    X(mhc_fwd)           /* rows                                       */                                    \
    X(mhc_bwd)           /* rows; dWf, dbias in order, dscale (3)      */                                    \
    X(laurel_fwd)        /* rows                                       */                                    \
    X(laurel_bwd)        /* rows; m_0 dm_0, m_1 dm_1                   */                                    \
    X(weighted_sum)      /* numbers                                    */                                    \
    X(weighted_sum_bwd)  /* numbers; dw                                */                                    \
    X(depth_fwd)         /* rows                                       */                                    \
    X(depth_bwd)         /* rows; dq (d), then n + 1 more              */                                    \
    X(source_bwd)        /* rows; 2 d                                  */                                    \
    X(tanh_fwd)          /* numbers                                    */                                    \
    X(tanh_bwd)          /* numbers                                    */                                    \
    X(gelu_fwd)          /* numbers                                    */                                    \
    X(gelu_bwd)          /* numbers                                    */                                    \
    X(fill)              /* numbers                                    */                                    \
    X(bias_fwd)          /* rows                                       */                                    \
    X(bias_bwd)          /* rows; db                                   */                                    \
    X(pool_fwd)          /* rows                                       */                                    \
    X(pool_bwd)          /* rows; dw_a                                 */                                    \
    X(delta_fwd)         /* rows                                       */                                    \
    X(delta_bwd)         /* rows                                       */                                    \
    X(delta_inverse)     /* rows                                       */                                    \
    X(elementwise_fwd)   /* rows                                       */                                    \
    X(elementwise_bwd)   /* rows                                       */                                    \
    X(cross_entropy)     /* rows                                       */                                    \
    X(loss_tile)         /* rows                                       */                                    \
    X(loss_grad)         /* rows                                       */                                    \
    X(rank)              /* rows                                       */                                    \
    X(likeliest)         /* rows                                       */                                    \
    X(choose)            /* rows                                       */                                    \
    X(adamw)             /* numbers                                    */                                    \
    X(sum_squares)       /* of a float array; the sum, a double        */                                    \
    X(sum_parts)         /* numbers; parts_args                        */

#define DDL_PAIRS_KERNELS(X)                                                                                 \
    X(round_rows)        /* rows of x; round_rows_args                   */                                  \
    X(pack_pairs)        /* rows of x; pack_pairs_args                   */                                  \
    X(softmax_pairs_fwd) /* queries; softmax_pairs_args */                                                   \
    X(softmax_pairs_bwd) /* queries; softmax_pairs_grad_args */                                              \
    X(transpose_rows)    /* rows of x; transpose_rows_args               */                                  \
    X(round_columns)     /* columns of x; round_columns_args             */                                  \
    X(matmul_pairs)      /* rows of C, whole blocks; matmul_pairs_args   */

#define DDL_KERNELS(X) DDL_DOT_KERNELS(X) DDL_OTHER_KERNELS(X) DDL_PAIRS_KERNELS(X)

struct ddl_kernels {
#define DECLARE_MEMBER(name) rows_fn *name;
    DDL_KERNELS(DECLARE_MEMBER)
#undef DECLARE_MEMBER
    bool dots_bf16;    /* has dot products of pairs of bfloat16 numbers */
    size_t most_tiles; /* rows of A up to which matmul_q8_tiles is used: beyond, B is dequantized for the
                          library */
};

/* One table for each instruction set that the build has; isa.c chooses. */
extern const struct ddl_kernels ddl_kernels_baseline, ddl_kernels_avx2, ddl_kernels_avx512,
    ddl_kernels_avx512vnni, ddl_kernels_avx512bf16, ddl_kernels_amx;

/* The name of a kernel in the set that is being compiled: of the first and the last list and of functions of
 * one file (DDL_ISA), and of the second list (DDL_OTHER_ISA, which is DDL_ISA where those are compiled). */
#ifdef DDL_ISA
#define DDL_KERNEL_JOIN(name, isa) ddl_##name##_##isa
#define DDL_KERNEL_NAME(name, isa) DDL_KERNEL_JOIN(name, isa)
#define DDL_KERNEL(name) DDL_KERNEL_NAME(name, DDL_ISA)
#define DDL_OTHER_KERNEL(name) DDL_KERNEL_NAME(name, DDL_OTHER_ISA)
#define DECLARE_KERNEL(name) void name(const void *args, size_t lo, size_t hi, float *scratch);
#define DECLARE_DOT(name) DECLARE_KERNEL(DDL_KERNEL(name))
#define DECLARE_OTHER(name) DECLARE_KERNEL(DDL_OTHER_KERNEL(name))
DDL_DOT_KERNELS(DECLARE_DOT)
DDL_OTHER_KERNELS(DECLARE_OTHER)
DDL_PAIRS_KERNELS(DECLARE_DOT)
#undef DECLARE_OTHER
#undef DECLARE_DOT
#undef DECLARE_KERNEL
#endif

#endif
