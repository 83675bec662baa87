/* Matrix products on one thread, for ops that are parallel around them (attention). */
#ifndef DDL_BACKEND_CPU_GEMM_H
#define DDL_BACKEND_CPU_GEMM_H

#include "backend/cpu/cpu.h"

void gemm_serial(const struct cpu *cpu, const struct matmul_args *a);

#endif
