/* Eight-bit weights: the groups are as defined, the same on every backend, and products with them are right.
 */
#include "support/backends.h"
#include "support/laws.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

DEFINE_CALL(matmul8, matmul8_args)

static size_t groups_of(size_t rows, size_t width)
{
    return rows * ddl_q8_groups(width);
}

static struct ddl_q8 *quantized(const struct ddl_backend *backend, size_t rows, size_t width, const float *x)
{
    struct ddl_q8 *y = malloc(groups_of(rows, width) * sizeof *y);
    backend->ops->quantize8(backend->ctx, &(struct quantize8_args){ rows, width, x, y });
    return y;
}

/* Each number is at most half a step off, the largest of a group takes the whole range, the short group's
 * rest is 0. */
static void groups_are_as_defined(ddl_backend *backend)
{
    static const size_t sizes[][2] = { { 1, 1 }, { 3, 32 }, { 2, 33 }, { 5, 95 }, { 7, 256 } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t rows = sizes[i][0], width = sizes[i][1], per_row = groups_of(1, width);
        float *x = floats_around(rows * width, 0.1f, 3);
        struct ddl_q8 *y = quantized(backend, rows, width, x);
        for (size_t r = 0; r < rows; r++) {
            for (size_t g = 0; g < per_row; g++) {
                const struct ddl_q8 *group = &y[r * per_row + g];
                int most = 0;
                for (size_t k = 0; k < DDL_GROUP; k++) {
                    size_t at = g * DDL_GROUP + k;
                    int q = group->q[k], size = abs(q);
                    most = size > most ? size : most;
                    if (at < width)
                        assert_true(fabs((double)x[r * width + at] - (double)group->scale * q) <=
                                    0.5001 * (double)group->scale);
                    else
                        assert_int_equal(q, 0);
                }
                assert_int_equal(most, 127);
            }
        }
        free(y);
        release_all();
    }
}
LAW(groups_are_as_defined)

/* Zeros, the smallest numbers, the largest, and what is not a number. */
static void extreme_groups(ddl_backend *backend)
{
    float x[5 * DDL_GROUP] = { 0 };
    for (size_t i = 0; i < DDL_GROUP; i++) {
        x[DDL_GROUP + i] = i % 2 ? 1e-45f : -3e-45f;
        x[2 * DDL_GROUP + i] = i % 2 ? 3.4e38f : -3.4e38f;
    }
    x[3 * DDL_GROUP + 5] = NAN;
    x[4 * DDL_GROUP + 6] = -INFINITY;
    struct ddl_q8 *y = quantized(backend, 5, DDL_GROUP, x);
    assert_true(y[0].scale == 0 && y[0].q[3] == 0);
    assert_true(isfinite(y[1].scale) && abs(y[1].q[0]) <= 127);
    assert_true(isfinite(y[2].scale) && y[2].q[1] == 127 && y[2].q[2] == -127);
    assert_true(isnan(y[3].scale) && isnan(y[4].scale));
    free(y);
}
LAW(extreme_groups)

static void check_product(size_t M, size_t N, size_t K, float alpha, bool accumulate)
{
    struct ddl_backend *ref;
    assert_int_equal(ddl_backend_create(&ref, "ref", 1, NULL), DDL_OK);
    struct ddl_q8 *B = quantized(ref, N, K, some_floats(N * K));
    ddl_backend_free(ref);
    size_t lda = K + 3, ldc = N + 2, n_c = M * ldc;
    struct matmul8_args a = { M, N, K, alpha, some_floats(M * lda), lda, B, accumulate, NULL, ldc };
    float *initial = some_floats(n_c);
    for (size_t i = 0; !accumulate && i < M; i++) {
        for (size_t j = 0; j < N; j++)
            initial[i * ldc + j] = NAN;
    }
    struct output out[] = { { &a.C, n_c, 2e-6, initial, NULL } };
    COMPARE(matmul8, a, out);
    free(B);
    release_all();
}

static void test_products(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {
        { 1, 1, 1 },     { 1, 700, 100 },  { 2, 33, 64 },      { 3, 20, 31 },  { 4, 130, 768 },
        { 5, 17, 32 },   { 6, 9, 96 },     { 7, 40, 65 },      { 8, 70, 200 }, { 9, 70, 200 },
        { 40, 300, 97 }, { 33, 129, 512 }, { 20, 3000, 4000 },
    };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        check_product(shapes[s][0], shapes[s][1], shapes[s][2], 1, false);
        check_product(shapes[s][0], shapes[s][1], shapes[s][2], -0.5f, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_are_as_defined),
        cmocka_unit_test(test_extreme_groups),
        cmocka_unit_test(test_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
