/* delta: X' = X + beta k (v - k^T X)^T (docs/equations.md, 1 and 9), with the gate beta of gate.h, a
 * direction q = |q| k and a target v. k-map: q = f, and v from x_in or ctx. v-map: v from f, and q = phi_k of
 * x_in (of ctx for c = 1). With ddl_steps R > 1 (k-map) a sublayer takes R such steps in order, each with its
 * own part of f, gates and targets. Backward reverses the state in place. */
#include "model/params/gradients.h"
#include "model/pass/linear.h"
#include "model/params/precision.h"
#include "model/observe/probe_calls.h"
#include "model/residual/delta_figures.h"
#include "model/residual/gate.h"
#include "model/residual/table.h"

#include <math.h>

/* Parameters, after those of the gate. */
enum { V_WEIGHT = GATE_PARAMS, V_BIAS, K_PROJ, K_DOWN, K_UP, N_PARAMS };
/* Activations: (N, d) q, with the k-map f, (N, R, d); (N, R, c); (N, R, c). */
enum { Q = GATE_ACTS, READOUT, TARGET, N_ACTS };
enum { DV = GATE_SCRATCH, N_SCRATCH }; /* scratch: the gradient of the target */
/* Factors, v-map: (N, r) between k_down and k_up; scratch: the gradients of q and of LOW. */
enum { LOW };
enum { DQ, DLOW };
_Static_assert((int)N_PARAMS <= RULE_PARAMS && (int)N_ACTS <= RULE_ACTS && (int)N_SCRATCH <= RULE_SCRATCH,
               "the tables of workspace.h and params.h are too small for this rule");

static ddl_status check(const struct ddl_config *config, struct ddl_error *err)
{
    if (!config->v_constant && config->v_sigmoid && config->v_scale == 0)
        return ddl_error_set(err, DDL_E_USAGE, "ddl_v_sigmoid_scale: expected another number than 0");
    if (config->map == DDL_MAP_K || config->steps == 1)
        return DDL_OK;
    return ddl_error_set(err, DDL_E_USAGE, "ddl_steps is %zu, but ddl_map is v: several steps need ddl_map k",
                         config->steps);
}

static size_t steps(const struct ddl_config *config)
{
    return config->steps;
}

/* Whether a target is read: by a parameter and with an effect. */
static bool uses_target(const struct ddl_config *config)
{
    return !config->v_constant && config->update != DDL_UPDATE_ERASE;
}

/* f is the direction (k-map), or gives the target (v-map). */
static bool uses_f(const struct ddl_config *config)
{
    return config->map == DDL_MAP_K || uses_target(config);
}

static unsigned reads(const struct ddl_config *config)
{
    /* a target without effect is computed too, for reports */
    bool target = config->map == DDL_MAP_K && config->v_input == DDL_V_CONTEXT && !config->v_constant;
    bool direction = config->map == DDL_MAP_V && config->channels > 1;
    unsigned sums = config->map == DDL_MAP_V ? RULE_SUMS_DF : 0;
    return gate_reads(config) | (target ? RULE_READS_CTX : 0) | (direction ? RULE_MULTIPLIES_X_IN : 0) | sums;
}

