/* A backend whose memory counts as device memory: host arrays are copied to it and back. */
#ifndef DDL_TEST_DEVICE_STUB_H
#define DDL_TEST_DEVICE_STUB_H

#include "ops/ops.h"

/* The ops of another backend with host_memory false. alloc fails once a number of blocks was allocated. One
 * stub at a time. */
struct device_stub {
    struct ddl_backend backend;
    struct ddl_ops ops; /* a test may change it */
};
void device_stub_init(struct device_stub *stub, const struct ddl_backend *real);
/* From here on alloc succeeds `allowed` times. */
void device_stub_allow(size_t allowed);
size_t device_stub_blocks(void); /* allocated and not freed */

#endif
