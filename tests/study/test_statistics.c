/* study/statistics.c against closed forms, tables and scipy. */
#include "support/support.h"

#include "study/statistics.h"

#include <math.h>

static void near(double found, double expected, double relative)
{
    if (!(fabs(found - expected) <= relative * fabs(expected)))
        fail_msg("expected %.17g, found %.17g", expected, found);
}

/* I_x(1, b) = 1 - (1 - x)^b, I_x(2, 3) = 6x^2 - 8x^3 + 3x^4, I_x(a, b) = 1 - I_(1-x)(b, a). */
static void beta(void **state)
{
    (void)state;
    near(statistics_beta(1, 4, 0.3), 1 - pow(0.7, 4), 1e-14);
    near(statistics_beta(2, 3, 0.4), 0.5248, 1e-14);
    near(statistics_beta(3, 2, 0.6), 1 - 0.5248, 1e-14);
    near(statistics_beta(0.5, 5, 0.02), 0.33891381153616235, 1e-13);  /* scipy.special.betainc */
    near(statistics_beta(30, 0.5, 0.99), 0.43933436890525074, 1e-13); /* likewise */
    assert_true(statistics_beta(2, 3, 0) == 0 && statistics_beta(2, 3, 1) == 1);
}

static void t_closed_forms(void **state)
{
    (void)state;
    const double pi = acos(-1);
    static const double ts[] = { 0, 0.1, 1, -1, 2.5, 30 };
    for (size_t i = 0; i < sizeof ts / sizeof *ts; i++) {
        double t = ts[i], r = 1 + t * t / 4;
        near(statistics_t_two_sided(t, 1), 1 - 2 * atan(fabs(t)) / pi, 1e-12);
        near(statistics_t_two_sided(t, 2), 1 - fabs(t) / sqrt(2 + t * t), 1e-11);
        near(statistics_t_two_sided(t, 4), 1 - 0.75 * fabs(t) / sqrt(r) * (1 - t * t / (12 * r)), 1e-10);
    }
    assert_true(isnan(statistics_t_two_sided(NAN, 4)) && isnan(statistics_t_two_sided(1, NAN)));
}

/* Rows of the usual table, p = 0.05 and 0.01; then scipy.stats.t. */
static void t_table(void **state)
{
    (void)state;
    near(statistics_t_two_sided(12.706204736, 1), 0.05, 1e-9);
    near(statistics_t_two_sided(2.776445105, 4), 0.05, 1e-9);
    near(statistics_t_two_sided(2.228138852, 10), 0.05, 1e-9);
    near(statistics_t_two_sided(4.604094871, 4), 0.01, 1e-8);
    near(statistics_t_two_sided(1.959963985, 1e6), 0.05000027724145847, 1e-8);
    near(statistics_t_two_sided(0.5, 7.3), 0.6317935268044417, 1e-12);
    near(statistics_t_two_sided(40, 3), 3.4380680789158506e-05, 1e-10);
    near(statistics_t_critical(0.05, 1), 12.706204736174694, 1e-12);
    near(statistics_t_critical(0.05, 2), 4.302652729749462, 1e-12);
    near(statistics_t_critical(0.05, 2.5), 3.5746548420036817, 1e-12);
    near(statistics_t_critical(0.05, 30), 2.0422724563012378, 1e-12);
}

