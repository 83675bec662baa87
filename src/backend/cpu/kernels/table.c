#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vec.h"

/* Measured: docs/performance.md. */
#ifdef HAVE_DOT_BYTES
#define MOST_TILES SIZE_MAX
#else
#define MOST_TILES MOST_SKINNY
#endif

const struct ddl_kernels DDL_KERNEL(kernels) = {
#define FILL_DOT(name) .name = DDL_KERNEL(name),
#define FILL_OTHER(name) .name = DDL_OTHER_KERNEL(name),
    DDL_DOT_KERNELS(FILL_DOT) DDL_OTHER_KERNELS(FILL_OTHER)
#ifdef HAVE_TILES
        DDL_PAIRS_KERNELS(FILL_DOT)
#endif
#undef FILL_OTHER
#undef FILL_DOT
#ifdef HAVE_DOT_BF16
            .dots_bf16 = true,
#endif
    .most_tiles = MOST_TILES,
};
