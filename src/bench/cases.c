/* Every op of ops.h at the sizes that a training step of a model gives it: which arguments, which buffers. */
#include "bench/cases.h"

#include "ddl/delta.h"

#include <math.h>

/* Products: y = x W^T, dW += dy^T x, dx = dy W of a matrix W (out, in), in float32 or bfloat16. */
enum direction { FORWARD, WEIGHT_GRAD, INPUT_GRAD };

#define FILL_PRODUCT(member, numbers)                                                                        \
    do {                                                                                                     \
        k->args.member = (struct member##_args){ .trans_a = trans_a,                                         \
                                                 .trans_b = trans_b,                                         \
                                                 .M = M,                                                     \
                                                 .N = N,                                                     \
                                                 .K = K,                                                     \
                                                 .alpha = 1,                                                 \
                                                 .lda = trans_a ? M : K,                                     \
                                                 .ldb = trans_b ? K : N,                                     \
                                                 .beta = trans_a ? 1 : 0,                                    \
                                                 .ldc = N };                                                 \
        IN(member##_args, A, M *K, numbers);                                                                 \
        IN(member##_args, B, K *N, numbers);                                                                 \
        if (trans_a)                                                                                         \
            INOUT(member##_args, C, M *N);                                                                   \
        else                                                                                                 \
            OUT(member##_args, C, M *N);                                                                     \
    } while (0)

static void product(struct bench_case *k, bool half, enum direction direction, size_t rows, size_t out,
                    size_t in)
{
    bool trans_a = direction == WEIGHT_GRAD, trans_b = direction == FORWARD;
    size_t M = trans_a ? out : rows, N = trans_b ? out : in, K = trans_a ? rows : trans_b ? in : out;
    if (half)
        FILL_PRODUCT(matmul_bf16, BF16);
    else
        FILL_PRODUCT(matmul, NORMAL);
    k->flops = 2 * (double)M * (double)N * (double)K;
}

#define PRODUCTS(label, half, rows, out, in)                                                                 \
    static void label##_fwd(struct bench_case *k, const struct bench_sizes *s)                               \
    {                                                                                                        \
        product(k, half, FORWARD, rows, out, in);                                                            \
    }                                                                                                        \
    static void label##_dw(struct bench_case *k, const struct bench_sizes *s)                                \
    {                                                                                                        \
        product(k, half, WEIGHT_GRAD, rows, out, in);                                                        \
    }                                                                                                        \
    static void label##_dx(struct bench_case *k, const struct bench_sizes *s)                                \
    {                                                                                                        \
        product(k, half, INPUT_GRAD, rows, out, in);                                                         \
    }
PRODUCTS(qkv, false, s->N, 3 * s->H * s->h, s->d)
PRODUCTS(proj, false, s->N, s->d, s->H * s->h)
PRODUCTS(fc, false, s->N, 2 * s->m, s->d)
PRODUCTS(mlp, false, s->N, s->d, s->m)
PRODUCTS(head, false, s->rows, s->V, s->d)
PRODUCTS(qkv16, true, s->N, 3 * s->H * s->h, s->d)
PRODUCTS(proj16, true, s->N, s->d, s->H * s->h)
PRODUCTS(fc16, true, s->N, 2 * s->m, s->d)
PRODUCTS(mlp16, true, s->N, s->d, s->m)
PRODUCTS(head16, true, s->N, s->tile, s->d)

/* Decoding's products: one row. */
static void fc_one(struct bench_case *k, const struct bench_sizes *s)
{
    product(k, false, FORWARD, 1, 2 * s->m, s->d);
}
static void fc16_one(struct bench_case *k, const struct bench_sizes *s)
{
    product(k, true, FORWARD, 1, 2 * s->m, s->d);
}

static void product8(struct bench_case *k, size_t rows, size_t out, size_t in)
{
    k->args.matmul_q8 =
        (struct matmul_q8_args){ .M = rows, .N = out, .K = in, .alpha = 1, .lda = in, .ldc = out };
    IN(matmul_q8_args, A, rows * in, NORMAL);
    k->buffer[IN(matmul_q8_args, B, out * in, Q8)].width = in;
    OUT(matmul_q8_args, C, rows * out);
    k->flops = 2 * (double)rows * (double)out * (double)in;
}
static void fc8_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    product8(k, s->N, 2 * s->m, s->d);
}
static void fc8_one(struct bench_case *k, const struct bench_sizes *s)
{
    product8(k, 1, 2 * s->m, s->d);
}
static void make_quantize_q8(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.quantize_q8 = (struct quantize_q8_args){ .rows = 2 * s->m, .width = s->d };
    IN(quantize_q8_args, x, 2 * s->m * s->d, NORMAL);
    k->buffer[bench_add(k, AT(quantize_q8_args, W), 2 * s->m * s->d, BENCH_Q8, BENCH_OUT)].width = s->d;
}

static void make_dequantize_q8(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.dequantize_q8 = (struct dequantize_q8_args){ .rows = 2 * s->m, .width = s->d };
    k->buffer[IN(dequantize_q8_args, W, 2 * s->m * s->d, Q8)].width = s->d;
    OUT(dequantize_q8_args, x, 2 * s->m * s->d);
}

static void make_copy(struct bench_case *k, const struct bench_sizes *s)
{
    size_t width = s->d * s->c;
    k->args.copy =
        (struct copy_args){ .rows = s->N, .width = width, .src_stride = width, .dst_stride = width };
    IN(copy_args, src, s->N * width, NORMAL);
    OUT(copy_args, dst, s->N * width);
}

static void make_copy_bf16(struct bench_case *k, const struct bench_sizes *s)
{
    size_t a = s->H * s->h;
    k->args.copy_bf16 =
        (struct copy_bf16_args){ .rows = s->N, .width = a, .src_stride = 3 * a, .dst_stride = a };
    IN(copy_bf16_args, src, s->N * 3 * a, NORMAL);
    bench_add(k, AT(copy_bf16_args, dst), s->N * a, BENCH_BF16, BENCH_OUT);
}

/* N sequences of one row each, at position 0 of a slot of their own, and with a history of their own. */
#define RAGGED(type, s)                                                                                      \
    do {                                                                                                     \
        IN(type, ragged.sequence, (s)->N, COUNT);                                                            \
        IN(type, ragged.position, (s)->N, ZEROS);                                                            \
        IN(type, ragged.first, (s)->N + 1, COUNT);                                                           \
        IN(type, ragged.past, (s)->N, ZEROS);                                                                \
        IN(type, ragged.slot, (s)->N, COUNT);                                                                \
        IN(type, ragged.from, (s)->N, COUNT);                                                                \
        IN(type, ragged.to, (s)->N, COUNT);                                                                  \
    } while (0)
static struct ddl_ragged ragged_rows(const struct bench_sizes *s)
{
    return (struct ddl_ragged){ .B = s->N, .N = s->N, .max_rows = 1, .max_span = 1 };
}

static void make_cache_append(struct bench_case *k, const struct bench_sizes *s)
{
    size_t a = s->H * s->h;
    k->args.cache_append = (struct cache_append_args){
        .ragged = ragged_rows(s), .width = a, .src_stride = 3 * a, .slot_stride = a
    };
    RAGGED(cache_append_args, s);
    IN(cache_append_args, src, s->N * 3 * a, NORMAL);
    OUT(cache_append_args, dst, s->N * a);
}

static void make_history_push(struct bench_case *k, const struct bench_sizes *s)
{
    size_t keep = s->K > 1 ? s->K - 1 : 1, width = s->d * s->c;
    k->args.history_push =
        (struct history_push_args){ .ragged = ragged_rows(s), .keep = keep, .width = width };
    RAGGED(history_push_args, s);
    IN(history_push_args, X, s->N * width, NORMAL);
    INOUT(history_push_args, history, s->N * keep * width);
}

static void make_cast_bf16(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.cast_bf16 = (struct cast_bf16_args){ .n = s->N * s->d };
    IN(cast_bf16_args, x, s->N * s->d, NORMAL);
    bench_add(k, AT(cast_bf16_args, y), s->N * s->d, BENCH_BF16, BENCH_OUT);
}

static void make_widen_bf16(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.widen_bf16 = (struct widen_bf16_args){ .n = s->N * s->d };
    IN(widen_bf16_args, x, s->N * s->d, BF16);
    OUT(widen_bf16_args, y, s->N * s->d);
}

static float attention_scale(const struct bench_sizes *s)
{
    return (float)(1 / sqrt((double)s->h));
}
/* Pairs of query and key, each 4 h operations forward, of the last n tokens of each sequence. */
static double attention_flops(const struct bench_sizes *s, size_t n)
{
    return 4 * (double)(s->B * s->H * s->h) * (double)n * ((double)(s->T - n) + (double)(n + 1) / 2);
}
/* The last n tokens of each sequence, with a cache of the others in float32 or bfloat16. */
static void attention(struct bench_case *k, const struct bench_sizes *s, size_t n, size_t keys, size_t values,
                      enum bench_fill fill)
{
    size_t a = s->H * s->h;
    k->args.attention_fwd = (struct attention_args){ .B = s->B,
                                                     .T = n,
                                                     .H = s->H,
                                                     .h = s->h,
                                                     .past = s->T - n,
                                                     .scale = attention_scale(s),
                                                     .q_stride = a,
                                                     .k_stride = a,
                                                     .k_batch = s->T * a,
                                                     .v_stride = a,
                                                     .v_batch = s->T * a };
    IN(attention_args, q, s->B * n * a, NORMAL);
    bench_add(k, keys, s->N * a, fill, BENCH_IN);
    bench_add(k, values, s->N * a, fill, BENCH_IN);
    OUT(attention_args, y, s->B * n * a);
    k->flops = attention_flops(s, n);
}
static void make_attention_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    attention(k, s, s->T, AT(attention_args, k), AT(attention_args, v), BENCH_NORMAL);
    OUT(attention_args, lse, s->N * s->H);
}
static void make_attention_one(struct bench_case *k, const struct bench_sizes *s)
{
    attention(k, s, 1, AT(attention_args, k), AT(attention_args, v), BENCH_NORMAL);
}
static void make_attention_bf16_one(struct bench_case *k, const struct bench_sizes *s)
{
    attention(k, s, 1, AT(attention_args, k16), AT(attention_args, v16), BENCH_BF16);
}
static void make_attention_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t a = s->H * s->h;
    k->args.attention_bwd = (struct attention_grad_args){ .B = s->B,
                                                          .T = s->T,
                                                          .H = s->H,
                                                          .h = s->h,
                                                          .scale = attention_scale(s),
                                                          .q_stride = a,
                                                          .k_stride = a,
                                                          .v_stride = a,
                                                          .dq_stride = a,
                                                          .dk_stride = a,
                                                          .dv_stride = a };
    IN(attention_grad_args, q, s->N * a, NORMAL);
    IN(attention_grad_args, k, s->N * a, NORMAL);
    IN(attention_grad_args, v, s->N * a, NORMAL);
    IN(attention_grad_args, y, s->N * a, NORMAL);
    IN(attention_grad_args, lse, s->N * s->H, WEIGHT);
    IN(attention_grad_args, dy, s->N * a, NORMAL);
    OUT(attention_grad_args, dq, s->N * a);
    OUT(attention_grad_args, dk, s->N * a);
    OUT(attention_grad_args, dv, s->N * a);
    k->flops = 2.5 * attention_flops(s, s->T);
}

static void make_cross_entropy(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.cross_entropy =
        (struct cross_entropy_args){ .N = s->rows, .V = s->V, .grad = true, .grad_scale = 1 };
    INOUT(cross_entropy_args, z, s->rows * s->V);
    IN(cross_entropy_args, targets, s->rows, TOKENS);
    OUT(cross_entropy_args, loss, s->rows);
}
/* Ranks are whole numbers, which are compared by tests only. */
static void make_rank(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.rank = (struct rank_args){ .N = s->rows, .V = s->V };
    IN(rank_args, z, s->rows * s->V, NORMAL);
    IN(rank_args, targets, s->rows, TOKENS);
    IN(rank_args, rank, s->rows, ZEROS);
    OUT(rank_args, entropy, s->rows);
}
/* The first tile, which initializes the sums; its columns have few of the targets. */
static void make_loss_fold(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.loss_fold = (struct loss_fold_args){ .N = s->N, .n = s->tile };
    IN(loss_fold_args, z, s->N * s->tile, NORMAL);
    IN(loss_fold_args, targets, s->N, TOKENS);
    OUT(loss_fold_args, top, s->N);
    bench_add(k, AT(loss_fold_args, total), s->N, BENCH_DOUBLES, BENCH_OUT);
    bench_add(k, AT(loss_fold_args, at_target), s->N, BENCH_NORMAL, BENCH_IN);
}
static void make_loss_grad(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.loss_grad = (struct loss_grad_args){ .N = s->N, .n = s->tile, .grad_scale = 1 };
    IN(loss_grad_args, z, s->N * s->tile, NORMAL);
    IN(loss_grad_args, targets, s->N, TOKENS);
    IN(loss_grad_args, top, s->N, WEIGHT);
    bench_add(k, AT(loss_grad_args, total), s->N, BENCH_DOUBLES, BENCH_IN);
    bench_add(k, AT(loss_grad_args, dz), s->N * s->tile, BENCH_BF16, BENCH_OUT);
}

#define CALL(name, args_type)                                                                                \
    static void call_##name(ddl_backend *backend, const union bench_args *args)                              \
    {                                                                                                        \
        backend->ops->name(backend->ctx, &args->name);                                                       \
    }
DDL_OPS(CALL)
#undef CALL

/* The public calls of the operator, beside its ops: what they add is checks. */
#define CALL_PUBLIC(name, function)                                                                          \
    static void public_##name(ddl_backend *backend, const union bench_args *args)                            \
    {                                                                                                        \
        (void)function(backend, &args->name, NULL);                                                          \
    }
CALL_PUBLIC(delta_fwd, ddl_delta_forward)
CALL_PUBLIC(delta_bwd, ddl_delta_backward)
CALL_PUBLIC(delta_inverse, ddl_delta_inverse)
CALL_PUBLIC(elementwise_fwd, ddl_elementwise_forward)
CALL_PUBLIC(elementwise_bwd, ddl_elementwise_backward)
#undef CALL_PUBLIC

/* Sums in float32 against double: a few units of the last place. What is rounded to bfloat16 may fall to the
 * other side. */
#define EXACT 1e-5
#define ROUNDED 2e-3
#define THREE(op, label, prefix)                                                                             \
    { #op "." label ".fwd", call_##op, prefix##_fwd, EXACT, false },                                         \
        { #op "." label ".dw", call_##op, prefix##_dw, EXACT, false },                                       \
    {                                                                                                        \
#op "." label ".dx", call_##op, prefix##_dx, EXACT, false                                            \
    }
#define ONE(op)                                                                                              \
    {                                                                                                        \
#op, call_##op, make_##op, EXACT, false                                                              \
    }
#define PUBLIC(op)                                                                                           \
    {                                                                                                        \
#op ".public", public_##op, make_##op, EXACT, true                                                   \
    }
#define BOTH(op) ONE(op##_fwd), ONE(op##_bwd)

static const struct bench_op ops[] = {
    THREE(matmul, "qkv", qkv),
    THREE(matmul, "proj", proj),
    THREE(matmul, "fc", fc),
    THREE(matmul, "mlp", mlp),
    THREE(matmul, "head", head),
    THREE(matmul_bf16, "qkv", qkv16),
    THREE(matmul_bf16, "proj", proj16),
    THREE(matmul_bf16, "fc", fc16),
    THREE(matmul_bf16, "mlp", mlp16),
    THREE(matmul_bf16, "head", head16),
    { "matmul.fc.one", call_matmul, fc_one, EXACT, false },
    { "matmul_bf16.fc.one", call_matmul_bf16, fc16_one, EXACT, false },
    { "matmul_q8.fc.fwd", call_matmul_q8, fc8_fwd, EXACT, false },
    { "matmul_q8.fc.one", call_matmul_q8, fc8_one, EXACT, false },
    ONE(quantize_q8),
    ONE(dequantize_q8),
    BOTH(attention),
    { "attention.one", call_attention_fwd, make_attention_one, EXACT, false },
    { "attention16.one", call_attention_fwd, make_attention_bf16_one, EXACT, false },
    BOTH(delta),
    ONE(delta_inverse),
    PUBLIC(delta_fwd),
    PUBLIC(delta_bwd),
    PUBLIC(delta_inverse),
    BOTH(fold),
    BOTH(compress),
    BOTH(init_state),
    { "project_fwd.gate", call_project_fwd, make_gate_fwd, EXACT, false },
    { "project_bwd.gate", call_project_bwd, make_gate_bwd, EXACT, false },
    { "project_fwd.target", call_project_fwd, make_target_fwd, EXACT, false },
    { "project_bwd.target", call_project_bwd, make_target_bwd, EXACT, false },
    BOTH(scale),
    BOTH(gated),
    BOTH(highway),
    BOTH(streams_fold),
    ONE(streams_sum),
    BOTH(streams_write),
    BOTH(hyper),
    BOTH(mhc),
    BOTH(laurel),
    ONE(weighted_sum),
    ONE(weighted_sum_bwd),
    BOTH(rmsnorm),
    BOTH(rope),
    BOTH(mix_values),
    BOTH(swiglu),
    BOTH(embed),
    ONE(embed_bf16_fwd),
    ONE(embed_q8_fwd),
    ONE(cross_entropy),
    ONE(loss_fold),
    ONE(rank),
    { "loss_grad", call_loss_grad, make_loss_grad, ROUNDED, false },
    ONE(adamw),
    { "adamw.bf16", call_adamw, make_adamw_bf16, ROUNDED, false },
    { "cast_bf16", call_cast_bf16, make_cast_bf16, 0, false },
    ONE(widen_bf16),
    ONE(copy),
    { "copy_bf16", call_copy_bf16, make_copy_bf16, 0, false },
    { "cache_append", call_cache_append, make_cache_append, 0, false },
    { "history_push", call_history_push, make_history_push, 0, false },
    ONE(fill),
    ONE(sum),
    ONE(sum_squares),
    BOTH(tanh),
    BOTH(gelu),
    BOTH(bias),
    BOTH(pool),
    BOTH(elementwise),
    PUBLIC(elementwise_fwd),
    PUBLIC(elementwise_bwd),
    { 0 },
};

const struct bench_op *bench_ops(void)
{
    return ops;
}

static size_t at_most(size_t x, size_t most)
{
    return x < most ? x : most;
}

/* About what a workspace takes (src/model/workspace.c): logits of 64 MB at a time, tiles of 4 MB. */
static void plan_head(struct bench_sizes *s)
{
    size_t rows = ((size_t)1 << 24) / s->V, tile = ((size_t)1 << 20) / s->N;
    s->rows = at_most(s->N, rows > 32 ? rows : 32);
    s->tile = at_most(s->V, tile > 256 ? tile : 256);
}

struct bench_sizes bench_sizes(const struct ddl_bench_config *config)
{
    const struct ddl_config *k = &config->model;
    bool token = k->compress == DDL_COMPRESS_TOKEN;
    struct bench_sizes s = { .B = config->batch,
                             .T = config->seq,
                             .N = config->batch * config->seq,
                             .d = k->d_model,
                             .c = k->channels,
                             .n = k->streams,
                             .iterations = k->sinkhorn_iterations,
                             .K = ddl_config_state_kernel(k),
                             .K_embed = k->embed_kernel,
                             .H = k->n_heads,
                             .h = k->head_dim,
                             .R = ddl_config_rope_dims(k),
                             .m = ddl_config_mlp_size(k),
                             .V = k->vocab_size,
                             .kind = k->compress };
    s.taps = token ? s.K : 1;
    plan_head(&s);
    return s;
}

struct bench_sizes bench_small(struct bench_sizes s)
{
    s.B = 1;
    s.T = at_most(s.T, 100); /* two of attention's blocks */
    s.N = s.B * s.T;
    s.H = at_most(s.H, 2);
    s.m = at_most(s.m, 250);
    s.V = at_most(s.V, 517);
    plan_head(&s);
    return s;
}
