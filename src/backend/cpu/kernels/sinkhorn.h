/* Sinkhorn's iterations on the matrices of V tokens, and their gradient. Included by mhc.c for float and, of
 * matrices whose elements float32 does not have, for double: LANES is a vector of V NUMBERs, EXP exp of a
 * float as a NUMBER, NAME(x) a function's name; none is defined afterwards. */

/* M = exp(z) with each column divided by its largest element, which the first step cancels. */
INLINE void NAME(exp_columns)(const vec *z, LANES *M, const size_t n)
{
    for (size_t j = 0; j < n; j++) {
        vec top = z[j];
        for (size_t k = 1; k < n; k++)
            top = larger_lanes(z[k * n + j], top);
        for (size_t k = 0; k < n; k++) {
            float x[V];
            NUMBER y[V];
            store(x, z[k * n + j] - top);
#pragma omp simd
            for (size_t l = 0; l < V; l++)
                y[l] = EXP(x[l]);
            memcpy(&M[k * n + j], y, sizeof y);
        }
    }
}

/* Divides the n vectors from M on, `step` apart, by their sum, which is stored if sum is not NULL. */
INLINE void NAME(divide_by_sum)(LANES *M, size_t step, LANES *sum, const size_t n)
{
    LANES all = M[0];
    for (size_t i = 1; i < n; i++)
        all += M[i * step];
    LANES factor = 1 / all;
    for (size_t i = 0; i < n; i++)
        M[i * step] *= factor;
    if (sum)
        *sum = all;
}

/* M from z: columns, then rows, divided by their sums, `iterations` times. sums: (iterations, 2 n), or NULL.
 */
INLINE void NAME(normalize)(const vec *z, LANES *M, size_t iterations, LANES *sums, const size_t n)
{
    NAME(exp_columns)(z, M, n);
    for (size_t s = 0; s < iterations; s++) {
        for (size_t j = 0; j < n; j++)
            NAME(divide_by_sum)(M + j, n, sums ? &sums[2 * n * s + j] : NULL, n);
        for (size_t k = 0; k < n; k++)
            NAME(divide_by_sum)(M + k * n, 1, sums ? &sums[2 * n * s + n + k] : NULL, n);
    }
}

/* The matrices from z, in place. */
INLINE void NAME(sinkhorn)(vec *z, size_t iterations, const size_t n)
{
    LANES M[MAX_N * MAX_N];
    NAME(normalize)(z, M, iterations, NULL, n);
    for (size_t i = 0; i < n * n; i++)
        z[i] = __builtin_convertvector(M[i], vec);
}

/* M = P / s with s the sum of P: dP_i = (dM_i - sum_j dM_j M_j) / s; M becomes P. */
INLINE void NAME(divide_by_sum_bwd)(LANES *M, LANES *dM, size_t step, const LANES *sum, const size_t n)
{
    LANES along = dM[0] * M[0], factor = 1 / *sum;
    for (size_t i = 1; i < n; i++)
        along += dM[i * step] * M[i * step];
    for (size_t i = 0; i < n; i++) {
        dM[i * step] = (dM[i * step] - along) * factor;
        M[i * step] *= *sum;
    }
}

/* dM, the gradient of the matrices -> that of z. */
INLINE void NAME(sinkhorn_bwd)(const vec *z, vec *dM, size_t iterations, const size_t n)
{
    LANES M[MAX_N * MAX_N], d[MAX_N * MAX_N], sums[2 * MAX_N * DDL_MAX_SINKHORN];
    NAME(normalize)(z, M, iterations, sums, n);
    for (size_t i = 0; i < n * n; i++)
        d[i] = __builtin_convertvector(dM[i], LANES);
    for (size_t s = iterations; s-- > 0;) {
        for (size_t k = 0; k < n; k++)
            NAME(divide_by_sum_bwd)(M + k * n, d + k * n, 1, &sums[2 * n * s + n + k], n);
        for (size_t j = 0; j < n; j++)
            NAME(divide_by_sum_bwd)(M + j, d + j, n, &sums[2 * n * s + j], n);
    }
    for (size_t i = 0; i < n * n; i++)
        dM[i] = __builtin_convertvector(d[i] * M[i], vec);
}

#undef LANES
#undef NUMBER
#undef EXP
#undef NAME
