/* Cases of ops on rows: norms, rotation, activations, projections, the optimizer. */
#include "bench/cases.h"

void make_rmsnorm_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.rmsnorm_fwd = (struct rmsnorm_args){ .N = s->N, .d = s->d, .eps = 1e-5f };
    IN(rmsnorm_args, x, s->N * s->d, NORMAL);
    IN(rmsnorm_args, w, s->d, WEIGHT);
    OUT(rmsnorm_args, y, s->N * s->d);
    OUT(rmsnorm_args, rstd, s->N);
}
void make_rmsnorm_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.rmsnorm_bwd = (struct rmsnorm_grad_args){ .N = s->N, .d = s->d };
    IN(rmsnorm_grad_args, x, s->N * s->d, NORMAL);
    IN(rmsnorm_grad_args, w, s->d, WEIGHT);
    IN(rmsnorm_grad_args, rstd, s->N, WEIGHT);
    IN(rmsnorm_grad_args, dy, s->N * s->d, NORMAL);
    OUT(rmsnorm_grad_args, dx, s->N * s->d);
    INOUT(rmsnorm_grad_args, dw, s->d);
}

void make_rope_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t a = s->H * s->h;
    k->args.rope_fwd = (struct rope_args){
        .B = s->B, .T = s->T, .H = s->H, .h = s->h, .R = s->R, .eps = 1e-5f, .x_stride = a, .y_stride = a
    };
    IN(rope_args, cos, s->T * s->R / 2, COS);
    IN(rope_args, sin, s->T * s->R / 2, SIN);
    IN(rope_args, x, s->N * a, NORMAL);
    IN(rope_args, w, s->h, WEIGHT);
    OUT(rope_args, y, s->N * a);
}
void make_rope_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t a = s->H * s->h;
    k->args.rope_bwd = (struct rope_grad_args){ .B = s->B,
                                                .T = s->T,
                                                .H = s->H,
                                                .h = s->h,
                                                .R = s->R,
                                                .eps = 1e-5f,
                                                .x_stride = a,
                                                .dy_stride = a,
                                                .dx_stride = a };
    IN(rope_grad_args, cos, s->T * s->R / 2, COS);
    IN(rope_grad_args, sin, s->T * s->R / 2, SIN);
    IN(rope_grad_args, x, s->N * a, NORMAL);
    IN(rope_grad_args, w, s->h, WEIGHT);
    IN(rope_grad_args, dy, s->N * a, NORMAL);
    OUT(rope_grad_args, dx, s->N * a);
    INOUT(rope_grad_args, dw, s->h);
}

void make_swiglu_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.swiglu_fwd = (struct swiglu_args){ .N = s->N, .m = s->m };
    IN(swiglu_args, ug, s->N * 2 * s->m, NORMAL);
    OUT(swiglu_args, s, s->N * s->m);
}
void make_swiglu_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.swiglu_bwd = (struct swiglu_grad_args){ .N = s->N, .m = s->m };
    IN(swiglu_grad_args, ug, s->N * 2 * s->m, NORMAL);
    IN(swiglu_grad_args, ds, s->N * s->m, NORMAL);
    OUT(swiglu_grad_args, dug, s->N * 2 * s->m);
}

static void project(struct bench_case *k, const struct bench_sizes *s, size_t c, bool sigmoid)
{
    k->args.project_fwd =
        (struct project_args){ .N = s->N, .d = s->d, .c = c, .sigmoid = sigmoid, .scale = 2 };
    IN(project_args, x, s->N * s->d, NORMAL);
    IN(project_args, W, c * s->d, NORMAL);
    IN(project_args, b, c, NORMAL);
    OUT(project_args, y, s->N * c);
    k->flops = 2 * (double)(s->N * s->d * c);
}
static void project_grad(struct bench_case *k, const struct bench_sizes *s, size_t c, bool sigmoid)
{
    k->args.project_bwd =
        (struct project_grad_args){ .N = s->N, .d = s->d, .c = c, .sigmoid = sigmoid, .scale = 2 };
    IN(project_grad_args, x, s->N * s->d, NORMAL);
    IN(project_grad_args, W, c * s->d, NORMAL);
    IN(project_grad_args, y, s->N * c, GATE);
    IN(project_grad_args, dy, s->N * c, NORMAL);
    INOUT(project_grad_args, dx, s->N * s->d);
    INOUT(project_grad_args, dW, c * s->d);
    INOUT(project_grad_args, db, c);
    k->flops = 4 * (double)(s->N * s->d * c);
}
void make_gate_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    project(k, s, 1, true);
}
void make_gate_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    project_grad(k, s, 1, true);
}
void make_target_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    project(k, s, s->c, false);
}
void make_target_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    project_grad(k, s, s->c, false);
}

