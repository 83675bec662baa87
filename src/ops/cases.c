/* The cases. A sizes function fills in the sizes and flags of an argument struct, never its pointers. */
#include "ops/cases.h"

#include "ddl/kinds.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SIZES(name) static void name(void *args, const struct ddl_op_sizes *s, int option)
#define ARGS(type, ...) ((void)option, *(struct type *)args = (struct type){ __VA_ARGS__ })

static size_t tokens(const struct ddl_op_sizes *s)
{
    return s->B * s->T;
}

/* ---- products ---- */

/* y = x W^T, dW += dy^T x and dx = dy W of a matrix W (out, in). */
enum product {
    FORWARD,
    WEIGHT_GRAD,
    INPUT_GRAD,
    DIRECTIONS,
    QKV = 0,
    PROJ = DIRECTIONS,
    FC = 2 * DIRECTIONS,
    MLP = 3 * DIRECTIONS,
    HEAD = 4 * DIRECTIONS,
    ONE = 5 * DIRECTIONS,    /* FC of a single row, as in decoding */
    SCALED = 6 * DIRECTIONS, /* FC with factors, and both operands transposed */
    LONG = 7 * DIRECTIONS,   /* of q8: LONG_SUM terms, at most LONG_ROWS rows and columns */
    LONG_ROWS = 40,
    LONG_SUM = 4000
};

struct shape {
    size_t rows, out, in;
};

static size_t at_most(size_t n, size_t most)
{
    return n < most ? n : most;
}

static struct shape shape_of(const struct ddl_op_sizes *s, int option, bool tiles)
{
    size_t N = tokens(s), width = s->H * s->h;
    switch (option / DIRECTIONS * DIRECTIONS) {
    case QKV:
        return (struct shape){ N, 3 * width, s->d };
    case PROJ:
        return (struct shape){ N, s->d, width };
    case MLP:
        return (struct shape){ N, s->d, s->m };
    case HEAD:
        return tiles ? (struct shape){ N, s->tile, s->d } : (struct shape){ s->rows, s->V, s->d };
    case ONE:
        return (struct shape){ 1, 2 * s->m, s->d };
    case LONG:
        return (struct shape){ at_most(N, LONG_ROWS), at_most(s->m, LONG_ROWS), LONG_SUM };
    default:
        return (struct shape){ N, 2 * s->m, s->d };
    }
}

static struct matmul_args product(const struct ddl_op_sizes *s, int option, bool tiles)
{
    struct shape x = shape_of(s, option, tiles);
    int direction = option % DIRECTIONS;
    bool scaled = option >= SCALED, trans_a = direction == WEIGHT_GRAD,
         trans_b = direction == FORWARD || (scaled && trans_a);
    size_t M = trans_a ? x.out : x.rows, N = direction == FORWARD ? x.out : x.in;
    size_t K = trans_a ? x.rows : direction == FORWARD ? x.in : x.out;
    return (struct matmul_args){ .trans_a = trans_a,
                                 .trans_b = trans_b,
                                 .M = M,
                                 .N = N,
                                 .K = K,
                                 .alpha = scaled ? -1.5f : 1,
                                 .lda = (trans_a ? M : K) + s->pad,
                                 .ldb = (trans_b ? K : N) + s->pad,
                                 .beta = scaled    ? 0.25f
                                         : trans_a ? 1
                                                   : 0,
                                 .ldc = N + s->pad };
}

SIZES(matmul)
{
    *(struct matmul_args *)args = product(s, option, false);
}

SIZES(matmul_bf16)
{
    struct matmul_args a = product(s, option, true);
    ARGS(matmul_bf16_args, a.trans_a, a.trans_b, a.M, a.N, a.K, a.alpha, NULL, a.lda, NULL, a.ldb, a.beta,
         NULL, NULL, a.ldc);
}

SIZES(matmul_q8)
{
    struct shape x = shape_of(s, option, false);
    ARGS(matmul_q8_args, .M = x.rows, .N = x.out, .K = x.in, .first = s->pad, .alpha = 1,
         .lda = x.in + s->pad, .ldc = x.out + s->pad, .accumulate = option == SCALED);
}

SIZES(quantize_q8)
{
    ARGS(quantize_q8_args, .rows = 2 * s->m, .width = s->d, .first = s->pad);
}

SIZES(dequantize_q8)
{
    ARGS(dequantize_q8_args, .rows = 2 * s->m, .width = s->d, .first = s->pad);
}

SIZES(cast_bf16)
{
    ARGS(cast_bf16_args, .n = tokens(s) * s->d);
}

SIZES(widen_bf16)
{
    ARGS(widen_bf16_args, .n = tokens(s) * s->d);
}

/* ---- copies ---- */

SIZES(copy)
{
    size_t width = s->d * s->c, stride = width + s->pad;
    ARGS(copy_args, .rows = s->T, .width = width, .src_stride = stride, .dst_stride = width, .batch = s->B,
         .src_batch = s->T * stride, .dst_batch = s->T * width);
}

SIZES(copy_bf16)
{
    size_t a = s->H * s->h;
    ARGS(copy_bf16_args, .rows = tokens(s), .width = a, .src_stride = 3 * a, .dst_stride = a + s->pad);
}

static struct ddl_ragged ragged(const struct ddl_op_sizes *s)
{
    struct ddl_ragged r = { .B = s->n_sequences, .slots = s->n_sequences + 1 };
    r.histories = 2 * r.slots;
    for (size_t b = 0; b < r.B; b++) {
        size_t rows = s->sequences[b].rows, span = s->sequences[b].past + rows;
        r.N += rows;
        r.max_rows = rows > r.max_rows ? rows : r.max_rows;
        r.max_span = span > r.max_span ? span : r.max_span;
    }
    return r;
}

SIZES(cache_append)
{
    struct ddl_ragged r = ragged(s);
    size_t a = s->H * s->h;
    ARGS(cache_append_args, .ragged = r, .width = a, .src_stride = 3 * a,
         .slot_stride = r.max_span * a + s->pad);
}

SIZES(history_push)
{
    ARGS(history_push_args, .ragged = ragged(s), .keep = s->K > 1 ? s->K - 1 : 1, .width = s->d * s->c);
}

/* ---- rows ---- */

SIZES(rmsnorm_fwd)
{
    ARGS(rmsnorm_args, .N = tokens(s), .d = s->d, .eps = 1e-5f);
}

