#include "backend/host.h"

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

ddl_status host_check_error(void *ctx, struct ddl_error *err)
{
    (void)ctx;
    (void)err;
    return DDL_OK;
}
