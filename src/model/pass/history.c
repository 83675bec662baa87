/* The last rows before each use of a causal convolution, kept from one pass to the next. */
#include "model/pass/history.h"

struct history history_take(struct ddl_arena *arena, size_t n, size_t taps, size_t width)
{
    struct history history = { .keep = taps - 1, .width = width };
    size_t numbers;
    if (!ddl_size_mul(history.keep, width, &numbers) || !ddl_size_mul(numbers, n, &numbers)) {
        arena->overflow = true;
        return history;
    }
    history.rows = ddl_arena_take(arena, numbers, sizeof *history.rows);
    return history;
}

void history_push(const struct pass *p, const struct history *h, const float *X)
{
    if (h->keep)
        p->ops->history_push(p->ctx, &(struct history_push_args){ p->ragged, h->keep, h->width, X, h->rows });
}
