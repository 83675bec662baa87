#include "backend/ref/ref.h"

/* The read weight that tap s of the channel kernel is multiplied with at channel j: r_(j-s+L), L = (K-1)/2;
 * out of range: 0. */
static double read_at(const struct fold_args *a, size_t j, size_t s)
{
    ptrdiff_t at = (ptrdiff_t)j - (ptrdiff_t)s + (ptrdiff_t)((a->K - 1) / 2);
    return at >= 0 && at < (ptrdiff_t)a->c ? a->r[at] : 0;
}

void ref_fold_fwd(void *ctx, const struct fold_args *a)
{
    (void)ctx;
    size_t dc = a->d * a->c;
    for (size_t ij = 0; ij < dc; ij++) {
        size_t i = ij / a->c, j = ij % a->c;
        if (a->kind == DDL_COMPRESS_TOKEN) {
            for (size_t s = 0; s < a->K; s++)
                a->e[s * dc + ij] = (float)((double)a->r[j] * (double)a->w[ij * a->K + s]);
        } else if (a->kind == DDL_COMPRESS_CHANNEL) {
            double sum = 0;
            for (size_t s = 0; s < a->K; s++)
                sum += (double)a->w[i * a->K + s] * read_at(a, j, s);
            a->e[ij] = (float)sum;
        } else {
            a->e[ij] = a->w[ij];
        }
    }
}

static void token_bwd(const struct fold_grad_args *a)
{
    size_t dc = a->d * a->c;
    for (size_t j = 0; j < a->c; j++) {
        double dr = 0;
        for (size_t i = 0; i < a->d; i++) {
            for (size_t s = 0; s < a->K; s++) {
                size_t ij = i * a->c + j;
                double de = a->de[s * dc + ij];
                a->dw[ij * a->K + s] += (float)((double)a->r[j] * de);
                dr += (double)a->w[ij * a->K + s] * de;
            }
        }
        a->dr[j] += (float)dr;
    }
}

static void channel_bwd(const struct fold_grad_args *a)
{
    const struct fold_args fwd = { .d = a->d, .c = a->c, .K = a->K, .r = a->r };
    ptrdiff_t left = (ptrdiff_t)((a->K - 1) / 2);
    for (size_t i = 0; i < a->d; i++) {
        for (size_t s = 0; s < a->K; s++) {
            double dw = 0;
            for (size_t j = 0; j < a->c; j++)
                dw += read_at(&fwd, j, s) * (double)a->de[i * a->c + j];
            a->dw[i * a->K + s] += (float)dw;
        }
    }
    for (size_t o = 0; o < a->c; o++) { /* tap s multiplies r_o into channel j = o + s - left */
        double dr = 0;
        for (size_t s = 0; s < a->K; s++) {
            ptrdiff_t j = (ptrdiff_t)o + (ptrdiff_t)s - left;
            for (size_t i = 0; j >= 0 && j < (ptrdiff_t)a->c && i < a->d; i++)
                dr += (double)a->w[i * a->K + s] * (double)a->de[i * a->c + (size_t)j];
        }
        a->dr[o] += (float)dr;
    }
}

void ref_fold_bwd(void *ctx, const struct fold_grad_args *a)
{
    (void)ctx;
    if (a->kind == DDL_COMPRESS_TOKEN) {
        token_bwd(a);
    } else if (a->kind == DDL_COMPRESS_CHANNEL) {
        channel_bwd(a);
    } else {
        for (size_t ij = 0; ij < a->d * a->c; ij++)
            a->dw[ij] += a->de[ij];
    }
}
