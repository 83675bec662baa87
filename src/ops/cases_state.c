/* Sizes of ops on the state and of residual rules. */
#include "ops/cases_internal.h"

#include "ddl/kinds.h"

SIZES(gather)
{
    ARGS(gather_args, .N = case_tokens(s), .width = s->d, .rows = s->V);
}

SIZES(gather_bf16)
{
    ARGS(gather_bf16_args, .N = case_tokens(s), .width = s->d, .rows = s->V);
}

SIZES(gather_q8)
{
    ARGS(gather_q8_args, .N = case_tokens(s), .width = s->d, .rows = s->V, .first = case_rows_before(s));
}

SIZES(embed_bwd)
{
    ARGS(embed_grad_args, .N = case_tokens(s), .d = s->d, .V = s->V);
}

SIZES(init_state_fwd)
{
    struct ddl_ragged r = option == RAGGED ? case_ragged(s) : (struct ddl_ragged){ 0 };
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
    struct ddl_ragged r = option == RAGGED ? case_ragged(s) : (struct ddl_ragged){ 0 };
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
    ARGS(ddl_delta_args, .N = case_tokens(s), .d = s->d, .c = s->c, .steps = s->steps, .eps = 1e-5f,
         .form = option / 4, .update = option % 4);
}

SIZES(delta_bwd)
{
    ARGS(ddl_delta_grad_args, .N = case_tokens(s), .d = s->d, .c = s->c, .steps = s->steps, .eps = 1e-5f,
         .form = option / 4, .update = option % 4);
}

SIZES(delta_bwd_from_state) /* one step: only that reads X */
{
    ARGS(ddl_delta_grad_args, .N = case_tokens(s), .d = s->d, .c = s->c, .eps = 1e-5f, .form = option / 4,
         .update = option % 4);
}

SIZES(delta_inverse)
{
    ARGS(ddl_delta_inverse_args, .N = case_tokens(s), .d = s->d, .c = s->c, .steps = s->steps, .eps = 1e-5f,
         .form = option / 4, .update = option % 4);
}

SIZES(elementwise_fwd)
{
    ARGS(ddl_elementwise_args, .N = case_tokens(s), .d = s->d, .eps = 1e-5f);
}

SIZES(elementwise_bwd)
{
    ARGS(ddl_elementwise_grad_args, .N = case_tokens(s), .d = s->d, .eps = 1e-5f);
}

SIZES(pool_fwd)
{
    ARGS(pool_args, .N = case_tokens(s), .d = s->d, .c = s->c);
}

SIZES(pool_bwd)
{
    ARGS(pool_grad_args, .N = case_tokens(s), .d = s->d, .c = s->c);
}

SIZES(f_norm_fwd)
{
    ARGS(f_norm_args, .N = case_tokens(s), .d = s->d, .eps = 1e-5f);
}

SIZES(f_norm_bwd)
{
    ARGS(f_norm_grad_args, .N = case_tokens(s), .d = s->d);
}

SIZES(scale_fwd)
{
    ARGS(scale_args, .N = case_tokens(s), .d = s->d, .w = option == ONE_NUMBER ? 1 : s->d);
}

SIZES(scale_bwd)
{
    ARGS(scale_grad_args, .N = case_tokens(s), .d = s->d, .w = option == ONE_NUMBER ? 1 : s->d);
}

SIZES(gated_fwd)
{
    ARGS(gated_args, .N = case_tokens(s), .d = s->d);
}

SIZES(gated_bwd)
{
    ARGS(gated_grad_args, .N = case_tokens(s), .d = s->d);
}

SIZES(highway_fwd)
{
    ARGS(highway_args, .N = case_tokens(s), .d = s->d, .w = option == ONE_NUMBER ? 1 : s->d);
}

SIZES(highway_bwd)
{
    ARGS(highway_grad_args, .N = case_tokens(s), .d = s->d, .w = option == ONE_NUMBER ? 1 : s->d);
}

SIZES(laurel_fwd) /* option: no low rank */
{
    ARGS(laurel_args, .N = case_tokens(s), .d = s->d, .r = option ? 0 : s->rank);
}

SIZES(laurel_bwd)
{
    ARGS(laurel_grad_args, .N = case_tokens(s), .d = s->d, .r = option ? 0 : s->rank);
}

SIZES(weighted_sum) /* option: accumulate, weights apart */
{
    size_t n = case_tokens(s) * s->d * s->c;
    ARGS(weighted_sum_args, .count = n, .n = s->states, .X_stride = n + s->pad, .w_stride = option ? 2 : 1,
         .accumulate = option != 0);
}

SIZES(weighted_sum_bwd)
{
    size_t n = case_tokens(s) * s->d * s->c;
    ARGS(weighted_sum_grad_args, .count = n, .n = s->states, .X_stride = n + s->pad);
}

SIZES(depth_fwd) /* option: the embedding alone */
{
    size_t n = option ? 0 : s->states;
    ARGS(depth_args, .N = case_tokens(s), .d = s->d, .n = n, .eps = 1e-5f,
         .stride = case_tokens(s) * s->d + s->pad, .width = s->states + 1 + s->pad);
}

SIZES(depth_bwd)
{
    struct depth_args fwd;
    case_depth_fwd(&fwd, s, option);
    ARGS(depth_grad_args, .fwd = fwd);
}

SIZES(source_bwd) /* option: a part that goes on */
{
    size_t n = option ? 1 : s->states, width = s->states + 1 + s->pad;
    ARGS(source_grad_args, .N = case_tokens(s), .d = s->d, .n = n, .eps = 1e-5f, .width = width,
         .weights_stride = case_tokens(s) * width, .dh_stride = case_tokens(s) * s->d + s->pad,
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
    ARGS(streams_sum_args, .N = case_tokens(s), .d = s->d, .n = s->n);
}

SIZES(streams_write_fwd)
{
    ARGS(streams_write_args, .N = case_tokens(s), .d = s->d, .n = s->n);
}

SIZES(streams_write_bwd)
{
    ARGS(streams_write_grad_args, .N = case_tokens(s), .d = s->d, .n = s->n);
}

SIZES(hyper_fwd) /* option: the identity mixes */
{
    ARGS(hyper_args, .N = case_tokens(s), .d = s->d, .n = s->n, .eps = 1e-5f, .identity = option != 0);
}

SIZES(hyper_bwd)
{
    ARGS(hyper_grad_args, .N = case_tokens(s), .d = s->d, .n = s->n);
}

SIZES(mhc_fwd)
{
    ARGS(mhc_args, .N = case_tokens(s), .d = s->d, .n = s->n, .iterations = s->iterations, .eps = 1e-5f,
         .identity = option != 0);
}

SIZES(mhc_bwd)
{
    ARGS(mhc_grad_args, .N = case_tokens(s), .d = s->d, .n = s->n, .iterations = s->iterations);
}
