/* Conversion between float dtypes. */
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PIECE = 1024 };

/* A target format: bits of exponent and mantissa. Infinity has the all-ones exponent. */
struct target {
    unsigned exponent_bits, mantissa_bits;
    double largest;
};

static const struct target *target_of(enum ddl_dtype dtype)
{
    static const struct target f64 = { 11, 52, 1.7976931348623157e308 };
    static const struct target f32 = { 8, 23, 3.4028234663852886e38 };
    static const struct target f16 = { 5, 10, 65504 };
    static const struct target bf16 = { 8, 7, 3.3895313892515355e38 };
    switch (dtype) {
    case DDL_F64:
        return &f64;
    case DDL_F32:
        return &f32;
    case DDL_F16:
        return &f16;
    case DDL_BF16:
        return &bf16;
    default:
        return NULL;
    }
}

/* Returns the bits of x, rounded to nearest, ties to even. */
static uint64_t narrow(double x, const struct target *t)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint64_t sign = bits >> 63 << (t->exponent_bits + t->mantissa_bits);
    uint64_t infinity = (((uint64_t)1 << t->exponent_bits) - 1) << t->mantissa_bits;
    uint64_t mantissa = bits & (((uint64_t)1 << 52) - 1);
    int exponent = (int)(bits >> 52 & 0x7ff);
    unsigned drop = 52 - t->mantissa_bits;
    if (exponent == 0x7ff) {
        uint64_t payload = mantissa >> drop;
        if (mantissa && !payload)
            payload = (uint64_t)1 << (t->mantissa_bits - 1); /* keep a NaN from becoming an infinity */
        return sign | infinity | payload;
    }
    /* value = whole * 2^(scale - 52); the target's subnormals have exponent field 0 and scale 1 - bias */
    int bias = (1 << (t->exponent_bits - 1)) - 1, scale = exponent ? exponent - 1023 : -1022;
    uint64_t whole = exponent ? mantissa | (uint64_t)1 << 52 : mantissa, field = 0;
    if (scale >= 1 - bias && whole >> 52)
        field = (uint64_t)(scale + bias - 1); /* the leading bit of `whole` adds one */
    else
        drop += (unsigned)(1 - bias - scale);
    if (drop > 54)
        return sign; /* less than half of the smallest subnormal */
    uint64_t kept = whole >> drop, rest = drop ? whole << (64 - drop) : 0, half = (uint64_t)1 << 63;
    kept += rest > half || (rest == half && (kept & 1));
    uint64_t out = (field << t->mantissa_bits) + kept; /* a carry increments the exponent */
    return sign | (out < infinity ? out : infinity);
}

/* Writes the position of element i, such as "3, 17". */
static void index_text(const struct ddl_tensor *tensor, size_t i, char *out, size_t size)
{
    size_t index[DDL_MAX_DIMS] = { 0 }, used = 0;
    for (size_t k = tensor->ndim; k-- > 0; i /= tensor->shape[k])
        index[k] = i % tensor->shape[k];
    out[0] = '\0';
    for (size_t k = 0; k < tensor->ndim && used < size; k++)
        used += (size_t)snprintf(out + used, size - used, "%s%zu", k ? ", " : "", index[k]);
}

static ddl_status too_large(const struct ddl_tensor *tensor, size_t i, double x, enum ddl_dtype to,
                            struct ddl_error *err)
{
    char index[DDL_MAX_DIMS * 24];
    index_text(tensor, i, index, sizeof index);
    return ddl_error_set(err, DDL_E_NUMERIC, "%.200s[%s]: %g exceeds the limit of %s, %g", tensor->name,
                         index, x, ddl_dtype_name(to), target_of(to)->largest);
}

static ddl_status read_doubles(const struct ddl_tensor *tensor, size_t start, size_t n, double *out,
                               struct ddl_error *err)
{
    if (tensor->dtype == DDL_F64) {
        memcpy(out, tensor->data + start * sizeof *out, n * sizeof *out);
        return DDL_OK;
    }
    float narrower[PIECE];
    ddl_status status = ddl_tensor_read_f32(tensor, start, n, narrower, err);
    for (size_t i = 0; i < n && !status; i++)
        out[i] = (double)narrower[i];
    return status;
}

ddl_status ddl_tensor_convert(const struct ddl_tensor *tensor, size_t start, size_t n, enum ddl_dtype to,
                              void *out, struct ddl_error *err)
{
    const struct target *target = target_of(to);
    size_t size = ddl_dtype_size(to);
    if (!target)
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: conversion to %s is not supported", tensor->name,
                             ddl_dtype_name(to));
    if (start > tensor->count || n > tensor->count - start)
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: has %zu elements, requested %zu from index %zu",
                             tensor->name, tensor->count, n, start);
    if (tensor->dtype == to) {
        if (n)
            memcpy(out, tensor->data + start * size, n * size);
        return DDL_OK;
    }
    const uint64_t infinity = narrow((double)INFINITY, target);
    unsigned char *at = out;
    for (size_t i = 0; i < n; i += PIECE) {
        double piece[PIECE];
        size_t m = n - i < PIECE ? n - i : PIECE;
        ddl_status status = read_doubles(tensor, start + i, m, piece, err);
        for (size_t j = 0; j < m && !status; j++, at += size) {
            uint64_t bits = narrow(piece[j], target);
            if (isfinite(piece[j]) && (bits & infinity) == infinity)
                status = too_large(tensor, start + i + j, piece[j], to, err);
            memcpy(at, &bits, size); /* little-endian, as asserted in tensor.c */
        }
        if (status)
            return status;
    }
    return DDL_OK;
}
