#include "base/noise.h"

#include <math.h>
#include <stdbool.h>

enum { ENOUGH = 16 }; /* numbers for an estimate: it is below a third of s in one of 10^5 cases */

/* Least distance: implementations in float32 differ by some units roundoff (2^-24) where nothing is rounded
 * to the narrow format. */
static const double float32_noise = 0x1p-20;

/* rms(x - y), or rms(x) if y is NULL; infinite for a NaN. */
static double distance(size_t n, const float *x, const float *y)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double diff = (double)x[i] - (y ? (double)y[i] : 0);
        sum += diff * diff;
    }
    if (isnan(sum))
        return INFINITY;
    return n ? sqrt(sum / (double)n) : 0;
}

static double ratio(double found, double reference)
{
    if (!isfinite(found) || !isfinite(reference))
        return INFINITY;
    return found == 0 ? 0 : reference > 0 ? found / reference : (double)INFINITY;
}

struct distances {
    double found, reference; /* |found - reference|, |reference - exact| */
};

static struct distances distances_of(const struct ddl_noise_tensor *t, double floor)
{
    double size = fmax(distance(t->n, t->exact, NULL), floor);
    if (size == 0)
        return (struct distances){ distance(t->n, t->found, NULL), distance(t->n, t->reference, NULL) };
    return (struct distances){ distance(t->n, t->found, t->reference) / size,
                               fmax(distance(t->n, t->reference, t->exact) / size, float32_noise) };
}

struct ddl_noise ddl_noise_measure(size_t n, const struct ddl_noise_tensor *list)
{
    struct ddl_noise noise = { 0 };
    struct distances large = { 0 }, all = { 0 }; /* sums of squares */
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, distance(list[i].n, list[i].exact, NULL));
    for (size_t i = 0; i < n; i++) {
        struct distances d = distances_of(&list[i], 0.01 * largest);
        bool counts = list[i].n >= ENOUGH;
        all.reference += d.reference * d.reference;
        large.found += counts ? d.found * d.found : 0;
        large.reference += counts ? d.reference * d.reference : 0;
    }
    double average = n ? sqrt(all.reference / (double)n) : 0;
    noise.all = ratio(sqrt(large.found), sqrt(large.reference));
    for (size_t i = 0; i < n; i++) {
        struct distances d = distances_of(&list[i], 0.01 * largest);
        double one = ratio(d.found, list[i].n < ENOUGH ? fmax(d.reference, average) : d.reference);
        if (one > noise.one) {
            noise.one = one;
            noise.worst = i;
        }
    }
    return noise;
}
