#include "support/attention_case.h"

#include "base/bf16.h"

#include <math.h>
#include <stdlib.h>

struct attention_args attention_case(struct attention_args a, size_t caches, size_t span, float spread,
                                     enum attention_format format)
{
    size_t width = a.H * a.h, stride = width + 3;
    a.scale = 1 / sqrtf((float)a.h);
    a.q_stride = a.k_stride = stride;
    a.v_stride = width;
    a.k_batch = (span + 2) * stride;
    a.v_batch = (span + 1) * width;
    a.q = format != ALL_BF16 ? floats_around(a.B * a.T * stride, 0, spread) : NULL;
    a.q16 = format == ALL_BF16 ? halves_around(a.B * a.T * stride, 0, spread) : NULL;
    a.k = format != FLOAT32 ? NULL : some_floats(caches * a.k_batch);
    a.k16 = format != FLOAT32 ? some_halves(caches * a.k_batch) : NULL;
    a.v = format != FLOAT32 ? NULL : some_floats(caches * a.v_batch);
    a.v16 = format != FLOAT32 ? some_halves(caches * a.v_batch) : NULL;
    return a;
}

void call_attention_fwd(const struct ddl_backend *backend, const void *args)
{
    struct attention_args a = *(const struct attention_args *)args;
    size_t n = a.B * a.T * a.H * a.h;
    float *y = a.y;
    if (a.q16) {
        a.y = NULL;
        a.y16 = malloc(n * sizeof *a.y16);
        assert_true(a.y16 || n == 0);
    }
    backend->ops->attention_fwd(backend->ctx, &a);
    for (size_t i = 0; a.q16 && i < n; i++)
        y[i] = ddl_bf16_widen(a.y16[i]);
    free(a.q16 ? a.y16 : NULL);
}

void compare_attention(struct attention_args a, size_t span, double limit)
{
    const struct ddl_limits limits = { .T = span, .h = a.h };
    /* Of numbers that differ by a share x, x / 2^-8 are rounded the other way, by 2^-8. Weights of two
     * bfloat16 numbers differ by 2^-17. */
    const double rounded = 2 * sqrt(0x1p-8 * (limit + 0x1p-17));
    struct output out[] = { { &a.y, a.B * a.T * a.H * a.h, a.q16 ? rounded : limit, NULL },
                            { &a.lse, a.B * a.T * a.H, limit, NULL } };
    compare_within(&limits, call_attention_fwd, &a, 2, out);
    a.lse = NULL;
    compare_within(&limits, call_attention_fwd, &a, 1, out);
}