static void means(void **state)
{
    (void)state;
    /* equal values, whose mean is rounded */
    assert_true(statistics_mean((const double[]){ 3.3, 3.3, 3.3 }, 3).sd == 0);
    assert_true(statistics_mean((const double[]){ 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1 }, 7).sd == 0);
    static const double a[] = { 3.51, 3.48, 3.55, 3.50 };
    struct ddl_mean m = statistics_mean(a, 4);
    near(m.mean, 3.51, 1e-15);
    near(m.sd, 0.029439202887759416, 1e-12);
    near(m.low, 3.463155658769676, 1e-13);
    near(m.high, 3.5568443412303234, 1e-13);
    m = statistics_mean(a, 1);
    assert_true(m.n == 1 && m.mean == 3.51 && isnan(m.sd) && isnan(m.low) && isnan(m.high));
    m = statistics_mean(a, 0);
    assert_true(m.n == 0 && isnan(m.mean));
    static const double equal[] = { 2, 2, 2 }, missing[] = { 1, NAN };
    m = statistics_mean(equal, 3);
    assert_true(m.sd == 0 && m.low == 2 && m.high == 2);
    m = statistics_mean(missing, 2);
    assert_true(isnan(m.mean) && isnan(m.sd) && isnan(m.high));
}

static double welch(const double *a, size_t n_a, const double *b, size_t n_b)
{
    struct ddl_mean x = statistics_mean(a, n_a), y = statistics_mean(b, n_b);
    return statistics_welch(&x, &y);
}

static void tests_of_means(void **state)
{
    (void)state;
    /* Equal sizes and variances: Student's test, t = -1/sqrt(2/3), 4 degrees of freedom. */
    static const double one[] = { 1, 2, 3 }, two[] = { 2, 3, 4 };
    near(welch(one, 3, two, 3), statistics_t_two_sided(1 / sqrt(2.0 / 3), 4), 1e-13);
    near(welch(one, 3, two, 3), 0.28786413472669, 1e-12);
    /* scipy.stats.ttest_ind(equal_var=False), ttest_rel */
    static const double a[] = { 3.51, 3.48, 3.55, 3.50 }, b[] = { 3.42, 3.47, 3.40, 3.45 };
    near(welch(a, 4, b, 3), 0.03670787610118029, 1e-11);
    near(welch(a, 4, b, 4), 0.012837943821427627, 1e-11);
    near(statistics_paired(a, b, 4), 0.08681109277104845, 1e-11);
    /* Not defined: one value, no variance. */
    static const double same[] = { 5, 5, 5 };
    assert_true(isnan(welch(a, 1, b, 3)) && isnan(welch(a, 4, b, 1)));
    assert_true(isnan(statistics_paired(a, b, 1)) && isnan(statistics_paired(a, b, 0)));
    assert_true(isnan(welch(same, 3, same, 3)) && isnan(statistics_paired(one, one, 3)));
    assert_true(welch(same, 3, one, 3) < 0.05);
    /* Equal differences, but for rounding, also if they are 0. */
    static const double low[] = { 3.0, 3.2, 3.4 }, high[] = { 3.1, 3.3, 3.5 };
    static const double sums[] = { 0.1 + 0.2, 3.2, 3.4 }, other[] = { 0.3, 3.2, 3.4 };
    assert_true(isnan(statistics_paired(low, high, 3)) && isnan(statistics_paired(sums, other, 3)));
}

/* scipy 1.17: stats.nct.cdf, and its root in the noncentrality by optimize.brentq; the signs and the shift
 * without freedom are laws. */
