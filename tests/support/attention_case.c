#include "support/attention_case.h"

#include <math.h>

struct attention_args attention_case(struct attention_args a, size_t caches, size_t span, float spread,
                                     bool bf16)
{
    size_t width = a.H * a.h, stride = width + 3;
    a.scale = 1 / sqrtf((float)a.h);
    a.q_stride = a.k_stride = stride;
    a.v_stride = width;
    a.k_batch = (span + 2) * stride;
    a.v_batch = (span + 1) * width;
    a.q = floats_around(a.B * a.T * stride, 0, spread);
    a.k = bf16 ? NULL : some_floats(caches * a.k_batch);
    a.k16 = bf16 ? some_halves(caches * a.k_batch) : NULL;
    a.v = bf16 ? NULL : some_floats(caches * a.v_batch);
    a.v16 = bf16 ? some_halves(caches * a.v_batch) : NULL;
    return a;
}

void call_attention_fwd(const struct ddl_backend *backend, const void *args)
{
    backend->ops->attention_fwd(backend->ctx, args);
}

void compare_attention(struct attention_args a, size_t span, double limit)
{
    const struct ddl_limits limits = { .T = span, .h = a.h };
    struct output out[] = { { &a.y, a.B * a.T * a.H * a.h, limit, NULL },
                            { &a.lse, a.B * a.T * a.H, limit, NULL } };
    compare_within(&limits, call_attention_fwd, &a, 2, out);
    a.lse = NULL;
    compare_within(&limits, call_attention_fwd, &a, 1, out);
}
