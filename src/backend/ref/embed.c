#include "backend/ref/ref.h"

#include <string.h>

void ref_embed_fwd(void *ctx, const struct embed_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++)
        memcpy(a->x + n * a->d, a->E + (size_t)a->tokens[n] * a->d, a->d * sizeof *a->x);
}

void ref_embed_bwd(void *ctx, const struct embed_grad_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        for (size_t i = 0; i < a->d; i++)
            a->dE[(size_t)a->tokens[n] * a->d + i] += a->dx[n * a->d + i];
    }
}
