/* The rows that a causal convolution reads from before the current pass. */
#ifndef DDL_MODEL_HISTORY_H
#define DDL_MODEL_HISTORY_H

#include "base/mem.h"
#include "model/pass/pass.h"

/* Histories of one use of a causal convolution, each the last `keep` rows of a sequence: (n, keep, width). */
struct history {
    float *rows;
    size_t keep, width;
};

/* Takes n histories of keep = taps - 1 rows of `width` numbers from the arena. */
struct history history_take(struct ddl_arena *arena, size_t n, size_t taps, size_t width);
/* Keeps the last rows X (N, width) of every sequence of the pass. */
void history_push(const struct pass *p, const struct history *history, const float *X);

#endif
