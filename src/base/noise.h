/* Judging results of a chain of roundings to a narrow format, such as a model in bfloat16.
 *
 * Two correct implementations round the same numbers, except where float32 errors put one of them on the
 * other side of a tie. Each such flip moves an operand by a whole unit in the last place and flips further
 * roundings downstream, so there is no bound from float32's precision. But an error made of flipped roundings
 * is a draw from the same distribution as the error made of all roundings. If `reference` and `found` have
 * independent errors of standard deviation s, their difference has sqrt(2) s; roundings that they share make
 * it less. s is measured: the distance of `reference` from `exact`, the same chain without the narrow format.
 *
 * Limits: the root mean square over all tensors is an average over many numbers: sqrt(2). A single tensor may
 * be dominated by few independent roundings: three standard deviations, 3 sqrt(2). A tensor of fewer than 16
 * numbers gives no estimate of its own s (its distance may be near 0 by accident): it does not count in the
 * former, and its s is at least the average one in the latter. */
#ifndef DDL_BASE_NOISE_H
#define DDL_BASE_NOISE_H

#include <stddef.h>

#define DDL_NOISE_LIMIT_ALL 1.41421356237309505
#define DDL_NOISE_LIMIT_ONE (3 * DDL_NOISE_LIMIT_ALL)

/* One tensor of n numbers three times. */
struct ddl_noise_tensor {
    size_t n;
    const float *found, *reference, *exact;
};

/* Distances are rms / max(rms(exact), 0.01 x the largest rms(exact) of the list): as of gradients in
 * ddl/verify.h. */
struct ddl_noise {
    double all;   /* rms of the tensors' |found - reference| over that of their |reference - exact| */
    double one;   /* the largest such ratio of one tensor                                           */
    size_t worst; /* the tensor that has it                                                         */
};
/* Both ratios are infinite for a NaN. |reference - exact| counts as at least 2^-20, an error of float32. */
struct ddl_noise ddl_noise_measure(size_t n, const struct ddl_noise_tensor *list);

#endif