void make_tanh_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.tanh_fwd = (struct tanh_args){ .n = s->N * s->d };
    IN(tanh_args, x, s->N * s->d, NORMAL);
    OUT(tanh_args, y, s->N * s->d);
}
void make_tanh_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.tanh_bwd = (struct tanh_grad_args){ .n = s->N * s->d };
    IN(tanh_grad_args, y, s->N * s->d, COS);
    IN(tanh_grad_args, dy, s->N * s->d, NORMAL);
    OUT(tanh_grad_args, dx, s->N * s->d);
}
void make_gelu_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.gelu_fwd = (struct gelu_args){ .n = s->N * s->d };
    IN(gelu_args, x, s->N * s->d, NORMAL);
    OUT(gelu_args, y, s->N * s->d);
}
void make_gelu_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.gelu_bwd = (struct gelu_grad_args){ .n = s->N * s->d };
    IN(gelu_grad_args, x, s->N * s->d, NORMAL);
    IN(gelu_grad_args, dy, s->N * s->d, NORMAL);
    OUT(gelu_grad_args, dx, s->N * s->d);
}
static void make_sums(struct bench_case *k, struct sum_args *args, size_t n)
{
    *args = (struct sum_args){ .n = n };
    IN(sum_args, x, n, NORMAL);
    bench_add(k, AT(sum_args, sum), 1, BENCH_DOUBLES, BENCH_OUT);
}

/* The losses of a step's rows. */
void make_sum(struct bench_case *k, const struct bench_sizes *s)
{
    make_sums(k, &k->args.sum, s->N);
}

/* The gradient of the embedding. */
void make_sum_squares(struct bench_case *k, const struct bench_sizes *s)
{
    make_sums(k, &k->args.sum_squares, s->V * s->d);
}

void make_fill(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.fill = (struct fill_args){ .n = s->N * s->d, .value = 0.5f };
    OUT(fill_args, x, s->N * s->d);
}
void make_bias_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.bias_fwd = (struct bias_args){ .N = s->N, .d = s->d };
    IN(bias_args, b, s->d, NORMAL);
    INOUT(bias_args, y, s->N * s->d);
}
void make_bias_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.bias_bwd = (struct bias_grad_args){ .N = s->N, .d = s->d };
    IN(bias_grad_args, dy, s->N * s->d, NORMAL);
    INOUT(bias_grad_args, db, s->d);
}
void make_adamw(struct bench_case *k, const struct bench_sizes *s)
{
    size_t n = 2 * s->m * s->d;
    k->args.adamw = (struct adamw_args){ .n = n,
                                         .g_scale = 1,
                                         .lr = 1e-3f,
                                         .beta1 = 0.9f,
                                         .beta2 = 0.95f,
                                         .eps = 1e-8f,
                                         .weight_decay = 0.1f,
                                         .bias1 = 0.5f,
                                         .bias2 = 0.5f };
    INOUT(adamw_args, p, n);
    IN(adamw_args, g, n, NORMAL);
    INOUT(adamw_args, m, n);
    bench_add(k, AT(adamw_args, v), n, BENCH_WEIGHT, BENCH_INOUT);
}
void make_adamw_bf16(struct bench_case *k, const struct bench_sizes *s)
{
    make_adamw(k, s);
    bench_add(k, AT(adamw_args, p16), k->args.adamw.n, BENCH_BF16, BENCH_OUT);
}

/* One number per feature, as LayerScale has it. */
void make_scale_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.scale_fwd = (struct scale_args){ .N = s->N, .d = s->d, .w = s->d };
    IN(scale_args, f, s->N * s->d, NORMAL);
    IN(scale_args, lambda, s->d, WEIGHT);
    INOUT(scale_args, X, s->N * s->d);
}
void make_scale_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.scale_bwd = (struct scale_grad_args){ .N = s->N, .d = s->d, .w = s->d };
    IN(scale_grad_args, f, s->N * s->d, NORMAL);
    IN(scale_grad_args, lambda, s->d, WEIGHT);
    IN(scale_grad_args, G, s->N * s->d, NORMAL);
    INOUT(scale_grad_args, X, s->N * s->d);
    OUT(scale_grad_args, df, s->N * s->d);
    INOUT(scale_grad_args, dlambda, s->d);
}

void make_gated_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.gated_fwd = (struct gated_args){ .N = s->N, .d = s->d };
    IN(gated_args, f, s->N * s->d, NORMAL);
    IN(gated_args, beta, s->N, GATE);
    INOUT(gated_args, X, s->N * s->d);
}
void make_gated_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.gated_bwd = (struct gated_grad_args){ .N = s->N, .d = s->d };
    IN(gated_grad_args, f, s->N * s->d, NORMAL);
    IN(gated_grad_args, beta, s->N, GATE);
    IN(gated_grad_args, G, s->N * s->d, NORMAL);
    INOUT(gated_grad_args, X, s->N * s->d);
    OUT(gated_grad_args, df, s->N * s->d);
    OUT(gated_grad_args, dbeta, s->N);
}

