/* Residual rules other than delta, and sums of states: cpu against ref. */
#include "support/backends.h"

#include <float.h>
#include <math.h>
#include <string.h>

DEFINE_CALL(scale_fwd, scale_args)
DEFINE_CALL(scale_bwd, scale_grad_args)
DEFINE_CALL(gated_fwd, gated_args)
DEFINE_CALL(gated_bwd, gated_grad_args)
DEFINE_CALL(highway_fwd, highway_args)
DEFINE_CALL(highway_bwd, highway_grad_args)
DEFINE_CALL(laurel_fwd, laurel_args)
DEFINE_CALL(laurel_bwd, laurel_grad_args)
DEFINE_CALL(weighted_sum, weighted_sum_args)
DEFINE_CALL(weighted_sum_bwd, weighted_sum_grad_args)

static const struct shape {
    size_t N, d;
} shapes[] = { { 0, 5 }, { 1, 1 }, { 1, 7 }, { 3, 63 }, { 7, 100 }, { 63, 768 }, { 511, 100 }, { 100, 1 } };
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* The limit of n sums of `count` products g x each, g (count) and x (n, stride), added to `initial` (n). The
 * expected size of a sum is the root of the sum of the squared products; its rounding error is about the root
 * of the number of successive additions, in units of half an epsilon of that size. Fewer than 600 additions
 * follow one another here (at most 511 rows or 25 pieces, and the lanes of one): sqrt(600) 2^-24 = 1.5e-6, a
 * third of 5e-6. The sum may be smaller than its expected size, because its terms cancel; the limit, which is
 * relative to the sum, is larger by as much. */
static double sums_limit(size_t n, size_t count, const float *g, const float *x, size_t stride,
                         const float *initial)
{
    double size2 = 0, sum2 = 0;
    for (size_t j = 0; j < n; j++) {
        double sum = (double)initial[j];
        size2 += sum * sum;
        for (size_t i = 0; i < count; i++) {
            double product = (double)g[i] * (double)x[j * stride + i];
            sum += product;
            size2 += product * product;
        }
        sum2 += sum * sum;
    }
    return 5e-6 * fmax(1, sqrt(size2 / sum2));
}

static void test_scale(void **state)
{
    (void)state;
    for (size_t s = 0; s < 2 * N_SHAPES; s++) {
        size_t N = shapes[s / 2].N, d = shapes[s / 2].d, w = s % 2 ? d : 1;
        float *f = some_floats(N * d), *lambda = floats_around(w, 1, 0.5f), *X = some_floats(N * d);
        struct scale_args fwd = { .N = N, .d = d, .w = w, .f = f, .lambda = lambda };
        struct output forward[] = { { &fwd.X, N * d, 1e-6, X, NULL } };
        COMPARE(scale_fwd, fwd, forward);
        struct scale_grad_args bwd = {
            .N = N, .d = d, .w = w, .f = f, .lambda = lambda, .G = some_floats(N * d)
        };
        float *initial = some_floats(w);
        double limit = w == 1 ? sums_limit(1, N * d, bwd.G, f, 0, initial) : 5e-6;
        struct output backward[] = { { &bwd.X, N * d, 1e-6, X, NULL },
                                     { &bwd.df, N * d, 1e-6, NULL, NULL },
                                     { &bwd.dlambda, w, limit, initial, NULL } };
        COMPARE(scale_bwd, bwd, backward);
        release_all();
    }
}

static void test_gated(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_SHAPES; s++) {
        size_t N = shapes[s].N, d = shapes[s].d;
        float *f = some_floats(N * d), *beta = floats_around(N, 1, 0.5f), *X = some_floats(N * d);
        struct gated_args fwd = { .N = N, .d = d, .f = f, .beta = beta };
        struct output forward[] = { { &fwd.X, N * d, 1e-6, X, NULL } };
        COMPARE(gated_fwd, fwd, forward);
        struct gated_grad_args bwd = { .N = N, .d = d, .f = f, .beta = beta, .G = some_floats(N * d) };
        struct output backward[] = { { &bwd.X, N * d, 1e-6, X, NULL },
                                     { &bwd.df, N * d, 1e-6, NULL, NULL },
                                     { &bwd.dbeta, N, 5e-6, NULL, NULL } };
        COMPARE(gated_bwd, bwd, backward);
        release_all();
    }
}

