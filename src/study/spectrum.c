/* The product of the first steps acts on the span of their k_s and is the identity on its complement. In an
 * orthonormal basis Q of the span, extended by each k_s (modified Gram-Schmidt), k_s has coordinates u_s =
 * Q^T k_s, and the product is the r x r matrix M with M <- M - beta_s u_s (u_s^T M), from M = I. Its singular
 * values come from one-sided Jacobi rotations, which find small ones to high relative accuracy. */
#include "study/spectrum.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static const double dependent = 1e-6; /* length of the remainder of a unit k that counts as zero */

size_t spectrum_scratch(size_t S, size_t d)
{
    return S * d + 2 * S * S + 2 * S; /* Q, M, R, u, row */
}

static double dot(size_t n, const double *a, const double *b)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Subtracts from x its components in the r rows of Q. */
static void project_out(size_t r, size_t d, const double *Q, double *x)
{
    for (size_t j = 0; j < r; j++) {
        double a = dot(d, Q + j * d, x);
        for (size_t i = 0; i < d; i++)
            x[i] -= a * Q[j * d + i];
    }
}

/* Makes the remainder of k, orthogonal to the r rows of Q, a further unit row; false if there is none. Two
 * projections make the rows orthogonal to rounding. */
static bool extend_basis(size_t r, size_t d, const float *k, double *Q)
{
    double *x = Q + r * d;
    for (size_t i = 0; i < d; i++)
        x[i] = (double)k[i];
    double length = sqrt(dot(d, x, x));
    project_out(r, d, Q, x);
    project_out(r, d, Q, x);
    double left = sqrt(dot(d, x, x));
    if (r == d || !(left > dependent * length))
        return false;
    for (size_t i = 0; i < d; i++)
        x[i] /= left;
    return true;
}

/* Rotates rows a and b of length n so that they are orthogonal; whether they were not. */
static bool rotate(size_t n, double *a, double *b)
{
    double aa = dot(n, a, a), bb = dot(n, b, b), ab = dot(n, a, b);
    if (!(fabs(ab) > 1e-14 * sqrt(aa * bb)))
        return false;
    double zeta = (bb - aa) / (2 * ab);
    double t = (zeta >= 0 ? 1 : -1) / (fabs(zeta) + sqrt(1 + zeta * zeta));
    double c = 1 / sqrt(1 + t * t), s = c * t;
    for (size_t i = 0; i < n; i++) {
        double x = a[i];
        a[i] = c * x - s * b[i];
        b[i] = s * x + c * b[i];
    }
    return true;
}

/* M <- M - beta u (u^T M), with u = Q^T k, for the leading r x r block of M (S, S). u (2 S) is
 * scratch. */
static void apply_step(size_t S, size_t d, size_t r, const float *k, float beta, const double *Q, double *u,
                       double *M)
{
    double *row = u + S; /* u^T M */
    memset(row, 0, r * sizeof *row);
    for (size_t i = 0; i < r; i++) {
        u[i] = 0;
        for (size_t f = 0; f < d; f++)
            u[i] += Q[i * d + f] * (double)k[f];
        for (size_t j = 0; j < r; j++)
            row[j] += u[i] * M[i * S + j];
    }
    for (size_t i = 0; i < r; i++) {
        for (size_t j = 0; j < r; j++)
            M[i * S + j] -= (double)beta * u[i] * row[j];
    }
}

/* Makes the rows of M orthogonal: their lengths are then its singular values. */
static void orthogonalize(size_t r, double *M)
{
    enum { SWEEPS = 60 };
    bool changed = true;
    for (size_t sweep = 0; sweep < SWEEPS && changed; sweep++) {
        changed = false;
        for (size_t i = 0; i + 1 < r; i++) {
            for (size_t j = i + 1; j < r; j++)
                changed |= rotate(r, M + i * r, M + j * r);
        }
    }
}

/* The extreme singular values of the leading r x r block of M (S, S); R (r, r) is scratch. */
static void extremes_of(size_t S, size_t r, const double *M, double *R, double *sigma_max, double *sigma_min)
{
    for (size_t i = 0; i < r; i++)
        memcpy(R + i * r, M + i * S, r * sizeof *R);
    orthogonalize(r, R);
    *sigma_max = r ? 0 : 1;
    *sigma_min = r ? INFINITY : 1;
    for (size_t i = 0; i < r; i++) {
        double sigma = sqrt(dot(r, R + i * r, R + i * r));
        if (isnan(sigma)) {
            *sigma_max = *sigma_min = sigma;
            return;
        }
        *sigma_max = fmax(*sigma_max, sigma);
        *sigma_min = fmin(*sigma_min, sigma);
    }
}

void spectrum_of(size_t S, size_t d, const float *k, const float *beta, double *scratch, double *sigma_max,
                 double *sigma_min)
{
    double *Q = scratch, *M = Q + S * d, *R = M + S * S, *u = R + S * S;
    size_t r = 0;
    memset(M, 0, S * S * sizeof *M);
    for (size_t s = 0; s < S; s++) {
        if (extend_basis(r, d, k + s * d, Q)) {
            M[r * S + r] = 1;
            r++;
        }
        apply_step(S, d, r, k + s * d, beta[s], Q, u, M);
        extremes_of(S, r, M, R, &sigma_max[s], &sigma_min[s]);
    }
}
