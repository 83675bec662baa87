#include "ops/uploads.h"

#include "base/mem.h"

bool ddl_uploads_init(struct ddl_uploads *uploads, const struct ddl_backend *backend, size_t bytes)
{
    size_t both;
    *uploads = (struct ddl_uploads){ .bytes = (bytes + DDL_ALIGN - 1) / DDL_ALIGN * DDL_ALIGN };
    if (uploads->bytes < bytes || !ddl_size_mul(uploads->bytes, DDL_UPLOAD_HALVES, &both))
        return false;
    uploads->memory = backend->ops->alloc_host(backend->ctx, both);
    return uploads->memory != NULL;
}

void ddl_uploads_free(struct ddl_uploads *uploads, const struct ddl_backend *backend)
{
    if (!uploads->memory)
        return;
    for (size_t i = 0; i < DDL_UPLOAD_HALVES; i++)
        backend->ops->wait(backend->ctx, uploads->last[i]);
    backend->ops->free_host(backend->ctx, uploads->memory);
    uploads->memory = NULL;
}

void *ddl_uploads_next(struct ddl_uploads *uploads, const struct ddl_backend *backend)
{
    uploads->half = (uploads->half + 1) % DDL_UPLOAD_HALVES;
    backend->ops->wait(backend->ctx, uploads->last[uploads->half]);
    return uploads->memory + uploads->half * uploads->bytes;
}

void ddl_uploads_send(struct ddl_uploads *uploads, const struct ddl_backend *backend, void *dst,
                      const void *host, size_t bytes)
{
    if (bytes)
        uploads->last[uploads->half] = backend->ops->upload_async(backend->ctx, dst, host, bytes);
}