SIZES(rmsnorm_bwd) /* option: accumulate */
{
    ARGS(rmsnorm_grad_args, .N = tokens(s), .d = s->d, .accumulate = option != 0);
}

enum { GATE, TARGET };

SIZES(project_fwd)
{
    ARGS(project_args, .N = tokens(s), .d = s->d, .c = option == GATE ? 1 : s->c, .sigmoid = option == GATE,
         .scale = 2);
}

SIZES(project_bwd)
{
    ARGS(project_grad_args, .N = tokens(s), .d = s->d, .c = option == GATE ? 1 : s->c,
         .sigmoid = option == GATE, .scale = 2);
}

SIZES(swiglu_fwd)
{
    ARGS(swiglu_args, .N = tokens(s), .m = s->m);
}

SIZES(swiglu_bwd)
{
    ARGS(swiglu_grad_args, .N = tokens(s), .m = s->m);
}

SIZES(tanh_fwd)
{
    ARGS(tanh_args, .n = tokens(s) * s->d);
}

SIZES(tanh_bwd)
{
    ARGS(tanh_grad_args, .n = tokens(s) * s->d);
}

SIZES(gelu_fwd)
{
    ARGS(gelu_args, .n = tokens(s) * s->d);
}

SIZES(gelu_bwd)
{
    ARGS(gelu_grad_args, .n = tokens(s) * s->d);
}

SIZES(bias_fwd)
{
    ARGS(bias_args, .N = tokens(s), .d = s->d);
}

SIZES(bias_bwd)
{
    ARGS(bias_grad_args, .N = tokens(s), .d = s->d);
}

SIZES(sum) /* the losses of a step's rows */
{
    ARGS(sum_args, .n = tokens(s));
}

/* Parts of a parameter array of `total` numbers. */
static struct ddl_parts parts(const struct ddl_op_sizes *s, size_t total)
{
    struct ddl_parts list = { .n = s->states + 1, .total = total };
    for (size_t i = 0; i < list.n; i++)
        list.numbers += ddl_trial_part_size(list.n, total, i);
    return list;
}

SIZES(sum_squares) /* gradients; option: sums of parts instead of one of all */
{
    ARGS(sum_squares_args, .parts = parts(s, s->V * s->d), .slots = option ? 2 : 1);
}

SIZES(fill)
{
    ARGS(fill_args, .n = tokens(s) * s->d, .value = 0.5f);
}

SIZES(clip) /* option: no limit */
{
    ARGS(clip_args, .clip = option ? 0 : 0.5f, .n = s->B);
}

SIZES(adamw)
{
    size_t total = 2 * s->m * s->d;
    ARGS(adamw_args, .parts = parts(s, total), .copies = total, .n_moments = total, .beta1 = 0.9f,
         .beta2 = 0.95f, .eps = 1e-8f);
}

/* ---- the loss ---- */

SIZES(cross_entropy) /* option: the losses alone */
{
    ARGS(cross_entropy_args, .N = s->rows, .V = s->V, .grad = option == 0);
}

SIZES(loss_fold) /* option: a tile after the first */
{
    ARGS(loss_fold_args, .N = tokens(s), .n = s->tile, .first = option ? s->tile : 0);
}

SIZES(loss_grad)
{
    ARGS(loss_grad_args, .N = tokens(s), .n = s->tile);
}

SIZES(rank)
{
    ARGS(rank_args, .N = s->rows, .V = s->V);
}

/* ---- attention ---- */

enum { DENSE, RAGGED };

SIZES(rope_fwd)
{
    struct ddl_ragged r = option == RAGGED ? ragged(s) : (struct ddl_ragged){ 0 };
    size_t a = s->H * s->h;
    ARGS(rope_args, .B = option == RAGGED ? 1 : s->B, .T = option == RAGGED ? r.N : s->T, .H = s->H,
         .h = s->h, .R = s->R, .ragged = r, .eps = 1e-5f, .x_stride = a + s->pad, .y_stride = a + 2 * s->pad);
}

SIZES(rope_bwd)
{
    size_t a = s->H * s->h;
    ARGS(rope_grad_args, .B = s->B, .T = s->T, .H = s->H, .h = s->h, .R = s->R, .eps = 1e-5f,
         .x_stride = a + 2 * s->pad, .dy_stride = a + s->pad, .dx_stride = a + s->pad);
}

SIZES(mix_values_fwd)
{
    size_t a = s->H * s->h;
    ARGS(mix_values_args, .N = tokens(s), .width = a, .v_stride = 3 * a, .y_stride = a + s->pad);
}

SIZES(mix_values_bwd) /* option: dfirst is written */
{
    size_t a = s->H * s->h;
    ARGS(mix_values_grad_args, .N = tokens(s), .width = a, .v_stride = 3 * a, .dv_stride = 3 * a + s->pad,
         .accumulate = option == 0);
}

enum { ALL_TOKENS, LAST_TOKEN, LATER_HALF, SLOTS };

SIZES(attention_fwd)
{
    struct ddl_ragged r = option == SLOTS ? ragged(s) : (struct ddl_ragged){ 0 };
    size_t last = s->T ? 1 : 0;
    size_t a = s->H * s->h, T = option == ALL_TOKENS ? s->T : option == LATER_HALF ? (s->T + 1) / 2 : last;
    size_t keys = option == SLOTS ? r.max_span : s->T;
    ARGS(attention_args, .B = option == SLOTS ? 1 : s->B, .T = option == SLOTS ? r.N : T, .H = s->H,
         .h = s->h, .past = option == SLOTS ? 0 : s->T - T, .ragged = r, .scale = 1 / sqrtf((float)s->h),
         .q_stride = a + s->pad, .k_stride = a + s->pad, .k_batch = keys * (a + s->pad) + s->pad,
         .v_stride = a + 2 * s->pad, .v_batch = keys * (a + 2 * s->pad));
}

SIZES(attention_bwd)
{
    size_t a = s->H * s->h;
    ARGS(attention_grad_args, .B = s->B, .T = s->T, .H = s->H, .h = s->h, .scale = 1 / sqrtf((float)s->h),
         .q_stride = a + s->pad, .k_stride = a, .v_stride = a + s->pad, .dq_stride = a,
         .dk_stride = a + s->pad, .dv_stride = a + s->pad);
}

/* ---- the state ---- */

