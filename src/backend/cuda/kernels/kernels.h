/* The kernels: source file, name, threads of a block; and the arguments of those that take others than their
 * op. Included by host and device code. */
#ifndef DDL_CUDA_KERNELS_H
#define DDL_CUDA_KERNELS_H

#include "ops/args.h"

/* clang-format off */
#define CUDA_FILES(F) F(rows) F(products) F(q8) F(loss) F(norms) F(swiglu) F(elementwise) F(optim) \
    F(attention) F(attention_mma) F(attention_part) F(rope) F(delta) F(residual) F(compress) F(project) \
    F(depth) F(streams) F(hyper) F(pool) F(choose)
#define CUDA_KERNELS(K) \
    K(rows,   copy,          256) \
    K(rows,   copy_in_order, 256) \
    K(rows,   copy_bf16,     256) \
    K(rows,   cast_bf16,     256) \
    K(rows,   widen_bf16,    256) \
    K(rows,   fill,          256) \
    K(rows,   gather,        256) \
    K(rows,   gather_bf16,   256) \
    K(products, few_rows_f32,  256) \
    K(products, few_rows_bf16, 256) \
    K(products, matmul_q8,     256) \
    K(products, product,       256) \
    K(q8,     quantize_q8,   256) \
    K(q8,     dequantize_q8, 256) \
    K(q8,     gather_q8,     256) \
    K(loss,   cross_entropy, 256) \
    K(loss,   loss_tile,     256) \
    K(loss,   loss_grad,     256) \
    K(loss,   rank,          256) \
    K(loss,   likeliest,     256) \
    K(choose, choose,        512) \
    K(norms,  rmsnorm_fwd,   128) \
    K(norms,  rmsnorm_fwd_long, 128) \
    K(norms,  rmsnorm_bwd,   128) \
    K(norms,  rmsnorm_bwd_long, 128) \
    K(norms,  projected_norm_fwd, 128) \
    K(norms,  projected_norm_bwd, 128) \
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
    K(optim, list_squares,   256) \
    K(optim, clip,            32) \
    K(optim, adamw,          256) \
    K(attention, attention_fwd,      256) \
    K(attention, attention_stats,    256) \
    K(attention, attention_wide_stats, 256) \
    K(attention, attention_bwd_q,    256) \
    K(attention, attention_bwd_kv,   256) \
    K(attention, attention_wide_fwd, 256) \
    K(attention, attention_wide_bwd, 256) \
    K(attention_mma, attention_mma_fwd_to_64,    128) \
    K(attention_mma, attention_mma_fwd_64,       128) \
    K(attention_mma, attention_mma_fwd_to_128,   128) \
    K(attention_mma, attention_mma_fwd_128,      128) \
    K(attention_mma, attention_mma_bwd_q_to_64,  128) \
    K(attention_mma, attention_mma_bwd_q_64,     128) \
    K(attention_mma, attention_mma_bwd_q_to_128, 128) \
    K(attention_mma, attention_mma_bwd_q_128,    128) \
    K(attention_mma, attention_mma_bwd_kv_to_64, 128) \
    K(attention_mma, attention_mma_bwd_kv_64,    128) \
    K(attention_mma, attention_mma_bwd_kv_to_128, 128) \
    K(attention_mma, attention_mma_bwd_kv_128,   128) \
    K(attention_part, attention_part, 256) \
    K(attention_part, attention_join, 256) \
    K(rope, rope_fwd,        256) \
    K(rope, rope_fwd_bf16,   256) \
    K(rope, rope_bwd,        256) \
    K(rope, rope_bwd_bf16,   256) \
    K(rope, mix_values_fwd,  256) \
    K(rope, mix_values_bwd,  256) \
    K(rope, cache_append,    256) \
    K(rope, history_push,    256) \
    K(delta, delta_fwd, 256) \
    K(delta, delta_fwd_long, 512) \
    K(delta, delta_inverse, 256) \
    K(delta, delta_inverse_long, 512) \
    K(delta, delta_bwd, 256) \
    K(delta, delta_bwd_long, 512) \
    K(delta, delta_fwd_read, 256) \
    K(delta, delta_bwd_read, 256) \
    K(delta, read_delta_bwd, 256) \
    K(residual, f_norm_fwd, 128) \
    K(residual, f_norm_fwd_long, 128) \
    K(residual, f_norm_bwd, 128) \
    K(residual, f_norm_bwd_long, 128) \
    K(residual, scale_fwd, 128) \
    K(residual, scale_bwd, 128) \
    K(residual, gated_fwd, 128) \
    K(residual, gated_bwd, 128) \
    K(residual, highway_fwd, 128) \
    K(residual, highway_bwd, 128) \
    K(residual, highway_one_bwd, 128) \
    K(residual, laurel_fwd, 128) \
    K(residual, laurel_bwd, 128) \
    K(residual, weighted_sum, 128) \
    K(residual, weighted_sum_bwd, 128) \
    K(residual, elementwise_fwd, 128) \
    K(residual, elementwise_bwd, 128) \
    K(residual, scale_fwd_read, 128) \
    K(residual, gated_fwd_read, 128) \
    K(residual, gated_bwd_read, 128) \
    K(residual, highway_fwd_read, 128) \
    K(residual, laurel_fwd_read, 128) \
    K(compress, init_state_fwd, 128) \
    K(compress, init_state_bwd, 128) \
    K(compress, init_state_weights_bwd, 128) \
    K(compress, fold_fwd, 128) \
    K(compress, fold_bwd, 128) \
    K(compress, fold_read_bwd, 128) \
    K(compress, compress_fwd, 128) \
    K(compress, compress_bwd, 128) \
    K(compress, first_readings, 128) \
    K(compress, embed_bwd, 128) \
    K(project, project_fwd, 128) \
    K(project, project_bwd, 128) \
    K(project, project_many_bwd, 128) \
    K(depth, depth_fwd, 128) \
    K(depth, depth_bwd, 128) \
    K(depth, depth_bwd_long, 128) \
    K(depth, source_bwd, 128) \
    K(depth, source_bwd_long, 128) \
    K(streams, streams_sum, 128) \
    K(streams, streams_fold_fwd, 128) \
    K(streams, streams_fold_bwd, 128) \
    K(streams, streams_write_fwd, 128) \
    K(streams, streams_write_bwd, 128) \
    K(hyper, streams_products, 128) \
    K(hyper, hyper_fwd,     128) \
    K(hyper, hyper_fwd_read, 128) \
    K(hyper, hyper_bwd,     128) \
    K(hyper, hyper_bwd_write, 128) \
    K(hyper, mhc_fwd,       128) \
    K(hyper, mhc_bwd,       128) \
    K(pool, pool_fwd,       512) \
    K(pool, pool_bwd,       512)
