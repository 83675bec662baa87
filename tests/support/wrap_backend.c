/* Linked with --wrap=ddl_backend_create: every backend of the program is guarded. */
#include "support/guarded_backend.h"

/* Names that the linker gives. NOLINTBEGIN(bugprone-reserved-identifier) */
ddl_status __real_ddl_backend_create(ddl_backend **out, const char *name, size_t threads,
                                     struct ddl_error *err);
ddl_status __wrap_ddl_backend_create(ddl_backend **out, const char *name, size_t threads,
                                     struct ddl_error *err);

ddl_status __wrap_ddl_backend_create(ddl_backend **out, const char *name, size_t threads,
                                     struct ddl_error *err)
{
    ddl_status status = __real_ddl_backend_create(out, name, threads, err);
    if (!status)
        guarded_backend_wrap(*out);
    return status;
}
/* NOLINTEND(bugprone-reserved-identifier) */
