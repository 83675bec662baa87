/* The last rows before each use of a causal convolution, kept from one pass to the next. */
#include "model/history.h"

struct history history_take(struct ddl_arena *arena, size_t B, size_t taps, size_t width)
{
    struct history history = { .keep = taps - 1, .width = width };
    history.rows = ddl_arena_take(arena, B * history.keep * width, sizeof(float));
    return history;
}

/* Copies one row of every sequence from src (its sequences src_batch apart) to row `to` of the history. */
static void put_row(const struct pass *p, struct history *h, const float *src, size_t src_batch, size_t to)
{
    p->ops->copy(p->ctx, &(struct copy_args){ p->B, h->width, src, src_batch, h->rows + to * h->width,
                                              h->keep * h->width });
}

void history_push(const struct pass *p, struct history *h, const float *rows)
{
    for (size_t to = 0; to < h->keep; to++) {
        size_t from = to + p->T; /* in the history followed by the new rows */
        if (from < h->keep)
            put_row(p, h, h->rows + from * h->width, h->keep * h->width, to);
        else
            put_row(p, h, rows + (from - h->keep) * h->width, p->T * h->width, to);
    }
}
