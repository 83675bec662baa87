/* The gate beta of a sublayer: ddl_beta_max sigmoid(...) of ctx, through one linear map or an MLP with a
 * tanh; or, with ddl_beta_constant, a constant. Its parameters then exist and are inactive. */
#ifndef DDL_MODEL_RESIDUAL_GATE_H
#define DDL_MODEL_RESIDUAL_GATE_H

#include "model/residual/rule.h"

/* Its parameters, activations and scratch; a rule that has a gate holds them from index 0 of its own. */
enum { GATE_IN, GATE_WEIGHT, GATE_BIAS, GATE_PARAMS };
enum { GATE_BETA, GATE_HIDDEN, GATE_ACTS }; /* (N, steps); (N, beta_hidden) after the tanh, or NULL */
enum { GATE_DBETA, GATE_DHIDDEN, GATE_SCRATCH };

/* steps: how many gates a sublayer has. */
void gate_params(struct param_plan *plan, size_t steps, int *index);
/* What it reads: constants of rule.h. */
unsigned gate_reads(const struct ddl_config *config);
void gate_layout(const struct layout *l, size_t steps, float **acts);
void gate_scratch(const struct layout *l, size_t steps, float **scratch);
/* ctx (N, d) -> acts[GATE_BETA]. */
void gate_fwd(const struct sublayer *s, size_t steps, const float *ctx);
/* From scratch[GATE_DBETA]: adds to dctx and to the parameters' gradients; nothing if the gate is constant.
 */
void gate_bwd(const struct sublayer *s, size_t steps, const float *ctx, float *dctx);

/* Arguments of the backward op for a projection y = scale sigmoid(W x + b) with parameters `weight` and
 * `bias`. */
struct project_grad_args project_grad(const struct pass *p, const struct project_args *fwd, const float *dy,
                                      float *dx, int weight, int bias);

/* The row of a rule's list of tensors; what its range says of the sublayer. */
#define GATE_TRACED(its_behaviors)                                                                           \
    {                                                                                                        \
        .name = "beta", .about = "gate β", .extent = TRACE_STEPS, .summary = TRACE_HISTOGRAM,                \
        .data = gate_data, .top = gate_top, .figures = gate_figures, .behaviors = (its_behaviors),           \
        .symbol = "gate", .range = {                                                                         \
            1,                                                                                               \
            5                                                                                                \
        }                                                                                                    \
    }
const float *gate_data(const struct sublayer *s);
double gate_top(const struct ddl_config *config);
extern const struct ddl_figure gate_figures[];
/* Of a factor of F's output. */
extern const struct ddl_behavior gate_factor_behaviors[];

#endif
