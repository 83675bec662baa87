/* Sizes of ops on rows, of the loss and of attention. */
#include "ops/cases_internal.h"

#include <math.h>

SIZES(rmsnorm_fwd)
{
    ARGS(rmsnorm_args, .N = case_tokens(s), .d = s->d, .eps = 1e-5f);
}

SIZES(rmsnorm_bwd) /* option: accumulate */
{
    ARGS(rmsnorm_grad_args, .N = case_tokens(s), .d = s->d, .accumulate = option != 0);
}

SIZES(project_fwd)
{
    ARGS(project_args, .N = case_tokens(s), .d = s->d, .c = option == GATE ? 1 : s->c,
         .sigmoid = option == GATE, .scale = 2);
}

SIZES(project_bwd)
{
    ARGS(project_grad_args, .N = case_tokens(s), .d = s->d, .c = option == GATE ? 1 : s->c,
         .sigmoid = option == GATE, .scale = 2);
}

SIZES(swiglu_fwd)
{
    ARGS(swiglu_args, .N = case_tokens(s), .m = s->m, .ug_stride = 2 * s->m + s->pad,
         .s_stride = s->m + s->pad);
}

SIZES(swiglu_bwd)
{
    ARGS(swiglu_grad_args, .N = case_tokens(s), .m = s->m, .ug_stride = 2 * s->m + s->pad);
}

SIZES(tanh_fwd)
{
    ARGS(tanh_args, .n = case_tokens(s) * s->d);
}

SIZES(tanh_bwd)
{
    ARGS(tanh_grad_args, .n = case_tokens(s) * s->d);
}

SIZES(gelu_fwd)
{
    ARGS(gelu_args, .n = case_tokens(s) * s->d);
}

SIZES(gelu_bwd)
{
    ARGS(gelu_grad_args, .n = case_tokens(s) * s->d);
}

SIZES(bias_fwd)
{
    ARGS(bias_args, .N = case_tokens(s), .d = s->d);
}

SIZES(bias_bwd)
{
    ARGS(bias_grad_args, .N = case_tokens(s), .d = s->d);
}

SIZES(sum) /* the losses of a step's rows */
{
    ARGS(sum_args, .n = case_tokens(s));
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
    ARGS(sum_squares_args, .parts = parts(s, s->V * s->d), .sums = option ? 2 : 1);
}

SIZES(fill)
{
    ARGS(fill_args, .n = case_tokens(s) * s->d, .value = 0.5f);
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

SIZES(cross_entropy) /* option: the losses alone */
{
    ARGS(cross_entropy_args, .N = s->rows, .V = s->V, .grad = option == 0);
}

SIZES(loss_tile) /* option: a tile after the first */
{
    ARGS(loss_tile_args, .N = case_tokens(s), .n = s->tile, .first = option ? s->tile : 0);
}

SIZES(loss_grad)
{
    ARGS(loss_grad_args, .N = case_tokens(s), .n = s->tile);
}

SIZES(rank)
{
    ARGS(rank_args, .N = s->rows, .V = s->V);
}

SIZES(likeliest) /* option: all ids, for few rows: a step an id */
{
    ARGS(likeliest_args, .N = option && s->rows > 8 ? 8 : s->rows, .V = s->V,
         .k = option || s->V < 5 ? s->V : 5);
}

SIZES(choose) /* option: fewer ids than logits, and no changes */
{
    size_t few = s->V < 3 ? s->V : 3;
    ARGS(choose_args, .N = s->rows, .V = s->V, .n = option && s->V > 2 ? s->V - 2 : s->V,
         .changes = option ? 0 : few);
}

SIZES(rope_fwd)
{
    struct ddl_ragged r = option == RAGGED ? case_ragged(s) : (struct ddl_ragged){ 0 };
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
    ARGS(mix_values_args, .N = case_tokens(s), .width = a, .v_stride = 3 * a, .y_stride = a + s->pad);
}

SIZES(mix_values_bwd) /* option: dfirst is written */
{
    size_t a = s->H * s->h;
    ARGS(mix_values_grad_args, .N = case_tokens(s), .width = a, .v_stride = 3 * a,
         .dv_stride = 3 * a + s->pad, .accumulate = option == 0);
}

SIZES(attention_fwd)
{
    struct ddl_ragged r = option == SLOTS ? case_ragged(s) : (struct ddl_ragged){ 0 };
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
