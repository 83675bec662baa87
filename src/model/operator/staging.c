#include "model/operator/staging.h"

#include <assert.h>

/* A copy in backend memory, downloaded to `back` at the end unless that is NULL. */
static float *stage(struct ddl_staging *s, const float *from, float *back, size_t count)
{
    assert(s->n < DDL_STAGING_MAX);
    const struct ddl_ops *ops = s->backend->ops;
    size_t bytes = count * sizeof(float);
    float *copy = s->failed ? NULL : ops->alloc(s->backend->ctx, bytes);
    if (!copy) {
        s->failed = true;
        return NULL;
    }
    if (from)
        ops->upload(s->backend->ctx, copy, from, bytes);
    s->rows[s->n].host = back;
    s->rows[s->n].copy = copy;
    s->rows[s->n].bytes = bytes;
    s->n++;
    return copy;
}

static bool is_host_memory(const struct ddl_staging *s, const float *host)
{
    return s->backend->ops->host_memory || !host;
}

const float *ddl_staging_in(struct ddl_staging *s, const float *host, size_t count)
{
    return is_host_memory(s, host) ? host : stage(s, host, NULL, count);
}

float *ddl_staging_out(struct ddl_staging *s, float *host, size_t count)
{
    return is_host_memory(s, host) ? host : stage(s, NULL, host, count);
}

float *ddl_staging_inout(struct ddl_staging *s, float *host, size_t count)
{
    return is_host_memory(s, host) ? host : stage(s, host, host, count);
}

ddl_status ddl_staging_finish(struct ddl_staging *s, struct ddl_error *err)
{
    const struct ddl_ops *ops = s->backend->ops;
    for (size_t i = 0; i < s->n; i++) {
        if (s->rows[i].host && !s->failed)
            ops->download(s->backend->ctx, s->rows[i].host, s->rows[i].copy, s->rows[i].bytes);
        ops->free(s->backend->ctx, s->rows[i].copy);
    }
    s->n = 0;
    ddl_status status = ops->check_error(s->backend->ctx, err);
    if (status)
        return status;
    return s->failed ? ddl_error_set(err, DDL_E_MEMORY, "out of memory on the backend %s", ops->name)
                     : DDL_OK;
}
