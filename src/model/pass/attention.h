/* Causal self-attention. */
#ifndef DDL_MODEL_ATTENTION_H
#define DDL_MODEL_ATTENTION_H

#include "model/pass/operand.h"
#include "model/pass/pass.h"

/* ctx (N, d) -> f (N, R, d), R the steps of the layer's residual rule; `add` accumulates into f. bwd
 * recomputes what was not kept and writes dctx. */
void attention_fwd(const struct pass *p, size_t layer, struct operand ctx, float *f, bool add);
void attention_bwd(const struct pass *p, size_t layer, struct operand ctx, struct operand df, float *dctx);

#endif
