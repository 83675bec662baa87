/* A backend: memory and the operations on it. */
#ifndef DDL_BACKEND_H
#define DDL_BACKEND_H

#include "ddl/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddl_backend ddl_backend; /* state of an open device */

enum { DDL_BACKEND_NAME_SIZE = 32 /* bytes of a backend's name, with the NUL */ };

/* Help text of options that take a backend's name. */
#define DDL_BACKEND_HELP "cpu, ref or a plugin, with the number of a device as in cuda:1"

/* `name`: "cpu" (oneDNN, OpenMP, vectorized kernels), "ref" (scalar, double accumulators: an executable
 * specification), or NAME of a plugin, the file libddl_NAME.so, which is loaded; NULL means "cpu". Plugins
 * are searched for beside the program and the library, in the folder of an installation, and at
 * DDL_BACKEND_PLUGIN, the path of one. A name may be followed by the index of a device, as in "cuda:1"; "cpu"
 * and "ref" have one device, number 0. Without an index, the processes that a launcher started on a machine
 * (mpirun, srun, ...) take its devices in turn, by the local rank in their environment.
 *
 * DDL_E_USAGE for an unknown name or index, for more than 4096 threads, or for an unknown DDL_ISA;
 * DDL_E_UNSUPPORTED for a plugin that cannot be loaded or is of another version, or if the machine lacks
 * the set that DDL_ISA names; DDL_E_MEMORY. *out is NULL after an error. `threads`: 0 means one for each core
 * that OpenMP would use; "ref" is always single threaded. One backend serves one thread of the caller at a
 * time; it must outlive what was made with it. How OpenMP's threads wait for each other is the environment's
 * choice (GOMP_SPINCOUNT, OMP_WAIT_POLICY), read before main: docs/performance.md. */
DDL_API ddl_status ddl_backend_create(ddl_backend **out, const char *name, size_t threads,
                                      struct ddl_error *err);
/* A backend for plans alone: of a device with `bytes` of memory, which need not be there. Nothing can be
 * allocated or computed with it. `name` as above, an index is ignored. DDL_E_USAGE for a backend that has no
 * devices with memory of their own, else as above. */
DDL_API ddl_status ddl_backend_plan(ddl_backend **out, const char *name, size_t bytes, struct ddl_error *err);
DDL_API void ddl_backend_free(ddl_backend *backend); /* NULL is allowed */

/* "cpu (avx512, 2 threads, oneDNN 2.6)"; owned by the backend. */
DDL_API const char *ddl_backend_description(const ddl_backend *backend);
/* "cpu"; owned by the backend. */
DDL_API const char *ddl_backend_name(const ddl_backend *backend);
/* Name of backend number `i`, stored in `name` (DDL_BACKEND_NAME_SIZE bytes): "cpu", "ref", then the plugins
 * that are found, which are not loaded for this; NULL past the last. */
DDL_API const char *ddl_backend_list(size_t i, char *name);
/* Number of devices of the backend `name`, which has no index, stored in *n; 0 if it finds none, and then
 * ddl_backend_create reports why. A plugin is loaded, with the errors of ddl_backend_create. */
DDL_API ddl_status ddl_backend_devices(size_t *n, const char *name, struct ddl_error *err);

#ifdef __cplusplus
}
#endif
#endif
