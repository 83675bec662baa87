/* Eight-bit weights: the tiles are as defined, the same on every backend, and products with them are right.
 */
#include "backend/q8.h"
#include "support/backends.h"
#include "support/properties.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

DEFINE_CALL(matmul_q8, matmul_q8_args)

/* Rows of x reduced on a backend, `piece` of them at a time, into tiles that already have `first` rows. */
static struct ddl_q8 *quantized(const struct ddl_backend *backend, size_t rows, size_t width, size_t first,
                                size_t piece, const float *x)
{
    struct ddl_q8 *y = calloc(ddl_q8_tiles(first + rows, width) + 1, sizeof *y);
    assert_non_null(y);
    for (size_t r = 0; r < rows; r += piece) {
        size_t n = rows - r < piece ? rows - r : piece;
        backend->ops->quantize_q8(backend->ctx,
                                  &(struct quantize_q8_args){ n, width, first + r, x + r * width, y });
    }
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
        struct ddl_q8 *y = quantized(backend, rows, width, first, rows, x);
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

/* Whichever rows come together. */
static void pieces_make_the_same_tiles(ddl_backend *backend)
{
    enum { ROWS = 53, WIDTH = 75, FIRST = 5 };
    static const size_t pieces[] = { 1, 3, 16, 17, 40 };
    float *x = some_floats((size_t)ROWS * WIDTH);
    struct ddl_q8 *whole = quantized(backend, ROWS, WIDTH, FIRST, ROWS, x);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct ddl_q8 *y = quantized(backend, ROWS, WIDTH, FIRST, pieces[i], x);
        assert_memory_equal(y, whole, ddl_q8_tiles(FIRST + ROWS, WIDTH) * sizeof *y);
        free(y);
    }
    free(whole);
    release_all();
}
PROPERTY(pieces_make_the_same_tiles)

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
    struct ddl_q8 *y = quantized(backend, 5, DDL_GROUP, 0, 5, x);
    assert_true(y->scale[0] == 0 && y->q[0][0][3] == 0);
    assert_true(isfinite(y->scale[1]) && abs(y->q[0][1][0]) <= 127);
    assert_true(isfinite(y->scale[2]) && y->q[0][2][1] == 127 && y->q[0][2][2] == -127);
    assert_true(isnan(y->scale[3]) && isnan(y->scale[4]));
    free(y);
}
PROPERTY(extreme_groups)

/* What a product is made of besides its shape. */
struct product {
    size_t first;
    float alpha, size; /* of A's numbers */
    bool accumulate;
};

static struct ddl_q8 *weights(size_t N, size_t K, size_t first)
{
    struct ddl_backend *ref;
    assert_int_equal(ddl_backend_create(&ref, "ref", 1, NULL), DDL_OK);
    struct ddl_q8 *B = quantized(ref, N, K, first, N, some_floats(N * K));
    ddl_backend_free(ref);
    return B;
}

static double weight(const struct ddl_q8 *B, size_t K, size_t row, size_t k)
{
    const struct ddl_q8 *tile = &B[row / DDL_Q8_ROWS * ddl_q8_groups(K) + k / DDL_GROUP];
    return (double)tile->scale[row % DDL_Q8_ROWS] * tile->q[k % DDL_GROUP / 4][row % DDL_Q8_ROWS][k % 4];
}

/* The exact number (m, n) and its bound: the sum of K float32 terms in any order, scaled and accumulated, is
 * off by (K + 4) u of the sum of their sizes, u = 2^-24. Numbers of A may be held in 23 bits and a sign
 * relative to the largest of their group of 32, whose power of two may be twice that: half a step is 4 u of
 * it; summing three digits of them rounds by 8 u more. FLT_MIN a term: subnormal numbers may be flushed to
 * zero. */
