/* The buffers of a case. */
#include "bench/cases.h"

#include <assert.h>

int bench_add(struct bench_case *k, size_t slot, size_t n, enum bench_fill fill, enum bench_use use)
{
    assert(k->n_buffers < BENCH_BUFFERS);
    k->buffer[k->n_buffers] = (struct bench_buffer){ slot, n, fill, use, -1, 0 };
    return (int)k->n_buffers++;
}

void bench_add_alias(struct bench_case *k, size_t slot, int of, enum bench_use use)
{
    int i = bench_add(k, slot, k->buffer[of].n, k->buffer[of].fill, use);
    k->buffer[i].alias = of;
}
