#include "model/residual/gate.h"

#include "model/params/gradients.h"
#include "model/pass/linear.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"

#include <math.h>

/* b with most sigmoid(b) = beta0. */
static double bias_of(double beta0, double most)
{
    double p = fmin(fmax(beta0 / most, 1e-6), 1 - 1e-6);
    return log(p / (1 - p));
}

void gate_params(struct param_plan *plan, size_t steps, int *index)
{
    const struct ddl_config *k = plan->config;
    size_t d = k->d_model, hidden = k->beta_hidden;
    int idle = k->beta_constant ? PARAM_INACTIVE : 0;
    struct param_init matrix = param_init_matrix(k),
                      bias =
                          param_init_constant(bias_of((double)ddl_config_beta_init(k), (double)k->beta_max));
    const struct param_row weight = { "beta.weight", { steps, d }, DDL_GROUP_MATRIX, matrix, idle, NULL };
    const struct param_row one_bias = { "beta.bias", { steps }, DDL_GROUP_BIAS, bias, idle, NULL };
    const struct param_row in = { "beta_in.weight", { hidden, d }, DDL_GROUP_MATRIX, matrix, idle, NULL };
    const struct param_row out = {
        "beta_out.weight", { steps, hidden }, DDL_GROUP_MATRIX, matrix, idle, NULL
    };
    const struct param_row out_bias = { "beta_out.bias", { steps }, DDL_GROUP_BIAS, bias, idle, NULL };
    if (!k->beta_linear)
        param_plan_add(plan, &in, &index[GATE_IN]);
    param_plan_add(plan, k->beta_linear ? &weight : &out, &index[GATE_WEIGHT]);
    param_plan_add(plan, k->beta_linear ? &one_bias : &out_bias, &index[GATE_BIAS]);
}

/* Whether the gate has a hidden layer that is computed. */
static bool has_hidden(const struct ddl_config *k)
{
    return !k->beta_linear && !k->beta_constant;
}

unsigned gate_reads(const struct ddl_config *config)
{
    return config->beta_constant ? 0 : RULE_READS_CTX;
}

void gate_layout(const struct layout *l, size_t steps, float **acts)
{
    acts[GATE_HIDDEN] = layout_rows(l, has_hidden(l->config), l->config->beta_hidden);
    acts[GATE_BETA] = layout_rows(l, true, steps);
}

void gate_scratch(const struct layout *l, size_t steps, float **scratch)
{
    scratch[GATE_DHIDDEN] = layout_rows(l, has_hidden(l->config), l->config->beta_hidden);
    scratch[GATE_DBETA] = layout_rows(l, true, steps);
}

/* Factor of the gate. */
static float scale_of(const struct sublayer *s)
{
    return s->force && (s->force->keys & DDL_FORCE_SCALE) ? s->force->scale : 1;
}

/* Whether the gate is the same for every token, forced or by the configuration; *beta is set then. */
static bool is_constant(const struct sublayer *s, float *beta)
{
    bool forced = s->force && (s->force->keys & DDL_FORCE_BETA);
    *beta = forced ? s->force->beta : scale_of(s) * s->p->config->beta_constant_value;
    return forced || s->p->config->beta_constant;
}

/* The last linear layer: from ctx, or from the hidden layer. */
static struct project_args gate_args(const struct sublayer *s, size_t steps, const float *ctx)
{
    const struct ddl_config *k = s->p->config;
    return (struct project_args){ .N = s->p->N,
                                  .d = k->beta_linear ? k->d_model : k->beta_hidden,
                                  .c = steps,
                                  .sigmoid = true,
                                  .scale = k->beta_max * scale_of(s),
                                  .x = k->beta_linear ? ctx : s->acts->rule[GATE_HIDDEN],
                                  .W = param_value(s->p, s->params[GATE_WEIGHT]),
                                  .b = param_value(s->p, s->params[GATE_BIAS]),
                                  .y = s->acts->rule[GATE_BETA] };
}