SIZES(gather)
{
    ARGS(gather_args, .N = tokens(s), .width = s->d, .rows = s->V);
}

SIZES(gather_bf16)
{
    ARGS(gather_bf16_args, .N = tokens(s), .width = s->d, .rows = s->V);
}

SIZES(gather_q8)
{
    ARGS(gather_q8_args, .N = tokens(s), .width = s->d, .rows = s->V, .first = s->pad);
}

SIZES(embed_bwd)
{
    ARGS(embed_grad_args, .N = tokens(s), .d = s->d, .V = s->V);
}

SIZES(init_state_fwd)
{
    struct ddl_ragged r = option == RAGGED ? ragged(s) : (struct ddl_ragged){ 0 };
    ARGS(init_state_args, .B = option == RAGGED ? 1 : s->B, .T = option == RAGGED ? r.N : s->T, .d = s->d,
         .c = s->c, .K = s->K_embed, .ragged = r);
}

SIZES(init_state_bwd)
{
    ARGS(init_state_grad_args, .B = s->B, .T = s->T, .d = s->d, .c = s->c, .K = s->K_embed);
}

SIZES(fold_fwd) /* option: kind + 1; 0: that of the sizes */
{
    ARGS(fold_args, .kind = option ? option - 1 : s->kind, .d = s->d, .c = s->c, .K = s->K);
}

SIZES(fold_bwd)
{
    ARGS(fold_grad_args, .kind = option ? option - 1 : s->kind, .d = s->d, .c = s->c, .K = s->K);
}

static size_t taps(const struct ddl_op_sizes *s)
{
    return s->kind == DDL_COMPRESS_TOKEN ? s->K : 1;
}

SIZES(compress_fwd)
{
    struct ddl_ragged r = option == RAGGED ? ragged(s) : (struct ddl_ragged){ 0 };
    ARGS(compress_args, .B = option == RAGGED ? 1 : s->B, .T = option == RAGGED ? r.N : s->T, .d = s->d,
         .c = s->c, .taps = taps(s), .ragged = r);
}

SIZES(compress_bwd)
{
    ARGS(compress_grad_args, .B = s->B, .T = s->T, .d = s->d, .c = s->c, .taps = taps(s));
}

/* Option: update + 4 form. */
SIZES(delta_fwd)
{
    ARGS(ddl_delta_args, .N = tokens(s), .d = s->d, .c = s->c, .steps = s->steps, .eps = 1e-5f,
         .form = option / 4, .update = option % 4);
}

SIZES(delta_bwd)
{
    ARGS(ddl_delta_grad_args, .N = tokens(s), .d = s->d, .c = s->c, .steps = s->steps, .eps = 1e-5f,
         .form = option / 4, .update = option % 4);
}

SIZES(delta_bwd_from_state) /* one step: only that reads X */
{
    ARGS(ddl_delta_grad_args, .N = tokens(s), .d = s->d, .c = s->c, .eps = 1e-5f, .form = option / 4,
         .update = option % 4);
}

SIZES(delta_inverse)
{
    ARGS(ddl_delta_inverse_args, .N = tokens(s), .d = s->d, .c = s->c, .steps = s->steps, .eps = 1e-5f,
         .form = option / 4, .update = option % 4);
}

SIZES(elementwise_fwd)
{
    ARGS(ddl_elementwise_args, .N = tokens(s), .d = s->d, .eps = 1e-5f);
}

SIZES(elementwise_bwd)
{
    ARGS(ddl_elementwise_grad_args, .N = tokens(s), .d = s->d, .eps = 1e-5f);
}

SIZES(pool_fwd)
{
    ARGS(pool_args, .N = tokens(s), .d = s->d, .c = s->c);
}

SIZES(pool_bwd)
{
    ARGS(pool_grad_args, .N = tokens(s), .d = s->d, .c = s->c);
}

/* ---- residual rules ---- */

enum { PER_FEATURE, ONE_NUMBER };

SIZES(f_norm_fwd)
{
    ARGS(f_norm_args, .N = tokens(s), .d = s->d, .eps = 1e-5f);
}

SIZES(f_norm_bwd)
{
    ARGS(f_norm_grad_args, .N = tokens(s), .d = s->d);
}

SIZES(scale_fwd)
{
    ARGS(scale_args, .N = tokens(s), .d = s->d, .w = option == ONE_NUMBER ? 1 : s->d);
}

SIZES(scale_bwd)
{
    ARGS(scale_grad_args, .N = tokens(s), .d = s->d, .w = option == ONE_NUMBER ? 1 : s->d);
}

SIZES(gated_fwd)
{
    ARGS(gated_args, .N = tokens(s), .d = s->d);
}

SIZES(gated_bwd)
{
    ARGS(gated_grad_args, .N = tokens(s), .d = s->d);
}

SIZES(highway_fwd)
{
    ARGS(highway_args, .N = tokens(s), .d = s->d, .w = option == ONE_NUMBER ? 1 : s->d);
}

SIZES(highway_bwd)
{
    ARGS(highway_grad_args, .N = tokens(s), .d = s->d, .w = option == ONE_NUMBER ? 1 : s->d);
}

SIZES(laurel_fwd) /* option: no low rank */
{
    ARGS(laurel_args, .N = tokens(s), .d = s->d, .r = option ? 0 : s->rank);
}

SIZES(laurel_bwd)
{
    ARGS(laurel_grad_args, .N = tokens(s), .d = s->d, .r = option ? 0 : s->rank);
}

SIZES(weighted_sum) /* option: accumulate, weights apart */
{
    size_t n = tokens(s) * s->d * s->c;
    ARGS(weighted_sum_args, .count = n, .n = s->states, .X_stride = n + s->pad, .w_stride = option ? 2 : 1,
         .accumulate = option != 0);
}

SIZES(weighted_sum_bwd)
{
    size_t n = tokens(s) * s->d * s->c;
    ARGS(weighted_sum_grad_args, .count = n, .n = s->states, .X_stride = n + s->pad);
}

SIZES(depth_fwd) /* option: the embedding alone */
{
    size_t n = option ? 0 : s->states;
    ARGS(depth_args, .N = tokens(s), .d = s->d, .n = n, .eps = 1e-5f, .stride = tokens(s) * s->d + s->pad,
         .width = s->states + 1 + s->pad);
}

SIZES(depth_bwd)
{
    struct depth_args fwd;
    depth_fwd(&fwd, s, option);
    ARGS(depth_grad_args, .fwd = fwd);
}