static void noncentral_t(void **state)
{
    (void)state;
    near(statistics_t_noncentral(1, 2, 0), 0.7886751345948129, 1e-12);
    near(statistics_t_noncentral(2, 3, 1.5), 0.5996762683708929, 1e-12);
    near(statistics_t_noncentral(-1, 5, 0.7), 0.056958047365786885, 1e-12);
    near(statistics_t_noncentral(10, 1, 4), 0.6906186503448162, 1e-12);
    near(statistics_t_noncentral(50, 2.5, 30), 0.7445141658828379, 1e-11);
    near(statistics_t_noncentral(0.5, 7.3, -2), 0.9931201036318194, 1e-12);
    near(statistics_t_noncentral(150, 7, 150), 0.42891223238526166, 1e-9);
    near(statistics_t_noncentral(1.3, 1e5, 0.4), 0.5 * erfc(-0.9 / sqrt(2)), 1e-4);
    /* A large noncentrality: T <= t if the chi variable is at least noncentrality/t. */
    near(statistics_t_noncentral(1e6, 2, 1e6), exp(-1), 1e-6);
    near(statistics_t_noncentral(2e15, 2, 1e15), exp(-0.25), 1e-6);
    near(statistics_t_noncentral(-1e15, 2, -1e15), 1 - exp(-1), 1e-6);
    near(statistics_t_noncentral(1e9, 1, 1e9), erfc(1 / sqrt(2)), 1e-6);
    assert_true(isnan(statistics_t_noncentrality(1e9, 2, 0.025)));
    near(statistics_t_noncentrality(2.5, 7, 0.025), 4.7829195092558585, 1e-11);
    near(statistics_t_noncentrality(2.5, 7, 0.975), 0.09677530440379753, 1e-9);
    near(statistics_t_noncentrality(30, 3, 0.975), 7.935154255900685, 1e-11);
    near(statistics_t_noncentrality(-2.5, 7, 0.975), -4.7829195092558585, 1e-11);
    near(statistics_t_upper(2.5, 7) + statistics_t_upper(-2.5, 7), 1, 1e-15);
    near(statistics_t_upper(1.3, 4) * 2, statistics_t_two_sided(1.3, 4), 1e-15);
}

/* statsmodels 0.14: TTestPower().solve_power, rounded up. */
static void seeds(void **state)
{
    (void)state;
    assert_true(statistics_seeds(1, 1, 0.05, 0.8) == 10);       /* 9.938  */
    assert_true(statistics_seeds(0.5, 1, 0.05, 0.8) == 34);     /* 33.367 */
    assert_true(statistics_seeds(0.5, 1, 0.05, 0.9) == 44);     /* 43.995 */
    assert_true(statistics_seeds(3, 1, 0.05, 0.8) == 4);        /* 3.144  */
    assert_true(statistics_seeds(0.1, 1, 0.0125, 0.9) == 1432); /* 1431.399 */
    assert_true(statistics_seeds(20, 1, 0.05, 0.8) == 2);
    /* Effects for which the integral of the power is scaled: the test has a power of 1. */
    assert_true(statistics_seeds(2e7, 1, 0.05, 0.8) == 2 && statistics_seeds(1e14, 1, 0.05, 0.8) == 2);
    assert_true(statistics_seeds(1e300, 1, 1e-9, 0.99) == 2);
    assert_true(statistics_equivalence_seeds(1e300, 2, 0.05, 0.8) == 2);
    /* Of the exact power, an integral over the deviation, with scipy; the powers here are those of n
     * - 1. */
    assert_true(statistics_equivalence_seeds(1, 1, 0.05, 0.8) == 11);       /* 0.7952 */
    assert_true(statistics_equivalence_seeds(0.5, 1, 0.05, 0.8) == 36);     /* 0.7900 */
    assert_true(statistics_equivalence_seeds(0.5, 1, 0.05, 0.9) == 45);     /* 0.8945 */
    assert_true(statistics_equivalence_seeds(3, 1, 0.05, 0.8) == 3);        /* 0.4130 */
    assert_true(statistics_equivalence_seeds(2, 1, 0.029, 0.8) == 5);       /* 0.6545 */
    assert_true(statistics_equivalence_seeds(0.1, 1, 0.0125, 0.9) == 1513); /* 0.8998 */
    assert_true(isnan(statistics_equivalence_seeds(0, 1, 0.05, 0.8)));
    assert_true(isnan(statistics_seeds(1e-6, 1, 0.05, 0.8)) && isnan(statistics_seeds(0, 1, 0.05, 0.8)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beta),  cmocka_unit_test(t_closed_forms), cmocka_unit_test(t_table),
        cmocka_unit_test(means), cmocka_unit_test(tests_of_means), cmocka_unit_test(noncentral_t),
        cmocka_unit_test(seeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