static void test_highway(void **state)
{
    (void)state;
    for (size_t s = 0; s < 2 * N_SHAPES; s++) {
        size_t N = shapes[s / 2].N, d = shapes[s / 2].d, w = s % 2 ? d : 1;
        float *f = some_floats(N * d), *X = some_floats(N * d), *z = floats_around(N * w, 0, 3);
        struct highway_args fwd = { .N = N, .d = d, .w = w, .f = f, .b = some_floats(w) };
        struct output forward[] = { { &fwd.tau, N * w, 1e-6, z, NULL }, { &fwd.X, N * d, 1e-6, X, NULL } };
        COMPARE(highway_fwd, fwd, forward);
        float *tau = floats_around(N * w, 0.5f, 0.1f), *G = some_floats(N * d);
        struct highway_grad_args bwd = { .N = N, .d = d, .w = w, .X = X, .f = f, .tau = tau, .G = G };
        struct output backward[] = { { &bwd.dX, N * d, 1e-6, G, &bwd.G },
                                     { &bwd.df, N * d, 1e-6, NULL, NULL },
                                     { &bwd.dz, N * w, 5e-6, NULL, NULL },
                                     { &bwd.db, w, 5e-6, some_floats(w), NULL } };
        COMPARE(highway_bwd, bwd, backward);
        release_all();
    }
}

/* Of 1, 2 and 13 states with gaps between them, and of weights with gaps; added, and not. */
static void test_weighted_sum(void **state)
{
    (void)state;
    static const size_t terms[] = { 1, 2, 13 };
    for (size_t s = 0; s < 6 * N_SHAPES; s++) {
        size_t count = shapes[s / 6].N * shapes[s / 6].d, n = terms[s / 2 % 3];
        size_t gap = s % 2 ? 3 : 0, stride = count + gap, w_stride = 1 + gap;
        struct weighted_sum_args fwd = { .count = count,
                                         .n = n,
                                         .X = some_floats(n * stride),
                                         .X_stride = stride,
                                         .w = some_floats(n * w_stride),
                                         .w_stride = w_stride,
                                         .accumulate = s % 2 };
        struct output forward[] = { { &fwd.out, count, 1e-6, s % 2 ? some_floats(count) : NULL, NULL } };
        COMPARE(weighted_sum, fwd, forward);
        struct weighted_sum_grad_args bwd = {
            .count = count, .n = n, .X = fwd.X, .X_stride = stride, .G = some_floats(count)
        };
        float *initial = some_floats(n);
        double limit = sums_limit(n, count, bwd.G, bwd.X, stride, initial);
        struct output backward[] = { { &bwd.dw, n, limit, initial, NULL } };
        COMPARE(weighted_sum_bwd, bwd, backward);
        release_all();
    }
}

/* A sum with the weights 0, ..., 0, 1 is the last state, bit for bit. */
static void test_initial_sum(void **state)
{
    (void)state;
    enum { COUNT = 133, N = 5 };
    for (size_t i = 0; isa_name(i); i++) {
        struct ddl_backend *backend = cpu_backend(isa_name(i), 1);
        if (!backend)
            continue;
        float *X = some_floats(N * COUNT), *out = some_floats(COUNT), w[N] = { [N - 1] = 1 };
        struct weighted_sum_args args = {
            .count = COUNT, .n = N, .X = X, .X_stride = COUNT, .w = w, .w_stride = 1, .out = out
        };
        backend->ops->weighted_sum(backend->ctx, &args);
        assert_memory_equal(out, X + (N - 1) * COUNT, COUNT * sizeof *X);
        ddl_backend_free(backend);
        release_all();
    }
}

/* Saturated gates leave the state untouched, or replace it. */
static void test_highway_saturated(void **state)
{
    (void)state;
    enum { D = 21 };
    for (size_t i = 0; isa_name(i); i++) {
        struct ddl_backend *backend = cpu_backend(isa_name(i), 1);
        if (!backend)
            continue;
        float *X = some_floats(2 * D), *f = some_floats(2 * D), z[2] = { -1e4f, 1e4f }, b[1] = { 0 };
        float before[2 * D];
        memcpy(before, X, sizeof before);
        struct highway_args args = { .N = 2, .d = D, .w = 1, .f = f, .b = b, .tau = z, .X = X };
        backend->ops->highway_fwd(backend->ctx, &args);
        assert_memory_equal(X, before, D * sizeof *X);
        assert_memory_equal(X + D, f + D, D * sizeof *X);
        ddl_backend_free(backend);
        release_all();
    }
}

