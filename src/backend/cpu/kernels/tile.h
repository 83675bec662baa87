/* The tile of a product of packed operands: TILE_ROWS rows of PANEL columns, whose sums stay in registers. */
#ifndef DDL_BACKEND_CPU_TILE_H
#define DDL_BACKEND_CPU_TILE_H

#include "backend/cpu/kernels/vec.h"

/* Rows of two vectors of sums each, as many as there are registers for beside the operands. */
#if defined(__AVX512F__) || defined(__aarch64__)
enum { TILE_ROWS = 12, PANEL = 2 * V };
#else
enum { TILE_ROWS = 6, PANEL = 2 * V };
#endif

#endif
