/* A tensor in a file: name, dtype, shape and location of its bytes. Tensors used in computation are defined
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
    const char *name; /* borrowed */
    enum ddl_dtype dtype;
    size_t ndim, shape[DDL_MAX_DIMS]; /* row-major; ndim 0 is a scalar */
    size_t count, bytes;              /* number of elements, and their bytes */
    const unsigned char
        *data; /* borrowed, little-endian, may be unaligned; NULL if only the layout is known */
};

size_t ddl_dtype_size(enum ddl_dtype dtype);
/* Returns the safetensors name, such as "F32". */
const char *ddl_dtype_name(enum ddl_dtype dtype);
/* Returns false if there is no such dtype. */
bool ddl_dtype_parse(const char *name, enum ddl_dtype *out);

/* Sets count and bytes from dtype and shape; returns false if they overflow size_t. */
bool ddl_tensor_measure(struct ddl_tensor *tensor);
/* Formats the shape, such as "(3, 4)", into out, truncated to size. */
void ddl_tensor_shape_text(const struct ddl_tensor *tensor, char *out, size_t size);
/* True if the tensor has exactly these dimensions. */
bool ddl_tensor_has_shape(const struct ddl_tensor *tensor, size_t ndim, const size_t *shape);

/* Converts elements [start, start + n) to float32; only F64 is rounded (to nearest). Accepts any float dtype;
 * DDL_E_FORMAT for others. */
ddl_status ddl_tensor_read_f32(const struct ddl_tensor *tensor, size_t start, size_t n, float *out,
                               struct ddl_error *err);
/* Copies all elements of exactly that dtype (F64 also from F32); DDL_E_FORMAT for others. */
ddl_status ddl_tensor_read_f64(const struct ddl_tensor *tensor, double *out, struct ddl_error *err);
ddl_status ddl_tensor_read_i64(const struct ddl_tensor *tensor, int64_t *out, struct ddl_error *err);

/* Converts elements [start, start + n) to `to` (F64, F32, F16 or BF16), written to out as little-endian
 * bytes. The same dtype is copied bitwise; otherwise values are rounded once, to nearest, ties to even,
 * including subnormals; infinities and NaNs are preserved. Returns DDL_E_NUMERIC, with the tensor and
 * position, if a finite value overflows `to`. */
ddl_status ddl_tensor_convert(const struct ddl_tensor *tensor, size_t start, size_t n, enum ddl_dtype to,
                              void *out, struct ddl_error *err);

/* Convert the bits of a 16-bit float. */
float ddl_f16_to_f32(uint16_t bits);
float ddl_bf16_to_f32(uint16_t bits);

#endif
