/* A tensor at rest: name, dtype, shape and where its bytes lie. Numbers that are computed with live
 * elsewhere. */
#ifndef DDL_TENSOR_TENSOR_H
#define DDL_TENSOR_TENSOR_H

#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ddl_dtype {
    DDL_F64,
    DDL_F32,
    DDL_F16,
    DDL_BF16,
    DDL_F8_E5M2,
    DDL_F8_E4M3,
    DDL_I64,
    DDL_I32,
    DDL_I16,
    DDL_I8,
    DDL_U64,
    DDL_U32,
    DDL_U16,
    DDL_U8,
    DDL_BOOL,
    DDL_DTYPES
};

enum { DDL_MAX_DIMS = 8 };

struct ddl_tensor {
    const char *name; /* lent */
    enum ddl_dtype dtype;
    size_t ndim, shape[DDL_MAX_DIMS]; /* row-major; ndim 0 is one number */
    size_t count, bytes;              /* numbers in it, and their bytes */
    const unsigned char *data;        /* lent, little-endian, perhaps unaligned; NULL where only a plan */
};

size_t ddl_dtype_size(enum ddl_dtype dtype);
/* "F32"; as safetensors spells it. */
const char *ddl_dtype_name(enum ddl_dtype dtype);
/* False if there is no such dtype. */
bool ddl_dtype_parse(const char *name, enum ddl_dtype *out);

/* Fills count and bytes from dtype and shape; false if they do not fit a size_t. */
bool ddl_tensor_measure(struct ddl_tensor *tensor);
/* "(3, 4)" into out, truncated to size. */
void ddl_tensor_shape_text(const struct ddl_tensor *tensor, char *out, size_t size);
/* True if the tensor has exactly these dimensions. */
bool ddl_tensor_has_shape(const struct ddl_tensor *tensor, size_t ndim, const size_t *shape);

/* Copies numbers [start, start + n) as float32; rounds only from F64 (to nearest). Any float dtype;
 * DDL_E_FORMAT with a sentence for others. */
ddl_status ddl_tensor_read_f32(const struct ddl_tensor *tensor, size_t start, size_t n, float *out,
                               struct ddl_error *err);
/* All numbers, from exactly that dtype (F64 also from F32); DDL_E_FORMAT for others. */
ddl_status ddl_tensor_read_f64(const struct ddl_tensor *tensor, double *out, struct ddl_error *err);
ddl_status ddl_tensor_read_i64(const struct ddl_tensor *tensor, int64_t *out, struct ddl_error *err);

/* Numbers [start, start + n) as `to` (F64, F32, F16 or BF16), little-endian bytes into out. The same dtype is
 * copied bit by bit; others are rounded once, to nearest, ties to even, subnormals included; infinities and
 * NaNs stay what they are. DDL_E_NUMERIC, naming tensor and place, for a finite number that `to` cannot hold.
 */
ddl_status ddl_tensor_convert(const struct ddl_tensor *tensor, size_t start, size_t n, enum ddl_dtype to,
                              void *out, struct ddl_error *err);

/* Bits of the small float dtypes. */
float ddl_f16_to_f32(uint16_t bits);
float ddl_bf16_to_f32(uint16_t bits);

#endif
