/* Loading NVIDIA's libraries at run time. */
#ifndef DDL_CUDA_LIBRARY_H
#define DDL_CUDA_LIBRARY_H

#include "ddl/status.h"

#include <stddef.h>

struct cuda_library {
    const char *file; /* "libcublasLt.so.13" */
    const char *name; /* in messages */
    const char *hint; /* what installs it */
    const struct cuda_symbol {
        const char *symbol;
        size_t offset; /* of the pointer in the table of entry points */
    } * symbols;
    size_t n;
};

/* Loads the library and fills the table of its entry points. It is looked for where the dynamic linker looks,
 * in the nvidia packages around the plugin and in VIRTUAL_ENV, and in /usr/local/cuda. It is never closed: it
 * has threads. DDL_E_UNSUPPORTED if it is not found or lacks an entry point. */
ddl_status cuda_library_load(void *table, const struct cuda_library *library, struct ddl_error *err);

#endif