/* clang-format on */

/* Sums over rows have two stages: blocks write partial sums (blocks, width), and add_columns adds them to y
 * in an order that depends on their number alone. */
enum { CUDA_SUMMED_COLUMNS = 32 }; /* of a block of add_columns */
struct cuda_columns {
    size_t blocks, width, stride;
    const float *partial; /* (blocks, width), `stride` numbers from block to block */
    float *y;             /* (width) += */
};

/* Norms, their gradients and those of attention over depth have two kernels each: of rows of at most
 * CUDA_SHORT_ROW numbers, and of longer ones (_long), which need more registers. */
enum { CUDA_SHORT_ROW = 1024 };

struct cuda_rmsnorm_grad {
    struct rmsnorm_grad_args op;
    float *partial; /* (grid, d) of dw */
};

struct cuda_bias_grad {
    struct bias_grad_args op;
    float *partial; /* (grid, d) of db */
};

enum { CUDA_ATTENTION_TILE = 32 }; /* queries, or keys, of a block */
/* On tensor cores: queries (or keys, of gradients) of a block; keys of a step, rows of a step of gradients.
 */
enum { CUDA_MMA_QUERIES = 64, CUDA_MMA_KEYS = 64, CUDA_MMA_OTHERS = 32 };

struct cuda_attention {
    struct attention_args op;
    size_t tiles; /* of the longest sequence: block number = (sequence * H + head) * tiles + tile */
};

/* Of sequences with one query: the keys of a head are divided into parts of CUDA_ATTENTION_PART, the last
 * with the rest, whatever the device and the batch are. */
