#include "study/statistics.h"

#include <float.h>
#include <math.h>

/* The continued fraction of I_x(a, b) by Lentz's method; converges fast for x < (a + 1)/(a + b + 2). */
static double beta_fraction(double a, double b, double x)
{
    enum { MAX_TERMS = 10000 };
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double value = d;
    for (int m = 1; m <= MAX_TERMS; m++) {
        const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        const double terms[] = { even, odd };
        double factor = 1;
        for (int i = 0; i < 2; i++) {
            d = 1 + terms[i] * d;
            d = 1 / (fabs(d) < tiny ? tiny : d);
            c = 1 + terms[i] / c;
            c = fabs(c) < tiny ? tiny : c;
            factor = c * d;
            value *= factor;
        }
        if (fabs(factor - 1) < 2 * DBL_EPSILON)
            break;
    }
    return value;
}

double statistics_beta(double a, double b, double x)
{
    if (x <= 0 || x >= 1)
        return x <= 0 ? 0 : 1;
    double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
    if (x < (a + 1) / (a + b + 2))
        return front * beta_fraction(a, b, x) / a;
    return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double statistics_t_two_sided(double t, double df)
{
    if (isnan(t) || isnan(df))
        return NAN;
    return statistics_beta(df / 2, 0.5, df / (df + t * t));
}

double statistics_t_critical(double p, double df)
{
    double low = 0, high = 1;
    while (statistics_t_two_sided(high, df) > p)
        high *= 2;
    for (int i = 0; i < 100; i++) { /* bisection */
        double middle = (low + high) / 2;
        if (statistics_t_two_sided(middle, df) > p)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

double statistics_t_upper(double t, double df)
{
    const double tail = statistics_t_two_sided(t, df) / 2;
    return t > 0 ? tail : 1 - tail;
}

/* T = (Z + noncentrality)/s with the standard normal Z and df s^2 of a chi-squared distribution, so that the
 * probability is the integral of Phi(t s - noncentrality) over the density of s. With u = log s the integrand
 * is analytic and vanishes at both ends: the trapezoidal rule converges exponentially. */
double statistics_t_noncentral(double t, double df, double noncentrality)
{
    /* Beyond this Z moves (Z + noncentrality)/s by less than 1/1000 of the deviation of s, and scaling t and
     * the noncentrality down together the probability by less than 1e-6. It bounds the number of steps. */
    const double most = 1000 * sqrt(fmax(df, 1));
    if (fabs(noncentrality) > most) {
        t *= most / fabs(noncentrality);
        noncentrality = copysign(most, noncentrality);
    }
    const double step = fmin(fmin(0.02, 0.2 / (1 + fabs(noncentrality))), 0.3 / sqrt(2 * df));
    const double front = log(2) + df / 2 * log(df / 2) - lgamma(df / 2);
    double sum = 0;
    /* The density is at most e^(front + df u) below 0, and falls with e^(2 u) above. */
    for (double u = fmax(-(front + 40) / df, -700); u < 4; u += step) {
        const double s = exp(u), density = exp(front + df * u - df / 2 * s * s);
        sum += density * 0.5 * erfc((noncentrality - t * s) / sqrt(2));
    }
    return fmin(sum * step, 1);
}

double statistics_t_noncentrality(double t, double df, double p)
{
    if (fabs(t) > 1e3) /* the integral would need too many steps, and no effect is so large */
        return NAN;
    double low = -10 * fabs(t) - 40, high = 10 * fabs(t) + 40;
    for (int i = 0; i < 60; i++) { /* bisection: the probability falls */
        const double middle = (low + high) / 2;
        if (statistics_t_noncentral(t, df, middle) > p)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

static double power_of(double effect, double n, double df_factor, double level)
{
    const double df = (n - 1) * df_factor, critical = statistics_t_critical(level, df);
    return 1 - statistics_t_noncentral(critical, df, effect * sqrt(n)) +
           statistics_t_noncentral(-critical, df, effect * sqrt(n));
}

static double equivalence_power_of(double margin, double n, double df_factor, double level)
{
    const double df = (n - 1) * df_factor, critical = statistics_t_critical(2 * level, df);
    return 1 - 2 * statistics_t_noncentral(critical, df, margin * sqrt(n));
}

typedef double power_fn(double effect, double n, double df_factor, double level);

/* The smallest n >= 2 with this power, which rises with n; NaN above a million. */
static double smallest_n(power_fn *power_at, double effect, double df_factor, double level, double power)
{
    double low = 1, high = 2; /* low: too few */
    if (!(effect > 0))
        return NAN;
    while (power_at(effect, high, df_factor, level) < power) {
        low = high;
        high *= 2;
        if (high > 1e6)
            return NAN;
    }
    while (high - low > 1) {
        const double middle = floor((low + high) / 2);
        if (power_at(effect, middle, df_factor, level) < power)
            low = middle;
        else
            high = middle;
    }
    return high;
}

double statistics_seeds(double effect, double df_factor, double level, double power)
{
    return smallest_n(power_of, effect, df_factor, level, power);
}

double statistics_equivalence_seeds(double margin, double df_factor, double level, double power)
{
    return smallest_n(equivalence_power_of, margin, df_factor, level, power);
}

struct ddl_mean statistics_mean_difference(const double *a, const double *b, size_t n)
{
    struct ddl_mean m = { .n = n, .mean = NAN, .sd = NAN, .low = NAN, .high = NAN };
    double sum = 0, squares = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        sum += a[i] - (b ? b[i] : 0);
        largest = fmax(largest, fmax(fabs(a[i]), b ? fabs(b[i]) : 0));
    }
    if (n > 0)
        m.mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) {
        const double deviation = a[i] - (b ? b[i] : 0) - m.mean;
        squares += deviation * deviation;
    }
    if (n < 2 || isnan(m.mean))
        return m;
    m.sd = sqrt(squares / (double)(n - 1));
    if (m.sd <= 1e-12 * largest) /* equal values, but for rounding */
        m.sd = 0;
    double margin = statistics_t_critical(0.05, (double)(n - 1)) * m.sd / sqrt((double)n);
    m.low = m.mean - margin;
    m.high = m.mean + margin;
    return m;
}

struct ddl_mean statistics_mean(const double *values, size_t n)
{
    return statistics_mean_difference(values, NULL, n);
}

double statistics_welch(const struct ddl_mean *a, const struct ddl_mean *b)
{
    if (a->n < 2 || b->n < 2)
        return NAN;
    double u = a->sd * a->sd / (double)a->n, v = b->sd * b->sd / (double)b->n; /* squared standard errors */
    double df = (u + v) * (u + v) / (u * u / (double)(a->n - 1) + v * v / (double)(b->n - 1));
    return u + v > 0 ? statistics_t_two_sided((a->mean - b->mean) / sqrt(u + v), df) : NAN;
}

double statistics_paired(const double *a, const double *b, size_t n)
{
    const struct ddl_mean m = statistics_mean_difference(a, b, n);
    return m.sd > 0 ? statistics_t_two_sided(m.mean / (m.sd / sqrt((double)n)), (double)(n - 1)) : NAN;
}
