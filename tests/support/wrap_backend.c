/* Linked with --wrap=ddl_backend_create: with DDL_SIMULATED in the environment, every backend of the program
 * is a simulated device. */
#include "support/simulated_device.h"

#include <stdlib.h>

/* Names that the linker gives. NOLINTBEGIN(bugprone-reserved-identifier) */
ddl_status __real_ddl_backend_create(ddl_backend **out, const char *name, size_t threads,
                                     struct ddl_error *err);
ddl_status __wrap_ddl_backend_create(ddl_backend **out, const char *name, size_t threads,
                                     struct ddl_error *err);

ddl_status __wrap_ddl_backend_create(ddl_backend **out, const char *name, size_t threads,
                                     struct ddl_error *err)
{
    ddl_status status = __real_ddl_backend_create(out, name, threads, err);
    if (!status && getenv("DDL_SIMULATED"))
        simulated_device_wrap(*out);
    return status;
}
/* NOLINTEND(bugprone-reserved-identifier) */
