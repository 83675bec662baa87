/* Matrix products in the words of a layer: y = x W^T and its two gradients. */
#include "model/internal.h"

void linear_fwd(const struct pass *p, size_t N, size_t in, size_t out, const float *x, const float *W,
                float *y, bool accumulate)
{
    p->ops->matmul(p->ctx, &(struct matmul_args){ .trans_b = true,
                                                  .M = N,
                                                  .N = out,
                                                  .K = in,
                                                  .alpha = 1,
                                                  .A = x,
                                                  .lda = in,
                                                  .B = W,
                                                  .ldb = in,
                                                  .beta = accumulate ? 1 : 0,
                                                  .C = y,
                                                  .ldc = out });
}

void linear_bwd_x(const struct pass *p, size_t N, size_t in, size_t out, const float *dy, const float *W,
                  float *dx, bool accumulate)
{
    p->ops->matmul(p->ctx, &(struct matmul_args){ .M = N,
                                                  .N = in,
                                                  .K = out,
                                                  .alpha = 1,
                                                  .A = dy,
                                                  .lda = out,
                                                  .B = W,
                                                  .ldb = in,
                                                  .beta = accumulate ? 1 : 0,
                                                  .C = dx,
                                                  .ldc = in });
}

void linear_bwd_w(const struct pass *p, size_t N, size_t in, size_t out, const float *dy, const float *x,
                  float *dW)
{
    p->ops->matmul(p->ctx, &(struct matmul_args){ .trans_a = true,
                                                  .M = out,
                                                  .N = in,
                                                  .K = N,
                                                  .alpha = 1,
                                                  .A = dy,
                                                  .lda = out,
                                                  .B = x,
                                                  .ldb = in,
                                                  .beta = 1,
                                                  .C = dW,
                                                  .ldc = in });
}

float *param_value(const struct pass *p, int slot)
{
    return slot < 0 ? NULL : p->m->value + p->m->params.offset[slot];
}

float *param_grad(const struct pass *p, int slot)
{
    return slot < 0 ? NULL : p->m->grad + p->m->params.offset[slot];
}
