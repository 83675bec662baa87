#include "backend/ref/ref.h"

/* The state `back` tokens before row n, at flat channel ij; 0 before the sequence. */
static double state(const struct compress_args *a, size_t n, size_t back, size_t ij)
{
    const float *X =
        ref_earlier_row(&a->ragged, n, n % a->T, back, a->taps - 1, a->d * a->c, a->X, a->history);
    return X ? (double)X[ij] : 0;
}

void ref_compress_fwd(void *ctx, const struct compress_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->B * a->T; n++) {
        for (size_t i = 0; i < a->d; i++) {
            double sum = 0;
            for (size_t s = 0; s < a->taps; s++) {
                for (size_t ij = i * a->c; ij < (i + 1) * a->c; ij++)
                    sum += (double)a->e[s * a->d * a->c + ij] * state(a, n, a->taps - 1 - s, ij);
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
