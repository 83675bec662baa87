/* scale: X' = X + lambda (*) f (docs/equations.md, 9), with lambda a parameter: one number, or one per
 * feature (LayerScale). Backward: df = lambda (*) dX', dlambda = sum dX' (*) f, dX = dX'; the state is
 * reversed in place. */
#include "model/params/gradients.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"
#include "model/residual/gate.h"
#include "model/residual/table.h"

#include <math.h>

enum { LAMBDA }; /* its parameter */

static void params(struct param_plan *plan, int *index)
{
    const struct ddl_config *k = plan->config;
    const struct param_row row = { .name = "scale",
                                   .shape = { weights_per_row(k) },
                                   .group = DDL_GROUP_NORM,
                                   .init = param_init_constant((double)k->scale_init) };
    param_plan_add(plan, &row, &index[LAMBDA]);
}

static void write_fwd(const struct sublayer *s, struct operand x_in, struct operand ctx)
{
    (void)x_in;
    (void)ctx;
    add_scaled_fwd(s, weights_per_row(s->p->config), param_value(s->p, s->params[LAMBDA]));
}

static struct operand write_bwd(const struct sublayer *s)
{
    const struct pass *p = s->p;
    int index = s->params[LAMBDA];
    struct operand df =
        add_scaled_bwd(s, weights_per_row(p->config), param_value(p, index), param_grad(p, index));
    probe_grad(p, index);
    return df;
}

static double flops(const struct ddl_config *config)
{
    return 2 * (double)config->d_model;
}

static size_t lambda_width(const struct ddl_config *config, size_t layer, int sub)
{
    (void)layer;
    (void)sub;
    return weights_per_row(config);
}

static const float *lambda_data(const struct sublayer *s)
{
    return param_value(s->p, s->params[LAMBDA]);
}

static void lambda_derive(size_t width, const float *lambda, double *figures)
{
    figures[0] = 0;
    figures[1] = INFINITY;
    figures[2] = -INFINITY;
    for (size_t i = 0; i < width; i++) {
        figures[0] += (double)lambda[i] / (double)width;
        figures[1] = fmin(figures[1], (double)lambda[i]);
        figures[2] = fmax(figures[2], (double)lambda[i]);
    }
}

static const struct ddl_figure lambda_figures[] = {
    { "lambda_mean", "mean of λ over features", "λ", "λ", 3, DDL_FIGURE_FACTOR },
    { "lambda_min", "lowest λ", "min", "λ lowest", 3, DDL_FIGURE_FACTOR },
    { "lambda_max", "highest λ", "max", "λ highest", 3, DDL_FIGURE_FACTOR },
    { 0 },
};

static const struct trace_tensor traced[] = {
    { .name = "lambda",
      .about = "factor λ of F's output",
      .extent = TRACE_PARAMETER,
      .width = lambda_width,
      .data = lambda_data,
      .figures = lambda_figures,
      .derive = lambda_derive,
      .behaviors = gate_factor_behaviors,
      .symbol = "λ",
      .range = { 1, 2 } },
    { 0 },
};

const struct residual_rule residual_scale = {
    .prefix = "res",
    .earlier = STREAM_REVERSED,
    .normalizes_f = true,
    .one_channel = true,
    .ops_fwd = DDL_OP_LIST(DDL_OP_scale_fwd),
    .ops_bwd = DDL_OP_LIST(DDL_OP_scale_bwd),
    .params = params,
    .read_fwd = read_stream_fwd,
    .read_bwd = read_stream_bwd,
    .write_fwd = write_fwd,
    .write_bwd = write_bwd,
    .flops = flops,
    .force_keys = DDL_FORCE_F_SCALE,
    .traced = traced,
};
