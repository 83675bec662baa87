/* Asynchronous uploads of what the host computes for each pass: tokens, rows of a ragged batch, rates.
 *
 * Pinned host memory in two halves that are used in turn: the device reads one while the host writes the
 * other, so that the host can submit a pass while the last one runs. */
#ifndef DDL_OPS_UPLOADS_H
#define DDL_OPS_UPLOADS_H

#include "ops/ops.h"

enum { DDL_UPLOAD_HALVES = 2 };

struct ddl_uploads {
    unsigned char *memory;             /* of alloc_host */
    size_t bytes;                      /* of a half */
    size_t half;                       /* the one that the host writes */
    ddl_event last[DDL_UPLOAD_HALVES]; /* upload from each half */
};

/* False without memory for two halves of `bytes`. `backend` is the same in every call, or a wrapper of it. */
bool ddl_uploads_init(struct ddl_uploads *uploads, const struct ddl_backend *backend, size_t bytes);
/* Waits for the uploads. Zeroed uploads are allowed. */
void ddl_uploads_free(struct ddl_uploads *uploads, const struct ddl_backend *backend);
/* The other half, for the host to write: waits until the last upload from it is complete. */
void *ddl_uploads_next(struct ddl_uploads *uploads, const struct ddl_backend *backend);
/* Uploads `bytes` from `host`, a place in that half, which may not be written afterwards. */
void ddl_uploads_send(struct ddl_uploads *uploads, const struct ddl_backend *backend, void *dst,
                      const void *host, size_t bytes);

#endif
