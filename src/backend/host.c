#include "backend/host.h"

#include "backend/q8.h"
#include "base/mem.h"

#include <string.h>

void *host_alloc(void *ctx, size_t bytes)
{
    (void)ctx;
    return ddl_mem_alloc(bytes);
}

void host_free(void *ctx, void *block)
{
    (void)ctx;
    ddl_mem_free(block);
}

void host_move(void *ctx, void *dst, const void *src, size_t bytes)
{
    (void)ctx;
    if (bytes)
        memcpy(dst, src, bytes);
}

ddl_event host_move_async(void *ctx, void *dst, const void *src, size_t bytes)
{
    host_move(ctx, dst, src, bytes);
    return 0;
}

ddl_event host_record(void *ctx)
{
    (void)ctx;
    return 0;
}

bool host_is_done(void *ctx, ddl_event event)
{
    (void)ctx;
    (void)event;
    return true;
}

void host_wait(void *ctx, ddl_event event)
{
    (void)ctx;
    (void)event;
}

void host_synchronize(void *ctx)
{
    (void)ctx;
}

size_t host_memory_capacity(void *ctx)
{
    (void)ctx;
    return ddl_mem_machine();
}

size_t host_devices(void)
{
    return 1;
}

ddl_status host_check_error(void *ctx, struct ddl_error *err)
{
    (void)ctx;
    (void)err;
    return DDL_OK;
}

size_t host_q8_bytes(void *ctx, size_t rows, size_t width)
{
    (void)ctx;
    return ddl_q8_tiles(rows, width) * sizeof(struct ddl_q8);
}
