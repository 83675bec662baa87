#include "tensor/tensor.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "little-endian required: tensors are read from files without byte swapping"
#endif

typedef void decode_fn(const unsigned char *from, size_t n, float *out);
static decode_fn decode_f64, decode_f32, decode_f16, decode_bf16, decode_e5m2, decode_e4m3;

static const struct {
    const char *name;
    size_t size;
    decode_fn *decode; /* NULL: not a float dtype */
} dtypes[DDL_DTYPES] = {
    [DDL_F64] = { "F64", 8, decode_f64 },
    [DDL_F32] = { "F32", 4, decode_f32 },
    [DDL_F16] = { "F16", 2, decode_f16 },
    [DDL_BF16] = { "BF16", 2, decode_bf16 },
    [DDL_F8_E5M2] = { "F8_E5M2", 1, decode_e5m2 },
    [DDL_F8_E4M3] = { "F8_E4M3", 1, decode_e4m3 },
    [DDL_I64] = { "I64", 8, NULL },
    [DDL_I32] = { "I32", 4, NULL },
    [DDL_I16] = { "I16", 2, NULL },
    [DDL_I8] = { "I8", 1, NULL },
    [DDL_U64] = { "U64", 8, NULL },
    [DDL_U32] = { "U32", 4, NULL },
    [DDL_U16] = { "U16", 2, NULL },
    [DDL_U8] = { "U8", 1, NULL },
    [DDL_BOOL] = { "BOOL", 1, NULL },
};

size_t ddl_dtype_size(enum ddl_dtype dtype)
{
    return dtypes[dtype].size;
}

const char *ddl_dtype_name(enum ddl_dtype dtype)
{
    return dtypes[dtype].name;
}

bool ddl_dtype_parse(const char *name, enum ddl_dtype *out)
{
    for (unsigned i = 0; i < DDL_DTYPES; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            *out = (enum ddl_dtype)i;
            return true;
        }
    }
    return false;
}

bool ddl_tensor_measure(struct ddl_tensor *tensor)
{
    /* A zero dimension must not hide an overflow of the others: callers may multiply a subset of them. */
    size_t count = 1, nonzero = 1;
    for (size_t i = 0; i < tensor->ndim; i++) {
        if (!ddl_size_mul(nonzero, tensor->shape[i] ? tensor->shape[i] : 1, &nonzero))
            return false;
        count *= tensor->shape[i];
    }
    if (!ddl_size_mul(nonzero, dtypes[tensor->dtype].size, &nonzero))
        return false;
    tensor->count = count;
    tensor->bytes = count * dtypes[tensor->dtype].size;
    return true;
}

void ddl_tensor_shape_text(const struct ddl_tensor *tensor, char *out, size_t size)
{
    char text[DDL_MAX_DIMS * 24] = "(";
    size_t used = 1;
    for (size_t i = 0; i < tensor->ndim; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%zu", i ? ", " : "", tensor->shape[i]);
    snprintf(out, size, "%s)", text);
}

bool ddl_tensor_has_shape(const struct ddl_tensor *tensor, size_t ndim, const size_t *shape)
{
    if (tensor->ndim != ndim)
        return false;
    for (size_t i = 0; i < ndim; i++) {
        if (tensor->shape[i] != shape[i])
            return false;
    }
    return true;
}

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Widens a float of 1 + `exponent_bits` + `mantissa_bits` bits exactly. The all-ones exponent encodes
 * infinity and NaN. */
static float widen(uint32_t bits, unsigned exponent_bits, unsigned mantissa_bits)
{
    uint32_t sign = (bits >> (exponent_bits + mantissa_bits)) & 1;
    uint32_t exponent = (bits >> mantissa_bits) & ((1u << exponent_bits) - 1);
    uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
    uint32_t bias = (1u << (exponent_bits - 1)) - 1;
    if (exponent == (1u << exponent_bits) - 1)
        return float_of_bits(sign << 31 | 0x7f800000u | mantissa << (23 - mantissa_bits));
    if (exponent == 0) {
        /* Zero or subnormal: mantissa * 2^(1 - bias - mantissa_bits), an exact product. */
        float unit = float_of_bits((127 + 1 - bias - mantissa_bits) << 23);
        float value = (float)mantissa * unit;
        return sign ? -value : value;
    }
    return float_of_bits(sign << 31 | (exponent + 127 - bias) << 23 | mantissa << (23 - mantissa_bits));
}

float ddl_f16_to_f32(uint16_t bits)
{
    return widen(bits, 5, 10);
}

float ddl_bf16_to_f32(uint16_t bits)
{
    return float_of_bits((uint32_t)bits << 16);
}

static void decode_f64(const unsigned char *from, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        double value;
        memcpy(&value, from + i * sizeof value, sizeof value);
        out[i] = (float)value;
    }
}

