/* Host arrays as arguments of ops, for the public calls that take plain arrays. Where backend memory is host
 * memory the caller's arrays are passed as they are; otherwise each gets a copy in backend memory. Stage the
 * arrays, check `failed` once, run the ops, and finish. */
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
        float *host; /* the array that the copy is downloaded to, or NULL */
        float *copy;
        size_t bytes;
    } rows[DDL_STAGING_MAX];
    bool failed; /* memory ran out */
};

/* `count` floats that ops read; write completely; read and write. NULL is returned as NULL. */
const float *ddl_staging_in(struct ddl_staging *s, const float *host, size_t count);
float *ddl_staging_out(struct ddl_staging *s, float *host, size_t count);
float *ddl_staging_inout(struct ddl_staging *s, float *host, size_t count);

/* Downloads the results unless staging failed, and frees the copies. DDL_E_MEMORY if it failed. */
ddl_status ddl_staging_finish(struct ddl_staging *s, struct ddl_error *err);

#endif