enum { STATES = 8 }; /* of a weighted sum */

void make_weighted_sum(struct bench_case *k, const struct bench_sizes *s)
{
    size_t n = s->N * s->d * s->c;
    k->args.weighted_sum =
        (struct weighted_sum_args){ .count = n, .n = STATES, .X_stride = n, .w_stride = 1 };
    IN(weighted_sum_args, X, STATES * n, NORMAL);
    IN(weighted_sum_args, w, STATES, NORMAL);
    OUT(weighted_sum_args, out, n);
    k->flops = 2 * (double)(STATES * n);
}
void make_weighted_sum_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t n = s->N * s->d * s->c;
    k->args.weighted_sum_bwd = (struct weighted_sum_grad_args){ .count = n, .n = STATES, .X_stride = n };
    IN(weighted_sum_grad_args, X, STATES * n, NORMAL);
    IN(weighted_sum_grad_args, G, n, NORMAL);
    INOUT(weighted_sum_grad_args, dw, STATES);
    k->flops = 2 * (double)(STATES * n);
}

void make_highway_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.highway_fwd = (struct highway_args){ .N = s->N, .d = s->d, .w = s->d };
    IN(highway_args, f, s->N * s->d, NORMAL);
    IN(highway_args, b, s->d, NORMAL);
    INOUT(highway_args, tau, s->N * s->d);
    INOUT(highway_args, X, s->N * s->d);
}
void make_highway_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.highway_bwd = (struct highway_grad_args){ .N = s->N, .d = s->d, .w = s->d };
    IN(highway_grad_args, X, s->N * s->d, NORMAL);
    IN(highway_grad_args, f, s->N * s->d, NORMAL);
    IN(highway_grad_args, tau, s->N * s->d, GATE);
    IN(highway_grad_args, G, s->N * s->d, NORMAL);
    OUT(highway_grad_args, dX, s->N * s->d);
    OUT(highway_grad_args, df, s->N * s->d);
    OUT(highway_grad_args, dz, s->N * s->d);
    INOUT(highway_grad_args, db, s->d);
}

enum { LAUREL_RANK = 16 };
void make_laurel_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.laurel_fwd = (struct laurel_args){ .N = s->N, .d = s->d, .r = LAUREL_RANK };
    IN(laurel_args, f, s->N * s->d, NORMAL);
    IN(laurel_args, mix, 2, NORMAL);
    INOUT(laurel_args, low, s->N * LAUREL_RANK);
    INOUT(laurel_args, X, s->N * s->d);
}
void make_laurel_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    k->args.laurel_bwd = (struct laurel_grad_args){ .N = s->N, .d = s->d, .r = LAUREL_RANK };
    IN(laurel_grad_args, X, s->N * s->d, NORMAL);
    IN(laurel_grad_args, f, s->N * s->d, NORMAL);
    IN(laurel_grad_args, mix, 2, NORMAL);
    IN(laurel_grad_args, low, s->N * LAUREL_RANK, NORMAL);
    IN(laurel_grad_args, G, s->N * s->d, NORMAL);
    INOUT(laurel_grad_args, dlow, s->N * LAUREL_RANK);
    OUT(laurel_grad_args, dX, s->N * s->d);
    OUT(laurel_grad_args, df, s->N * s->d);
    INOUT(laurel_grad_args, dmix, 2);
}

/* The values of a fused projection. */
void make_mix_values_fwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t a = s->H * s->h;
    k->args.mix_values_fwd =
        (struct mix_values_args){ .N = s->N, .width = a, .v_stride = 3 * a, .y_stride = a };
    IN(mix_values_args, v, s->N * 3 * a, NORMAL);
    IN(mix_values_args, first, s->N * a, NORMAL);
    IN(mix_values_args, mix, 2, NORMAL);
    OUT(mix_values_args, y, s->N * a);
}
void make_mix_values_bwd(struct bench_case *k, const struct bench_sizes *s)
{
    size_t a = s->H * s->h;
    k->args.mix_values_bwd = (struct mix_values_grad_args){
        .N = s->N, .width = a, .v_stride = 3 * a, .dv_stride = 3 * a, .accumulate = true
    };
    IN(mix_values_grad_args, v, s->N * 3 * a, NORMAL);
    IN(mix_values_grad_args, first, s->N * a, NORMAL);
    IN(mix_values_grad_args, mix, 2, NORMAL);
    INOUT(mix_values_grad_args, dv, s->N * 3 * a);
    INOUT(mix_values_grad_args, dfirst, s->N * a);
    INOUT(mix_values_grad_args, dmix, 2);
}
