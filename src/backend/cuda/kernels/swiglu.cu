/* SwiGLU: s = silu(u) g. A thread computes four or two numbers of a row at a time where rows allow it. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/vectors.cuh"

__device__ inline float forward(float u, float g)
{
    return u * sigmoid(u) * g;
}

struct gradients {
    float du, dg;
};

/* silu'(u) = sigma (1 + u (1 - sigma)) */
__device__ inline gradients backward(float u, float g, float ds)
{
    const float sigma = sigmoid(u);
    return { ds * g * sigma * (1.0f + u * (1.0f - sigma)), ds * u * sigma };
}

/* Numbers of a row that a thread computes at a time: 4, or 2 where rows are half as aligned, or 1. */
__device__ inline unsigned together(bool by4, bool by2)
{
    return by4 ? 4 : by2 ? 2 : 1;
}

KERNEL(swiglu_fwd, 256, struct swiglu_args)
{
    const size_t widths = a.m | a.ug_stride | a.s_stride;
    const unsigned each = together(widths % 4 == 0 && aligned16(a.ug, a.s) && aligned8(a.ug16, a.s16),
                                   widths % 2 == 0 && aligned8(a.ug, a.s) && aligned8(a.ug16, a.s16));
    const size_t columns = a.m / each;
    for (size_t k = GRID_FIRST; k < a.N * columns; k += GRID_STRIDE) {
        const size_t n = k / columns, i = each * (k - n * columns), at = n * a.ug_stride + i,
                     to = n * a.s_stride + i;
        if (each == 4) {
            const float4 u = load_either4(a.ug, a.ug16, at), g = load_either4(a.ug, a.ug16, at + a.m);
            store_either4(
                a.s, a.s16, to,
                make_float4(forward(u.x, g.x), forward(u.y, g.y), forward(u.z, g.z), forward(u.w, g.w)));
        } else if (each == 2) {
            const float2 u = load_either2(a.ug, a.ug16, at), g = load_either2(a.ug, a.ug16, at + a.m);
            store_either2(a.s, a.s16, to, make_float2(forward(u.x, g.x), forward(u.y, g.y)));
        } else {
            const float u = load_either(a.ug, a.ug16, at), g = load_either(a.ug, a.ug16, at + a.m);
            store_either(a.s, a.s16, to, forward(u, g));
        }
    }
}

KERNEL(swiglu_bwd, 256, struct swiglu_grad_args)
{
    const size_t widths = a.m | a.ug_stride;
    const unsigned each =
        together(widths % 4 == 0 && aligned16(a.ug, a.ds, a.dug) && aligned8(a.ug16, a.dug16),
                 widths % 2 == 0 && aligned8(a.ug, a.dug) && aligned8(a.ug16, a.dug16) && aligned8(a.ds));
    const size_t columns = a.m / each;
    for (size_t k = GRID_FIRST; k < a.N * columns; k += GRID_STRIDE) {
        const size_t n = k / columns, i = each * (k - n * columns), at = n * a.ug_stride + i;
        if (each == 4) {
            const float4 u = load_either4(a.ug, a.ug16, at), g = load_either4(a.ug, a.ug16, at + a.m);
            const float4 ds = load4(a.ds, n * a.m + i);
            const gradients x = backward(u.x, g.x, ds.x), y = backward(u.y, g.y, ds.y),
                            z = backward(u.z, g.z, ds.z), w = backward(u.w, g.w, ds.w);
            store_either4(a.dug, a.dug16, at, make_float4(x.du, y.du, z.du, w.du));
            store_either4(a.dug, a.dug16, at + a.m, make_float4(x.dg, y.dg, z.dg, w.dg));
        } else if (each == 2) {
            const float2 u = load_either2(a.ug, a.ug16, at), g = load_either2(a.ug, a.ug16, at + a.m);
            const float2 ds = load_either2(a.ds, nullptr, n * a.m + i);
            const gradients x = backward(u.x, g.x, ds.x), y = backward(u.y, g.y, ds.y);
            store_either2(a.dug, a.dug16, at, make_float2(x.du, y.du));
            store_either2(a.dug, a.dug16, at + a.m, make_float2(x.dg, y.dg));
        } else {
            const float u = load_either(a.ug, a.ug16, at), g = load_either(a.ug, a.ug16, at + a.m);
            const gradients x = backward(u, g, a.ds[n * a.m + i]);
            store_either(a.dug, a.dug16, at, x.du);
            store_either(a.dug, a.dug16, at + a.m, x.dg);
        }
    }
}
