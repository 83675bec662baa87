#include "backend/ref/ref.h"

#include <string.h>

void ref_gather(void *ctx, const struct gather_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++)
        memcpy(a->y + n * a->width, a->x + (size_t)a->index[n] * a->width, a->width * sizeof *a->y);
}

void ref_embed_bwd(void *ctx, const struct embed_grad_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->N; n++) {
        for (size_t i = 0; i < a->d; i++)
            a->dE[(size_t)a->tokens[n] * a->d + i] += a->dx[n * a->d + i];
    }
}