static void params(struct param_plan *plan, int *index)
{
    const struct ddl_config *k = plan->config;
    size_t d = k->d_model, c = k->steps * k->channels, r = k->k_rank;
    int idle = uses_target(k) ? 0 : PARAM_INACTIVE;
    struct param_init matrix = param_init_matrix(k), bias = { INIT_UNIFORM, sqrt((double)d) };
    const struct param_row v_weight = { "v_proj.weight", { c, d }, DDL_GROUP_MATRIX, matrix, idle, NULL };
    const struct param_row v_bias = { "v_proj.bias", { c }, DDL_GROUP_BIAS, bias, idle, NULL };
    const struct param_row k_proj = {
        "k_proj.weight", { d, d }, DDL_GROUP_MATRIX, matrix, PARAM_HIDDEN, NULL
    };
    const struct param_row k_down = {
        "k_down.weight", { r, d }, DDL_GROUP_MATRIX, matrix, PARAM_HIDDEN, NULL
    };
    const struct param_row k_up = { "k_up.weight", { d, r }, DDL_GROUP_MATRIX, matrix, PARAM_HIDDEN, NULL };
    gate_params(plan, k->steps, index);
    param_plan_add(plan, &v_weight, &index[V_WEIGHT]);
    param_plan_add(plan, &v_bias, &index[V_BIAS]);
    if (k->map == DDL_MAP_K)
        return;
    if (!r) {
        param_plan_add(plan, &k_proj, &index[K_PROJ]);
        return;
    }
    param_plan_add(plan, &k_down, &index[K_DOWN]);
    param_plan_add(plan, &k_up, &index[K_UP]);
}

static void layout(const struct layout *l, float **acts)
{
    const struct ddl_config *k = l->config;
    acts[Q] = layout_rows(l, k->map == DDL_MAP_V, k->d_model);
    gate_layout(l, k->steps, acts);
    acts[READOUT] = layout_rows(l, true, k->steps * k->channels);
    acts[TARGET] = layout_rows(l, true, k->steps * k->channels);
}

static void scratch(const struct layout *l, float **out)
{
    const struct ddl_config *k = l->config;
    gate_scratch(l, k->steps, out);
    out[DV] = layout_rows(l, true, k->steps * k->channels);
}

static void layout_factors(const struct layout *l, struct activation *factors)
{
    const struct ddl_config *k = l->config;
    factors[LOW] = layout_factor(l, k->map == DDL_MAP_V && k->k_rank, k->k_rank);
}

static void scratch_factors(const struct layout *l, struct activation *factors)
{
    const struct ddl_config *k = l->config;
    factors[DQ] = layout_factor(l, k->map == DDL_MAP_V, k->d_model);
    factors[DLOW] = layout_factor(l, k->map == DDL_MAP_V && k->k_rank, k->k_rank);
}

/* The update of the configuration, or the forced one. */
static int update_of(const struct sublayer *s)
{
    bool forced = s->force && (s->force->keys & DDL_FORCE_UPDATE);
    return forced ? s->force->update : s->p->config->update;
}

static float *direction_of(const struct sublayer *s)
{
    return s->p->config->map == DDL_MAP_V ? s->acts->rule[Q] : s->acts->f;
}

static struct project_args target_args(const struct sublayer *s, const float *source)
{
    const struct ddl_config *k = s->p->config;
    return (struct project_args){ .N = s->p->N,
                                  .d = k->d_model,
                                  .c = k->steps * k->channels,
                                  .sigmoid = k->v_sigmoid,
                                  .scale = k->v_scale,
                                  .x = source,
                                  .W = param_value(s->p, s->params[V_WEIGHT]),
                                  .b = param_value(s->p, s->params[V_BIAS]),
                                  .y = s->acts->rule[TARGET] };
}

static void target_fwd(const struct sublayer *s, const float *source)
{
    const struct pass *p = s->p;
    const struct ddl_config *k = p->config;
    size_t width = k->steps * k->channels;
    if (k->v_constant) {
        p->ops->fill(p->ctx, &(struct fill_args){ p->N * width, k->v_constant_value, s->acts->rule[TARGET] });
    } else {
        struct project_args args = target_args(s, source);
        p->ops->project_fwd(p->ctx, &args);
    }
    probe_tensor(p, "target", s->acts->rule[TARGET], width);
}

/* Adds to dsource.value, the gradient of what the target was read from. */
static void target_bwd(const struct sublayer *s, const float *source, struct activation dsource)
{
    struct project_args fwd = target_args(s, source);
    struct project_grad_args args =
        project_grad(s->p, &fwd, s->scratch[DV], dsource.value, s->params[V_WEIGHT], s->params[V_BIAS]);
    args.dx16 = dsource.bf16;
    s->p->ops->project_bwd(s->p->ctx, &args);
    probe_grad(s->p, s->params[V_WEIGHT]);
    probe_grad(s->p, s->params[V_BIAS]);
}

