#include "backend/ref/ref.h"

#include <math.h>

/* y = x rotated by `sign` times the angles of position p; the part from R on unchanged. */
static void rotate(size_t h, size_t R, const float *cos_row, const float *sin_row, double sign,
                   const double *x, double *y)
{
    for (size_t i = 0; i < h; i++)
        y[i] = x[i];
    for (size_t i = 0; i < R / 2; i++) {
        double c = cos_row[i], s = sign * (double)sin_row[i], x1 = x[i], x2 = x[i + R / 2];
        y[i] = x1 * c - x2 * s;
        y[i + R / 2] = x1 * s + x2 * c;
    }
}

static double inverse_rms(size_t h, const double *x, float eps)
{
    double squares = 0;
    for (size_t i = 0; i < h; i++)
        squares += x[i] * x[i];
    return 1 / sqrt(squares / (double)h + (double)eps);
}

void ref_rope_fwd(void *ctx, const struct rope_args *a)
{
    (void)ctx;
    double in[DDL_MAX_HEAD_DIM], out[DDL_MAX_HEAD_DIM];
    for (size_t n = 0; n < a->B * a->T; n++) {
        size_t position = a->ragged.B ? (size_t)a->ragged.position[n] : n % a->T;
        for (size_t head = 0; head < a->H; head++) {
            size_t x = n * a->x_stride + head * a->h, y = n * a->y_stride + head * a->h;
            for (size_t i = 0; i < a->h; i++)
                in[i] = (double)ref_get(a->x, a->x16, x + i);
            rotate(a->h, a->R, a->cos + position * (a->R / 2), a->sin + position * (a->R / 2), 1, in, out);
            double rstd = a->w ? inverse_rms(a->h, out, a->eps) : 1;
            for (size_t i = 0; i < a->h; i++)
                ref_put(a->y, a->y16, y + i, out[i] * rstd * (a->w ? (double)a->w[i] : 1));
        }
    }
}

void ref_rope_bwd(void *ctx, const struct rope_grad_args *a)
{
    (void)ctx;
    double x[DDL_MAX_HEAD_DIM], rotated[DDL_MAX_HEAD_DIM], dy[DDL_MAX_HEAD_DIM], g[DDL_MAX_HEAD_DIM];
    double dw[DDL_MAX_HEAD_DIM] = { 0 };
    for (size_t n = 0; n < a->B * a->T; n++) {
        const float *cos_row = a->cos + n % a->T * (a->R / 2), *sin_row = a->sin + n % a->T * (a->R / 2);
        for (size_t head = 0; head < a->H; head++) {
            size_t dx = n * a->dx_stride + head * a->h;
            for (size_t i = 0; i < a->h; i++) {
                x[i] = (double)ref_get(a->x, a->x16, n * a->x_stride + head * a->h + i);
                dy[i] = (double)ref_get(a->dy, a->dy16, n * a->dy_stride + head * a->h + i);
            }
            rotate(a->h, a->R, cos_row, sin_row, 1, x, rotated);
            double rstd = a->w ? inverse_rms(a->h, rotated, a->eps) : 1, dot = 0;
            for (size_t i = 0; i < a->h; i++) {
                g[i] = dy[i] * (a->w ? (double)a->w[i] : 1);
                dot += g[i] * rotated[i];
                dw[i] += dy[i] * rotated[i] * rstd;
            }
            for (size_t i = 0; a->w && i < a->h; i++)
                g[i] = rstd * (g[i] - rotated[i] * rstd * rstd * dot / (double)a->h);
            rotate(a->h, a->R, cos_row, sin_row, -1, g, x); /* the transpose of a rotation is its inverse */
            for (size_t i = 0; i < a->h; i++)
                ref_put(a->dx, a->dx16, dx + i, x[i]);
        }
    }
    for (size_t i = 0; a->dw && i < a->h; i++)
        a->dw[i] += (float)dw[i];
}
