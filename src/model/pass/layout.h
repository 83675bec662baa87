/* Placement of activations in one block of backend memory. The same function measures and places: with an
 * arena without memory all pointers are NULL. */
#ifndef DDL_MODEL_LAYOUT_H
#define DDL_MODEL_LAYOUT_H

#include "base/mem.h"
#include "ddl/config.h"
#include "model/pass/operand.h"

#include <stdint.h>

struct layout {
    struct ddl_arena *arena;
    const struct ddl_config *config;
    size_t N; /* rows: tokens of a pass */
    bool train;
    bool bf16; /* products read bfloat16 */
};

/* (rows, width) numbers; NULL unless `wanted`. Sizes that overflow set arena->overflow. */
float *layout_floats(const struct layout *l, bool wanted, size_t rows, size_t width);
uint16_t *layout_bf16(const struct layout *l, bool wanted, size_t rows, size_t width);
/* (N, width) floats. */
float *layout_rows(const struct layout *l, bool wanted, size_t width);
/* (N, width) numbers in the format that products read. */
struct activation layout_factor(const struct layout *l, bool wanted, size_t width);
/* The same; rows in bfloat16 are a multiple of 16 bytes apart, as matrix units load them, whatever the width.
 */
struct activation layout_aligned_factor(const struct layout *l, bool wanted, size_t width);

#endif
