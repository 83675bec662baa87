/* Memory of a backend whose memory is the host's: entries of struct ddl_ops. None looks at ctx. */
#ifndef DDL_BACKEND_HOST_H
#define DDL_BACKEND_HOST_H

#include "ddl/status.h"

#include <stddef.h>

void *host_alloc(void *ctx, size_t bytes);
void host_free(void *ctx, void *block);
ddl_status host_check_error(void *ctx, struct ddl_error *err);       /* where no op can fail: DDL_OK */
void host_move(void *ctx, void *dst, const void *src, size_t bytes); /* upload and download */

#endif
