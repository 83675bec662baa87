/* Members of struct ddl_ops for backends whose memory is host memory. None reads ctx. */
#ifndef DDL_BACKEND_HOST_H
#define DDL_BACKEND_HOST_H

#include "ddl/status.h"

#include <stddef.h>
#include <stdint.h>

void *host_alloc(void *ctx, size_t bytes);
void host_free(void *ctx, void *block);
ddl_status host_check_error(void *ctx, struct ddl_error *err);       /* where no op can fail: DDL_OK */
void host_move(void *ctx, void *dst, const void *src, size_t bytes); /* upload and download */

/* Where row `row` of matrix b begins in src or dst of struct copy_args, in numbers. */
static inline size_t host_copy_offset(size_t b, size_t row, size_t stride, size_t batch_stride,
                                      const int32_t *first_row)
{
    return b * batch_stride + ((first_row ? (size_t)first_row[b] : 0) + row) * stride;
}

#endif