SIZES(source_bwd) /* option: a part that goes on */
{
    size_t n = option ? 1 : s->states, width = s->states + 1 + s->pad;
    ARGS(source_grad_args, .N = tokens(s), .d = s->d, .n = n, .eps = 1e-5f, .width = width,
         .weights_stride = tokens(s) * width, .dh_stride = tokens(s) * s->d + s->pad,
         .accumulate = option != 0);
}

SIZES(streams_fold_fwd) /* of mhc; option: of hyper */
{
    size_t n = s->n;
    if (option)
        ARGS(streams_fold_args, .d = s->d, .n = 1, .rows = { n + 1, 1 });
    else
        ARGS(streams_fold_args, .d = s->d, .n = n, .rows = { n, n, n * n });
}

SIZES(streams_fold_bwd)
{
    size_t n = s->n;
    if (option)
        ARGS(streams_fold_grad_args, .d = s->d, .n = 1, .rows = { n + 1, 1 });
    else
        ARGS(streams_fold_grad_args, .d = s->d, .n = n, .rows = { n, n, n * n });
}

SIZES(streams_sum)
{
    ARGS(streams_sum_args, .N = tokens(s), .d = s->d, .n = s->n);
}

SIZES(streams_write_fwd)
{
    ARGS(streams_write_args, .N = tokens(s), .d = s->d, .n = s->n);
}

SIZES(streams_write_bwd)
{
    ARGS(streams_write_grad_args, .N = tokens(s), .d = s->d, .n = s->n);
}

SIZES(hyper_fwd) /* option: the identity mixes */
{
    ARGS(hyper_args, .N = tokens(s), .d = s->d, .n = s->n, .eps = 1e-5f, .identity = option != 0);
}

SIZES(hyper_bwd)
{
    ARGS(hyper_grad_args, .N = tokens(s), .d = s->d, .n = s->n);
}

SIZES(mhc_fwd)
{
    ARGS(mhc_args, .N = tokens(s), .d = s->d, .n = s->n, .iterations = s->iterations, .eps = 1e-5f,
         .identity = option != 0);
}

SIZES(mhc_bwd)
{
    ARGS(mhc_grad_args, .N = tokens(s), .d = s->d, .n = s->n, .iterations = s->iterations);
}

/* ---- the table ---- */

/* clang-format off */
#define CASE(op, ...) { DDL_OP_##op, __VA_ARGS__ }
#define PLAIN(op) CASE(op, NULL, op)
#define BOTH(op) PLAIN(op##_fwd), PLAIN(op##_bwd)
#define PRODUCTS(op, label, kind, without) \
    CASE(op, label ".fwd", op, (kind) + FORWARD, without), \
    CASE(op, label ".dw", op, (kind) + WEIGHT_GRAD, without), \
    CASE(op, label ".dx", op, (kind) + INPUT_GRAD, without)
