#include "backend/ref/ref.h"

/* Feature i of the embedding `back` tokens before row n; 0 before the sequence. */
static double embedding(const struct init_state_args *a, size_t n, size_t back, size_t i)
{
    const float *x = ref_earlier_row(&a->ragged, n, n % a->T, back, a->K - 1, a->d, a->x, a->history);
    return x ? (double)x[i] : 0;
}

void ref_init_state_fwd(void *ctx, const struct init_state_args *a)
{
    (void)ctx;
    for (size_t n = 0; n < a->B * a->T; n++) {
        for (size_t ij = 0; ij < a->d * a->c; ij++) {
            size_t i = ij / a->c;
            double sum = a->w ? 0 : a->x[n * a->d + i];
            for (size_t s = 0; a->w && s < a->K; s++)
                sum += (double)a->w[ij * a->K + s] * embedding(a, n, a->K - 1 - s, i);
            a->X[n * a->d * a->c + ij] = (float)sum;
        }
    }
}

/* dx_t,i = sum_s sum_j w_ij,s dX_(t+K-1-s),ij */
static void expand_dx(const struct init_state_grad_args *a, size_t b, size_t t, size_t i)
{
    double sum = 0;
    for (size_t j = 0; j < a->c; j++) {
        size_t ij = i * a->c + j;
        if (!a->w) {
            sum += a->dX[(b * a->T + t) * a->d * a->c + ij];
            continue;
        }
        for (size_t s = 0; s < a->K; s++) {
            size_t u = t + a->K - 1 - s;
            if (u < a->T)
                sum += (double)a->w[ij * a->K + s] * (double)a->dX[(b * a->T + u) * a->d * a->c + ij];
        }
    }
    a->dx[(b * a->T + t) * a->d + i] = (float)sum;
}

void ref_init_state_bwd(void *ctx, const struct init_state_grad_args *a)
{
    (void)ctx;
    for (size_t b = 0; b < a->B; b++) {
        for (size_t t = 0; t < a->T; t++) {
            for (size_t i = 0; i < a->d; i++)
                expand_dx(a, b, t, i);
        }
    }
    for (size_t ij = 0; a->w && ij < a->d * a->c; ij++) {
        for (size_t s = 0; s < a->K; s++) {
            double sum = 0;
            for (size_t b = 0; b < a->B; b++) {
                for (size_t t = a->K - 1 - s; t < a->T; t++)
                    sum += (double)a->dX[(b * a->T + t) * a->d * a->c + ij] *
                           (double)a->x[(b * a->T + t + s + 1 - a->K) * a->d + ij / a->c];
            }
            a->dw[ij * a->K + s] += (float)sum;
        }
    }
}
