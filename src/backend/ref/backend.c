/* The table. */
#include "backend/ref/ref.h"

#include "backend/host.h"

#include <stdio.h>
#include <string.h>

static ddl_status open_ref(void **ctx, size_t device, size_t threads, char *text, size_t text_size,
                           struct ddl_error *err)
{
    (void)threads, (void)device, (void)err;
    *ctx = NULL;
    snprintf(text, text_size, "ref (scalar, double accumulators)");
    return DDL_OK;
}

static void close_ref(void *ctx)
{
    (void)ctx;
}

static ddl_status reserve_nothing(void *ctx, const struct ddl_limits *limits, struct ddl_error *err)
{
    (void)ctx;
    (void)limits;
    (void)err;
    return DDL_OK;
}

static size_t no_memory(void *ctx, const struct ddl_limits *limits)
{
    (void)ctx;
    (void)limits;
    return 0;
}

static void zero_bytes(void *ctx, void *dst, size_t bytes)
{
    (void)ctx;
    if (bytes)
        memset(dst, 0, bytes);
}

void ref_copy(void *ctx, const struct copy_args *a)
{
    (void)ctx;
    for (size_t b = 0; b < (a->batch ? a->batch : 1); b++) {
        for (size_t n = 0; n < a->rows; n++) {
            size_t src = host_copy_offset(b, n, a->src_stride, a->src_batch);
            size_t dst = host_copy_offset(b, n, a->dst_stride, a->dst_batch);
            if (a->dst16)
                memmove(a->dst16 + dst, a->src16 + src, a->width * sizeof *a->dst16);
            else
                memmove(a->dst + dst, a->src + src, a->width * sizeof *a->dst);
        }
    }
}

const struct ddl_ops ddl_ops_ref = { .name = "ref",
                                     .host_memory = true,
                                     .step_rows = SIZE_MAX,
                                     .devices = host_devices,
                                     .open = open_ref,
                                     .close = close_ref,
                                     .reserve = reserve_nothing,
                                     .memory_estimate = no_memory,
                                     .memory_capacity = host_memory_capacity,
                                     .check_error = host_check_error,
                                     .alloc = host_alloc,
                                     .free = host_free,
                                     .alloc_host = host_alloc,
                                     .free_host = host_free,
                                     .upload_async = host_move_async,
                                     .download_async = host_move_async,
                                     .upload = host_move,
                                     .download = host_move,
                                     .zero = zero_bytes,
                                     .record = host_record,
                                     .is_done = host_is_done,
                                     .wait = host_wait,
                                     .synchronize = host_synchronize,
                                     .q8_bytes = host_q8_bytes,
#define FILL_OP(name, args) .name = ref_##name,
                                     DDL_OPS(FILL_OP)
#undef FILL_OP
};