enum { CUDA_ATTENTION_PART = 128, CUDA_ATTENTION_PARTS = 8192 /* at most */ };
struct cuda_attention_parts {
    struct attention_args op;
    size_t parts; /* of the longest sequence */
    /* Of a head, at most `parts`: block number = (sequence * H + head) * blocks + first part. */
    size_t blocks;
    size_t stride;  /* numbers of a part: h, rounded up to a multiple of 4, and 4 */
    float *partial; /* (sequences, H, parts, stride) sums of weighted values; from number stride - 4 on the
                       largest score and the sum of the weights; not used if parts is 1 */
};

struct cuda_attention_grad {
    struct attention_grad_args op;
    size_t tiles;
    float *stats; /* (B, H, T) pairs: lse, and dy . y */
};

struct cuda_rope_grad {
    struct rope_grad_args op;
    float *partial; /* (grid, h) of dw; not used without w */
};

struct cuda_mix_values_grad {
    struct mix_values_grad_args op;
    float *partial; /* (grid, 2) of dmix */
};

enum { CUDA_PART_BLOCKS = 128 }; /* of each part of an array */

struct cuda_part_squares {
    struct sum_squares_args op;
    double *partial; /* (parts, CUDA_PART_BLOCKS) */
};

/* States of up to CUDA_STATE_FOURS times four numbers a thread are held in registers by the kernels whose
 * name does not end in _long. */
enum { CUDA_STATE_FOURS = 8 };

enum { CUDA_PRODUCT_ROWS = 4 * 4 }; /* that a block of products with a few weight rows has at a time */

/* staged: shared memory has place for the direction. */
struct cuda_delta {
    struct ddl_delta_args op;
    bool staged;
};

struct cuda_delta_inverse {
    struct ddl_delta_inverse_args op;
    bool staged;
};

struct cuda_delta_grad {
    struct ddl_delta_grad_args op;
    bool staged;
};

/* The most outputs of a projection in a kernel with a norm. */
enum { CUDA_PROJECTED_OUTPUTS = 4 };

/* rmsnorm_fwd, then project_fwd of its rows (x = norm.x) or of its results (x = norm.y), with the same bits;
 * c is 0 where there is no such projection. */
enum { CUDA_NORM_PROJECTIONS = 2 };
struct cuda_projected_norm {
    struct rmsnorm_args norm;
    struct project_args project[CUDA_NORM_PROJECTIONS];
};

/* What follows an update while the state is in registers: what compress_fwd, rmsnorm_fwd and project_fwd
 * compute, with the same bits. c is 1, 2 or 4. With taps a block has consecutive rows; what its first rows
 * read of earlier ones is not in its registers, and first_readings reads these rows afterwards. */
struct cuda_reading {
    size_t T, taps; /* tokens of a sequence; not used with less than two taps */
    const float *e; /* (taps, d, c); NULL: c is 1, x_in is the state */
    float *x_in;    /* (N, d) =, unless c is 1 */
    struct cuda_projected_norm then;
};

struct cuda_first_readings {
    struct compress_args op;
    struct cuda_projected_norm then;
    size_t parts; /* that the rows are divided into, of each of which a block has a row */
};

struct cuda_delta_read {
    struct ddl_delta_args op;
    struct cuda_reading read;
};

struct cuda_delta_grad_read {
    struct ddl_delta_grad_args op;
    struct cuda_reading read;
};

/* What compress_bwd computes of the state after the update, then delta_bwd, then perhaps a reading of the
 * state before the update. A block has consecutive rows, as compress_bwd has. */
struct cuda_read_delta_grad {
    struct ddl_delta_grad_args op;
    size_t T, taps;
    const float *e, *dx_in; /* (taps, d, c), (N, d) */
    float *partial;         /* (grid, taps, d, c) of de */
    bool reads_again;       /* whether there is a `read` */
    struct cuda_reading read;
};

/* An update of rows X, and then their norm and projections. */
#define CUDA_UPDATE_READ(update, args)                                                                       \
    struct cuda_##update##_read {                                                                            \
        struct args op;                                                                                      \
        struct cuda_projected_norm then;                                                                     \
    };
CUDA_UPDATE_READ(scale_fwd, scale_args)
CUDA_UPDATE_READ(gated_fwd, gated_args)
CUDA_UPDATE_READ(gated_bwd, gated_grad_args)
CUDA_UPDATE_READ(highway_fwd, highway_args)
CUDA_UPDATE_READ(laurel_fwd, laurel_args)

