/* Matrix products of a layer: y = x W^T and its two gradients, in the format of the weight. */
#ifndef DDL_MODEL_LINEAR_H
#define DDL_MODEL_LINEAR_H

#include "model/pass/operand.h"
#include "model/pass/pass.h"

/* Over all rows of the pass: y (N, out) = x (N, in) W (out, in)^T, += where `accumulate`. Backward: W.grad +=
 * dy^T x, then dx = (or +=) dy W; dx may be x. Operands have the weight's format, or
 * float32 for 8-bit weights. */
void linear_fwd(const struct pass *p, size_t in, size_t out, struct operand x, struct weight W, float *y,
                bool accumulate);
/* The same with the result in the format of the weight, for an op that reads that. */
void linear_fwd_rounded(const struct pass *p, size_t in, size_t out, struct operand x, struct weight W,
                        struct activation y);
void linear_bwd(const struct pass *p, size_t in, size_t out, struct operand x, struct operand dy,
                struct weight W, float *dx, bool accumulate);
void linear_bwd_rounded(const struct pass *p, size_t in, size_t out, struct operand x, struct operand dy,
                        struct weight W, struct activation dx);
/* The same, all three products times `scale`, for operands that are in the weight's format already. */
struct linear {
    size_t N, in, out;
    float scale;
    struct weight W;
};
void product_fwd(const struct pass *p, const struct linear *l, struct operand x, struct activation y,
                 bool accumulate);
void product_bwd(const struct pass *p, const struct linear *l, struct operand x, struct operand dy,
                 struct activation dx, bool accumulate);

#endif
