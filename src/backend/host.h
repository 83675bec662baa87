/* Members of struct ddl_ops for backends whose memory is host memory. None reads ctx. */
#ifndef DDL_BACKEND_HOST_H
#define DDL_BACKEND_HOST_H

#include "ops/ops.h"

void *host_alloc(void *ctx, size_t bytes); /* of alloc_host too */
void host_free(void *ctx, void *block);
ddl_status host_check_error(void *ctx, struct ddl_error *err);       /* DDL_OK: no op fails */
void host_move(void *ctx, void *dst, const void *src, size_t bytes); /* upload and download */

/* Ops and transfers are done when they return, and every event is complete. */
ddl_event host_move_async(void *ctx, void *dst, const void *src, size_t bytes);
ddl_event host_record(void *ctx);
bool host_is_done(void *ctx, ddl_event event);
void host_wait(void *ctx, ddl_event event);
void host_synchronize(void *ctx);
size_t host_memory_capacity(void *ctx);
size_t host_devices(void); /* one */

size_t host_q8_bytes(void *ctx, size_t rows, size_t width); /* of q8.h */

/* Where row `row` of matrix b begins in src or dst of struct copy_args, in numbers. */
static inline size_t host_copy_offset(size_t b, size_t row, size_t stride, size_t batch_stride)
{
    return b * batch_stride + row * stride;
}

#endif