/* q = phi_k(source), v-map. */
static void direction_fwd(const struct sublayer *s, struct operand source)
{
    const struct pass *p = s->p;
    size_t d = p->config->d_model, r = p->config->k_rank;
    float *q = s->acts->rule[Q];
    struct activation low = s->acts->factor[LOW];
    if (r) {
        linear_fwd_rounded(p, d, r, source, param_weight(p, s->params[K_DOWN]), low);
        probe_activation(p, "low", low, p->N, r);
        linear_fwd(p, r, d, operand_of(low), param_weight(p, s->params[K_UP]), q, false);
    } else {
        linear_fwd(p, d, d, source, param_weight(p, s->params[K_PROJ]), q, false);
    }
    probe_tensor(p, "q", q, d);
}

/* Adds to dsource. */
static void direction_bwd(const struct sublayer *s, struct operand source, float *dsource)
{
    const struct pass *p = s->p;
    size_t d = p->config->d_model, r = p->config->k_rank;
    struct activation dlow = s->scratch_factor[DLOW];
    const struct operand dq = operand_of(s->scratch_factor[DQ]), low = operand_of(s->acts->factor[LOW]);
    if (r) {
        linear_bwd_rounded(p, r, d, low, dq, param_weight_bwd(p, s->params[K_UP]), dlow);
        probe_grad(p, s->params[K_UP]);
        probe_activation(p, "dlow", dlow, p->N, r);
        linear_bwd(p, d, r, source, operand_of(dlow), param_weight_bwd(p, s->params[K_DOWN]), dsource, true);
        probe_grad(p, s->params[K_DOWN]);
    } else {
        linear_bwd(p, d, d, source, dq, param_weight_bwd(p, s->params[K_PROJ]), dsource, true);
        probe_grad(p, s->params[K_PROJ]);
    }
}

static void context_fwd(const struct sublayer *s, const float *x_in, const float *ctx)
{
    const struct ddl_config *k = s->p->config;
    gate_fwd(s, k->steps, ctx);
    if (k->map == DDL_MAP_K)
        target_fwd(s, k->v_input == DDL_V_CONTEXT ? ctx : x_in);
}

static void write_fwd(const struct sublayer *s, struct operand x_in, struct operand ctx)
{
    const struct pass *p = s->p;
    const struct ddl_config *k = p->config;
    if (k->map == DDL_MAP_V) {
        direction_fwd(s, k->channels > 1 ? x_in : ctx);
        target_fwd(s, s->acts->f);
    }
    p->ops->delta_fwd(p->ctx, &(struct ddl_delta_args){ .N = p->N,
                                                        .d = k->d_model,
                                                        .c = k->channels,
                                                        .steps = k->steps,
                                                        .eps = k->k_eps,
                                                        .form = DDL_FORM_UNIT,
                                                        .update = update_of(s),
                                                        .X = s->stream->X,
                                                        .q = direction_of(s),
                                                        .v = s->acts->rule[TARGET],
                                                        .beta = s->acts->rule[GATE_BETA],
                                                        .X_out = s->stream->X,
                                                        .readout = s->acts->rule[READOUT] });
    probe_tensor(p, "readout", s->acts->rule[READOUT], k->steps * k->channels);
}