#define CHECK(op, label, sizes, option, without) CASE(op, label, sizes, option, without, true)
/* With other contents of some operands. */
#define CHANGED(change, op, label, option, without, which) \
    CASE(op, label, op, option, without, true, which, DDL_TRIAL_##change)
#define UPDATE_OF(update, form) (DDL_UPDATE_##update + 4 * DDL_FORM_##form)
#define VARIANTS(op) \
    CHECK(op, "write", op, UPDATE_OF(WRITE, UNIT), op##_without), \
    CHECK(op, "erase", op, UPDATE_OF(ERASE, UNIT), op##_without), \
    CHECK(op, "ratio", op, UPDATE_OF(DELTA, RATIO), op##_without), \
    CHECK(op, "l2", op, UPDATE_OF(DELTA, L2), op##_without)
#define delta_fwd_without NULL
#define delta_bwd_without ",X,dq16,"
#define delta_inverse_without NULL

static const struct ddl_op_case cases[] = {
    PRODUCTS(matmul, "qkv", QKV, NULL),
    PRODUCTS(matmul, "proj", PROJ, NULL),
    PRODUCTS(matmul, "fc", FC, NULL),
    PRODUCTS(matmul, "mlp", MLP, NULL),
    PRODUCTS(matmul, "head", HEAD, NULL),
    CASE(matmul, "fc.one", matmul, ONE),
    CHECK(matmul, "scaled", matmul, SCALED + FORWARD, NULL),
    CHECK(matmul, "scaled.both", matmul, SCALED + WEIGHT_GRAD, NULL),
    CHECK(matmul, "scaled.plain", matmul, SCALED + INPUT_GRAD, NULL),
    PRODUCTS(matmul_bf16, "qkv", QKV, ",C16,"),
    PRODUCTS(matmul_bf16, "proj", PROJ, ",C16,"),
    PRODUCTS(matmul_bf16, "fc", FC, ",C16,"),
    PRODUCTS(matmul_bf16, "mlp", MLP, ",C16,"),
    PRODUCTS(matmul_bf16, "head", HEAD, ",C16,"),
    CASE(matmul_bf16, "fc.one", matmul_bf16, ONE, ",C16,"),
    CHECK(matmul_bf16, "scaled", matmul_bf16, SCALED + FORWARD, ",C16,"),
    CHECK(matmul_bf16, "scaled.both", matmul_bf16, SCALED + WEIGHT_GRAD, ",C16,"),
    CHECK(matmul_bf16, "scaled.plain", matmul_bf16, SCALED + INPUT_GRAD, ",C16,"),
    CHANGED(ZEROS, matmul_bf16, "zeros", FC + FORWARD, ",C16,", ",A,B,"),
    CASE(matmul_bf16, "fc.rounded", matmul_bf16, FC + FORWARD, ",C,"),
    CHECK(matmul_bf16, "fc.one.rounded", matmul_bf16, ONE, ",C,"),
    CHECK(matmul_bf16, "fc.dx.rounded", matmul_bf16, FC + INPUT_GRAD, ",C,"),
    CASE(matmul_q8, "fc", matmul_q8, FC),
    CASE(matmul_q8, "fc.one", matmul_q8, ONE),
    CHECK(matmul_q8, "accumulate", matmul_q8, SCALED, NULL),
    CHECK(matmul_q8, "long", matmul_q8, LONG, NULL),
    CHANGED(TINY, matmul_q8, "tiny", FC, NULL, ",A,"),
    CHANGED(HUGE, matmul_q8, "huge", FC, NULL, ",A,"),
    PLAIN(quantize_q8),
    CHANGED(EXTREME, quantize_q8, "extreme", 0, NULL, ",x,"),
    PLAIN(dequantize_q8),
    CASE(attention_fwd, NULL, attention_fwd, ALL_TOKENS, ",q16,k16,v16,y16,"),
    CASE(attention_bwd, NULL, attention_bwd, 0, ",q16,k16,v16,y16,dq16,dk16,dv16,"),
    CASE(attention_fwd, "bf16", attention_fwd, ALL_TOKENS, ",q,k,v,y,"),
    CASE(attention_bwd, "bf16", attention_bwd, 0, ",q,k,v,y,dq,dk,dv,"),
    CASE(attention_fwd, "one", attention_fwd, LAST_TOKEN, ",q16,k16,v16,y16,lse,"),
    CASE(attention_fwd, "one.bf16", attention_fwd, LAST_TOKEN, ",q,k,v,y,lse,"),
    CHECK(attention_fwd, "one.cache_bf16", attention_fwd, LAST_TOKEN, ",q16,k,v,y16,lse,"),
    CHECK(attention_fwd, "one.cache_f32", attention_fwd, LAST_TOKEN, ",q,k16,v16,y,lse,"),
    CHECK(attention_fwd, "later", attention_fwd, LATER_HALF, ",q16,k16,v16,y16,"),
    CHECK(attention_fwd, "later.bf16", attention_fwd, LATER_HALF, ",q,k,v,y,lse,"),
    CHECK(attention_fwd, "later.cache_bf16", attention_fwd, LATER_HALF, ",q16,k,v,y16,lse,"),
    CHECK(attention_fwd, "ragged", attention_fwd, SLOTS, ",q16,k16,v16,y16,"),
    CHECK(attention_fwd, "ragged.bf16", attention_fwd, SLOTS, ",q,k,v,y,lse,"),
    CHECK(attention_fwd, "ragged.cache_bf16", attention_fwd, SLOTS, ",q16,k,v,y16,lse,"),
    CHECK(attention_fwd, "ragged.cache_f32", attention_fwd, SLOTS, ",q,k16,v16,y,lse,"),
    CHANGED(LARGE, attention_fwd, "large", ALL_TOKENS, ",q16,k16,v16,y16,", ",q,"),
    CHANGED(LARGE, attention_fwd, "large.ragged", SLOTS, ",q16,k16,v16,y16,", ",q,"),
    CASE(delta_fwd, NULL, delta_fwd, .in_place = true),
    VARIANTS(delta_fwd),
    CASE(delta_bwd, NULL, delta_bwd, 0, ",X,dq16,", .in_place = true),
    CASE(delta_bwd, "bf16", delta_bwd, 0, ",X,dq,", .in_place = true),
    CHECK(delta_bwd, "ratio.bf16", delta_bwd, UPDATE_OF(DELTA, RATIO), ",X,dq,"),
    VARIANTS(delta_bwd),
    CHECK(delta_bwd, "from_state", delta_bwd_from_state, 0, ",X_next,dq16,"),
    CHECK(delta_bwd, "from_state.alone", delta_bwd_from_state, UPDATE_OF(DELTA, RATIO), ",X_next,readout,dq16,"),
    PLAIN(delta_inverse),
    VARIANTS(delta_inverse),
    BOTH(fold),
    CHECK(fold_fwd, "token", fold_fwd, 1 + DDL_COMPRESS_TOKEN, NULL),
    CHECK(fold_bwd, "token", fold_bwd, 1 + DDL_COMPRESS_TOKEN, NULL),
    CHECK(fold_fwd, "mix", fold_fwd, 1 + DDL_COMPRESS_MIX, NULL),
    CHECK(fold_bwd, "mix", fold_bwd, 1 + DDL_COMPRESS_MIX, NULL),
    BOTH(compress),
    CHECK(compress_fwd, "ragged", compress_fwd, RAGGED, NULL),
    BOTH(init_state),
    CHECK(init_state_fwd, "repeat", init_state_fwd, DENSE, ",w,"),
    CHECK(init_state_bwd, "repeat", init_state_bwd, DENSE, ",w,dw,"),
    CHECK(init_state_fwd, "ragged", init_state_fwd, RAGGED, NULL),
    CASE(project_fwd, "gate", project_fwd, GATE),
    CASE(project_bwd, "gate", project_bwd, GATE),
    CASE(project_fwd, "target", project_fwd, TARGET),
    CASE(project_bwd, "target", project_bwd, TARGET),
    PLAIN(f_norm_fwd),
    CASE(f_norm_bwd, NULL, f_norm_bwd, 0, ",df16,"),
    CHECK(f_norm_bwd, "bf16", f_norm_bwd, 0, NULL),
    CHECK(f_norm_fwd, "without_rstd", f_norm_fwd, 0, ",rstd,"),
    PLAIN(scale_fwd),
    CASE(scale_bwd, NULL, scale_bwd, 0, ",df16,"),
    CASE(scale_bwd, "bf16", scale_bwd, 0, ",df,"),
    CHECK(scale_fwd, "one", scale_fwd, ONE_NUMBER, NULL),
    CHECK(scale_bwd, "one", scale_bwd, ONE_NUMBER, ",X,df16,"),
    CHECK(scale_bwd, "one.bf16", scale_bwd, ONE_NUMBER, ",X,df,"),
    CHECK(scale_fwd, "plain", scale_fwd, ONE_NUMBER, ",lambda,"),
    CHECK(scale_bwd, "plain", scale_bwd, ONE_NUMBER, ",lambda,dlambda,df16,"),
    PLAIN(gated_fwd),
    CASE(gated_bwd, NULL, gated_bwd, 0, ",df16,"),
    CASE(gated_bwd, "bf16", gated_bwd, 0, ",df,"),
    CHECK(gated_bwd, "kept", gated_bwd, 0, ",X,df16,"),
    PLAIN(highway_fwd),
    CASE(highway_bwd, NULL, highway_bwd, 0, ",df16,"),
    CASE(highway_bwd, "bf16", highway_bwd, 0, ",df,"),
    CHECK(highway_fwd, "one", highway_fwd, ONE_NUMBER, NULL),
    CHECK(highway_bwd, "one", highway_bwd, ONE_NUMBER, ",df16,"),
    CHECK(highway_bwd, "one.bf16", highway_bwd, ONE_NUMBER, ",df,"),
    BOTH(streams_fold),
    CHECK(streams_fold_fwd, "hyper", streams_fold_fwd, 1, ",W[2],"),
    CHECK(streams_fold_bwd, "hyper", streams_fold_bwd, 1, ",W[2],dW[2],"),
    PLAIN(streams_sum),
    PLAIN(streams_write_fwd),
    CASE(streams_write_bwd, NULL, streams_write_bwd, 0, ",df16,"),
    CASE(streams_write_bwd, "bf16", streams_write_bwd, 0, ",df,"),
    CHECK(streams_write_bwd, "without_input", streams_write_bwd, 0, ",x_in,df16,"),
    BOTH(hyper),
    CHECK(hyper_fwd, "identity", hyper_fwd, 1, NULL),
    CHECK(hyper_fwd, "static", hyper_fwd, 0, ",Wf,a,e,t,rstd,"),
    CHECK(hyper_bwd, "static", hyper_bwd, 0, ",Wf,a,e,t,rstd,dz,da,de,dWf,"),
    BOTH(mhc),
    CHECK(mhc_fwd, "identity", mhc_fwd, 1, NULL),
    PLAIN(laurel_fwd),
    CASE(laurel_bwd, NULL, laurel_bwd, 0, ",df16,"),
    CASE(laurel_bwd, "bf16", laurel_bwd, 0, ",df,"),
    CHECK(laurel_fwd, "fixed", laurel_fwd, 1, ",mix,low,"),
    CHECK(laurel_bwd, "no_rank", laurel_bwd, 1, ",low,dlow,df16,"),
    CASE(depth_fwd, NULL, depth_fwd, 0, ",rms,"),
    CHECK(depth_fwd, "rms", depth_fwd, 0, NULL),
    PLAIN(depth_bwd),
    CHECK(depth_fwd, "first", depth_fwd, 1, NULL),
    CHECK(depth_bwd, "first", depth_bwd, 1, NULL),
    CASE(source_bwd, NULL, source_bwd, 0, ",dv16,"),
    CHECK(source_bwd, "bf16", source_bwd, 0, NULL),
    CHECK(source_bwd, "part", source_bwd, 1, ",dv16,"),
    CHECK(source_bwd, "part.bf16", source_bwd, 1, NULL),
    CASE(weighted_sum, NULL, weighted_sum, 0, ",out16,"),
    CHECK(weighted_sum, "bf16", weighted_sum, 0, NULL),
    CHECK(weighted_sum, "accumulate", weighted_sum, 1, ",out16,"),
    CHECK(weighted_sum, "accumulate.bf16", weighted_sum, 1, NULL),
    PLAIN(weighted_sum_bwd),
    CASE(rmsnorm_fwd, NULL, rmsnorm_fwd, 0, ",y16,x16,"),
    CASE(rmsnorm_fwd, "bf16", rmsnorm_fwd, 0, ",y,x16,"),
    CHECK(rmsnorm_fwd, "both", rmsnorm_fwd, 0, ",rstd,"),
    CASE(rmsnorm_bwd, NULL, rmsnorm_bwd, 0, ",dx16,"),
    CHECK(rmsnorm_bwd, "accumulate", rmsnorm_bwd, 1, ",dx16,"),
    CHECK(rmsnorm_bwd, "bf16", rmsnorm_bwd, 0, NULL),
    CHECK(rmsnorm_bwd, "accumulate.bf16", rmsnorm_bwd, 1, NULL),
    CASE(rope_fwd, NULL, rope_fwd, DENSE, ",x16,y16,"),
    CASE(rope_bwd, NULL, rope_bwd, DENSE, ",x16,dy16,dx16,"),
    CASE(rope_fwd, "bf16", rope_fwd, DENSE, ",x,y,"),
    CASE(rope_bwd, "bf16", rope_bwd, DENSE, ",x,dy,dx,"),
    CHECK(rope_fwd, "without_norm", rope_fwd, DENSE, ",w,x16,y16,"),
    CHECK(rope_bwd, "without_norm", rope_bwd, DENSE, ",w,dw,x16,dy16,dx16,"),
    CHECK(rope_fwd, "without_norm.bf16", rope_fwd, DENSE, ",w,x,y,"),
    CHECK(rope_bwd, "without_norm.bf16", rope_bwd, DENSE, ",w,dw,x,dy,dx,"),
    CHANGED(ZEROS, rope_bwd, "zeros.bf16", DENSE, ",x,dy,dx,", ",x16,dy16,"),
    CHECK(rope_fwd, "ragged", rope_fwd, RAGGED, ",x16,y16,"),
    CHECK(rope_fwd, "ragged.bf16", rope_fwd, RAGGED, ",x,y,"),
    CASE(mix_values_fwd, NULL, mix_values_fwd, 0, ",v16,first16,y16,"),
    CASE(mix_values_bwd, NULL, mix_values_bwd, 0, ",v16,first16,dv16,"),
    CASE(mix_values_fwd, "bf16", mix_values_fwd, 0, ",v,first,y,"),
    CASE(mix_values_bwd, "bf16", mix_values_bwd, 0, ",v,first,dv,"),
    CHECK(mix_values_fwd, "sum", mix_values_fwd, 0, ",mix,v16,first16,y16,"),
    CHECK(mix_values_fwd, "sum.bf16", mix_values_fwd, 0, ",mix,v,first16,y,"),
    CHECK(mix_values_bwd, "write", mix_values_bwd, 1, ",v16,first16,dv16,"),
    CHECK(mix_values_bwd, "write.bf16", mix_values_bwd, 1, ",v,first,dv,"),
    CASE(swiglu_fwd, NULL, swiglu_fwd, 0, ",ug16,s16,"),
    CASE(swiglu_bwd, NULL, swiglu_bwd, 0, ",ug16,dug16,"),
    CASE(swiglu_fwd, "bf16", swiglu_fwd, 0, ",ug,s,"),
    CASE(swiglu_bwd, "bf16", swiglu_bwd, 0, ",ug,dug,"),
    PLAIN(gather),
    PLAIN(gather_bf16),
    PLAIN(gather_q8),
    PLAIN(embed_bwd),
    PLAIN(cross_entropy),
    CHECK(cross_entropy, "loss", cross_entropy, 1, NULL),
    CASE(loss_fold, NULL, loss_fold, 0, ",loss,"),
    CHANGED(LARGE, cross_entropy, "large", 0, NULL, ",z,"),
    CHECK(loss_fold, "last", loss_fold, 1, NULL),
    CHANGED(LARGE, loss_fold, "large", 0, ",loss,", ",z,"),
    PLAIN(loss_grad),
    CHANGED(NEGATIVE, loss_grad, "negative", 0, NULL, ",z,"),
    PLAIN(rank),
    CHANGED(TIES, rank, "ties", 0, NULL, ",z,"),
    CASE(adamw, NULL, adamw, 0, ",p16,copy,"),
    CASE(adamw, "bf16", adamw, 0),
    CHANGED(ZEROS, adamw, "zeros", 0, ",p16,copy,", ",g,v,"),
    PLAIN(cast_bf16),
    CHANGED(SPECIAL, cast_bf16, "special", 0, NULL, ",x,"),
    PLAIN(widen_bf16),
    CHANGED(SPECIAL, widen_bf16, "special", 0, NULL, ",x,"),
    CASE(copy, NULL, copy, 0, ",src16,dst16,"),
    CASE(copy, "bf16", copy, 0, ",src,dst,"),
    CHANGED(SPECIAL, copy, "special", 0, ",src16,dst16,", ",src,"),
    PLAIN(copy_bf16),
    CHANGED(SPECIAL, copy_bf16, "special", 0, NULL, ",src,"),
    CASE(cache_append, NULL, cache_append, 0, ",src16,dst16,"),
    CASE(cache_append, "bf16", cache_append, 0, ",src,dst,"),
    CHECK(cache_append, "round", cache_append, 0, ",src16,dst,"),
    CHECK(cache_append, "widen", cache_append, 0, ",src,dst16,"),
    PLAIN(history_push),
    PLAIN(fill),
    PLAIN(sum),
    CASE(sum_squares, NULL, sum_squares, 0, ",slot,"),
    CHECK(sum_squares, "slots", sum_squares, 1, NULL),
    PLAIN(clip),
    CHECK(clip, "unlimited", clip, 1, NULL),
    BOTH(tanh),
    BOTH(gelu),
    BOTH(bias),
    BOTH(pool),
    CHECK(pool_fwd, "mean", pool_fwd, 0, ",w_a,a,"),
    CHECK(pool_bwd, "mean", pool_bwd, 0, ",w_a,a,dw_a,"),
    BOTH(elementwise),
};
/* clang-format on */

const struct ddl_op_case *ddl_op_cases(size_t *n)
{
    *n = sizeof cases / sizeof *cases;
    return cases;
}

void ddl_op_case_name(const struct ddl_op_case *k, char *text, size_t size)
{
    snprintf(text, size, "%s%s%s", ddl_op_name(k->op), k->label ? "." : "", k->label ? k->label : "");
}

void ddl_op_case_plan(const struct ddl_op_case *k, const struct ddl_op_sizes *s, union ddl_op_args *args,
                      struct ddl_trial_plan *plan)
{
    memset(args, 0, sizeof *args);
    k->sizes(args, s, k->option);
    *plan = (struct ddl_trial_plan){ .op = k->op,
                                     .sizes = args,
                                     .without = k->without,
                                     .changed = k->changed,
                                     .change = k->change,
                                     .sequences = s->sequences };
}

/* ---- sizes ---- */

static const struct ddl_trial_sequence single[] = { { 0, 1 } };
static const struct ddl_trial_sequence steps[] = { { 5, 1 }, { 0, 1 }, { 70, 1 } };
static const struct ddl_trial_sequence prompts[] = { { 0, 7 }, { 1, 63 }, { 2, 1 }, { 100, 20 } };
static const struct ddl_trial_sequence long_ones[] = {
    { 570, 12 }, { 575, 9 }, { 3, 8 }, { 577, 1 }, { 0, 2 }
};
static const struct ddl_trial_sequence longest[] = { { 1141, 40 }, { 1, 2 }, { 1160, 1 }, { 0, 3 } };
#define SEQUENCES(list) .n_sequences = sizeof(list) / sizeof *(list), .sequences = (list)

const struct ddl_op_sizes *ddl_op_awkward_sizes(size_t i)
{
    static const struct ddl_op_sizes sizes[] = {
        { .B = 2, /* wide heads, and several blocks of queries and keys */
          .T = 131,
          .d = 16,
          .c = 1,
          .n = 1,
          .H = 1,
          .h = 80,
          .R = 16,
          .m = 8,
          .V = 11,
          .K = 1,
          .K_embed = 1,
          .rows = 3,
          .tile = 8,
          .iterations = 1,
          .steps = 1,
          .rank = 1,
          .states = 1,
          .pad = 8,
          .kind = DDL_COMPRESS_TOKEN,
          SEQUENCES(prompts) },
        { .B = 1,
          .T = 1,
          .d = 1,
          .c = 1,
          .n = 1,
          .H = 1,
          .h = 1,
          .R = 0,
          .m = 1,
          .V = 1,
          .K = 1,
          .K_embed = 1,
          .rows = 1,
          .tile = 1,
          .iterations = 1,
          .steps = 1,
          .rank = 1,
          .states = 1,
          .kind = DDL_COMPRESS_CHANNEL,
          SEQUENCES(single) },
        { .B = 2,
          .T = 7,
          .d = 7,
          .c = 3,
          .n = 3,
          .H = 3,
          .h = 6,
          .R = 4,
          .m = 5,
          .V = 11,
          .K = 2,
          .K_embed = 3,
          .rows = 5,
          .tile = 7,
          .iterations = 3,
          .steps = 2,
          .rank = 3,
          .states = 2,
          .pad = 3,
          .kind = DDL_COMPRESS_TOKEN,
          SEQUENCES(steps) },
        { .B = 1,
          .T = 63,
          .d = 64,
          .c = 4,
          .n = 4,
          .H = 2,
          .h = 64,
          .R = 64,
          .m = 100,
          .V = 130,
          .K = 4,
          .K_embed = 4,
          .rows = 63,
          .tile = 64,
          .iterations = 20,
          .steps = 1,
          .rank = 16,
          .states = 8,
          .kind = DDL_COMPRESS_CHANNEL,
          SEQUENCES(prompts) },
        { .B = 3,
          .T = 33,
          .d = 100,
          .c = 5,
          .n = 2,
          .H = 1,
          .h = 50,
          .R = 24,
          .m = 37,
          .V = 257,
          .K = 4,
          .K_embed = 4,
          .rows = 99,
          .tile = 100,
          .iterations = 7,
          .steps = 3,
          .rank = 7,
          .states = 5,
          .pad = 5,
          .kind = DDL_COMPRESS_TOKEN,
          SEQUENCES(long_ones) },
        { .B = 2, /* as many rows as several threads share */
          .T = 101,
          .d = 256,
          .c = 2,
          .n = 2,
          .H = 2,
          .h = 12,
          .R = 12,
          .m = 24,
          .V = 130,
          .K = 3,
          .K_embed = 2,
          .rows = 40,
          .tile = 63,
          .iterations = 5,
          .steps = 1,
          .rank = 3,
          .states = 4,
          .kind = DDL_COMPRESS_MIX,
          SEQUENCES(steps) },
        { .B = 1, /* more channels than a tile has; a state too long for registers */
          .T = 2,
          .d = 67,
          .c = 130,
          .n = 8,
          .H = 1,
          .h = 100,
          .R = 100,
          .m = 7,
          .V = 1003,
          .K = 7,
          .K_embed = 6,
          .rows = 3,
          .tile = 700,
          .iterations = 2,
          .steps = 1,
          .rank = 1,
          .states = 1,
          .pad = 1,
          .kind = DDL_COMPRESS_TOKEN,
          SEQUENCES(longest) },
        { .B = 0,
          .T = 3,
          .d = 5,
          .c = 2,
          .n = 2,
          .H = 1,
          .h = 4,
          .R = 2,
          .m = 3,
          .V = 4,
          .K = 2,
          .K_embed = 2,
          .rows = 0,
          .tile = 3,
          .iterations = 2,
          .steps = 1,
          .rank = 2,
          .states = 2,
          .kind = DDL_COMPRESS_MIX,
          SEQUENCES(single) },
        { .B = 2, /* more numbers than random contents have before they repeat */
          .T = 150,
          .d = 4,
          .c = 1,
          .n = 1,
          .H = 2,
          .h = 128,
          .R = 64,
          .m = 3,
          .V = 5,
          .K = 1,
          .K_embed = 1,
          .rows = 2,
          .tile = 3,
          .iterations = 1,
          .steps = 1,
          .rank = 1,
          .states = 1,
          .pad = 1,
          .kind = DDL_COMPRESS_CHANNEL,
          SEQUENCES(single) },
        { .B = 1, /* products (mlp) of 197 x 45 x 401 */
          .T = 197,
          .d = 45,
          .c = 1,
          .n = 1,
          .H = 1,
          .h = 4,
          .R = 2,
          .m = 401,
          .V = 5,
          .K = 1,
          .K_embed = 1,
          .rows = 2,
          .tile = 9,
          .iterations = 1,
          .steps = 1,
          .rank = 1,
          .states = 1,
          .kind = DDL_COMPRESS_CHANNEL,
          SEQUENCES(single) },
        { .B = 1, /* products (mlp) of 67 x 33 x 769 */
          .T = 67,
          .d = 33,
          .c = 1,
          .n = 1,
          .H = 1,
          .h = 4,
          .R = 2,
          .m = 769,
          .V = 5,
          .K = 1,
          .K_embed = 1,
          .rows = 2,
          .tile = 3,
          .iterations = 1,
          .steps = 1,
          .rank = 1,
          .states = 1,
          .pad = 1,
          .kind = DDL_COMPRESS_CHANNEL,
          SEQUENCES(single) },
        { .B = 1, /* one row, 700 columns, sums of 100 */
          .T = 1,
          .d = 700,
          .c = 2,
          .n = 1,
          .H = 1,
          .h = 4,
          .R = 2,
          .m = 100,
          .V = 5,
          .K = 2,
          .K_embed = 1,
          .rows = 2,
          .tile = 3,
          .iterations = 1,
          .steps = 1,
          .rank = 1,
          .states = 1,
          .kind = DDL_COMPRESS_TOKEN,
          SEQUENCES(single) },
        { .B = 1, /* more than 4,096 numbers in a row */
          .T = 7,
          .d = 4100,
          .c = 1,
          .n = 1,
          .H = 1,
          .h = 4,
          .R = 2,
          .m = 17,
          .V = 7,
          .K = 1,
          .K_embed = 1,
          .rows = 2,
          .tile = 3,
          .iterations = 1,
          .steps = 1,
          .rank = 2,
          .states = 1,
          .kind = DDL_COMPRESS_CHANNEL,
          SEQUENCES(single) },
        { .B = 2, /* products without columns (fc) and without terms (mlp) */
          .T = 5,
          .d = 4,
          .c = 1,
          .n = 1,
          .H = 1,
          .h = 4,
          .R = 2,
          .m = 0,
          .V = 5,
          .K = 1,
          .K_embed = 1,
          .rows = 2,
          .tile = 4,
          .iterations = 1,
          .steps = 1,
          .rank = 1,
          .states = 1,
          .kind = DDL_COMPRESS_CHANNEL,
          SEQUENCES(single) },
        { .B = 2, /* sequences without tokens */
          .T = 0,
          .d = 4,
          .c = 1,
          .n = 1,
          .H = 1,
          .h = 4,
          .R = 2,
          .m = 3,
          .V = 5,
          .K = 1,
          .K_embed = 1,
          .rows = 2,
          .tile = 3,
          .iterations = 1,
          .steps = 1,
          .rank = 1,
          .states = 1,
          .kind = DDL_COMPRESS_CHANNEL,
          SEQUENCES(single) },
    };
    return i < sizeof sizes / sizeof *sizes ? &sizes[i] : NULL;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

struct ddl_limits ddl_op_limits(const struct ddl_op_sizes *s)
{
    size_t most_taps = larger(s->K, s->K_embed), mixing = s->n * (s->n + 2), span = s->T;
    for (size_t b = 0; b < s->n_sequences; b++)
        span = larger(span, s->sequences[b].past + s->sequences[b].rows);
    return (struct ddl_limits){ .summed =
                                    larger(larger(s->d * s->c * most_taps, s->h), mixing * (s->n * s->d + 2)),
                                .T = span,
                                .c = s->c,
                                .h = s->h,
                                .K = larger(larger(2 * s->m, LONG_SUM), larger(s->d, s->H * s->h)) };
}
