/* How a sublayer's output f enters the stream. */
#ifndef DDL_MODEL_RESIDUAL_H
#define DDL_MODEL_RESIDUAL_H

#include "model/pass.h"

bool residual_uses_f(const struct ddl_config *config, size_t layer);
bool residual_uses_target(const struct ddl_config *config);
void residual_delta_fwd(const struct pass *p, size_t layer, int sub, const float *x_in, const float *ctx);
void residual_delta_bwd(const struct pass *p, size_t layer, int sub);
void residual_context_bwd(const struct pass *p, size_t layer, int sub, const float *ctx, float *dctx);
void residual_stream_bwd(const struct pass *p, size_t layer, int sub, const float *x_in, float *dx_in);

#endif
