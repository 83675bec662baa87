/* Gradients of the parameters, with lazy zeroing. */
#ifndef DDL_MODEL_GRADIENTS_H
#define DDL_MODEL_GRADIENTS_H

#include "model/pass/operand.h"
#include "model/pass/pass.h"

/* The gradient of row i, to be read or added to; and of row `param`, NULL for -1. */
float *gradient_of(struct ddl_model *model, size_t i);
float *param_grad(const struct pass *p, int param);
/* param_weight and param_exact with the gradient; of fused rows, the gradients of all of them. The caller
 * must write all of it: the gradient is no longer known to be zero. */
struct weight param_weight_bwd(const struct pass *p, int param);
struct weight param_exact_bwd(const struct pass *p, int param);
/* Zeroes the gradients of row `first` and of the rows after it that are flagged. */
void gradients_zero_flagged(struct ddl_model *model, size_t first);
/* Reports that this pass writes no more to the gradients of row `first` and of the rows after it. */
void gradients_are_final(const struct pass *p, size_t first);

#endif
