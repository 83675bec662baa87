/* The last rows before each use of a causal convolution, kept from one pass to the next. */
#include "model/history.h"

struct history history_take(struct ddl_arena *arena, size_t B, size_t taps, size_t width)
{
    struct history history = { .keep = taps - 1, .width = width };
    history.rows = ddl_arena_take(arena, B * history.keep * width, sizeof(float));
    return history;
}

/* Copies n rows of every sequence from src (its sequences src_batch apart) to rows [to, to + n) of the
 * history. */
static void put_rows(const struct pass *p, struct history *h, size_t n, const float *src, size_t src_batch,
                     size_t to)
{
    p->ops->copy(p->ctx, &(struct copy_args){ .batch = p->B,
                                              .rows = n,
                                              .width = h->width,
                                              .src = src,
                                              .src_stride = h->width,
                                              .src_batch = src_batch,
                                              .dst = h->rows + to * h->width,
                                              .dst_stride = h->width,
                                              .dst_batch = h->keep * h->width });
}

void history_push(const struct pass *p, struct history *h, const float *rows)
{
    size_t width = h->width, kept = p->T < h->keep ? h->keep - p->T : 0, added = h->keep - kept;
    if (kept)
        put_rows(p, h, kept, h->rows + p->T * width, h->keep * width, 0);
    if (added)
        put_rows(p, h, added, rows + (p->T - added) * width, p->T * width, kept);
}