static void bound_of(const struct matmul_q8_args *a, size_t m, size_t n, double before, double *exact,
                     double *bound)
{
    double u = 0x1p-24, sum = 0, sizes = 0, groups = 0, largest = 0, added = a->accumulate ? before : 0;
    for (size_t k = 0; k < a->K; k++) {
        if (k % DDL_GROUP == 0) {
            largest = 0;
            for (size_t i = k; i < a->K && i < k + DDL_GROUP; i++)
                largest = fmax(largest, fabs((double)a->A[m * a->lda + i]));
        }
        double w = weight(a->B, a->K, a->first + n, k), x = (double)a->A[m * a->lda + k];
        sum += w * x;
        sizes += fabs(w * x);
        groups += fabs(w) * largest;
    }
    double alpha = fabs((double)a->alpha), K = (double)a->K + 4;
    *exact = (double)a->alpha * sum + added;
    *bound = alpha * (K * u * sizes + 12 * u * groups) + K * u * fabs(added) + K * (double)FLT_MIN;
}

static void compare_products(struct matmul_q8_args *a, const float *before)
{
    size_t n = a->M * a->N;
    double *exact = malloc(2 * n * sizeof *exact + 1), *bound = exact + n;
    for (size_t i = 0; i < n; i++)
        bound_of(a, i / a->N, i % a->N, before ? (double)before[i / a->N * a->ldc + i % a->N] : 0, &exact[i],
                 &bound[i]);
    struct output out = { &a->C, a->M * a->ldc, 1, before, NULL };
    compare_with_bounds(call_matmul_q8, a, &out, &(struct bounds){ a->M, a->N, a->ldc, exact, bound });
    free(exact);
}

static void check_product(size_t M, size_t N, size_t K, struct product how)
{
    struct ddl_q8 *B = weights(N, K, how.first);
    size_t lda = K + 3, ldc = N + 2, n_c = M * ldc;
    struct matmul_q8_args a = { .M = M,
                                .N = N,
                                .K = K,
                                .first = how.first,
                                .alpha = how.alpha,
                                .A = floats_around(M * lda, 0, how.size),
                                .lda = lda,
                                .B = B,
                                .accumulate = how.accumulate,
                                .ldc = ldc };
    float *initial = some_floats(n_c);
    for (size_t i = 0; !how.accumulate && i < M; i++) {
        for (size_t j = 0; j < N; j++)
            initial[i * ldc + j] = NAN;
    }
    compare_products(&a, initial);
    free(B);
    release_all();
}

static void test_products(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {
        { 1, 1, 1 },     { 1, 700, 100 },  { 2, 33, 64 },      { 3, 20, 31 },     { 4, 130, 768 },
        { 5, 17, 32 },   { 6, 9, 96 },     { 7, 40, 65 },      { 8, 70, 200 },    { 9, 70, 200 },
        { 40, 300, 97 }, { 33, 129, 512 }, { 20, 3000, 4000 }, { 150, 33, 4000 }, { 30, 129, 4000 },
        { 3, 4, 0 },     { 30, 4, 0 },     { 0, 4, 32 },       { 4, 0, 32 },
    };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const size_t *at = shapes[s];
        check_product(at[0], at[1], at[2], (struct product){ 0, 1, 1, false });
        check_product(at[0], at[1], at[2], (struct product){ 23, -0.5f, 1, true });
    }
}

/* Small and large values of A have the same relative precision. */
static void test_small_and_large_numbers(void **state)
{
    (void)state;
    static const float sizes[] = { 1e-37f, 1e-30f, 1e-7f, 1e9f, 1e33f };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_product(1, 40, 96, (struct product){ 3, 1, sizes[i], false });
        check_product(6, 40, 96, (struct product){ 0, 1, sizes[i], false });
    }
}

