/* Host arrays at the doors of a backend, for the public calls that take plain arrays. Where the backend's
 * memory is the host's the caller's own arrays are lent; elsewhere each gets a copy on the backend. Ask for
 * the arrays, look at `failed` once, run the ops, and finish. */
#ifndef DDL_MODEL_STAGING_H
#define DDL_MODEL_STAGING_H

#include "ops/ops.h"

#include <stdbool.h>
#include <stddef.h>

enum { DDL_STAGING_MAX = 24 }; /* arrays of one call; the generic block's backward takes the most */

struct ddl_staging {
    struct ddl_backend *backend;
    size_t n;
    struct {
        float *host; /* where the copy goes back to, or NULL */
        float *copy;
        size_t bytes;
    } rows[DDL_STAGING_MAX];
    bool failed; /* memory ran out */
};

/* `count` floats that ops read; that they write whole; that they read and write. NULL stays NULL. */
const float *ddl_staging_in(struct ddl_staging *s, const float *host, size_t count);
float *ddl_staging_out(struct ddl_staging *s, float *host, size_t count);
float *ddl_staging_inout(struct ddl_staging *s, float *host, size_t count);

/* Brings results home unless it failed, and frees the copies. DDL_E_MEMORY with a sentence if it failed. */
ddl_status ddl_staging_finish(struct ddl_staging *s, struct ddl_error *err);

#endif