void gate_fwd(const struct sublayer *s, size_t steps, const float *ctx)
{
    const struct pass *p = s->p;
    size_t width = p->config->beta_hidden;
    float *hidden = s->acts->rule[GATE_HIDDEN], *beta = s->acts->rule[GATE_BETA];
    float constant;
    if (is_constant(s, &constant)) {
        p->ops->fill(p->ctx, &(struct fill_args){ p->N * steps, constant, beta });
        probe_tensor(p, "beta", beta, steps);
        return;
    }
    if (!p->config->beta_linear) {
        linear_fwd(p, p->config->d_model, width, value_operand(ctx), param_exact(p, s->params[GATE_IN]),
                   hidden, false);
        p->ops->tanh_fwd(p->ctx, &(struct tanh_args){ p->N * width, hidden, hidden });
        probe_tensor(p, "gate_hidden", hidden, width);
    }
    struct project_args args = gate_args(s, steps, ctx);
    p->ops->project_fwd(p->ctx, &args);
    probe_tensor(p, "beta", args.y, steps);
}

struct project_grad_args project_grad(const struct pass *p, const struct project_args *fwd, const float *dy,
                                      float *dx, int weight, int bias)
{
    return (struct project_grad_args){ .N = fwd->N,
                                       .d = fwd->d,
                                       .c = fwd->c,
                                       .sigmoid = fwd->sigmoid,
                                       .scale = fwd->scale,
                                       .x = fwd->x,
                                       .W = fwd->W,
                                       .y = fwd->y,
                                       .dy = dy,
                                       .dx = dx,
                                       .dW = param_grad(p, weight),
                                       .db = param_grad(p, bias) };
}

void gate_bwd(const struct sublayer *s, size_t steps, const float *ctx, float *dctx)
{
    const struct pass *p = s->p;
    if (p->config->beta_constant)
        return;
    struct project_args fwd = gate_args(s, steps, ctx);
    float *dx = dctx;
    if (!p->config->beta_linear) {
        dx = s->scratch[GATE_DHIDDEN];
        p->ops->zero(p->ctx, dx, p->N * fwd.d * sizeof *dx);
    }
    struct project_grad_args args =
        project_grad(p, &fwd, s->scratch[GATE_DBETA], dx, s->params[GATE_WEIGHT], s->params[GATE_BIAS]);
    p->ops->project_bwd(p->ctx, &args);
    probe_grad(p, s->params[GATE_WEIGHT]);
    probe_grad(p, s->params[GATE_BIAS]);
    if (!p->config->beta_linear) {
        p->ops->tanh_bwd(p->ctx,
                         &(struct tanh_grad_args){ p->N * fwd.d, s->acts->rule[GATE_HIDDEN], dx, dx });
        probe_tensor(p, "dgate_hidden", dx, fwd.d);
        linear_bwd(p, p->config->d_model, fwd.d, value_operand(ctx), value_operand(dx),
                   param_exact_bwd(p, s->params[GATE_IN]), dctx, true);
        probe_grad(p, s->params[GATE_IN]);
    }
}

/* ---- what it shows ---- */

const float *gate_data(const struct sublayer *s)
{
    return s->acts->rule[GATE_BETA];
}

double gate_top(const struct ddl_config *config)
{
    return (double)config->beta_max;
}

const struct ddl_figure gate_figures[] = {
    { "beta_mean", "mean of the gate β", "β", NULL, 2, DDL_FIGURE_MEAN },
    { "beta_q05", "5 % quantile of β", "5%", NULL, 2, DDL_FIGURE_Q05 },
    { "beta_q25", "25 % quantile of β", NULL, NULL, 2, DDL_FIGURE_Q25 },
    { "beta_q50", "median of β", NULL, NULL, 2, DDL_FIGURE_Q50 },
    { "beta_q75", "75 % quantile of β", NULL, NULL, 2, DDL_FIGURE_Q75 },
    { "beta_q95", "95 % quantile of β", "95%", NULL, 2, DDL_FIGURE_Q95 },
    { "beta_min", "lowest β", NULL, NULL, 2, DDL_FIGURE_MIN },
    { "beta_max", "highest β", NULL, NULL, 2, DDL_FIGURE_MAX },
    { "skip", "share of β < 0.1", "skip", NULL, 2, DDL_FIGURE_SKIP },
    { "match", "share of 0.9 ≤ β ≤ 1.1", "match", NULL, 2, DDL_FIGURE_MATCH },
    { "over", "share of β > 1.1", "over", NULL, 2, DDL_FIGURE_OVER },
    { "reflect", "share of β > 1.9", "refl", NULL, 2, DDL_FIGURE_REFLECT },
    { 0 },
};

const struct ddl_behavior gate_factor_behaviors[] = {
    { 0, 0.1, "behaves as skip" },
    { 0.9, 1.1, "behaves as addition" },
    { 0 },
};
