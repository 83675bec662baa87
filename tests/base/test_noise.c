/* base/noise.h: errors of the reference's own size pass, larger ones do not. */
#include "support/support.h"

#include "base/mem.h"
#include "base/noise.h"

#include <math.h>
#include <stdlib.h>

enum { TENSORS = 24, MOST = 500 };

/* Exact values with two independent errors; every fifth tensor is below the floor. */
struct draw {
    float *x[3][TENSORS];
    struct ddl_noise_tensor list[TENSORS];
};

static size_t size_of(size_t i)
{
    return i % 4 == 0 ? 1 : i % 4 == 1 ? 4 : MOST;
}

static void draw_make(struct draw *d, uint64_t seed, float reference, float found)
{
    for (size_t i = 0; i < TENSORS; i++) {
        size_t n = size_of(i);
        for (size_t k = 0; k < 3; k++)
            d->x[k][i] = random_floats(n, seed * 1000 + 3 * i + k);
        for (size_t j = 0; j < n; j++) {
            float size = i % 5 == 3 ? 1e-3f : 1, unit = 0.02f * size;
            float exact = size * (n < 16 ? copysignf(1, d->x[2][i][j]) : d->x[2][i][j]);
            d->x[0][i][j] = exact + found * unit * d->x[0][i][j];
            d->x[1][i][j] = exact + reference * unit * d->x[1][i][j];
            d->x[2][i][j] = exact;
        }
        d->list[i] = (struct ddl_noise_tensor){ n, d->x[0][i], d->x[1][i], d->x[2][i] };
    }
}

static void draw_free(struct draw *d)
{
    for (size_t i = 0; i < TENSORS; i++) {
        for (size_t k = 0; k < 3; k++)
            ddl_mem_free(d->x[k][i]);
    }
}

/* The worst case of a correct implementation: no rounding in common. */
static void independent_errors_pass(void **state)
{
    (void)state;
    size_t all = 0, one = 0;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct draw d;
        draw_make(&d, seed, 1, 1);
        struct ddl_noise noise = ddl_noise_measure(TENSORS, d.list);
        all += noise.all <= 1.1 * DDL_NOISE_LIMIT_ALL;
        one += noise.one <= DDL_NOISE_LIMIT_ONE;
        draw_free(&d);
    }
    assert_int_equal(all, 50); /* around the limit: half of the draws are above it */
    assert_true(one >= 48);
}

static void larger_errors_fail(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct draw d;
        draw_make(&d, seed, 1, 3);
        assert_true(ddl_noise_measure(TENSORS, d.list).all > DDL_NOISE_LIMIT_ALL);
        draw_free(&d);
        draw_make(&d, seed, 1, 1);
        for (size_t j = 0; j < MOST; j++)
            d.x[0][2][j] = d.x[2][2][j] + 0.2f;
        struct ddl_noise noise = ddl_noise_measure(TENSORS, d.list);
        assert_true(noise.one > DDL_NOISE_LIMIT_ONE);
        assert_int_equal(noise.worst, 2);
        draw_free(&d);
    }
}

/* A sum that cancels: its distance from float32 is small by accident. */
static void few_numbers_take_the_average(void **state)
{
    (void)state;
    struct draw d;
    draw_make(&d, 1, 1, 1);
    d.x[1][4][0] = d.x[2][4][0] * 1.000001f;
    d.x[0][4][0] = d.x[2][4][0] * 1.01f;
    assert_true(ddl_noise_measure(TENSORS, d.list).one <= DDL_NOISE_LIMIT_ONE);
    d.x[0][4][0] = d.x[2][4][0] * 1.5f;
    assert_int_equal(ddl_noise_measure(TENSORS, d.list).worst, 4);
    assert_true(ddl_noise_measure(TENSORS, d.list).one > DDL_NOISE_LIMIT_ONE);
    draw_free(&d);
}

static void special_values(void **state)
{
    (void)state;
    float a[20], b[20], zero[20] = { 0 };
    for (size_t i = 0; i < 20; i++)
        a[i] = b[i] = 1 + (float)i;
    struct ddl_noise_tensor same = { 20, a, a, a }, off = { 20, b, a, a }, nothing = { 20, zero, zero, zero };
    assert_true(ddl_noise_measure(1, &same).all == 0 && ddl_noise_measure(1, &same).one == 0);
    assert_true(ddl_noise_measure(1, &nothing).one == 0);
    assert_true(ddl_noise_measure(0, NULL).all == 0);
    b[3] += 1;
    assert_true(ddl_noise_measure(1, &off).one > DDL_NOISE_LIMIT_ONE);
    b[3] = a[3] * (1 + 0x1p-20f); /* float32's own errors */
    assert_true(ddl_noise_measure(1, &off).one < 1);
    b[3] = NAN;
    assert_true(isinf(ddl_noise_measure(1, &off).one) && isinf(ddl_noise_measure(1, &off).all));
    nothing.found = a;
    assert_true(isinf(ddl_noise_measure(1, &nothing).one));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(independent_errors_pass),
        cmocka_unit_test(larger_errors_fail),
        cmocka_unit_test(few_numbers_take_the_average),
        cmocka_unit_test(special_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
