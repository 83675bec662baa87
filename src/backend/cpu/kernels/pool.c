/* Pooling over the value channels, for the generic block: ops/args.h. Channels in tiles, so that any c works
 * without memory. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vec.h"
#include "backend/cpu/kernels/vmath.h"

enum { TILE = 64 };

/* sum_j = x . X_:j for the channels first .. first + tile - 1 */
static void column_dots(size_t d, size_t c, size_t first, size_t tile, const float *x, const float *X,
                        float *sum)
{
    for (size_t j = 0; j < tile; j++)
        sum[j] = 0;
    for (size_t i = 0; i < d; i++)
        add_scaled(tile, x[i], X + i * c + first, sum);
}

static void channel_softmax(const struct pool_args *a, const float *X, float *weight)
{
    float top = -INFINITY, total = 0, scale = 1 / sqrtf((float)a->d);
    for (size_t first = 0; first < a->c; first += TILE) {
        size_t tile = a->c - first < TILE ? a->c - first : TILE;
        column_dots(a->d, a->c, first, tile, a->w_a, X, weight + first);
        for (size_t j = first; j < first + tile; j++) {
            weight[j] *= scale;
            top = weight[j] > top ? weight[j] : top;
        }
    }
    for (size_t j = 0; j < a->c; j++)
        total += weight[j] = vexp(weight[j] - top);
    for (size_t j = 0; j < a->c; j++)
        weight[j] /= total;
}

/* sum_j weight_j X_j; weight NULL: the mean */
static float pooled(size_t c, const float *weight, const float *X)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t j = 0; j < c; j++)
        sum += weight ? weight[j] * X[j] : X[j];
    return weight ? sum : sum / (float)c;
}

void DDL_KERNEL(pool_fwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct pool_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        const float *X = a->X + n * a->d * a->c;
        float *weight = a->w_a ? a->a + n * a->c : NULL;
        if (weight)
            channel_softmax(a, X, weight);
        for (size_t i = 0; i < a->d; i++)
            a->z[n * a->d + i] = pooled(a->c, weight, X + i * a->c);
    }
}

/* Through the weights: da_j = dz . X_:j, dscore_j = a_j (da_j - dz . z) / sqrt(d), score_j = w_a . X_:j. */
static void weights_bwd(const struct pool_grad_args *a, size_t n, float *dw_a)
{
    const float *X = a->X + n * a->d * a->c, *weight = a->a + n * a->c, *dz = a->dz + n * a->d;
    float *dX = a->dX + n * a->d * a->c, mean = 0, scale = 1 / sqrtf((float)a->d);
    for (size_t i = 0; i < a->d; i++)
        mean += dz[i] * pooled(a->c, weight, X + i * a->c);
    for (size_t first = 0; first < a->c; first += TILE) {
        size_t tile = a->c - first < TILE ? a->c - first : TILE;
        float dscore[TILE];
        column_dots(a->d, a->c, first, tile, dz, X, dscore);
        for (size_t j = 0; j < tile; j++)
            dscore[j] = scale * weight[first + j] * (dscore[j] - mean);
        for (size_t i = 0; i < a->d; i++) {
            const float *row = X + i * a->c + first;
            dw_a[i] += dot(tile, dscore, row);
            add_scaled(tile, a->w_a[i], dscore, dX + i * a->c + first);
        }
    }
}

void DDL_KERNEL(pool_bwd)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct pool_grad_args *a = args;
    for (size_t n = lo; n < hi; n++) {
        if (a->w_a)
            weights_bwd(a, n, scratch);
        for (size_t i = 0; i < a->d; i++) {
            float dz = a->dz[n * a->d + i], *dX = a->dX + (n * a->d + i) * a->c;
            for (size_t j = 0; j < a->c; j++)
                dX[j] += a->w_a ? a->a[n * a->c + j] * dz : dz / (float)a->c;
        }
    }
}
