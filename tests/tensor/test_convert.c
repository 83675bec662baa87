/* Tests tensor/convert.c: conversion between all float dtypes, against the definition of rounding, by
 * exhaustive search. */
#include "support/support.h"

#include "base/rng.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct ddl_tensor tensor_of(enum ddl_dtype dtype, size_t n, const void *data)
{
    struct ddl_tensor t = { .name = "w", .dtype = dtype, .ndim = 1, .shape = { n }, .data = data };
    assert_true(ddl_tensor_measure(&t));
    return t;
}

static double value_of(enum ddl_dtype dtype, uint16_t bits)
{
    return (double)(dtype == DDL_F16 ? ddl_f16_to_f32(bits) : ddl_bf16_to_f32(bits));
}

static uint16_t convert_one(double x, enum ddl_dtype to, ddl_status wanted)
{
    struct ddl_error err;
    uint16_t out = 0xdead;
    const struct ddl_tensor t = tensor_of(DDL_F64, 1, (const unsigned char *)&x);
    assert_int_equal(ddl_tensor_convert(&t, 0, 1, to, &out, &err), wanted);
    return out;
}

static const struct small {
    enum ddl_dtype dtype;
    uint16_t infinity; /* bits of infinity; all smaller values are finite and nonnegative */
    double largest;
} smalls[] = { { DDL_F16, 0x7c00, 65504 }, { DDL_BF16, 0x7f80, 0x1.fep127 } };

/* Every value of the small dtype and around every midpoint between neighbors, of both signs. */
static void rounds_to_nearest_even(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        const struct small *s = &smalls[k];
        for (uint16_t bits = 0; bits + 1 < s->infinity; bits++) {
            double low = value_of(s->dtype, bits), high = value_of(s->dtype, (uint16_t)(bits + 1));
            double middle = (low + high) / 2; /* exact in double */
            uint16_t even = bits % 2 ? (uint16_t)(bits + 1) : bits;
            assert_int_equal(convert_one(low, s->dtype, DDL_OK), bits);
            assert_int_equal(convert_one(-low, s->dtype, DDL_OK), bits | 0x8000);
            assert_int_equal(convert_one(middle, s->dtype, DDL_OK), even);
            assert_int_equal(convert_one(-middle, s->dtype, DDL_OK), even | 0x8000);
            assert_int_equal(convert_one(nextafter(middle, 0), s->dtype, DDL_OK), bits);
            assert_int_equal(convert_one(nextafter(middle, 1e300), s->dtype, DDL_OK), bits + 1);
        }
    }
}

static void range_limits(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        const struct small *s = &smalls[k];
        double step = s->largest - value_of(s->dtype, (uint16_t)(s->infinity - 2));
        double limit = s->largest + step / 2; /* rounds up, beyond the largest finite value */
        assert_int_equal(convert_one(s->largest, s->dtype, DDL_OK), s->infinity - 1);
        assert_int_equal(convert_one(nextafter(limit, 0), s->dtype, DDL_OK), s->infinity - 1);
        convert_one(limit, s->dtype, DDL_E_NUMERIC);
        convert_one(-limit, s->dtype, DDL_E_NUMERIC);
        convert_one(1e300, s->dtype, DDL_E_NUMERIC);
        assert_int_equal(convert_one((double)INFINITY, s->dtype, DDL_OK), s->infinity);
        assert_int_equal(convert_one(-(double)INFINITY, s->dtype, DDL_OK), s->infinity | 0x8000);
        uint16_t nan = convert_one((double)NAN, s->dtype, DDL_OK);
        assert_true((nan & s->infinity) == s->infinity && (nan & 0x7fff) != s->infinity);
        assert_int_equal(convert_one(5e-324, s->dtype, DDL_OK), 0);
        assert_int_equal(convert_one(-0.0, s->dtype, DDL_OK), 0x8000);
    }
}

