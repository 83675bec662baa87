/* Tests tensor/tensor.c: dtypes, and bitwise exact widening to float32. */
#include "support/support.h"

#include "tensor/tensor.h"

#include <float.h>
#include <math.h>
#include <string.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void names_and_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t size;
    } cases[] = {
        { "F64", 8 },     { "F32", 4 }, { "F16", 2 }, { "BF16", 2 }, { "F8_E5M2", 1 },
        { "F8_E4M3", 1 }, { "I64", 8 }, { "I32", 4 }, { "I16", 2 },  { "I8", 1 },
        { "U64", 8 },     { "U32", 4 }, { "U16", 2 }, { "U8", 1 },   { "BOOL", 1 },
    };
    assert_int_equal(sizeof cases / sizeof *cases, DDL_DTYPES);
    for (size_t i = 0; i < DDL_DTYPES; i++) {
        enum ddl_dtype dtype;
        assert_true(ddl_dtype_parse(cases[i].name, &dtype));
        assert_string_equal(ddl_dtype_name(dtype), cases[i].name);
        assert_int_equal(ddl_dtype_size(dtype), cases[i].size);
    }
    enum ddl_dtype dtype;
    assert_false(ddl_dtype_parse("F31", &dtype));
    assert_false(ddl_dtype_parse("f32", &dtype));
}

static void measures(void **state)
{
    (void)state;
    struct ddl_tensor t = { .dtype = DDL_F16, .ndim = 3, .shape = { 3, 5, 7 } };
    assert_true(ddl_tensor_measure(&t));
    assert_int_equal(t.count, 105);
    assert_int_equal(t.bytes, 210);
    char text[32];
    ddl_tensor_shape_text(&t, text, sizeof text);
    assert_string_equal(text, "(3, 5, 7)");
    assert_true(ddl_tensor_has_shape(&t, 3, (const size_t[]){ 3, 5, 7 }));
    assert_false(ddl_tensor_has_shape(&t, 3, (const size_t[]){ 3, 5, 8 }));
    assert_false(ddl_tensor_has_shape(&t, 2, (const size_t[]){ 3, 5 }));
    t = (struct ddl_tensor){ .dtype = DDL_F32 };
    assert_true(ddl_tensor_measure(&t));
    assert_int_equal(t.count, 1);
    ddl_tensor_shape_text(&t, text, sizeof text);
    assert_string_equal(text, "()");
    t = (struct ddl_tensor){ .dtype = DDL_F32, .ndim = 2, .shape = { 0, 9 } };
    assert_true(ddl_tensor_measure(&t));
    assert_int_equal(t.count, 0);
    t.shape[0] = t.shape[1] = (size_t)1 << 33;
    assert_false(ddl_tensor_measure(&t));
    t = (struct ddl_tensor){ .dtype = DDL_F32, .ndim = 3, .shape = { 0, (size_t)1 << 33, (size_t)1 << 33 } };
    assert_false(ddl_tensor_measure(&t));
    t = (struct ddl_tensor){ .dtype = DDL_F32, .ndim = 1, .shape = { SIZE_MAX / 2 } };
    assert_false(ddl_tensor_measure(&t));
}