struct cuda_scale_grad {
    struct scale_grad_args op;
    float *partial;
};

struct cuda_highway_grad {
    struct highway_grad_args op;
    float *partial;
};

struct cuda_laurel_grad {
    struct laurel_grad_args op;
    float *partial;
};

struct cuda_weighted_sum_grad {
    struct weighted_sum_grad_args op;
    float *partial;
};

struct cuda_init_state_grad {
    struct init_state_grad_args op;
    float *partial;
};

struct cuda_compress_grad {
    struct compress_grad_args op;
    float *partial;
};

/* held: shared memory has place for a token's streams and, of gradients, for the sums dWf. */
struct cuda_hyper {
    struct hyper_args op;
    bool held;
};

/* Perhaps streams_write_fwd, then hyper_fwd of its result, and the norm of what is read. */
struct cuda_hyper_read {
    struct streams_write_args write; /* N 0: none */
    struct hyper_args op;
    struct cuda_projected_norm then;
};

struct cuda_hyper_grad {
    struct hyper_grad_args op;
    bool held;
    float *partial; /* (grid, numbers) of dalpha, dbeta, da, de, and, if held, dWf */
};

/* hyper_bwd, streams_write_bwd of the streams that it was the gradient of, and perhaps the norm of what was
 * read there. */
struct cuda_hyper_grad_write {
    struct hyper_grad_args op; /* held */
    float *partial;
    struct streams_write_grad_args write;
    struct cuda_projected_norm then; /* N 0: none */
};

/* Products of rows of `width` numbers with `outputs` weight rows, and the rows' rsqrt(mean square + eps). */
struct cuda_streams_products {
    size_t rows, outputs, width;
    float eps;
    const float *x, *W; /* (rows, width), (outputs, width) */
    float *t, *rstd;    /* (rows, outputs), (rows)         */
};

struct cuda_mhc_grad {
    struct mhc_grad_args op;
    float *partial; /* (grid, n (n + 2) + 3) of dbias and dscale */
};

struct cuda_pool_grad {
    struct pool_grad_args op;
    float *partial; /* (grid, d) of dw_a; not used without w_a */
};

/* A block sums CUDA_PROJECT_COLUMNS columns. */
enum { CUDA_PROJECT_COLUMNS = 4 * 128 };
struct cuda_project_grad {
    struct project_grad_args op;
    float *partial; /* (rows' blocks, c d + c) of dW and db */
};

/* project_bwd of normalized rows, rmsnorm_bwd, and project_bwd of the rows, with the same bits; c is 0 where
 * there is no such projection. The gradient of the normalized rows is not stored. */
enum { CUDA_PROJECTED_WIDTH = 1024 }; /* the most */
struct cuda_projected_norm_grad {
    struct rmsnorm_grad_args op;
    struct project_grad_args normalized, row;
    float *partial; /* (grid, numbers) of dW and db of `normalized`, dw, and dW and db of `row` */
};

/* C = alpha op(A) op(B) + beta C; op(A)[m, k] is A[m am + k ak], and op(B)[k, n] is B[k bk + n bn]. A block
 * computes a square of C, or of few rows (ak = bk = 1) CUDA_FEW_ROWS rows and CUDA_FEW_COLUMNS columns. */
enum { CUDA_TILE = 64, CUDA_FEW_ROWS = 8, CUDA_FEW_COLUMNS = 16 };
struct cuda_product {
    size_t M, N, K;
    float alpha, beta;
    const float *A, *B;        /* or */
    const uint16_t *A16, *B16; /* both in bfloat16 */
    size_t am, ak, bk, bn, ldc;
    float *C;
    uint16_t *C16;
};

/* Shared memory has scores and weights of the n + 1 sources and, if held, from number CUDA_DEPTH_HELD(n) on
 * a token's sources (n + 1, d). */
#define CUDA_DEPTH_HELD(n) ((2 * ((n) + 1) + 3) / 4 * 4)
enum { CUDA_DEPTH_COPIES = 64 }; /* that a thread has under way, at most: those of the emulator */
struct cuda_depth {
    struct depth_args op;
    bool held;
};

struct cuda_depth_grad {
    struct depth_grad_args op;
    float *partial;
};

#endif