/* F32 must agree with the hardware's IEEE 754 rounding; F64 to BF16 must round once, not via F32. */
static void agrees_with_hardware(void **state)
{
    (void)state;
    enum { N = 20000 };
    static double from[N];
    static float to[N];
    struct ddl_error err;
    uint64_t key = ddl_rng_key(5, "convert");
    for (size_t i = 0; i < N; i++)
        from[i] = ldexp(ddl_rng_uniform(key, 3 * i) - 0.5, (int)ddl_rng_below(key, 3 * i + 1, 300) - 170);
    const struct ddl_tensor t = tensor_of(DDL_F64, N, (const unsigned char *)from);
    assert_ok(ddl_tensor_convert(&t, 0, N, DDL_F32, to, &err), err);
    for (size_t i = 0; i < N; i++)
        assert_true(to[i] == (float)from[i]);
    double once = 1 + 0x1p-8 + 0x1p-40; /* rounded to float first, this is a tie, and even is down */
    assert_int_equal(convert_one(once, DDL_BF16, DDL_OK), 0x3f81);
}

static void widening_is_exact_and_same_is_a_copy(void **state)
{
    (void)state;
    static uint16_t all[65536], back[65536];
    static float wide[65536];
    struct ddl_error err;
    for (size_t i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    for (size_t k = 0; k < 2; k++) {
        const struct ddl_tensor t = tensor_of(smalls[k].dtype, 65536, (const unsigned char *)all);
        assert_ok(ddl_tensor_convert(&t, 0, 65536, smalls[k].dtype, back, &err), err);
        assert_memory_equal(all, back, sizeof all);
        assert_ok(ddl_tensor_convert(&t, 0, 65536, DDL_F32, wide, &err), err);
        const struct ddl_tensor w = tensor_of(DDL_F32, 65536, (const unsigned char *)wide);
        assert_ok(ddl_tensor_convert(&w, 0, 65536, smalls[k].dtype, back, &err), err);
        for (size_t i = 0; i < 65536; i++) {
            if (!isnan(wide[i]))
                assert_int_equal(back[i], all[i]);
            else
                assert_true((back[i] & 0x7fff) > smalls[k].infinity);
        }
    }
}

static void blocks_and_errors(void **state)
{
    (void)state;
    enum { R = 50, C = 50 };
    static float from[R * C];
    static uint16_t whole[R * C], part[R * C];
    struct ddl_error err;
    for (size_t i = 0; i < R * C; i++)
        from[i] = (float)i / 7;
    struct ddl_tensor t = { .name = "h.weight",
                            .dtype = DDL_F32,
                            .ndim = 2,
                            .shape = { R, C },
                            .data = (const unsigned char *)from };
    assert_true(ddl_tensor_measure(&t));
    assert_ok(ddl_tensor_convert(&t, 0, R * C, DDL_F16, whole, &err), err);
    for (size_t at = 0; at < R * C; at += 333) {
        size_t n = R * C - at < 333 ? R * C - at : 333;
        assert_ok(ddl_tensor_convert(&t, at, n, DDL_F16, part, &err), err);
        assert_memory_equal(part, whole + at, n * sizeof *part);
    }
    assert_ok(ddl_tensor_convert(&t, R * C, 0, DDL_F16, part, &err), err);
    from[31 * C + 17] = -1e6f;
    assert_int_equal(ddl_tensor_convert(&t, 100, R * C - 100, DDL_F16, whole, &err), DDL_E_NUMERIC);
    assert_string_equal(err.text, "h.weight[31, 17]: -1e+06 exceeds the limit of F16, 65504");
    assert_int_equal(ddl_tensor_convert(&t, 1, R * C, DDL_F16, whole, &err), DDL_E_USAGE);
    assert_int_equal(ddl_tensor_convert(&t, 0, 1, DDL_I32, whole, &err), DDL_E_USAGE);
    t.dtype = DDL_I32;
    assert_int_equal(ddl_tensor_convert(&t, 0, 1, DDL_F16, whole, &err), DDL_E_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_to_nearest_even), cmocka_unit_test(range_limits),
        cmocka_unit_test(agrees_with_hardware),   cmocka_unit_test(widening_is_exact_and_same_is_a_copy),
        cmocka_unit_test(blocks_and_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
