/* Sizes of products, conversions and copies. */
#include "ops/cases_internal.h"

struct shape {
    size_t rows, out, in;
};

static size_t at_most(size_t n, size_t most)
{
    return n < most ? n : most;
}

static struct shape shape_of(const struct ddl_op_sizes *s, int option, bool tiles)
{
    size_t N = case_tokens(s), width = s->H * s->h;
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
    static const float alpha[] = { [WRITTEN] = 1, [ADDED] = 0.5f, [SCALED] = -1.5f };
    static const float beta[] = { [WRITTEN] = 0, [ADDED] = 1, [SCALED] = 0.25f };
    struct shape x = shape_of(s, option, tiles);
    bool tf32 = option >= TF32_FORMS;
    int direction = option % DIRECTIONS, form = option - (tf32 ? TF32_FORMS : FORMS);
    bool any = form >= 0, trans_a = any ? form & 2 : direction == WEIGHT_GRAD;
    bool trans_b = any ? form & 1 : direction == FORWARD;
    size_t M = trans_a ? x.out : x.rows, N = trans_b && !trans_a ? x.out : x.in;
    size_t K = trans_a ? x.rows : trans_b ? x.in : x.out;
    return (struct matmul_args){ .trans_a = trans_a,
                                 .trans_b = trans_b,
                                 .tf32 = tf32,
                                 .M = M,
                                 .N = N,
                                 .K = K,
                                 .alpha = any ? alpha[form / 4] : 1,
                                 .lda = (trans_a ? M : K) + s->pad,
                                 .ldb = (trans_b ? K : N) + s->pad,
                                 .beta = any       ? beta[form / 4]
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
    ARGS(matmul_q8_args, .M = x.rows, .N = x.out, .K = x.in, .first = case_rows_before(s),
         .alpha = option >= FORMS ? -1.5f : 1, .lda = x.in + s->pad, .ldc = x.out + s->pad,
         .accumulate = option >= FORMS);
}

SIZES(quantize_q8)
{
    ARGS(quantize_q8_args, .rows = 2 * s->m, .width = s->d, .first = case_rows_before(s));
}

SIZES(dequantize_q8)
{
    ARGS(dequantize_q8_args, .rows = 2 * s->m, .width = s->d, .first = case_rows_before(s));
}

SIZES(cast_bf16)
{
    ARGS(cast_bf16_args, .n = case_tokens(s) * s->d);
}

SIZES(widen_bf16)
{
    ARGS(widen_bf16_args, .n = case_tokens(s) * s->d);
}

struct ddl_ragged case_ragged(const struct ddl_op_sizes *s)
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

SIZES(copy)
{
    size_t width = s->d * s->c, stride = width + s->pad;
    ARGS(copy_args, .rows = s->T, .width = width, .src_stride = stride, .dst_stride = width, .batch = s->B,
         .src_batch = s->T * stride, .dst_batch = s->T * width);
}

SIZES(copy_bf16)
{
    size_t a = s->H * s->h;
    ARGS(copy_bf16_args, .rows = case_tokens(s), .width = a, .src_stride = 3 * a, .dst_stride = a + s->pad);
}

SIZES(cache_append)
{
    struct ddl_ragged r = case_ragged(s);
    size_t a = s->H * s->h;
    ARGS(cache_append_args, .ragged = r, .width = a, .src_stride = 3 * a,
         .slot_stride = r.max_span * a + s->pad);
}

SIZES(history_push)
{
    ARGS(history_push_args, .ragged = case_ragged(s), .keep = s->K > 1 ? s->K - 1 : 1, .width = s->d * s->c);
}