/* X' -> X and dX' -> A dX' in place; dbeta, dv, and dq or df. */
static struct operand write_bwd(const struct sublayer *s)
{
    const struct pass *p = s->p;
    const struct ddl_config *k = p->config;
    struct activation dq = k->map == DDL_MAP_V ? s->scratch_factor[DQ] : s->df;
    p->ops->delta_bwd(p->ctx, &(struct ddl_delta_grad_args){ .N = p->N,
                                                             .d = k->d_model,
                                                             .c = k->channels,
                                                             .steps = k->steps,
                                                             .eps = k->k_eps,
                                                             .form = DDL_FORM_UNIT,
                                                             .update = k->update,
                                                             .X_next = s->stream->X,
                                                             .q = direction_of(s),
                                                             .v = s->acts->rule[TARGET],
                                                             .beta = s->acts->rule[GATE_BETA],
                                                             .readout = s->acts->rule[READOUT],
                                                             .G = s->stream->dX,
                                                             .dX = s->stream->dX,
                                                             .dq = dq.value,
                                                             .dq16 = dq.bf16,
                                                             .dv = s->scratch[DV],
                                                             .dbeta = s->scratch[GATE_DBETA] });
    probe_tensor(p, "X", s->stream->X, k->d_model * k->channels);
    probe_tensor(p, "dbeta", s->scratch[GATE_DBETA], k->steps);
    probe_tensor(p, "dtarget", s->scratch[DV], k->steps * k->channels);
    probe_activation(p, k->map == DDL_MAP_V ? "dq" : "df", dq, p->N, k->steps * k->d_model);
    probe_tensor(p, "dX", s->stream->dX, k->d_model * k->channels);
    if (k->map == DDL_MAP_K)
        return operand_of(dq);
    if (!uses_f(k))
        return (struct operand){ 0 };
    p->ops->zero(p->ctx, s->df.value, p->N * k->d_model * sizeof *s->df.value);
    struct activation df = { .value = s->df.value, .bf16 = p->ws->df.bf16 };
    target_bwd(s, s->acts->f, df);
    probe_tensor(p, "df", s->df.value, k->d_model);
    return operand_of(df);
}

static void context_bwd(const struct sublayer *s, struct operand ctx, float *dctx)
{
    const struct ddl_config *k = s->p->config;
    gate_bwd(s, k->steps, ctx.value, dctx);
    if (k->map == DDL_MAP_K && k->v_input == DDL_V_CONTEXT && uses_target(k))
        target_bwd(s, ctx.value, (struct activation){ .value = dctx });
    if (k->map == DDL_MAP_V && k->channels == 1)
        direction_bwd(s, ctx, dctx);
    probe_tensor(s->p, "dctx", dctx, k->d_model);
}

static void input_bwd(const struct sublayer *s, struct operand x_in, float *dx_in)
{
    const struct ddl_config *k = s->p->config;
    if (k->map == DDL_MAP_K && k->v_input == DDL_V_STREAM && uses_target(k))
        target_bwd(s, x_in.value, (struct activation){ .value = dx_in, .bf16 = s->stream->dX16 });
    if (k->map == DDL_MAP_V && k->channels > 1)
        direction_bwd(s, x_in, dx_in);
    probe_tensor(s->p, k->channels > 1 ? "dx_in" : "dX", dx_in, k->d_model);
}

/* Of each step: k^T X, the rank-1 update, |q|^2 and k. */
static double flops(const struct ddl_config *config)
{
    double d = (double)config->d_model, c = (double)config->channels;
    return (double)config->steps * (4 * d * c + 4 * d);
}

static size_t step_channels(const struct ddl_config *config, size_t layer, int sub)
{
    (void)layer;
    (void)sub;
    return config->channels;
}

static size_t features(const struct ddl_config *config, size_t layer, int sub)
{
    (void)layer;
    (void)sub;
    return config->d_model;
}

static const float *readout_data(const struct sublayer *s)
{
    return s->acts->rule[READOUT];
}

static const float *target_data(const struct sublayer *s)
{
    return s->acts->rule[TARGET];
}

/* NULL with the k-map. */
static const float *q_data(const struct sublayer *s)
{
    return s->acts->rule[Q];
}

