/* Ops that write a cache: keys and values by position, and histories. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/parallel.h"

#include <string.h>

struct task {
    const struct cpu *cpu;
    const void *args;
};

static void append_rows(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct task *task = args;
    const struct cache_append_args *a = task->args;
    const struct ddl_kernels *k = task->cpu->k;
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        size_t slot = (size_t)a->ragged.slot[a->ragged.sequence[n]];
        size_t at = slot * a->slot_stride + (size_t)a->ragged.position[n] * a->width;
        size_t src = n * a->src_stride;
        if (a->src16 && a->dst16)
            memcpy(a->dst16 + at, a->src16 + src, a->width * sizeof *a->dst16);
        else if (a->src16)
            k->widen_bf16(&(struct widen_bf16_args){ a->width, a->src16 + src, a->dst + at }, 0, a->width,
                          NULL);
        else if (a->dst16)
            k->cast_bf16(&(struct cast_bf16_args){ a->width, a->src + src, a->dst16 + at }, 0, a->width,
                         NULL);
        else
            memcpy(a->dst + at, a->src + src, a->width * sizeof *a->dst);
    }
}

void cpu_cache_append(void *ctx, const struct cache_append_args *a)
{
    parallel_rows(ctx, a->ragged.N, a->width, append_rows, &(struct task){ ctx, a });
}

/* Histories of sequences [lo, hi). Rows are written in order, so that from and to may be the same. */
static void push_histories(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct history_push_args *a = args;
    (void)scratch;
    for (size_t b = lo; b < hi; b++) {
        size_t first = (size_t)a->ragged.first[b], T = (size_t)a->ragged.first[b + 1] - first;
        size_t kept = T < a->keep ? a->keep - T : 0;
        const float *from = a->history + (size_t)a->ragged.from[b] * a->keep * a->width;
        float *to = a->history + (size_t)a->ragged.to[b] * a->keep * a->width;
        if (kept)
            memmove(to, from + T * a->width, kept * a->width * sizeof *to);
        memcpy(to + kept * a->width, a->X + (first + T - (a->keep - kept)) * a->width,
               (a->keep - kept) * a->width * sizeof *to);
    }
}

void cpu_history_push(void *ctx, const struct history_push_args *a)
{
    parallel_rows(ctx, a->ragged.B, a->keep * a->width, push_histories, a);
}
