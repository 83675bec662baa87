#include "backend/ref/ref.h"

/* State number t (may be before the sequence) of sequence b at flat channel ij. */
static double state(const struct compress_args *a, size_t b, ptrdiff_t t, size_t ij)
{
    size_t dc = a->d * a->c;
    if (t >= 0)
        return a->X[(b * a->T + (size_t)t) * dc + ij];
    if (!a->past)
        return 0;
    return a->past[(b * (a->taps - 1) + (size_t)(t + (ptrdiff_t)a->taps - 1)) * dc + ij];
}

void ref_compress_fwd(void *ctx, const struct compress_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->B * a->T; n++) {
        size_t b = n / a->T, t = n % a->T;
        for (size_t i = 0; i < a->d; i++) {
            double sum = 0;
            for (size_t s = 0; s < a->taps; s++) {
                for (size_t ij = i * a->c; ij < (i + 1) * a->c; ij++)
                    sum += (double)a->e[s * a->d * a->c + ij] *
                           state(a, b, (ptrdiff_t)(t + s) - (ptrdiff_t)a->taps + 1, ij);
            }
            a->x_in[n * a->d + i] = (float)sum;
        }
    }
}

void ref_compress_bwd(void *ctx, const struct compress_grad_args *a)
{
    (void)ctx;
    size_t dc = a->d * a->c;
    for (size_t s = 0; s < a->taps; s++) {
        size_t shift = a->taps - 1 - s;
        for (size_t ij = 0; ij < dc; ij++) {
            double sum = 0;
            for (size_t n = 0; n < a->B * a->T; n++) {
                if (n % a->T >= shift)
                    sum += (double)a->dx_in[n * a->d + ij / a->c] * (double)a->X[(n - shift) * dc + ij];
            }
            a->de[s * dc + ij] = (float)sum;
        }
    }
    for (size_t n = 0; n < a->B * a->T; n++) {
        for (size_t ij = 0; ij < dc; ij++) {
            double sum = a->dX[n * dc + ij];
            for (size_t s = 0; s < a->taps; s++) {
                size_t shift = a->taps - 1 - s;
                if (n % a->T + shift < a->T)
                    sum += (double)a->e[s * dc + ij] * (double)a->dx_in[(n + shift) * a->d + ij / a->c];
            }
            a->dX[n * dc + ij] = (float)sum;
        }
    }
}