static const struct ddl_behavior behaviors[] = {
    { 0, 0.1, "behaves as skip" },
    { 0.9, 1.1, "behaves as overwrite" },
    { 1.9, 2, "behaves as reflection" },
    { 0 },
};

static const struct trace_tensor traced[] = {
    [DELTA_BETA] = GATE_TRACED(behaviors),
    [DELTA_READOUT] = { .name = "readout",
                        .about = "kᵀX of the state that a step was given",
                        .extent = TRACE_STEPS,
                        .width = step_channels,
                        .data = readout_data },
    [DELTA_TARGET] = { .name = "target",
                       .about = "target v",
                       .extent = TRACE_STEPS,
                       .is_used = true,
                       .width = step_channels,
                       .data = target_data },
    [DELTA_Q] = { .name = "q",
                  .about = "v-map: the direction before normalization",
                  .extent = TRACE_TOKENS,
                  .width = features,
                  .data = q_data },
    { 0 },
};

static float k_eps(const struct ddl_config *config)
{
    return config->k_eps;
}

static const struct trace_update update = {
    .figures = delta_figures,
    .direction = DELTA_Q,
    .gate = DELTA_BETA,
    .k_eps = k_eps,
    .update = update_of,
    .add = delta_figures_add,
    .set = delta_figures_set,
    .take = delta_figures_take,
};

static size_t widest(const struct ddl_config *config)
{
    return config->k_rank;
}

static const char *release_file(const struct ddl_config *config, const char **why)
{
    bool conv = config->embed == DDL_EMBED_CONV;
    if (config->map == DDL_MAP_V)
        *why = "ddl_map v";
    else if (config->update != DDL_UPDATE_DELTA)
        *why = config->update == DDL_UPDATE_WRITE ? "ddl_update write" : "ddl_update erase";
    else if (config->beta_constant)
        *why = "ddl_beta_constant";
    else if (config->beta_max != 2)
        *why = "ddl_beta_max";
    else if (config->steps > 1)
        *why = "ddl_steps";
    else if (config->v_input == DDL_V_CONTEXT && !config->v_constant)
        *why = "ddl_v_input context";
    else if (config->channels == 1)
        return "DDL-vdim1";
    else if (config->compress == DDL_COMPRESS_MIX)
        *why = "ddl_compress mix";
    else if (config->compress == DDL_COMPRESS_CHANNEL && ddl_config_state_kernel(config) != config->channels)
        *why = "ddl_state_shortconv_kernel_size other than ddl_value_channels with ddl_compress channel";
    else if (config->compress == DDL_COMPRESS_CHANNEL)
        return conv ? "DDL-CC-EC" : "DDL-CC";
    else
        return conv ? "DDL-EC" : "DDL";
    return NULL;
}

const struct residual_rule residual_delta = {
    .prefix = "ddl",
    .release_tensor = "v_proj.weight",
    .earlier = STREAM_REVERSED,
    .check = check,
    .ops_fwd = DDL_OP_LIST(DDL_OP_delta_fwd, DDL_OP_project_fwd, DDL_OP_tanh_fwd, DDL_OP_fill),
    .ops_bwd = DDL_OP_LIST(DDL_OP_delta_bwd, DDL_OP_project_bwd, DDL_OP_tanh_bwd),
    .params = params,
    .layout = layout,
    .scratch = scratch,
    .layout_factors = layout_factors,
    .scratch_factors = scratch_factors,
    .reads = reads,
    .read_fwd = read_stream_fwd,
    .read_bwd = read_stream_bwd,
    .context_fwd = context_fwd,
    .write_fwd = write_fwd,
    .write_bwd = write_bwd,
    .context_bwd = context_bwd,
    .input_bwd = input_bwd,
    .steps = steps,
    .uses_f = uses_f,
    .flops = flops,
    .force_keys = DDL_FORCE_BETA | DDL_FORCE_SCALE | DDL_FORCE_UPDATE,
    .traced = traced,
    .update = &update,
    .widest = widest,
    .release_file = release_file,
};