/* The largest digits, of either sign, and what is just beyond them. */
static void test_digits_at_their_limit(void **state)
{
    (void)state;
    enum { M = 6, N = 20, K = 64 };
    static const float sizes[] = { 0x1.fffffep0f, 0x1.fefefep0f, 0x1.fefep0f, 0x1.feffp0f, 0x1.fdf3b6p0f, 1 };
    struct ddl_q8 *B = weights(N, K, 0);
    float A[M * K];
    for (size_t i = 0; i < M * K; i++)
        A[i] = (i * 2654435761u >> 7 & 1 ? -1 : 1) * sizes[i / K];
    struct matmul_q8_args a = { .M = M, .N = N, .K = K, .alpha = 1, .A = A, .lda = K, .B = B, .ldc = N };
    compare_products(&a, NULL);
    free(B);
    release_all();
}

/* Numbers of A that are held exactly (whole, below 2^22) meet weights that are: whole sums come out as they
 * are.
 */
static void test_whole_numbers_are_exact(void **state)
{
    (void)state;
    enum { M = 5, N = 19, K = 64 };
    float A[M * K], B[N * K], C[M * N];
    for (size_t i = 0; i < M * K; i++)
        A[i] = (float)((int)(i * 2654435761u % 4001) - 2000);
    for (size_t i = 0; i < N * K; i++)
        B[i] = (float)(i % DDL_GROUP == 0 ? 127 : (int)(i * 40503u % 255) - 127);
    for (size_t isa = 0; isa_name(isa); isa++) {
        struct ddl_backend *backend = cpu_backend(isa_name(isa), 2);
        if (!backend)
            continue;
        struct ddl_q8 *tiles = quantized(backend, N, K, 0, N, B);
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
        ddl_backend_free(backend);
    }
}

/* On every instruction set. */
static void on_every_isa(property_fn *property)
{
    for (size_t isa = 0; isa_name(isa); isa++) {
        struct ddl_backend *backend = cpu_backend(isa_name(isa), 2);
        if (backend)
            property(backend);
        ddl_backend_free(backend);
    }
}

static void tiles_are_those_of_ref(ddl_backend *backend)
{
    enum { ROWS = 21, WIDTH = 70, BEFORE = 3 };
    struct ddl_backend *ref;
    assert_int_equal(ddl_backend_create(&ref, "ref", 1, NULL), DDL_OK);
    float *x = some_floats((size_t)ROWS * WIDTH);
    x[5] = NAN, x[WIDTH] = INFINITY, x[3 * WIDTH] = 1e-45f;
    struct ddl_q8 *y = quantized(backend, ROWS, WIDTH, BEFORE, ROWS, x);
    struct ddl_q8 *expected = quantized(ref, ROWS, WIDTH, BEFORE, ROWS, x);
    for (size_t i = 0; i < ddl_q8_tiles(BEFORE + ROWS, WIDTH); i++) {
        assert_memory_equal(y[i].q, expected[i].q, sizeof y->q);
        for (size_t r = 0; r < DDL_Q8_ROWS; r++)
            assert_true(y[i].scale[r] == expected[i].scale[r] ||
                        (isnan(y[i].scale[r]) && isnan(expected[i].scale[r])));
    }
    free(y);
    free(expected);
    ddl_backend_free(ref);
    release_all();
}

static void test_tiles_are_those_of_ref(void **state)
{
    (void)state;
    on_every_isa(tiles_are_those_of_ref);
}

/* A non-finite value of A or B affects its row or column of C, and no other. */
static void non_finite_values_stay_in_their_row(ddl_backend *backend)
{
    enum { FEW = 4, MANY = 28, N = 20, K = 70, COLUMN = 18 };
    static const float non_finite[] = { NAN, INFINITY, -INFINITY };
    float A[MANY * K], C[MANY * N];
    struct ddl_q8 *B = weights(N, K, 0);
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
    on_every_isa(non_finite_values_stay_in_their_row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles_are_as_defined),
        cmocka_unit_test(test_pieces_make_the_same_tiles),
        cmocka_unit_test(test_extreme_groups),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_small_and_large_numbers),
        cmocka_unit_test(test_digits_at_their_limit),
        cmocka_unit_test(test_whole_numbers_are_exact),
        cmocka_unit_test(test_tiles_are_those_of_ref),
        cmocka_unit_test(test_non_finite_values_stay_in_their_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
