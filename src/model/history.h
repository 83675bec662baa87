/* The rows that a causal convolution needs from before the current pass. */
#ifndef DDL_MODEL_HISTORY_H
#define DDL_MODEL_HISTORY_H

#include "base/mem.h"
#include "model/pass.h"

/* The last `keep` rows before the next pass, for one use of a causal convolution: (B, keep, width). */
struct history {
    float *rows;
    size_t keep, width;
};

/* Takes keep = taps - 1 rows of `width` numbers for each of B sequences from the arena. */
struct history history_take(struct ddl_arena *arena, size_t B, size_t taps, size_t width);
/* Keeps the last rows of `rows` (B, T, width) for the next pass. */
void history_push(const struct pass *p, struct history *history, const float *rows);

#endif
