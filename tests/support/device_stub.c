#include "support/device_stub.h"

#include "base/mem.h"

static size_t blocks_allowed, blocks_allocated;

static void *limited_alloc(void *ctx, size_t bytes)
{
    (void)ctx;
    if (blocks_allowed == 0)
        return NULL;
    blocks_allowed--;
    blocks_allocated++;
    return ddl_mem_alloc(bytes);
}

static void counted_free(void *ctx, void *block)
{
    (void)ctx;
    blocks_allocated -= block != NULL;
    ddl_mem_free(block);
}

void device_stub_init(struct device_stub *stub, const struct ddl_backend *real)
{
    stub->ops = *real->ops;
    stub->ops.host_memory = false;
    stub->ops.alloc = limited_alloc;
    stub->ops.free = counted_free;
    stub->backend = *real;
    stub->backend.ops = &stub->ops;
}

void device_stub_allow(size_t allowed)
{
    blocks_allowed = allowed;
}

size_t device_stub_blocks(void)
{
    return blocks_allocated;
}