/* dmix = s_1 e_0 - s_0 e_1 may be much smaller than the sums e_0 = m_0 sum G f and e_1 = m_1 sum G X + sum
 * dlow low. A row of d + r terms is added in float32, so the error is at most d + r units of half an epsilon
 * of the terms' absolute values; relative to dmix, added to `initial`. */
static double dmix_limit(const struct laurel_grad_args *a, const float *dlow, const float *initial)
{
    double s[2] = { 1 / (1 + exp((double)a->mix[1] - (double)a->mix[0])),
                    1 / (1 + exp((double)a->mix[0] - (double)a->mix[1])) };
    double e[2] = { 0 }, terms[2] = { 0 };
    for (size_t i = 0; i < a->N * a->d; i++) {
        double g = (double)a->G[i], values[2] = { (double)a->f[i], (double)a->X[i] };
        for (size_t j = 0; j < 2; j++) {
            e[j] += 2 * s[j] * g * values[j];
            terms[j] += fabs(2 * s[j] * g * values[j]);
        }
    }
    for (size_t i = 0; i < a->N * a->r; i++) {
        e[1] += (double)dlow[i] * (double)a->low[i];
        terms[1] += fabs((double)dlow[i] * (double)a->low[i]);
    }
    double dmix = s[1] * e[0] - s[0] * e[1];
    double error = (double)(a->d + a->r) * (double)FLT_EPSILON / 2 * (s[1] * terms[0] + s[0] * terms[1]);
    return 1e-6 + sqrt(2) * error / hypot((double)initial[0] + dmix, (double)initial[1] - dmix);
}

static void test_laurel(void **state)
{
    (void)state;
    static const size_t ranks[] = { 0, 1, 21 };
    for (size_t s = 0; s < 3 * N_SHAPES; s++) {
        size_t N = shapes[s / 3].N, d = shapes[s / 3].d, r = ranks[s % 3];
        float *X = some_floats(N * d), *f = some_floats(N * d), *mix = some_floats(2),
              *low = some_floats(N * r);
        struct laurel_args fwd = { .N = N, .d = d, .r = r, .f = f, .mix = mix };
        struct output forward[] = { { &fwd.X, N * d, 1e-6, X, NULL }, { &fwd.low, N * r, 1e-6, low, NULL } };
        COMPARE(laurel_fwd, fwd, forward);
        float *G = some_floats(N * d), *dlow = some_floats(N * r), *dmix = some_floats(2);
        struct laurel_grad_args bwd = {
            .N = N, .d = d, .r = r, .X = X, .f = f, .mix = mix, .low = low, .G = G
        };
        struct output backward[] = { { &bwd.dX, N * d, 1e-6, G, &bwd.G },
                                     { &bwd.df, N * d, 1e-6, NULL, NULL },
                                     { &bwd.dlow, N * r, 1e-6, dlow, NULL },
                                     { &bwd.dmix, 2, dmix_limit(&bwd, dlow, dmix), dmix, NULL } };
        COMPARE(laurel_bwd, bwd, backward);
        release_all();
    }
}

/* Equal logits of the mixture, and none, leave both factors 1, exactly. */
static void test_laurel_equal(void **state)
{
    (void)state;
    enum { D = 21 };
    for (size_t i = 0; isa_name(i); i++) {
        struct ddl_backend *backend = cpu_backend(isa_name(i), 1);
        if (!backend)
            continue;
        float *X = some_floats(D), *f = some_floats(D), mix[2] = { 0.3f, 0.3f }, sum[D];
        for (int none = 0; none < 2; none++) {
            for (size_t j = 0; j < D; j++)
                sum[j] = f[j] + X[j];
            struct laurel_args args = { .N = 1, .d = D, .f = f, .mix = none ? NULL : mix, .X = X };
            backend->ops->laurel_fwd(backend->ctx, &args);
            assert_memory_equal(X, sum, sizeof sum);
        }
        ddl_backend_free(backend);
        release_all();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scale),        cmocka_unit_test(test_gated),
        cmocka_unit_test(test_highway),      cmocka_unit_test(test_highway_saturated),
        cmocka_unit_test(test_laurel),       cmocka_unit_test(test_laurel_equal),
        cmocka_unit_test(test_weighted_sum), cmocka_unit_test(test_initial_sum)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
