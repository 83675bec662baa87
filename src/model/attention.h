/* Causal self-attention. */
#ifndef DDL_MODEL_ATTENTION_H
#define DDL_MODEL_ATTENTION_H

#include "model/pass.h"

/* ctx (N, d) -> f (N, d); `add` accumulates into f. bwd recomputes what was not kept and writes dctx. */
void attention_fwd(const struct pass *p, size_t layer, const float *ctx, float *f, bool add);
void attention_bwd(const struct pass *p, size_t layer, const float *ctx, const float *df, float *dctx);

#endif