static void decode_f32(const unsigned char *from, size_t n, float *out)
{
    if (n)
        memcpy(out, from, n * sizeof *out);
}

static uint16_t half_at(const unsigned char *from, size_t i)
{
    return (uint16_t)(from[2 * i] | from[2 * i + 1] << 8);
}

static void decode_f16(const unsigned char *from, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = ddl_f16_to_f32(half_at(from, i));
}

static void decode_bf16(const unsigned char *from, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = ddl_bf16_to_f32(half_at(from, i));
}

static void decode_e5m2(const unsigned char *from, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = widen(from[i], 5, 2);
}

/* E4M3 has no infinity: the all-ones exponent encodes finite values up to 448 and one NaN per sign. */
static void decode_e4m3(const unsigned char *from, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t magnitude = from[i] & 0x7f, sign = (uint32_t)(from[i] & 0x80) << 24;
        if (magnitude == 0x7f)
            out[i] = float_of_bits(sign | 0x7fc00000u);
        else if (magnitude >= 0x78)
            out[i] = float_of_bits(sign | (8 + 127) << 23 | (magnitude & 7) << 20);
        else
            out[i] = widen(from[i], 4, 3);
    }
}

static ddl_status wrong_dtype(const struct ddl_tensor *tensor, const char *wanted, struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_FORMAT, "%.200s: expected %s, found %s", tensor->name, wanted,
                         dtypes[tensor->dtype].name);
}

ddl_status ddl_tensor_read_f32(const struct ddl_tensor *tensor, size_t start, size_t n, float *out,
                               struct ddl_error *err)
{
    if (!dtypes[tensor->dtype].decode)
        return wrong_dtype(tensor, "a float dtype", err);
    if (start > tensor->count || n > tensor->count - start)
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: has %zu elements, requested %zu from index %zu",
                             tensor->name, tensor->count, n, start);
    dtypes[tensor->dtype].decode(tensor->data + start * dtypes[tensor->dtype].size, n, out);
    return DDL_OK;
}

ddl_status ddl_tensor_read_f64(const struct ddl_tensor *tensor, double *out, struct ddl_error *err)
{
    if (tensor->dtype == DDL_F64) {
        if (tensor->bytes)
            memcpy(out, tensor->data, tensor->bytes);
        return DDL_OK;
    }
    if (tensor->dtype != DDL_F32)
        return wrong_dtype(tensor, "F64 or F32", err);
    for (size_t i = 0; i < tensor->count; i++) {
        float value;
        memcpy(&value, tensor->data + i * sizeof value, sizeof value);
        out[i] = (double)value;
    }
    return DDL_OK;
}

ddl_status ddl_tensor_read_i64(const struct ddl_tensor *tensor, int64_t *out, struct ddl_error *err)
{
    if (tensor->dtype != DDL_I64)
        return wrong_dtype(tensor, "I64", err);
    if (tensor->bytes)
        memcpy(out, tensor->data, tensor->bytes);
    return DDL_OK;
}
