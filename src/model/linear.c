/* Matrix products in the words of a layer: y = x W^T and its two gradients, in float32, with operands rounded
 * to bfloat16, or with eight-bit weights: whichever form of its values a weight comes with. */
#include "model/internal.h"

static void multiply(const struct pass *p, struct matmul_args a)
{
    a.alpha = 1;
    p->ops->matmul(p->ctx, &a);
}

static void multiply16(const struct pass *p, struct matmul16_args a)
{
    a.alpha = 1;
    p->ops->matmul16(p->ctx, &a);
}

static const uint16_t *rounded(const struct pass *p, size_t n, const float *x, uint16_t *room)
{
    p->ops->round16(p->ctx, &(struct round16_args){ n, x, room });
    return room;
}

void linear_fwd(const struct pass *p, size_t N, size_t in, size_t out, const float *x, struct weight W,
                float *y, bool accumulate)
{
    float beta = accumulate ? 1 : 0;
    if (W.groups) {
        p->ops->matmul8(p->ctx, &(struct matmul8_args){ N, out, in, 1, x, in, W.groups, accumulate, y, out });
        return;
    }
    if (!W.rounded) {
        multiply(p, (struct matmul_args){ .trans_b = true,
                                          .M = N,
                                          .N = out,
                                          .K = in,
                                          .A = x,
                                          .lda = in,
                                          .B = W.value,
                                          .ldb = in,
                                          .beta = beta,
                                          .C = y,
                                          .ldc = out });
        return;
    }
    const uint16_t *x16 = rounded(p, N * in, x, p->ws->x16);
    multiply16(p, (struct matmul16_args){ .trans_b = true,
                                          .M = N,
                                          .N = out,
                                          .K = in,
                                          .A = x16,
                                          .lda = in,
                                          .B = W.rounded,
                                          .ldb = in,
                                          .beta = beta,
                                          .C = y,
                                          .ldc = out });
}

void linear_bwd(const struct pass *p, size_t N, size_t in, size_t out, const float *x, const float *dy,
                struct weight W, float *dx, bool accumulate)
{
    float beta = accumulate ? 1 : 0;
    if (!W.rounded) {
        multiply(p, (struct matmul_args){ .trans_a = true,
                                          .M = out,
                                          .N = in,
                                          .K = N,
                                          .A = dy,
                                          .lda = out,
                                          .B = x,
                                          .ldb = in,
                                          .beta = 1,
                                          .C = W.grad,
                                          .ldc = in });
        multiply(p, (struct matmul_args){ .M = N,
                                          .N = in,
                                          .K = out,
                                          .A = dy,
                                          .lda = out,
                                          .B = W.value,
                                          .ldb = in,
                                          .beta = beta,
                                          .C = dx,
                                          .ldc = in });
        return;
    }
    const uint16_t *dy16 = rounded(p, N * out, dy, p->ws->dy16), *x16 = rounded(p, N * in, x, p->ws->x16);
    multiply16(p, (struct matmul16_args){ .trans_a = true,
                                          .M = out,
                                          .N = in,
                                          .K = N,
                                          .A = dy16,
                                          .lda = out,
                                          .B = x16,
                                          .ldb = in,
                                          .beta = 1,
                                          .C = W.grad,
                                          .ldc = in });
    multiply16(p, (struct matmul16_args){ .M = N,
                                          .N = in,
                                          .K = out,
                                          .A = dy16,
                                          .lda = out,
                                          .B = W.rounded,
                                          .ldb = in,
                                          .beta = beta,
                                          .C = dx,
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
