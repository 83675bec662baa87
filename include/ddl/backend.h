/* A backend: memory and the operations on it. */
#ifndef DDL_BACKEND_H
#define DDL_BACKEND_H

#include "ddl/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddl_backend ddl_backend; /* state of an open device */

/* The backends of this build: ROW(name) for each; the first is the default. */
#define DDL_BACKENDS(ROW) ROW(cpu) ROW(ref)
/* " cpu": one of them in a list. */
#define DDL_BACKEND_WORD(name) " " #name
/* Help text of options that take a backend's name. */
#define DDL_BACKEND_HELP "one of:" DDL_BACKENDS(DDL_BACKEND_WORD)

/* `name`: "cpu" (oneDNN, OpenMP, vectorized kernels) or "ref" (scalar, double accumulators: an executable
 * specification); NULL means the first of ddl_backend_names. A name may be followed by the index of a device,
 * as in "cpu:0"; these two have one device, number 0. DDL_E_USAGE for an unknown name or index, for more than
 * 4096 threads, or for an unknown DDL_ISA; DDL_E_UNSUPPORTED if the processor lacks the set that DDL_ISA
 * names; DDL_E_MEMORY. *out is NULL after an error. `threads`: 0 means one for each core that OpenMP would
 * use; "ref" is always single threaded. One backend serves one thread of the caller at a time; it must
 * outlive what was made with it. How OpenMP's threads wait for each other is the environment's choice
 * (GOMP_SPINCOUNT, OMP_WAIT_POLICY), read before main: docs/performance.md. */
DDL_API ddl_status ddl_backend_create(ddl_backend **out, const char *name, size_t threads,
                                      struct ddl_error *err);
DDL_API void ddl_backend_free(ddl_backend *backend); /* NULL is allowed */

/* "cpu (avx512, 2 threads, oneDNN 2.6)"; owned by the backend. */
DDL_API const char *ddl_backend_description(const ddl_backend *backend);
/* "cpu"; owned by the backend. */
DDL_API const char *ddl_backend_name(const ddl_backend *backend);
/* Names of DDL_BACKENDS in the library, ended by NULL. */
DDL_API extern const char *const ddl_backend_names[];
/* Name number i of these, or NULL past the last. */
DDL_API const char *ddl_backend_list(size_t i);

#ifdef __cplusplus
}
#endif
#endif
