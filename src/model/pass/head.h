/* The final norm, logits and loss. */
#ifndef DDL_MODEL_HEAD_H
#define DDL_MODEL_HEAD_H

#include "model/pass/decode.h"
#include "model/pass/pass.h"

/* Losses (N) into the workspace; with grad the gradient of their sum, times the workspace's grad_scale, into
 * dx_out (N, d) and the parameters. */
void head_loss(const struct pass *p, const float *x_out, bool grad, float *dx_out);
/* Logits of the last `rows` positions of every sequence: host (B, rows, V). */
void head_logits(const struct pass *p, const float *x_out, size_t rows, float *host);
/* What is wanted of the logits of single rows of a ragged batch. */
void head_outputs(const struct pass *p, const float *x_out, const struct ddl_decode_batch *batch);

#endif
