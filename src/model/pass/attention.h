/* Causal self-attention. */
#ifndef DDL_MODEL_ATTENTION_H
#define DDL_MODEL_ATTENTION_H

#include "model/observe/trace.h"
#include "model/pass/operand.h"
#include "model/pass/pass.h"

/* ctx (N, d) -> f (N, R, d), R the steps of the layer's residual rule; `add` accumulates into f. bwd
 * recomputes what was not kept and writes dctx. */
void attention_fwd(const struct pass *p, size_t layer, struct operand ctx, float *f, bool add);
void attention_bwd(const struct pass *p, size_t layer, struct operand ctx, struct operand df, float *dctx);

/* The factors (2) with which attention of the layer mixes its values with those of layer 0, in backend
 * memory; NULL if it does not, or is forced to read its own. */
const float *attention_value_mix(const struct pass *p, size_t layer);

/* What value_residual shows. */
extern const struct trace_tensor attention_traced[];

#endif
