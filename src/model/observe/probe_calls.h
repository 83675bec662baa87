/* Calls by which a pass reports its tensors to the workspace's probe (probe.h). */
#ifndef DDL_MODEL_PROBE_CALLS_H
#define DDL_MODEL_PROBE_CALLS_H

#include "model/pass/operand.h"
#include "model/pass/pass.h"

/* Sets the place that following tensors belong to. */
void probe_enter(const struct pass *p, bool backward, size_t layer, const char *part);
/* Reports a tensor that was just computed: (N, width), or (rows, width). No effect without a probe, or for x
 * NULL. */
void probe_tensor(const struct pass *p, const char *tensor, const float *x, size_t width);
void probe_rows(const struct pass *p, const char *tensor, const float *x, size_t first_row, size_t rows,
                size_t width);
/* The same of a tensor that may be in bfloat16 alone: it is converted a part at a time, in the memory of the
 * logits. */
void probe_activation(const struct pass *p, const char *tensor, struct activation x, size_t rows,
                      size_t width);
/* Whether the probe has requested the end of the pass. */
bool probe_stopped(const struct pass *p);
/* Reports the gradient of a row of the parameter table; no effect for -1. */
void probe_grad(const struct pass *p, int row);

#endif
