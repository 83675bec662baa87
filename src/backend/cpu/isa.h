/* Which instruction set's kernels this machine runs. */
#ifndef DDL_BACKEND_CPU_ISA_H
#define DDL_BACKEND_CPU_ISA_H

#include "backend/cpu/kernels/kernels.h"
#include "ddl/status.h"

/* The best set, or the one that DDL_ISA in the environment names (baseline, avx2, avx512, avx512vnni,
 * avx512bf16, amx). *name is a constant. */
ddl_status isa_choose(const struct ddl_kernels **kernels, const char **name, struct ddl_error *err);
/* The best set that this machine runs, ignoring DDL_ISA. */
const struct ddl_kernels *isa_best(void);

#endif
