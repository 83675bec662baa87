/* What the cases of ops/cases.h do not show of eight-bit weights: the tiles are as defined, products of whole
 * numbers are exact, and non-finite values reach no other row or column. */
#include "backend/q8.h"
#include "support/backends.h"
#include "support/properties.h"

#include <math.h>
#include <stdlib.h>

/* Rows of x reduced on a backend into tiles that already have `first` rows. */
static struct ddl_q8 *quantized(const struct ddl_backend *backend, size_t rows, size_t width, size_t first,
                                const float *x)
{
    struct ddl_q8 *y = calloc(ddl_q8_tiles(first + rows, width) + 1, sizeof *y);
    assert_non_null(y);
    backend->ops->quantize_q8(backend->ctx, &(struct quantize_q8_args){ rows, width, first, x, y });
    return y;
}

/* Each number is at most half a step off, the largest of a group takes the whole range, the short group's
 * rest is 0. */
static void check_group(const struct ddl_q8 *tile, size_t lane, size_t n, const float *x)
{
    int most = 0;
    for (size_t k = 0; k < DDL_GROUP; k++) {
        int q = tile->q[k / 4][lane][k % 4], size = abs(q);
        most = size > most ? size : most;
        if (k < n)
            assert_true(fabs((double)x[k] - (double)tile->scale[lane] * q) <=
                        0.5001 * (double)tile->scale[lane]);
        else
            assert_int_equal(q, 0);
    }
    assert_int_equal(most, 127);
}

static void tiles_are_as_defined(ddl_backend *backend)
{
    static const size_t sizes[][3] = { { 1, 1, 0 },   { 3, 32, 0 },  { 2, 33, 15 },
                                       { 5, 95, 21 }, { 7, 256, 0 }, { 40, 70, 9 } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t rows = sizes[i][0], width = sizes[i][1], first = sizes[i][2];
        float *x = floats_around(rows * width, 0.1f, 3);
        struct ddl_q8 *y = quantized(backend, rows, width, first, x);
        for (size_t r = 0; r < rows; r++) {
            const struct ddl_q8 *tiles = y + (first + r) / DDL_Q8_ROWS * ddl_q8_groups(width);
            for (size_t k = 0; k < width; k += DDL_GROUP)
                check_group(&tiles[k / DDL_GROUP], (first + r) % DDL_Q8_ROWS,
                            width - k < DDL_GROUP ? width - k : DDL_GROUP, x + r * width + k);
        }
        for (size_t row = 0; row < first; row++) /* are left alone */
            assert_true(y[row / DDL_Q8_ROWS * ddl_q8_groups(width)].scale[row % DDL_Q8_ROWS] == 0);
        free(y);
        release_all();
    }
}
PROPERTY(tiles_are_as_defined)

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
    struct ddl_q8 *y = quantized(backend, 5, DDL_GROUP, 0, x);
    assert_true(y->scale[0] == 0 && y->q[0][0][3] == 0);
    assert_true(isfinite(y->scale[1]) && abs(y->q[0][1][0]) <= 127);
    assert_true(isfinite(y->scale[2]) && y->q[0][2][1] == 127 && y->q[0][2][2] == -127);
    assert_true(isnan(y->scale[3]) && isnan(y->scale[4]));
    free(y);
}
PROPERTY(extreme_groups)

/* Numbers of A that are held exactly (whole, below 2^22) meet weights that are: whole sums come out as they
 * are.
 */
static void whole_numbers_are_exact(ddl_backend *backend)
{
    enum { M = 5, N = 19, K = 64 };
    float A[M * K], B[N * K], C[M * N];
    for (size_t i = 0; i < M * K; i++)
        A[i] = (float)((int)(i * 2654435761u % 4001) - 2000);
    for (size_t i = 0; i < N * K; i++)
        B[i] = (float)(i % DDL_GROUP == 0 ? 127 : (int)(i * 40503u % 255) - 127);
    struct ddl_q8 *tiles = quantized(backend, N, K, 0, B);
    backend->ops->matmul_q8(
        backend->ctx,
        &(struct matmul_q8_args){
            .M = M, .N = N, .K = K, .alpha = 1, .A = A, .lda = K, .B = tiles, .C = C, .ldc = N });
    for (size_t i = 0; i < M * N; i++) {
        int sum = 0;
        for (size_t k = 0; k < K; k++)
            sum += (int)A[i / N * K + k] * (int)B[i % N * K + k];
        assert_true(C[i] == (float)sum);
    }
    free(tiles);
}

static void test_whole_numbers_are_exact(void **state)
{
    (void)state;
    on_every_set(whole_numbers_are_exact);
}

/* A non-finite value of A or B affects its row or column of C, and no other. */
static void non_finite_values_stay_in_their_row(ddl_backend *backend)
{
    enum { FEW = 4, MANY = 28, N = 20, K = 70, COLUMN = 18 };
    static const float non_finite[] = { NAN, INFINITY, -INFINITY };
    float A[MANY * K], C[MANY * N];
    struct ddl_q8 *B = quantized(backend, N, K, 0, some_floats((size_t)N * K));
    B[COLUMN / DDL_Q8_ROWS * ddl_q8_groups(K) + 1].scale[COLUMN % DDL_Q8_ROWS] = NAN;
    for (size_t i = 0; i < MANY * K; i++)
        A[i] = i % K == 40 && i / K < 3 ? non_finite[i / K] : 0.5f;
    for (size_t M = FEW; M <= MANY; M += MANY - FEW) { /* many rows: the path with packed panels */
        backend->ops->matmul_q8(
            backend->ctx,
            &(struct matmul_q8_args){
                .M = M, .N = N, .K = K, .alpha = 1, .A = A, .lda = K, .B = B, .C = C, .ldc = N });
        for (size_t i = 0; i < M * N; i++)
            assert_true(isfinite(C[i]) == (i / N >= 3 && i % N != COLUMN));
    }
    free(B);
    release_all();
}

static void test_non_finite_values_stay_in_their_row(void **state)
{
    (void)state;
    on_every_set(non_finite_values_stay_in_their_row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles_are_as_defined),
        cmocka_unit_test(test_extreme_groups),
        cmocka_unit_test(test_whole_numbers_are_exact),
        cmocka_unit_test(test_non_finite_values_stay_in_their_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