/* Returns the value of a small float's bits, computed in double from the definition of the format. */
static double defined(unsigned bits, int exponent_bits, int mantissa_bits)
{
    int exponent = (int)(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    int mantissa = (int)bits & ((1 << mantissa_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
    double sign = bits >> (exponent_bits + mantissa_bits) ? -1 : 1;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

static void assert_same(float found, double expected)
{
    assert_true((double)found == expected);
    assert_int_equal(signbit(found) != 0, signbit(expected) != 0);
}

static void every_half(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 65536; bits++) {
        float half = ddl_f16_to_f32((uint16_t)bits), brain = ddl_bf16_to_f32((uint16_t)bits);
        if ((bits & 0x7c00) != 0x7c00)
            assert_same(half, defined(bits, 5, 10));
        else if (bits & 0x3ff)
            assert_true(isnan(half));
        else
            assert_same(half, bits & 0x8000 ? -(double)INFINITY : (double)INFINITY);
        assert_int_equal(bits_of(brain), bits << 16);
    }
    assert_true(ddl_f16_to_f32(0x0001) == 0x1p-24f);
    assert_true(ddl_f16_to_f32(0x3c00) == 1);
    assert_true(ddl_f16_to_f32(0x7bff) == 65504);
    assert_true(isinf(ddl_bf16_to_f32(0x7f80)) && isnan(ddl_bf16_to_f32(0x7fc0)));
    assert_true(ddl_bf16_to_f32(0x0001) == ldexpf(1, -133));
    assert_true(ddl_bf16_to_f32(0xbf80) == -1);
}

static void every_byte_float(void **state)
{
    (void)state;
    unsigned char bytes[256];
    float e5m2[256], e4m3[256];
    for (int i = 0; i < 256; i++)
        bytes[i] = (unsigned char)i;
    struct ddl_tensor t = { .name = "t", .dtype = DDL_F8_E5M2, .count = 256, .bytes = 256, .data = bytes };
    struct ddl_error err;
    assert_ok(ddl_tensor_read_f32(&t, 0, 256, e5m2, &err), err);
    t.dtype = DDL_F8_E4M3;
    assert_ok(ddl_tensor_read_f32(&t, 0, 256, e4m3, &err), err);
    for (unsigned i = 0; i < 256; i++) {
        if ((i & 0x7c) != 0x7c)
            assert_same(e5m2[i], defined(i, 5, 2));
        else
            assert_true(i & 3 ? isnan(e5m2[i]) : isinf(e5m2[i]));
        if ((i & 0x7f) != 0x7f)
            assert_same(e4m3[i], defined(i, 4, 3));
        else
            assert_true(isnan(e4m3[i]));
    }
    assert_true(e4m3[0x7e] == 448);
}

static void reads(void **state)
{
    (void)state;
    struct ddl_error err;
    /* Offset by one byte: tensors in files may be unaligned. */
    unsigned char storage[1 + 5 * sizeof(double)];
    const double doubles[5] = { 0.1, -0.0, (double)INFINITY, 1e300, 3 };
    memcpy(storage + 1, doubles, sizeof doubles);
    struct ddl_tensor t = { .name = "t", .dtype = DDL_F64, .count = 5, .bytes = 40, .data = storage + 1 };
    float floats[5];
    double back[5];
    assert_ok(ddl_tensor_read_f32(&t, 0, 5, floats, &err), err);
    assert_true(floats[0] == 0.1f && signbit(floats[1]) && isinf(floats[2]) && isinf(floats[3]));
    assert_ok(ddl_tensor_read_f32(&t, 4, 1, floats, &err), err);
    assert_true(floats[0] == 3);
    assert_ok(ddl_tensor_read_f32(&t, 5, 0, floats, &err), err);
    assert_int_equal(ddl_tensor_read_f32(&t, 4, 2, floats, &err), DDL_E_USAGE);
    assert_int_equal(ddl_tensor_read_f32(&t, 6, 0, floats, &err), DDL_E_USAGE);
    assert_ok(ddl_tensor_read_f64(&t, back, &err), err);
    assert_memory_equal(back, doubles, sizeof doubles);

    const float singles[3] = { 0.1f, -2, NAN };
    memcpy(storage + 1, singles, sizeof singles);
    t = (struct ddl_tensor){ .name = "t", .dtype = DDL_F32, .count = 3, .bytes = 12, .data = storage + 1 };
    assert_ok(ddl_tensor_read_f32(&t, 0, 3, floats, &err), err);
    assert_memory_equal(floats, singles, sizeof singles);
    assert_ok(ddl_tensor_read_f64(&t, back, &err), err);
    assert_true(back[0] == (double)0.1f && back[1] == -2 && isnan(back[2]));

    const int64_t integers[2] = { INT64_MIN, -1 };
    int64_t integers_back[2];
    memcpy(storage + 1, integers, sizeof integers);
    t = (struct ddl_tensor){ .name = "t", .dtype = DDL_I64, .count = 2, .bytes = 16, .data = storage + 1 };
    assert_ok(ddl_tensor_read_i64(&t, integers_back, &err), err);
    assert_memory_equal(integers_back, integers, sizeof integers);
    assert_int_equal(ddl_tensor_read_f32(&t, 0, 2, floats, &err), DDL_E_FORMAT);
    assert_string_equal(err.text, "t: expected a float dtype, found I64");
    assert_int_equal(ddl_tensor_read_f64(&t, back, &err), DDL_E_FORMAT);
    t.dtype = DDL_U64;
    assert_int_equal(ddl_tensor_read_i64(&t, integers_back, &err), DDL_E_FORMAT);
    assert_string_equal(err.text, "t: expected I64, found U64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sizes),  cmocka_unit_test(measures), cmocka_unit_test(every_half),
        cmocka_unit_test(every_byte_float), cmocka_unit_test(reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
