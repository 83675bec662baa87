#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vec.h"

/* Measured: docs/performance.md. */
#ifdef HAVE_DOT_BYTES
#define MOST_TILES SIZE_MAX
#else
#define MOST_TILES MOST_SKINNY
#endif

const struct ddl_kernels DDL_KERNEL(kernels) = {
#define FILL_MEMBER(name) .name = DDL_KERNEL(name),
    DDL_KERNELS(FILL_MEMBER)
#undef FILL_MEMBER
        .most_tiles = MOST_TILES,
};
