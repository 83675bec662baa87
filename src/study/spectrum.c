/* The product acts on the span of the k_s and is the identity on its complement. In an orthonormal basis Q of
 * the span, found by modified Gram-Schmidt, k_s has coordinates u_s = Q^T k_s, and the product is the r x r
 * matrix M with M <- M - beta_s u_s (u_s^T M), from M = I. Its singular values come from one-sided Jacobi
 * rotations, which find small ones to high relative accuracy. */
#include "study/spectrum.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static const double dependent = 1e-6; /* length of the remainder of a unit k that counts as zero */

size_t spectrum_scratch(size_t S, size_t d)
{
    return S * d + S * S + 2 * S; /* Q, M, u, row */
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

/* Q (r, d) with orthonormal rows that span the k; returns r. Two projections make the rows orthogonal to
 * rounding. */
static size_t basis_of(size_t S, size_t d, const float *k, double *Q)
{
    size_t r = 0;
    for (size_t s = 0; s < S; s++) {
        double *x = Q + r * d;
        for (size_t i = 0; i < d; i++)
            x[i] = (double)k[s * d + i];
        double length = sqrt(dot(d, x, x));
        project_out(r, d, Q, x);
        project_out(r, d, Q, x);
        double left = sqrt(dot(d, x, x));
        if (r == d || !(left > dependent * length))
            continue;
        for (size_t i = 0; i < d; i++)
            x[i] /= left;
        r++;
    }
    return r;
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

/* M (r, r) = the product in the basis Q. u (r) and row (r) are scratch. */
static void product_of(size_t S, size_t d, size_t r, const float *k, const float *beta, const double *Q,
                       double *u, double *row, double *M)
{
    memset(M, 0, r * r * sizeof *M);
    for (size_t i = 0; i < r; i++)
        M[i * r + i] = 1;
    for (size_t s = 0; s < S; s++) {
        memset(row, 0, r * sizeof *row);
        for (size_t i = 0; i < r; i++) {
            u[i] = 0;
            for (size_t f = 0; f < d; f++)
                u[i] += Q[i * d + f] * (double)k[s * d + f];
            for (size_t j = 0; j < r; j++)
                row[j] += u[i] * M[i * r + j];
        }
        for (size_t i = 0; i < r; i++) {
            for (size_t j = 0; j < r; j++)
                M[i * r + j] -= (double)beta[s] * u[i] * row[j];
        }
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

void spectrum_of(size_t S, size_t d, const float *k, const float *beta, double *scratch, double *sigma_max,
                 double *sigma_min)
{
    double *Q = scratch, *M = Q + S * d, *u = M + S * S, *row = u + S;
    size_t r = basis_of(S, d, k, Q);
    product_of(S, d, r, k, beta, Q, u, row, M);
    orthogonalize(r, M);
    *sigma_max = r ? 0 : 1;
    *sigma_min = r ? INFINITY : 1;
    for (size_t i = 0; i < r; i++) {
        double sigma = sqrt(dot(r, M + i * r, M + i * r));
        if (isnan(sigma)) {
            *sigma_max = *sigma_min = sigma;
            return;
        }
        *sigma_max = fmax(*sigma_max, sigma);
        *sigma_min = fmin(*sigma_min, sigma);
    }
}
