#include "backend/cpu/kernels/kernels.h"

const struct ddl_kernels DDL_KERNEL(kernels) = {
#define FILL_MEMBER(name) .name = DDL_KERNEL(name),
    DDL_KERNELS(FILL_MEMBER)
#undef FILL_MEMBER
};
